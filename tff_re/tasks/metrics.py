"""Metrics of a classifier from its confusion matrix."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import precision_recall_fscore_support


def classification_metrics(statistics: dict[str, np.ndarray]) -> dict[str, float]:
    """`accuracy`, `loss` (mean cross-entropy) and `macro_f1` of summed statistics.

    Args:
      statistics: `examples` and `loss` (sums) and `confusion` [C, C] (row: label, column: prediction).

    Returns:
      NaN for all where there are no examples. Classes that neither occur nor are predicted do not enter macro-F1.
    """
    count = float(statistics["examples"])
    if not count:
        return {"accuracy": float("nan"), "loss": float("nan"), "macro_f1": float("nan")}
    confusion = np.asarray(statistics["confusion"], np.float64)
    _, _, f1, _ = per_class(confusion)
    seen = (confusion.sum(0) + confusion.sum(1)) > 0
    return {
        "accuracy": float(np.trace(confusion) / count),
        "loss": float(statistics["loss"]) / count,
        "macro_f1": float(f1[seen].mean()),
    }


def per_class(confusion: np.ndarray):
    """(precision, recall, F1, support), each [C], by scikit-learn on the cells of the matrix as weighted samples."""
    size = len(confusion)
    labels, predicted = np.divmod(np.arange(size * size), size)
    return precision_recall_fscore_support(
        labels, predicted, labels=np.arange(size), sample_weight=confusion.ravel(), zero_division=0.0
    )
