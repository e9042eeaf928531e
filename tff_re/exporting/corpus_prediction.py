"""Predictions of exported models of bags and of documents, which take the files that the data sets' readers read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datasets.bags.encoding import encode_bags
from datasets.bags.loading import load_unlabelled_bags
from datasets.bags.records import BagCorpus
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import DocumentEncoding
from datasets.documents.loading import load_documents
from datasets.text.relation_encoding import RelationEncoding

SENTENCES_AT_ONCE, DOCUMENTS_AT_ONCE = 256, 4

OWN_FORM = "nyt10"
"""The form of a file of bags where the run's sentences were made up."""


@dataclass(frozen=True)
class BagPrediction:
    """What the model says about a pair of entities.

    Attributes:
      head_id, tail_id: identifiers of the pair.
      sentences: so many mention it in the file.
      label: the relation with the highest score, "no relation" aside: scores rank facts, the most certain first.
      probability: its score.
      probabilities: relation to score, in the order of the labels, "no relation" included. With some methods they do
        not sum to one.
    """

    head_id: str
    tail_id: str
    sentences: int
    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)


@dataclass(frozen=True)
class PairPrediction:
    """What the model says about two entities of a document.

    Attributes:
      document_id, head_id, tail_id: identifiers.
      labels: the relations whose probability reaches the export's threshold; often none.
      probability: the highest of all relations.
      probabilities: relation to probability, each on its own.
    """

    document_id: str
    head_id: str
    tail_id: str
    labels: tuple[str, ...]
    probability: float
    probabilities: dict[str, float] = field(repr=False)


class CorpusPredictor:
    """An exported model that takes records of a data set in place of texts; made by `load_export`."""

    def __init__(
        self, function: Callable[..., np.ndarray], labels: Sequence[str], encoding: Any, description: dict[str, Any]
    ):
        """`function` maps encoded inputs, by name, to probabilities."""
        self.labels = tuple(labels)
        self.encoding = encoding
        self.description = description
        self._function = function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description.get('model')}, {len(self.labels)} relations)"

    @property
    def kind(self) -> str:
        """What the model takes: `bags` or `documents`."""
        return self.description["input"]["kind"]

    @property
    def dataset(self) -> str | None:
        """The data set of the run; None where its sentences were made up."""
        return self._details.get("dataset")

    @property
    def _details(self) -> dict[str, Any]:
        return self.description.get("details") or {}


class BagPredictor(CorpusPredictor):
    """An exported model of bags: all sentences that mention a pair of entities say together how it is related."""

    encoding: RelationEncoding

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[BagPrediction]:
        """The prediction for each pair of entities in a file.

        Args:
          path: a file in the data set's form: JSON lines for nyt10 and mirgene, whose `relation` is not read and may be
            missing; PubTator's for cdr_aligned.
          dataset: a data set of bags; the run's if not given.

        Raises:
          DataError: the file is missing or malformed. A bag without one of its sentences would have another score, so
            nothing of such a file is answered.
        """
        name = dataset or self.dataset or OWN_FORM
        return self.predict(load_unlabelled_bags(name, path, **self.reading(name)))

    def reading(self, dataset: str) -> dict[str, str]:
        """How the run read that data set: options of `load_bags`; none where it was not the run's."""
        return dict(self._details.get("reading") or {}) if dataset == self.dataset else {}

    def predict(self, corpus: BagCorpus) -> list[BagPrediction]:
        """The prediction for each bag of a corpus, in the order of `corpus.pairs`."""
        found = []
        for (pair, rows), scores in zip(corpus.bags.items(), self.scores(corpus), strict=True):
            best = 1 + int(np.argmax(scores[1:]))
            probabilities = {label: float(value) for label, value in zip(self.labels, scores, strict=True)}
            found.append(BagPrediction(*pair, len(rows), self.labels[best], float(scores[best]), probabilities))
        return found

    def scores(self, corpus: BagCorpus) -> np.ndarray:
        """p(relation | bag), float32 [B, C]: bags in the order of `corpus.pairs`, relations in that of `labels`."""
        bags, _ = encode_bags(_unlabelled(corpus), self.encoding, label_names=self.labels)
        bag = bags.arrays["bag"]
        names = self.description["arrays"]
        sizes = np.bincount(bag, minlength=len(bags.pairs))
        parts = []
        for first, last in _groups(sizes, SENTENCES_AT_ONCE):
            rows = slice(*np.searchsorted(bag, [first, last]))
            given = {name: bags.arrays[name][rows] for name in names}
            given["bag"] = given["bag"] - first
            parts.append(self._function(**given))
        return np.concatenate(parts)


