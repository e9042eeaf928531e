"""Word vectors from files."""

from __future__ import annotations

import functools
import gzip
import itertools
import os
import re
import zlib

import numpy as np

from datasets.errors import DataError
from datasets.files import PathLike, opened, read_byte_lines
from datasets.text.word_vectors import WordVectors

_SAMPLE = 1 << 20
"""Bytes behind the first line that the format is found from."""

_DAMAGED_SHARE = 0.05

_LEAST, _GREATEST = 1e-3, 1e6
"""What the largest component lies between. Text read as floats gives 1e-19 to 1e-4 (digits) or 1e20 (letters)."""

_HEADER = re.compile(rb"(\d{1,12}) (\d{1,6})\s*\n")


def load_word_vectors(path: PathLike, *, trust: bool = False) -> WordVectors:
    """Read word vectors in word2vec's text or binary format (compressed or not), or in gensim's own.

    The format is found from the content: rows that are UTF-8 but for a few damaged characters are text, and a line that
    is not of the form is refused. What is no text has to be of the binary form from its first to its last byte.

    Args:
      path: The file.
      trust: Whether to read gensim's own format, a pickle: reading one runs whatever code it holds.

    Raises:
      DataError: the file is missing, damaged, of no known format, of another width or number than its first line says,
        or a pickle without `trust`.
    """
    with opened(path) as stream:
        first, sample = stream.readline(64), stream.read(_SAMPLE)
        size = None if isinstance(stream, gzip.GzipFile) else os.path.getsize(path)
    if first[:1] == b"\x80":
        if not trust:
            raise DataError(
                "is a pickle (gensim's own format), which can run any code when it is loaded",
                path=path,
                remedy="convert it to word2vec's format, or pass --trust if you know where it comes from",
            )
        return _load_native(path)
    header = _HEADER.fullmatch(first)
    if header is None:
        raise DataError(
            "does not start with the number of words and their width",
            path=path,
            line=1,
            remedy="use word2vec's text or binary format",
        )
    count, width = int(header[1]), int(header[2])
    if not count or not width:
        raise DataError("has no vectors", path=path, line=1, remedy="use another file")
    binary = not _is_text(sample)
    if size is not None and size < count * (4 * width + 2 if binary else 2 * width + 1):
        raise DataError(f"is too short for {count} vectors of width {width}", path=path, remedy="copy it again")
    if binary:
        vectors = _read_binary(path, count, width, None if size is None else size - len(first))
    else:
        vectors = _read_text(path, count, width)
    # A file that is read in another format than its own.
    largest = float(np.abs(vectors.values).max())
    if not _LEAST <= largest <= _GREATEST:
        raise DataError(
            f"its largest component is {largest:.1e}, too {'small' if largest < _LEAST else 'large'} for word vectors",
            path=path,
            remedy="the file is damaged or in another format; copy or download it again",
        )
    return vectors


def _is_text(sample: bytes) -> bool:
    """Return whether the beginning of the rows is text, even with damaged characters.

    Floats are mostly not text.
    """
    text = sample.decode("utf-8", "replace")
    damaged = sum(c == "\ufffd" or _is_control(c) for c in text)
    return damaged <= _DAMAGED_SHARE * len(text)


def _is_control(character: str) -> bool:
    return (character < " " and character not in "\t\r\n") or character == "\x7f"


def _is_number(part: bytes) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def _read_text(path: PathLike, count: int, width: int) -> WordVectors:
    # gensim's own reader takes a row that is too short and fills it up with its last number.
    fail = functools.partial(DataError, path=path)
    words: dict[str, int] = {}
    rows, number, problem = [], 1, None
    try:
        for number, line in enumerate(itertools.islice(read_byte_lines(path), 1, None), 2):
            parts = line.rstrip(b" \r\n").rsplit(b" ", width)
            if len(parts) != width + 1 or not line.endswith(b"\n"):
                problem = f"is not a word, {width} numbers and a line feed"
                break
            word = parts[0].decode("utf-8")
            if b" " in parts[0] and _is_number(parts[0].rpartition(b" ")[2]):
                problem = f"has more than the {width} numbers that the first line says"
                break
            if any(map(_is_control, word)):
                problem = "has a word with a control character"
                break
            if word not in words:
                words[word] = number
                rows.append(np.array([float(part) for part in parts[1:]], np.float32))
    except DataError:
        raise
    except ValueError:
        problem = f"is not a word in UTF-8 and {width} numbers"
    if problem is not None:
        raise fail(problem, line=number, remedy="copy or download the file again, or repair the line")
    if number - 1 != count:
        raise fail(f"has {number - 1} vectors where its first line says {count}", remedy="copy the file again")
    return WordVectors(tuple(words), np.stack(rows), str(path), _repeated(count - len(words)))


def _read_binary(path: PathLike, count: int, width: int, size: int | None) -> WordVectors:
    """Read binary rows.

    `size` is the number of bytes after the first line, or None if unknown.
    """
    from gensim.models import KeyedVectors

    problem = None
    try:
        vectors = KeyedVectors.load_word2vec_format(str(path), binary=True)
    except (ValueError, EOFError, OSError, MemoryError, IndexError, zlib.error) as error:
        problem = type(error).__name__
    if problem is not None:
        raise DataError(
            f"is damaged or truncated ({problem}, read as word2vec's binary format)",
            path=path,
            remedy="copy or download it again",
        )
    values, words = np.array(vectors.vectors, np.float32), tuple(vectors.index_to_key)
    repeated = count - len(words)
    # A word, a blank, the components, a line feed or none; of words that are there again the length is not known.
    least = sum(len(word.encode("utf-8")) for word in words) + count * (1 + 4 * width)
    line_feeds = None if size is None else size - least
    fits = line_feeds is None or (line_feeds >= 0 if repeated else line_feeds in (0, 1, count - 1, count))
    if not fits or any(not word or any(map(_is_control, word)) for word in words):
        raise DataError(
            f"does not hold the {count} vectors of width {width} of its first line (read as word2vec's binary format)",
            path=path,
            remedy="copy or download it again",
        )
    return WordVectors(words, values, str(path), _repeated(repeated))


def _repeated(number: int) -> tuple[str, ...]:
    return (f"{number} words occur more than once in the file; their first vector counts",) if number else ()


def _load_native(path: PathLike) -> WordVectors:
    from gensim.models import KeyedVectors

    problem = None
    try:
        loaded = KeyedVectors.load(str(path))
        vectors = getattr(loaded, "wv", loaded)
        result = WordVectors(tuple(vectors.index_to_key), np.array(vectors.vectors, np.float32), str(path))
    except Exception as error:  # a pickle may raise anything
        problem = type(error).__name__
    if problem is not None:
        raise DataError(f"is not a gensim file ({problem})", path=path, remedy="use word2vec's format")
    return result
