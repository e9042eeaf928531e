"""Reading of bytes and JSON from unchecked files, and atomic writing of files."""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from datasets.errors import DataError

PathLike = str | os.PathLike


@contextlib.contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file's bytes as a stream, decompressed if it is a gzip file.

    Gzip is known by the first two bytes, not by the name.

    Raises:
      DataError: the file is missing, unreadable, or a damaged or truncated gzip file (where the damage is reached).
    """
    try:
        with open(path, "rb") as file, contextlib.ExitStack() as unpacked:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield unpacked.enter_context(gzip.GzipFile(fileobj=file)) if packed else file
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(error, path) from None


def read_bytes(path: PathLike) -> bytes:
    """Return the file's bytes, decompressed if it is a gzip file.

    Raises DataError like `opened`.
    """
    with opened(path) as stream:
        return stream.read()


def read_byte_lines(path: PathLike) -> Iterator[bytes]:
    """Yield the lines of a file, each with its line feed, without holding the file in memory.

    Raises DataError like `opened`.
    """
    with opened(path) as stream:
        yield from stream


def _unreadable(error: Exception, path: PathLike) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError("no such file", path=path, remedy="check the path")
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        what = "truncated" if isinstance(error, EOFError) else "damaged"
        return DataError(f"the gzip file is {what}", path=path, remedy="copy or download it again")
    reason = f"cannot be read ({error.strerror or type(error).__name__})"
    return DataError(reason, path=path, remedy="check the path and its permissions")


def sha256_of(path: PathLike) -> str:
    """Return the SHA-256 digest of a file's bytes on disk, in 64 hexadecimal digits, read in parts.

    Raises:
      DataError: the file is missing or unreadable.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise _unreadable(error, path) from None
    return digest.hexdigest()


def decode(data: bytes, path: PathLike | None = None, *, line: int = 1, byte: int = 0) -> str:
    """Decode UTF-8 bytes, without a leading byte order mark.

    `path` names the file in messages, `line` and `byte` the place in it at which `data` starts.

    Raises:
      DataError: the bytes are not UTF-8, with the byte's offset.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        start = error.start
    else:
        return text.removeprefix("\ufeff")
    # Raised here, outside of the handler: the decoding error carries the text.
    raise DataError(
        "is not UTF-8",
        path=path,
        line=line + data.count(b"\n", 0, start),
        byte=byte + start,
        remedy="convert the file to UTF-8",
    )


def parse_json(data: bytes, path: PathLike | None = None, *, line: int | None = None, byte: int = 0) -> Any:
    """Parse one JSON text strictly: no NaN, no key twice in an object, no lone surrogate.

    Raises:
      DataError: for anything that is not JSON, with line and byte where they are known. Arguments as for `decode`;
        `line` is None for a whole file.
    """
    first_line = 1 if line is None else line
    text = decode(data, path, line=first_line, byte=byte)
    problem, at = None, None
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
        if "\\u" in text:  # the text is UTF-8, so half of a pair can only come from an escape
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        problem, at = f"is not JSON ({error.msg.split(':')[0].lower()})", error.pos
    except _RepeatedKey:
        problem = "an object has the same key twice"
    except _Constant:
        problem = "is not JSON (NaN or Infinity)"
    except UnicodeEncodeError:
        problem = "holds half of a surrogate pair"
    except RecursionError:
        problem = "is nested too deeply"
    except ValueError:
        problem = "holds a number that is too long"
    if problem is None:
        return value
    if at is None:
        where = {} if line is None else {"line": line}
    else:
        offset = len(text[:at].encode("utf-8")) + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        where = {"line": first_line + text.count("\n", 0, at), "byte": byte + offset}
    raise DataError(problem, path=path, remedy="repair the file or copy it again", **where)


def read_json(path: PathLike) -> Any:
    """Read a JSON file, compressed or not.

    Raises DataError.
    """
    return parse_json(read_bytes(path), path)


def read_json_lines(path: PathLike) -> Iterator[tuple[int, Any]]:
    """Yield pairs of line number (from 1) and value of a JSON lines file, compressed or not.

    Raises:
      DataError: a line is empty or is not JSON.
    """
    byte = 0
    for number, data in enumerate(read_byte_lines(path), 1):
        if not data.strip():
            if not data.endswith(b"\n"):
                return  # blanks behind the last line feed
            raise DataError("is empty", path=path, line=number, byte=byte, remedy="remove the empty line")
        yield number, parse_json(data.removesuffix(b"\n"), path, line=number, byte=byte)
        byte += len(data)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows with a line feed after each.

    None is an empty cell.

    The csv module quotes a carriage return only where that is part of the line ending, and one without quotes would end
    the row for a reader.
    """
    lines: list[str] = []
    sink = SimpleNamespace(write=lambda row: lines.append(row.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


def write_atomically(path: PathLike, data: bytes) -> None:
    """Call `replace_file`, with an error that says what to do.

    Raises:
      DataError: the folder is missing or cannot be written.
    """
    try:
        replace_file(path, data)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space and try again" if full else "check the folder and its permissions"
        reason = f"cannot be written ({error.strerror or type(error).__name__})"
        raise DataError(reason, path=path, remedy=remedy) from None


def replace_file(path: PathLike, data: bytes | Iterable[bytes]) -> None:
    """Write a file atomically: bytes, or pieces of them one after the other.

    A temporary file next to it is flushed to disk, then renamed over it.

    Raises:
      OSError: as it comes; an older file is still whole then, and nothing is left beside it.
    """
    path = os.fspath(path)
    # Not `tempfile`, whose files nobody else may read.
    temporary = f"{os.path.dirname(path) or '.'}/.{os.path.basename(path)}.{secrets.token_hex(6)}.part"
    try:
        with open(temporary, "xb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


class _RepeatedKey(Exception):
    pass


class _Constant(Exception):
    pass


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _RepeatedKey
    return result


def _no_constant(name: str):
    raise _Constant


def with_or_without_gz(path: PathLike) -> Path | None:
    """Return the file, or the one with ``.gz`` appended to its name, or None if neither exists."""
    return next((file for file in (Path(path), Path(f"{path}.gz")) if file.exists()), None)


def sibling_file(path: PathLike, *names: str) -> Path:
    """Return the first of these files in the folder of `path` that exists, with or without ``.gz``, else the first."""
    paths = [Path(path).with_name(name) for name in names]
    return next(filter(None, map(with_or_without_gz, paths)), paths[0])