class DocumentPredictor(CorpusPredictor):
    """An exported model of documents: which relations every pair of their entities has."""

    encoding: DocumentEncoding

    @property
    def threshold(self) -> float:
        """The probability from which on a relation is predicted; the run's dev documents chose it. Infinity, for which
        JSON has null, where no probability found a stated relation."""
        value = self._details["threshold"]
        return math.inf if value is None else float(value)

    def predict_file(
        self, path: str | os.PathLike, *, dataset: str | None = None, label: str | None = None
    ) -> list[PairPrediction]:
        """The prediction for each candidate pair of each document of a file in PubTator's form.

        Args:
          path: the file. Its relations, if it has any, are not looked at by the model.
          dataset: a data set of documents, which says of what kinds a pair's entities are; the run's if not given.
          label: one of the data set's label choices; the run's if not given.

        Raises:
          DataError: the file is missing or malformed.
        """
        return self.predict(self.read(path, dataset=dataset, label=label))

    def read(self, path: str | os.PathLike, *, dataset: str | None = None, label: str | None = None) -> DocumentCorpus:
        """The documents of a file with their candidate pairs. Raises DataError."""
        if dataset is None:
            dataset, label = self.dataset, label or self._details.get("label")
        return load_documents(dataset, path=path, label=label, split="given")

    def predict(self, corpus: DocumentCorpus) -> list[PairPrediction]:
        """The prediction for each candidate pair, document after document."""
        found = []
        for sample, scores in zip(corpus.samples, self.scores(corpus), strict=True):
            for pair, row in zip(sample.pairs, scores, strict=True):
                probabilities = {label: float(value) for label, value in zip(self.labels, row, strict=True)}
                labels = tuple(label for label, value in probabilities.items() if value >= self.threshold)
                found.append(PairPrediction(*sample.pair_ids(pair), labels, float(row.max()), probabilities))
        return found

    def scores(self, corpus: DocumentCorpus) -> list[np.ndarray]:
        """For each document float32 [P, R]: the probability of each relation of each of its pairs."""
        samples, names = corpus.samples, self.description["arrays"]
        # Documents of like length side by side: a batch is as wide as its longest.
        order = sorted(range(len(samples)), key=lambda i: len(samples[i].document.text))
        found: list[Any] = [None] * len(samples)
        for start in range(0, len(order), DOCUMENTS_AT_ONCE):
            rows = order[start : start + DOCUMENTS_AT_ONCE]
            encoded = self.encoding.encode(corpus, [samples[i] for i in rows])
            scores = self._function(**{name: encoded.arrays[name] for name in names})
            for i, of_document in zip(rows, scores, strict=True):
                found[i] = of_document[: len(samples[i].pairs)]
        return found


def _unlabelled(corpus: BagCorpus) -> BagCorpus:
    """The corpus, whose relations may be others than the model's: they are not looked at."""
    if corpus.relation_names == (corpus.negative,):
        return corpus
    sentences = tuple(replace(sentence, relations=(corpus.negative,), label=0) for sentence in corpus.sentences)
    return replace(corpus, sentences=sentences, relation_names=(corpus.negative,))


def _groups(sizes: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Ranges of bags that have at most so many sentences together; a larger bag is alone."""
    found, first, count = [], 0, 0
    for bag, size in enumerate(sizes):
        if count and count + size > most:
            found.append((first, bag))
            first, count = bag, 0
        count += int(size)
    return [*found, (first, len(sizes))]
