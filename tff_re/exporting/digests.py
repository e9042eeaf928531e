"""SHA-256 digests of an export's files, in the form that `sha256sum --check` reads."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from datasets.errors import DataError
from datasets.files import decode, read_bytes, sha256_of

DIGESTS_FILE = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_REMEDY = "export the model again or copy the whole folder, or pass --trust (trust=True) if you changed it yourself"


def write_digests(folder: Path) -> None:
    """Writes the digests of all files in the folder, which has none yet."""
    (folder / DIGESTS_FILE).write_text(_sums(folder), encoding="utf-8")


def check_digests(folder: Path, names: Sequence[str]) -> None:
    """Checks what is about to be read.

    Args:
      folder: the export's.
      names: files, and folders whose files all count, one that was not exported among them.

    Raises:
      DataError: a file is another one, is missing, or was not exported; or SHA256SUMS is missing or damaged.
    """
    known = _read(folder / DIGESTS_FILE)
    for name in names:
        inside = [f"{name}/{file}" for file in _files(folder / name)] if (folder / name).is_dir() else []
        expected = [file for file in known if file == name or file.startswith(f"{name}/")]
        for file in sorted({*inside, *expected, *([] if inside or expected else [name])}):
            if file not in known:
                raise _error(folder / file, f"was not part of the export: it is not listed in {DIGESTS_FILE}")
            if not (folder / file).is_file():
                raise _error(folder / file, f"is missing, but {DIGESTS_FILE} lists it")
            if sha256_of(folder / file) != known[file]:
                raise _error(folder / file, f"was changed after the export: its digest differs from {DIGESTS_FILE}")


def is_listed(folder: Path, name: str) -> bool:
    """Whether SHA256SUMS names a file. Raises DataError if it is missing or damaged."""
    return name in _read(folder / DIGESTS_FILE)


def digest_of_export(folder: Path) -> str:
    """One digest for a whole export, SHA-256 of its SHA256SUMS: `sha256sum EXPORT/SHA256SUMS` gives it too.

    Of an export without that file, the digest of what would stand in it.

    Raises:
      DataError: the folder or a file in it cannot be read.
    """
    path = folder / DIGESTS_FILE
    return sha256_of(path) if path.is_file() else digest_of_folder(folder)


def digest_of_folder(folder: Path) -> str:
    """One digest for a folder, SHA-256 of the lines that `sha256sum` prints for its files, sorted by name.

    Raises:
      DataError: the folder or a file in it cannot be read.
    """
    return hashlib.sha256(_sums(folder).encode()).hexdigest()


def _sums(folder: Path) -> str:
    """The lines of SHA256SUMS for the files that the folder holds."""
    return "".join(f"{sha256_of(folder / name)}  {name}\n" for name in _files(folder))


def _read(path: Path) -> dict[str, str]:
    """Name of a file -> its digest."""
    if not path.is_file():
        raise _error(path, "is missing; it has the digests of the export's files")
    digest_of: dict[str, str] = {}
    for number, line in enumerate(decode(read_bytes(path), path).splitlines(), 1):
        parts = _LINE.fullmatch(line)
        if parts is None or parts[2] in digest_of:
            raise DataError("is not a digest and the name of one file", path=path, line=number, remedy=_REMEDY)
        digest_of[parts[2]] = parts[1]
    return digest_of


def _files(folder: Path) -> list[str]:
    """All files below a folder, by their path in it.

    A link to a folder counts as one file.
    """
    paths = []
    for root, folders, files in os.walk(folder):
        names = files + [name for name in folders if os.path.islink(os.path.join(root, name))]
        paths += [Path(root, name).relative_to(folder).as_posix() for name in names]
    return sorted(paths)


def _error(path: Path, reason: str) -> DataError:
    return DataError(reason, path=path, remedy=_REMEDY)
