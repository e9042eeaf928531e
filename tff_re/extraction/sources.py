"""Documents from files, one by one, without holding a file: .txt, .jsonl and .pubtator, each also with .gz.

- ``.txt``: the file is a document, named as the file; with `lines` every line is one, ``<name>:<line number>``. Blank
  lines are no documents.
- ``.jsonl``: an object with ``id`` and ``text`` on each line.
- ``.pubtator``: ``id|t|title`` and ``id|a|abstract``; annotations are not read.

Files are UTF-8. A byte order mark and the carriage return at the end of a line are not part of a text; all other
characters of it count as they are, so the line breaks of a .txt that is one document do, too.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets.documents.pubtator import title_and_abstract
from datasets.errors import DataError
from datasets.files import decode, read_byte_lines, read_bytes, read_json_lines, sha256_of
from datasets.json_values import field, identifier, require
from datasets.relations.reading import ending_of
from tff_re.extraction.records import RawDocument

ENDINGS = (".txt", ".jsonl", ".pubtator")


@dataclass(frozen=True)
class Source:
    """The documents of a file, or of all files of a folder in the order of their names.

    Attributes:
      path: The file or folder.
      lines: Whether a line of a .txt is a document.

    Raises:
      DataError: There is no such file, a file has another ending, or a folder has no file with one.
    """

    path: Path
    lines: bool = False

    def __post_init__(self):
        if not self.path.exists():
            raise DataError("no such file", path=self.path, remedy="check the path")
        files = self.files()
        if not files:
            raise DataError("has no file to read", path=self.path, remedy=f"name files {', '.join(ENDINGS)}")
        if self.lines and any(ending_of(file) != ".txt" for file in files):
            raise DataError("only lines of .txt can be documents", path=self.path, remedy="leave --lines out")

    def files(self) -> list[Path]:
        """The files, at least one."""
        if self.path.is_dir():
            return sorted(file for file in self.path.iterdir() if file.is_file() and ending_of(file) in ENDINGS)
        if ending_of(self.path) not in ENDINGS:
            raise DataError(
                f"ends in none of {', '.join(ENDINGS)}", path=self.path, remedy="rename it (.gz may follow)"
            )
        return [self.path]

    def digest(self) -> str:
        """SHA-256 over the names and contents of the files. Raises DataError."""
        digest = hashlib.sha256()
        for file in self.files():
            digest.update(f"{sha256_of(file)}  {file.name}\n".encode())
        return digest.hexdigest()

    def documents(self) -> Iterator[RawDocument]:
        """The documents, in the order of the files.

        Raises:
          DataError: A file is empty, is not UTF-8, or is not in its form; file, line and byte are named.
        """
        for file in self.files():
            empty = True
            for document in self._of_file(file):
                empty = False
                yield document
            if empty:
                raise DataError("is empty: it has no text", path=file, remedy="give it a text or leave it out")

    def _of_file(self, file: Path) -> Iterator[RawDocument]:
        ending = ending_of(file)
        if ending == ".jsonl":
            return _json_lines(file)
        if ending == ".pubtator":
            return _pubtator(file)
        return _text_lines(file) if self.lines else _whole_text(file)


def name_of(path: Path) -> str:
    """The name of a file without the ending."""
    return path.name.removesuffix(".gz").removesuffix(ending_of(path))


def _whole_text(path: Path) -> Iterator[RawDocument]:
    text = decode(read_bytes(path), path)
    if text.strip():
        yield RawDocument(name_of(path), text)


def _text_lines(path: Path) -> Iterator[RawDocument]:
    for number, text in _lines(path):
        if text.strip():
            yield RawDocument(f"{name_of(path)}:{number}", text)


def _json_lines(path: Path) -> Iterator[RawDocument]:
    for line, value in read_json_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        record = require(value, dict, "it", fail)
        yield RawDocument(identifier(record, "id", fail), field(record, "text", str, fail))


def _pubtator(path: Path) -> Iterator[RawDocument]:
    for blank, block in itertools.groupby(_lines(path), lambda line: not line[1].strip()):
        if not blank:
            document_id, title, abstract = title_and_abstract(list(block), path)
            yield RawDocument(document_id, f"{title} {abstract}", len(title))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number (from 1) and line of a UTF-8 file, compressed or not, one at a time. Raises DataError."""
    byte = 0
    for number, data in enumerate(read_byte_lines(path), 1):
        line = data.removesuffix(b"\n").removesuffix(b"\r")
        yield number, decode(line, path, line=number, byte=byte)
        byte += len(data)
