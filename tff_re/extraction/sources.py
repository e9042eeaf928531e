"""Documents from files: raw texts, and gold documents with mentions and relations, to score an extraction on.

Raw texts are read one by one, without holding a file: .txt, .jsonl and .pubtator, each also with .gz.

- ``.txt``: the file is a document, named as the file; with `lines` every line is one, ``<name>:<line number>``. Blank
  lines are no documents.
- ``.jsonl``: an object with ``id`` and ``text`` on each line.
- ``.pubtator``: ``id|t|title`` and ``id|a|abstract``; annotations are not read.

Files are UTF-8. A byte order mark and the carriage return at the end of a line are not part of a text; all other
characters of it count as they are, so the line breaks of a .txt that is one document do, too.

A file in the form of a data set of the catalogue is read by its reader, as a whole.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets.catalogue import DATA_SETS, find_data_set
from datasets.documents.chemprot import read_chemprot_documents
from datasets.documents.loading import load_documents
from datasets.documents.pubtator import read_pubtator, title_and_abstract
from datasets.entities.loading import load_entities
from datasets.errors import DataError
from datasets.files import decode, read_byte_lines, read_bytes, read_json_lines, sha256_of
from datasets.json_values import field, identifier, require
from datasets.relations.reading import ending_of
from tff_re.extraction.records import GoldDocuments, RawDocument

ENDINGS = (".txt", ".jsonl", ".pubtator")

DOCUMENTS_OF_MENTIONS = {"chemprot_release": read_chemprot_documents}
"""Data sets of relations whose files have whole documents -> `(path, *, label, annotated)`, which gives them."""

_SPLIT = "given"


@dataclass(frozen=True)
class Source:
    """The documents of a file, or of all files of a folder in the order of their names.

    Attributes:
      path: The file or folder.
      lines: Whether a line of a .txt is a document.
      dataset: The data set in whose form the file is; None: its ending says the form.

    Raises:
      DataError: There is no such file, a file has another ending, a folder has no file with one, or the data set has no
        documents.
    """

    path: Path
    lines: bool = False
    dataset: str | None = None

    def __post_init__(self):
        if not self.path.exists():
            raise DataError("no such file", path=self.path, remedy="check the path")
        if self.dataset is not None:
            _check_data_set(self.dataset, "documents", "entities")
            if self.lines:
                raise DataError("--lines is only for .txt", path=self.path, remedy="leave --lines out")
            return
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
                f"must end in one of {', '.join(ENDINGS)}", path=self.path, remedy="rename it (.gz may follow)"
            )
        return [self.path]

    def digest(self) -> str:
        """SHA-256 over the names and contents of the files, of a data set over its texts. Raises DataError."""
        digest = hashlib.sha256()
        if self.dataset is not None:
            for document in self._of_data_set:
                digest.update(json.dumps([document.document_id, document.text]).encode())
            return digest.hexdigest()
        for file in self.files():
            digest.update(f"{sha256_of(file)}  {file.name}\n".encode())
        return digest.hexdigest()

    def documents(self) -> Iterator[RawDocument]:
        """The documents, in the order of the files.

        Raises:
          DataError: A file is empty, is not UTF-8, or is not in its form; file, line and byte are named.
        """
        if self.dataset is not None:
            yield from self._of_data_set
            return
        for file in self.files():
            empty = True
            for document in self._of_file(file):
                empty = False
                yield document
            if empty:
                raise DataError("has no text", path=file, remedy="add a text or leave the file out")

    @functools.cached_property
    def _of_data_set(self) -> tuple[RawDocument, ...]:
        if self.dataset in DOCUMENTS_OF_MENTIONS:
            documents = DOCUMENTS_OF_MENTIONS[self.dataset](self.path, annotated=False)
        elif find_data_set(self.dataset).kind == "documents":
            corpus = load_documents(self.dataset, path=self.path, split=_SPLIT)
            documents = [sample.document for sample in corpus.samples]
        else:
            options = {} if "labelled" not in find_data_set(self.dataset).options else {"labelled": False}
            corpus = load_entities(self.dataset, path=self.path, split=_SPLIT, **options)
            return tuple(RawDocument(_id_in_file(s.sample_id, self.dataset), s.text) for s in corpus.samples)
        return tuple(RawDocument(d.document_id, d.text, d.title_length) for d in documents)

    def _of_file(self, file: Path) -> Iterator[RawDocument]:
        ending = ending_of(file)
        if ending == ".jsonl":
            return _json_lines(file)
        if ending == ".pubtator":
            return _pubtator(file)
        return _text_lines(file) if self.lines else _whole_text(file)


def gold_documents(path: Path, dataset: str | None = None, label: str | None = None) -> GoldDocuments:
    """Documents with mentions and relations.

    Args:
      path: A file in PubTator's form, or in that of the data set.
      dataset: A data set of whole documents, or one of `DOCUMENTS_OF_MENTIONS`.
      label: A label choice; the data set's first one if it does not have it.

    Raises:
      DataError: The file is missing or malformed, or the data set has no relations in documents.
    """
    if dataset is None:
        return GoldDocuments(read_pubtator(path))
    _check_data_set(dataset, "documents")
    label = label if label in find_data_set(dataset).labels else find_data_set(dataset).labels[0]
    if dataset in DOCUMENTS_OF_MENTIONS:
        return GoldDocuments(DOCUMENTS_OF_MENTIONS[dataset](path, label=label, annotated=True), of_mentions=True)
    corpus = load_documents(dataset, path=path, split=_SPLIT, label=label)
    return GoldDocuments(tuple(sample.document for sample in corpus.samples))


def _id_in_file(sample_id: str, dataset: str) -> str:
    return sample_id.removeprefix(f"{dataset}-").removeprefix(f"{_SPLIT}-")


def _check_data_set(name: str, *kinds: str) -> None:
    """Raises DataError where a data set is unknown or has no documents."""
    if name in DOCUMENTS_OF_MENTIONS or find_data_set(name).kind in kinds:
        return
    usable = sorted({*DOCUMENTS_OF_MENTIONS, *(n for n, data_set in DATA_SETS.items() if data_set.kind in kinds)})
    what = "documents" if "entities" in kinds else "documents with relations"
    raise DataError(f"has no {what}", record=f"data set {name}", remedy=f"use one of {', '.join(usable)}")


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
