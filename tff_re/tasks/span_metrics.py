"""Measures of recognised entities, from the counts that clients send."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from datasets.entities.scoring import SpanCounts, SpanScores

SPAN_METRICS = (
    *("loss", "precision", "recall", "f1", "macro_f1"),
    *("lenient_precision", "lenient_recall", "lenient_f1"),
)


class SpanMeasures:
    """What is measured of entities: as `ClassMeasures`, without a confusion matrix, because entities are not rows.

    Strict: a predicted entity is correct if its start, end and type are those of a gold one, as CoNLL 2003 and seqeval
    count. Lenient: if it shares a token with a gold entity of its type (the measure `type` of SemEval-2013 Task 9.1).
    `precision`, `recall` and `f1` are over all entities (micro), `macro_f1` is the mean over types.

    Attributes:
      class_names: the types of entities, in the order of the counts.
    """

    quality, positive_labels, names = "f1", None, SPAN_METRICS

    def __init__(self, entity_types: Sequence[str]):
        self.class_names = tuple(entity_types)

    def metrics(self, statistics: Mapping[str, np.ndarray]) -> dict[str, float]:
        """`names` -> values.

        All values are NaN without examples, and zero if a denominator is zero.

        Args:
          statistics: `examples` (tokens) and `loss` (sums); [K] each: `true_positives`, `predicted` and `actual`
            entities, and of the latter two those that overlap one of the other and of their type,
            `overlapping_predicted` and `overlapping_actual`.
        """
        tokens = float(statistics["examples"])
        if not tokens:
            return dict.fromkeys(self.names, float("nan"))
        f1 = self.per_class(statistics)[2]
        occurs = (np.asarray(statistics["actual"]) > 0) | (np.asarray(statistics["predicted"]) > 0)
        correct, predicted, actual = (float(np.sum(statistics[n])) for n in ("true_positives", "predicted", "actual"))
        overlapping_predicted, overlapping_actual = (
            float(np.sum(statistics[f"overlapping_{n}"])) for n in ("predicted", "actual")
        )
        strict = _ratios(correct, predicted, actual, correct)
        lenient = _ratios(overlapping_predicted, predicted, actual, overlapping_actual)
        values = (
            float(statistics["loss"]) / tokens,
            *strict,
            float(f1[occurs].mean()) if occurs.any() else 0.0,
            *lenient,
        )
        return dict(zip(self.names, values, strict=True))

    def per_class(self, statistics: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Strict (precision, recall, F1, gold entities) of each type, [K] each."""
        columns = (np.asarray(statistics[name], np.float64) for name in ("true_positives", "predicted", "actual"))
        rows = [(*_ratios(correct, *rest, correct), rest[1]) for correct, *rest in zip(*columns, strict=True)]
        return tuple(np.array(rows).T)

    def of_client(self, statistics: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """(`quality`, loss) of `metrics`."""
        metrics = self.metrics(statistics)
        return metrics[self.quality], metrics["loss"]

    def confusion(self, statistics: Mapping[str, np.ndarray]) -> None:
        return None

    def trivial(self, statistics: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
        return {}


def span_statistics(scores: SpanScores) -> dict[str, np.ndarray]:
    """What `SpanMeasures` reads, for spans that were counted by one process.

    It has no loss, so the loss is NaN.
    """
    counts = scores.by_type.values()
    columns = {f.name: np.array([getattr(c, f.name) for c in counts], float) for f in dataclasses.fields(SpanCounts)}
    return {**columns, "examples": np.float64(1), "loss": np.float64(np.nan)}


def _ratios(correct: float, predicted: float, actual: float, recalled: float) -> tuple[float, float, float]:
    """(correct / predicted, recalled / actual, their harmonic mean)."""
    precision = correct / predicted if predicted else 0.0
    recall = recalled / actual if actual else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0
