"""Results of scoring an exported model on a file; the predictor of each kind of input computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Score:
    """Result of scoring a model that gives one class to each example.

    Attributes:
      examples: so many samples.
      metrics: see `classification_metrics`.
      confusion: int64 [C, C], rows are the file's labels, columns the predictions, both in the order of `labels`.
      labels: the export's classes.
      positive_labels: those that micro-F1 and macro-F1 count; None: all.
    """

    examples: int
    metrics: dict[str, float]
    confusion: np.ndarray
    labels: tuple[str, ...]
    positive_labels: tuple[int, ...] | None

    @classmethod
    def of(
        cls, probabilities: np.ndarray, own: np.ndarray, labels: tuple[str, ...], positive: tuple[int, ...] | None
    ) -> Score:
        """The score of probabilities [n, C] of examples whose classes are `own`, int [n]."""
        from tff_re.tasks.metrics import classification_metrics  # scikit-learn is slow to import

        confusion = np.zeros([len(labels)] * 2, np.int64)
        np.add.at(confusion, (own, probabilities.argmax(axis=1)), 1)
        loss = -np.log(np.maximum(probabilities[np.arange(len(own)), own], np.finfo(np.float32).tiny)).sum()
        metrics = classification_metrics({"examples": len(own), "loss": loss, "confusion": confusion}, positive)
        return cls(len(own), metrics, confusion, labels, positive)

    @property
    def trivial(self) -> dict[str, dict[str, float]]:
        """The metrics of models that give every example one class, see `trivial_metrics`."""
        from tff_re.tasks.metrics import trivial_metrics

        return trivial_metrics(self.confusion.sum(axis=1), self.positive_labels)

    def title(self, name: str) -> str:
        """What was scored, in words; `name` is the file's."""
        return f"{self.examples} samples of {name}"


@dataclass(frozen=True)
class CorpusScore:
    """Result of scoring a model of bags or of documents.

    Attributes:
      size: what was scored, in words: so many bags, or documents, of so many facts.
      metrics: of bags `ranking_metrics`; of documents `pair_metrics` at the export's threshold, which is among them.
    """

    size: str
    metrics: dict[str, float]
    confusion: ClassVar[None] = None
    trivial: ClassVar[None] = None

    def title(self, name: str) -> str:
        """What was scored, in words; `name` is the file's."""
        return f"{name}: {self.size}"
