"""Keras files that are equal byte for byte where the models are."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import tensorflow as tf

_METADATA, _CONFIG = "metadata.json", "config.json"
_SHARED = "shared_object_id"


def forget_layer_names() -> None:
    """Lets Keras number the layers that it names itself (`tf.where_1`) from the start again.

    To be called before a model is built that is to be saved: the numbers continue over all models of a process.
    """
    tf.keras.backend.reset_uids()


def save_keras(model: tf.keras.Model, path: Path) -> None:
    """Saves a model as a .keras file, without the date and the addresses in memory that Keras writes into it.

    Args:
      model: as it is.
      path: ends in `.keras`; replaced where it exists.

    Raises:
      OSError: it cannot be written; nothing is left of it then.
    """
    draft = path.with_name(f".{path.name}.draft.keras")
    try:
        model.save(draft)
        with zipfile.ZipFile(draft) as saved, zipfile.ZipFile(path, "w") as archive:
            for name in sorted(saved.namelist()):
                with archive.open(_entry(name, saved.getinfo(name).file_size), "w") as file:
                    if name in (_METADATA, _CONFIG):
                        file.write(json.dumps(_undated(json.loads(saved.read(name)), name)).encode())
                    else:
                        with saved.open(name) as content:
                            shutil.copyfileobj(content, file, 1 << 20)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        draft.unlink(missing_ok=True)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # of the first day that a zip file knows
    entry.external_attr = 0o644 << 16
    entry.file_size = size  # from which the archive sees whether the entry needs 64 bits
    return entry


def _undated(value: dict[str, Any], name: str) -> dict[str, Any]:
    if name == _METADATA:
        return {key: item for key, item in value.items() if key != "date_saved"}
    return _numbered(value, {})


def _numbered(value: Any, numbers: dict[int, int]) -> Any:
    """The value with addresses of shared objects as numbers, in the order in which they are met."""
    if isinstance(value, list):
        return [_numbered(part, numbers) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: numbers.setdefault(part, len(numbers) + 1) if key == _SHARED else _numbered(part, numbers)
        for key, part in value.items()
    }
