"""Models that know some words, and the files and extractions of tests."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import tff_re
from tff_re.exporting.predictors import Prediction

DRUGS, GENES = ("Aspirin", "aspirin", "ASA", "阿司匹林"), ("COX-2", "cox2", "EGFR", "环氧合酶")
SECRET = "Mrs Miller"


@dataclass(frozen=True)
class Entity:
    """A predicted entity, as an export of entity recognition gives it."""

    start: int
    end: int
    type: str
    probability: float


class Recogniser:
    """Finds words; `batches` has how many texts it was given at once."""

    def __init__(self, words=None):
        self.words = words or {**dict.fromkeys(DRUGS, "Drug"), **dict.fromkeys(GENES, "Gene")}
        self.entity_types = tuple(dict.fromkeys(self.words.values()))
        self.batches = []

    def predict(self, texts):
        self.batches.append(len(texts))
        pattern = re.compile("|".join(map(re.escape, sorted(self.words, key=len, reverse=True))))
        return [[Entity(*m.span(), self.words[m[0]], 0.75) for m in pattern.finditer(text)] for text in texts]


class Sentences:
    """An export of two mentions in a sentence: the word between them is the relation."""

    takes, data_sets, blind = "two mentions in a text", "relations", False
    labels = ("no_relation", "inhibits", "binds")

    def __init__(self, **details):
        details = {"negative_label": "no_relation", "pair_types": [["drug", "gene"]], **details}
        self.description = {"details": {name: value for name, value in details.items() if value is not None}}
        self.samples = []

    def predict(self, samples):
        self.samples += samples
        return [self._prediction(sample.text) for sample in samples]

    def _prediction(self, text):
        label = next((label for label in self.labels[1:] if label in text), "no_relation")
        return Prediction(label, 0.5, dict.fromkeys(self.labels, 0.25) | {label: 0.5})


class Documents:
    """An export of whole documents: the relation holds where the document says `inhibits`."""

    takes, data_sets, threshold = "documents with their entities", "documents", 0.5
    labels = ("CID", "other")

    def __init__(self, longest=None, **details):
        details = {"pair_types": [["Drug", "Gene"]], **details}
        self.description, self.longest = {"details": details}, longest
        self.corpora = []

    def scores(self, corpus):
        from datasets.errors import DataError

        self.corpora.append(corpus)
        if self.longest is not None and any(len(s.document.text) > self.longest for s in corpus.samples):
            raise DataError("has 9 pieces, more than the 8 allowed")
        rows = ([[0.875 if "inhibits" in s.document.text else 0.125, 0.25]] * len(s.pairs) for s in corpus.samples)
        return [np.array(row, np.float32) for row in rows]


def write(path: Path, text: str | bytes) -> Path:
    """The file with this text, line ends as they are."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def json_lines(path: Path, *texts: str) -> Path:
    """A file of documents d0, d1, …"""
    records = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    return write(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def facts_of(path: Path) -> list[SimpleNamespace]:
    """The facts of a file, mentions as attributes."""
    return [
        json.loads(line, object_hook=lambda value: SimpleNamespace(**value))
        for line in path.read_text("utf-8").splitlines()
    ]


def extracted(tmp_path: Path, *texts: str, entities=None, relations=None, **ways):
    """(facts, extraction) of these texts by the stubs."""
    file = json_lines(tmp_path / "notes.jsonl", *texts)
    out = tmp_path / "facts.jsonl"
    result = tff_re.extract(entities or Recogniser(), relations or Sentences(), file, out, **ways)
    return facts_of(out), result
