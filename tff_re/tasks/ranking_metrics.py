"""How well scores rank the facts that are true: the measures of distantly supervised relation extraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import auc, precision_recall_curve

TOP = 2000
"""Predictions at the top of the ranking that the authors of FedDS measured the area over."""

PRECISION_AT = (100, 200, 300)

CHANCE = "ranking by chance"

RANKING_METRICS = ("auc", "auc_2000", *(f"p_at_{n}" for n in PRECISION_AT), "p_at_mean", "max_f1")


@dataclass(frozen=True)
class Curve:
    """Precision over recall, from the most certain prediction down.

    Attributes:
      recall, precision: float64 [n], a point for every different score; recall does not fall.
      score: float64 [n], the least score of the predictions up to there.
    """

    recall: np.ndarray
    precision: np.ndarray
    score: np.ndarray

    def points(self, retrieved: int = 1, stated: int = 1) -> np.ndarray:
        """float64 [n, 3]: recall, precision, score.

        The recall is of all that is stated, `retrieved` of it among these predictions.
        """
        return np.stack([self.recall * retrieved / stated, self.precision, self.score], axis=-1)

    @property
    def f1(self) -> np.ndarray:
        """float64 [n], zero where precision and recall are."""
        total = self.precision + self.recall
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0)

    @property
    def best_threshold(self) -> float:
        """The score from which on predictions have the highest F1: midway to the next lower score, because another
        processor gives scores that differ in their last bits."""
        best = int(np.argmax(self.f1))
        return float(self.score[best : best + 2].mean())


def curve(scores: np.ndarray, true: np.ndarray) -> Curve:
    """The curve of predictions.

    Args:
      scores: float [...], the higher the more certain.
      true: bool of the same shape, at least one of them true.

    Raises:
      ValueError: none is true, or a score is not finite.
    """
    scores, true = np.ravel(scores), np.ravel(true).astype(bool)
    if not true.any():
        raise ValueError("none of the predictions is true, so recall is undefined")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    precision, recall, thresholds = precision_recall_curve(true, scores)
    # scikit-learn goes from the least score up, and adds the point of no prediction at the end.
    return Curve(recall[-2::-1], precision[-2::-1], thresholds[::-1].astype(np.float64))


def ranking_metrics(scores: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Measures of a ranking, at bag level: a prediction is (pair of entities, relation), "no relation" left out.

    - `auc`: area under the curve over all predictions, by trapezoids, the first at precision one;
    - `auc_2000`: over the top 2,000 predictions alone, as the authors' code of FedDS counts it: recall ends early, so
      that it is the smaller one;
    - `p_at_100`, `p_at_200`, `p_at_300`: precision among so many at the top, ties in the order given; where there are
      fewer predictions, among all. `p_at_mean`: their mean;
    - `max_f1`: the highest micro-F1 over all thresholds.

    Args:
      scores, true: as for `curve`.
    """
    whole = curve(scores, true)
    scores, true = np.ravel(scores), np.ravel(true).astype(bool)
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(true[order])
    top = min(TOP, len(order))
    places = np.arange(1, top + 1)
    at = {f"p_at_{n}": float(hits[min(n, len(hits)) - 1] / min(n, len(hits))) for n in PRECISION_AT}
    return {
        "auc": _area(whole.recall, whole.precision),
        "auc_2000": _area(hits[:top] / true.sum(), hits[:top] / places),
        **at,
        "p_at_mean": float(np.mean(list(at.values()))),
        "max_f1": float(whole.f1.max()),
    }


def chance_metrics(true: np.ndarray) -> dict[str, float]:
    """The metrics of a random ranking of bool [n, R].

    `auc_2000` is left out.
    """
    share = float(true.mean())
    return {"auc": share, **{f"p_at_{n}": share for n in (*PRECISION_AT, "mean")}, "max_f1": 2 * share / (1 + share)}


def _area(recall: Sequence[float], precision: Sequence[float]) -> float:
    return float(auc([0.0, *recall], [1.0, *precision]))
