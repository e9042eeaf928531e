"""Metrics of a classifier from the counts that clients send: its confusion matrix, or correct pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, matthews_corrcoef, precision_recall_fscore_support


def classification_metrics(
    statistics: Mapping[str, Any], positive_labels: Sequence[int] | None = None
) -> dict[str, float]:
    """`accuracy`, `loss` (mean cross-entropy) and `macro_f1` of summed statistics.

    Relations also have `micro_f1` and, with one positive relation, `matthews`.

    The rule for "no relation" is that of SemEval-2010 Task 8 and of BioBERT's and FedCMC's evaluation: F1 counts the
    positive relations alone. To predict one where there is none is a false positive, to predict none where there is one
    a false negative, and to predict none where there is none counts nothing. Where every class is positive, micro-F1 is
    the accuracy; with one positive relation both F1 are that of its class, which is high where it is frequent: a model
    that names every pair related has 2 p / (1 + p) at a share p of related pairs. Matthews' correlation coefficient
    counts both classes, and is zero for every model that gives all pairs one class.

    Args:
      statistics: `examples` and `loss` (sums) and `confusion` [C, C] (row: label, column: prediction).
      positive_labels: the relations that F1 counts; None: the task does not classify relations, there is no `micro_f1`,
        and `macro_f1` is over all classes.

    Returns:
      NaN for all where there are no examples. Classes that neither occur nor are predicted do not enter macro-F1; where
      no positive relation occurs or is predicted, both F1 are zero.
    """
    count = float(statistics["examples"])
    names = classification_metric_names(positive_labels)
    if not count:
        return dict.fromkeys(names, float("nan"))
    confusion = np.asarray(statistics["confusion"], np.float64)
    _, _, f1, _ = per_class(confusion)
    seen = (confusion.sum(0) + confusion.sum(1)) > 0
    if positive_labels is not None:
        seen &= np.isin(np.arange(len(seen)), list(positive_labels))
    metrics = {
        "accuracy": float(np.trace(confusion) / count),
        "loss": float(statistics["loss"]) / count,
        "macro_f1": float(f1[seen].mean()) if seen.any() else 0.0,
    }
    if positive_labels is not None:
        labels, predicted, cells = _cells(confusion)
        metrics["micro_f1"] = float(
            f1_score(
                labels, predicted, labels=list(positive_labels), average="micro", sample_weight=cells, zero_division=0.0
            )
        )
        if "matthews" in names:
            metrics["matthews"] = float(matthews_corrcoef(labels, predicted, sample_weight=cells))
    return metrics


def classification_metric_names(positive_labels: Sequence[int] | None) -> tuple[str, ...]:
    """Names of what `classification_metrics` gives."""
    of_relations = () if positive_labels is None else ("micro_f1",)
    of_one = ("matthews",) if positive_labels is not None and len(positive_labels) == 1 else ()
    return ("accuracy", "loss", "macro_f1", *of_relations, *of_one)


def trivial_metrics(supports: np.ndarray, positive_labels: Sequence[int] | None = None) -> dict[str, dict[str, float]]:
    """What a model has that gives every example the same class: `classification_metrics`, without the loss.

    Args:
      supports: [C], the examples of each class.
      positive_labels: as for `classification_metrics`.

    Returns:
      `largest class`, and of relations `every pair positive` where there is one, or `every pair the most frequent
      relation` where there are more; nothing where there are no examples.
    """
    supports = np.asarray(supports, np.float64)
    if not supports.sum():
        return {}
    label_of = {"largest class": int(np.argmax(supports))}
    if positive_labels:
        name = "every pair positive" if len(positive_labels) == 1 else "every pair the most frequent relation"
        label_of[name] = max(positive_labels, key=lambda label: supports[label])
    rows = {}
    for name, label in label_of.items():
        confusion = np.zeros([len(supports)] * 2)
        confusion[:, label] = supports
        statistics = {"examples": supports.sum(), "loss": np.nan, "confusion": confusion}
        metrics = classification_metrics(statistics, positive_labels)
        rows[name] = {key: value for key, value in metrics.items() if key != "loss"}
    return rows


class ClassMeasures:
    """The measures of a classifier on the clients' examples.

    See `Prepared.measures`.

    Attributes:
      names: of the metrics.
      quality: the one that is also given for the worst, the median and the best client, and in clients.csv.
      positive_labels: the relations that micro-F1 and macro-F1 count, all labels but "no relation"; None: the task does
        not classify relations.
    """

    quality = "accuracy"

    def __init__(self, positive_labels: Sequence[int] | None = None):
        """Args:
        positive_labels: as for `classification_metrics`.
        """
        self.positive_labels = positive_labels
        self.names = classification_metric_names(positive_labels)

    def metrics(self, statistics: Mapping[str, np.ndarray]) -> dict[str, float]:
        """`names` -> values, of what clients count (`build_evaluation`), one client's or the sum over clients."""
        return classification_metrics(statistics, self.positive_labels)

    def of_client(self, statistics: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """(`quality`, loss) of `metrics`, which of very many clients takes seconds, and not minutes."""
        count = float(statistics["examples"])
        if not count:
            return float("nan"), float("nan")
        confusion = np.asarray(statistics["confusion"], np.float64)
        return float(np.trace(confusion) / count), float(statistics["loss"]) / count

    def confusion(self, statistics: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """int64 [C, C], with labels as rows and predictions as columns."""
        return np.asarray(statistics["confusion"], np.int64)

    def per_class(self, statistics: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...] | None:
        """(precision, recall, F1, examples) of each class, see `per_class`."""
        return per_class(self.confusion(statistics))

    def trivial(self, statistics: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
        """See `trivial_metrics`."""
        return trivial_metrics(self.confusion(statistics).sum(axis=1), self.positive_labels)


class PairMeasures:
    """What is measured of relations of pairs in documents on the clients' examples: as `ClassMeasures`, without a
    confusion matrix and trivial models, because a pair may have several relations."""

    quality, positive_labels = "f1", None
    names = ("loss", "precision", "recall", "f1")

    def metrics(self, statistics: Mapping[str, np.ndarray]) -> dict[str, float]:
        """`loss` (mean over pairs), `precision`, `recall` and `f1` over all relations, at probability one half.

        Args:
          statistics: `examples` (pairs) and `loss` (sums), `true_positives`, `predicted`, `actual` [R].

        Returns:
          NaN for all where there are no pairs; zero where nothing is predicted or holds.
        """
        count = float(statistics["examples"])
        if not count:
            return dict.fromkeys(self.names, float("nan"))
        correct, predicted, actual = (float(np.sum(statistics[n])) for n in ("true_positives", "predicted", "actual"))
        return {
            "loss": float(statistics["loss"]) / count,
            "precision": correct / predicted if predicted else 0.0,
            "recall": correct / actual if actual else 0.0,
            "f1": 2 * correct / (predicted + actual) if predicted + actual else 0.0,
        }

    def of_client(self, statistics: Mapping[str, np.ndarray]) -> tuple[float, float]:
        """(`quality`, loss) of `metrics`."""
        metrics = self.metrics(statistics)
        return metrics[self.quality], metrics["loss"]

    def confusion(self, statistics: Mapping[str, np.ndarray]) -> None:
        return None

    def per_class(self, statistics: Mapping[str, np.ndarray]) -> None:
        return None

    def trivial(self, statistics: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
        return {}


def per_class(confusion: np.ndarray):
    """(precision, recall, F1, support), each [C], by scikit-learn.

    The cells of the matrix are its weighted samples. All are zero for a matrix without examples.
    """
    labels, predicted, cells = _cells(confusion)
    if not cells.any():  # newer versions of scikit-learn refuse weights that are all zero
        return (np.zeros(len(confusion)),) * 4
    return precision_recall_fscore_support(
        labels, predicted, labels=np.arange(len(confusion)), sample_weight=cells, zero_division=0.0
    )


def _cells(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(label, prediction, count) of every cell."""
    size = len(confusion)
    return (*np.divmod(np.arange(size * size), size), np.asarray(confusion).ravel())
