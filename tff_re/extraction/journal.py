"""Files that grow document by document, and the state that lets an interrupted extraction continue.

What is written has ``.part`` after its name until all is done. After each batch the state, ``<output>.state``, says how
many documents are written and how long each file then is; whatever a file holds beyond that was of a batch that was
not finished, and is cut off when the extraction continues. So no document is written twice, and no line by half.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from datasets.errors import DataError
from datasets.files import read_json, replace_file
from datasets.json_values import field

_FORMAT = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDY = "start anew with --overwrite"


class Journal:
    """Writes the files of an extraction as a context manager.

    Attributes:
      documents: How many documents are written.
      counts: What was counted so far, by description.
      key: The secret of the run's keyed numbers.
    """

    def __init__(self, files: Mapping[str, Path], settings: Mapping[str, Any], *, resume: bool, overwrite: bool):
        """Opens the files.

        Args:
          files: Name -> file; the state stands beside the first one.
          settings: What has to be the same for an extraction to continue, as JSON holds it.
          resume: Whether an interrupted extraction continues.
          overwrite: Whether files of an older extraction are replaced.

        Raises:
          DataError: A file cannot be written, is there already, or there is nothing that could continue.
        """
        self._files, self._settings = dict(files), dict(settings)
        self._parts = {name: path.with_name(f"{path.name}.part") for name, path in self._files.items()}
        first = next(iter(self._files.values()))
        self._state = first.with_name(f"{first.name}.state")
        self.documents, self.counts, self.key = 0, Counter(), secrets.token_bytes(32)
        self._bytes = dict.fromkeys(self._files, 0)
        self._check(resume, overwrite)
        if resume:
            self._read_state()
        self._streams: dict[str, BinaryIO] = {}

    def __enter__(self) -> Journal:
        try:
            for name, part in self._parts.items():
                with _named(part):
                    part.parent.mkdir(parents=True, exist_ok=True)
                    self._streams[name] = open(part, "r+b" if self.documents else "wb", buffering=0)
                    self._streams[name].truncate(self._bytes[name])
                    self._streams[name].seek(self._bytes[name])
            self._write_state()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception) -> None:
        self._close()

    def append(self, documents: int, texts: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """Adds what a batch of documents gives to each file.

        All of it is on the disk when this returns.

        Raises:
          DataError: A file cannot be written.
        """
        for name, text in texts.items():
            data = text.encode("utf-8")
            with _named(self._parts[name]):
                _write_all(self._streams[name], data)
                os.fsync(self._streams[name].fileno())
            self._bytes[name] += len(data)
        self.documents += documents
        self.counts.update(counts)
        self._write_state()

    def part(self, name: str) -> Path:
        """The file as it is while the extraction is not finished."""
        return self._parts[name]

    def finish(self, *dropped: str) -> list[Path]:
        """Gives all files but `dropped` their final names, and removes the temporary files and the state.

        Returns the final files. Raises DataError.
        """
        self._close()
        remaining = [name for name in self._files if name not in dropped]
        for name in remaining:
            with _named(self._files[name]):
                os.replace(self._parts[name], self._files[name])
        self.discard()
        return [self._files[name] for name in remaining]

    def discard(self) -> None:
        """Removes the state and all files that have no name yet."""
        self._close()
        for path in (*self._parts.values(), self._state):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _check(self, resume: bool, overwrite: bool) -> None:
        for path in (*self._files.values(), self._state):
            if path.is_dir():
                raise DataError("is a folder", path=path, remedy="give the name of a file")
        first = next(iter(self._files.values()))
        if resume:
            if not self._state.exists():
                finished = first.exists()
                reason = "is finished" if finished else "has no interrupted extraction"
                raise DataError(f"{reason}; there is nothing to resume", path=first, remedy=_REMEDY)
            return
        if self._state.exists() and not overwrite:
            raise DataError("an interrupted extraction", path=self._state, remedy=f"use --resume, or {_REMEDY}")
        there = next((path for path in self._files.values() if path.exists()), None)
        if there is not None and not overwrite:
            raise DataError("already exists", path=there, remedy="choose another file, or use --overwrite")

    def _read_state(self) -> None:
        fail = functools.partial(DataError, path=self._state, remedy=_REMEDY)
        value = read_json(self._state)
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise fail("is not the saved state of an extraction")
        settings = field(value, "settings", dict, fail)
        for name, setting in json.loads(json.dumps(self._settings)).items():
            if settings.get(name) != setting:
                raise fail(f"was started with another setting: {name.replace('_', ' ')}")
        self.documents = field(value, "documents", int, fail)
        self.counts = Counter(field(value, "counts", dict, fail))
        lengths = field(value, "bytes", dict, fail)
        try:
            self.key = bytes.fromhex(field(value, "key", str, fail))
            self._bytes = {name: int(lengths[name]) for name in self._files}
        except (KeyError, ValueError, TypeError):
            raise fail("is damaged") from None
        for name, part in self._parts.items():
            if self.documents and (not part.is_file() or part.stat().st_size < self._bytes[name]):
                raise fail("is missing or shorter than its state says", path=part)

    def _write_state(self) -> None:
        value = {
            "format": _FORMAT,
            "settings": self._settings,
            "documents": self.documents,
            "bytes": self._bytes,
            "counts": dict(self.counts),
            "key": self.key.hex(),
        }
        with _named(self._state):
            replace_file(self._state, json.dumps(value, ensure_ascii=False).encode())

    def _close(self) -> None:
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.close()
        self._streams = {}


@contextlib.contextmanager
def _named(path: Path):
    """Errors of writing become a DataError that names the file and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        remedy = "free some space and continue with --resume" if full else "check the folder and its permissions"
        reason = f"cannot be written ({error.strerror or type(error).__name__})"
        raise DataError(reason, path=path, remedy=remedy) from None


def _write_all(stream: BinaryIO, data: bytes) -> None:
    """Writes all bytes: a stream without a buffer may take a part of them."""
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]
