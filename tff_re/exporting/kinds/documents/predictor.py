"""Predictions for whole documents, from files."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import DocumentEncoding, identified_pairs
from datasets.documents.loading import load_documents
from datasets.documents.scoring import gold_facts
from tff_re.errors import UserError
from tff_re.exporting.predictors import CorpusPredictor, in_batches
from tff_re.exporting.scoring import CorpusScore

DOCUMENTS_AT_ONCE = 4


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


class DocumentPredictor(CorpusPredictor):
    """An exported model of documents: which relations every pair of their entities has."""

    takes = "documents with their entities"
    columns = ("document", "head", "tail", "label", "probability")
    numbers = ("probability",)
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
                probabilities = self._named(row)
                labels = tuple(label for label, value in probabilities.items() if value >= self.threshold)
                found.append(PairPrediction(*sample.pair_ids(pair), labels, float(row.max()), probabilities))
        return found

    def cells(self, prediction: PairPrediction) -> tuple[str, ...]:
        ids = prediction.document_id, prediction.head_id, prediction.tail_id
        return (*ids, ", ".join(prediction.labels) or "-", f"{prediction.probability:.4f}")

    def scores(self, corpus: DocumentCorpus) -> list[np.ndarray]:
        """For each document float32 [P, R]: the probability of each relation of each of its pairs."""

        def run(samples: list[Any]) -> np.ndarray:
            arrays = self.encoding.encode(corpus, samples).arrays
            return self._function(**{name: arrays[name] for name in self.description["arrays"]})

        found = in_batches(run, corpus.samples, DOCUMENTS_AT_ONCE, lambda sample: len(sample.document.text))
        return [scores[: len(sample.pairs)] for sample, scores in zip(corpus.samples, found, strict=True)]

    def _score(self, file: Path, dataset: str | None, label: str | None) -> CorpusScore:
        from tff_re.tasks.pair_metrics import pair_metrics  # TensorFlow is slow to import

        corpus = self.read(file, dataset=dataset, label=label)
        if corpus.relation_names != self.labels:
            raise UserError(
                f"{file}: its relations ({', '.join(corpus.relation_names)}) are not the model's "
                f"({', '.join(self.labels)}); choose another --dataset"
            )
        pairs = identified_pairs(corpus.samples)
        scores = np.zeros([len(pairs), max(map(len, pairs), default=0), len(self.labels)], np.float32)
        for row, found in zip(scores, self.scores(corpus), strict=True):
            row[: len(found)] = found
        gold = gold_facts(corpus)
        metrics = pair_metrics(scores, pairs, gold, self.threshold)
        return CorpusScore(f"{len(pairs)} documents, {len(gold)} facts", {**metrics, "threshold": self.threshold})
