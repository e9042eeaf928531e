"""Tables of columns in NumPy's ``.npz`` form, without pickle, for tables that are too large for people to read.

A column of numbers is an array. A column of texts NAME is two: ``NAME.utf8``, uint8, the texts in UTF-8 with a line
feed after each, and ``NAME.ends``, int64, where each ends in it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from datasets.errors import DataError
from datasets.files import PathLike, read_bytes

Column = Sequence[str] | np.ndarray

_TEXTS, _ENDS = ".utf8", ".ends"


def packed_columns(columns: Mapping[str, Column]) -> bytes:
    """Return the content of a file with these columns: arrays, or sequences of texts.

    The columns may have different lengths. The same columns give the same bytes.
    """
    arrays = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            arrays[name] = column
            continue
        texts = [text.encode("utf-8", "surrogatepass") for text in column]
        ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1
        content = b"".join(text + b"\n" for text in texts)
        arrays |= {name + _TEXTS: np.frombuffer(content, np.uint8), name + _ENDS: ends}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def read_columns(path: PathLike) -> dict[str, Column]:
    """Read the columns of a file, see `packed_columns`.

    Raises:
      DataError: the file is missing, unreadable or damaged.
    """
    content, damaged = read_bytes(path), DataError("is damaged", path=path, remedy="copy it again")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        texts = {name.removesuffix(_ENDS) for name in arrays if name.endswith(_ENDS)}
        columns: dict[str, Column] = {name: _texts(arrays[name + _TEXTS], arrays[name + _ENDS]) for name in texts}
        taken = {name + part for name in texts for part in (_TEXTS, _ENDS)}
        return columns | {name: array for name, array in arrays.items() if name not in taken}
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile):
        raise damaged from None


def is_table(path: PathLike) -> bool:
    """Return whether a file is in this form, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _texts(content: np.ndarray, ends: np.ndarray) -> list[str]:
    """Return the texts. Raises ValueError where these are no texts."""
    if content.dtype != np.uint8 or ends.dtype != np.int64 or (ends.size and ends[-1] + 1 != content.size):
        raise ValueError("not a column of texts")
    whole = content.tobytes()
    starts = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    if (starts > ends).any():
        raise ValueError("texts that end before they begin")
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [whole[start:end].decode("utf-8", "surrogatepass") for start, end in pairs]
