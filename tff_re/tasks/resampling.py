"""Intervals that include the test sample: a bootstrap over test units within seeds, together with one over seeds.

A run keeps what its weights measured on each unit (`tff_re.tasks.measured_units`), from which the metrics of any sample
of units are computed. The same units are drawn for all rows, so that differences are paired.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tff_re.tasks.measured_units import MeasuredUnits

LEVEL = 0.95
"""Of all intervals and tests."""

DRAWS = 2000
"""Bootstrap samples of an interval."""

_AT_ONCE = 10_000_000
"""Numbers of the draws' weights in memory."""

Sums = Mapping[str, np.ndarray]
"""Name -> counts summed over a draw's units, float64 [draws, K]."""


def difference_interval(
    ours: Mapping[int, MeasuredUnits],
    theirs: Mapping[int, MeasuredUnits],
    metric: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float] | None:
    """The interval (`LEVEL`, percentiles) of the mean difference over seeds and test units.

    Each draw takes the test units with replacement, once for all seeds and both rows; where the seeds have different
    tests, each seed's units are drawn separately. To the mean difference on these it adds by how much the mean of
    seeds that are drawn with replacement differs from that of all, on the whole test. This second part is widened to
    what Student's t gives for so few seeds (`_widening`): percentiles of three would hold the true difference in four
    cases of five only.

    Args:
      ours, theirs: seed -> the units of a run.
      metric: as metrics.csv names it, e.g. `test/f1`.
      draws: bootstrap samples.
      seed: of the draws.

    Returns:
      None where no seed has both rows with the same number of units and the metric.
    """
    pairs = paired(ours, theirs, metric)
    if not pairs:
        return None
    first = pairs[0][2].gold
    same = all(np.array_equal(units.gold, first) for _, _, units in pairs)
    differences, of_seeds = np.empty((draws, len(pairs))), np.empty(len(pairs))
    for number, (of_seed, a, b) in enumerate(pairs):
        stream = 0 if same else of_seed + 1
        differences[:, number] = _drawn(a, draws, seed, stream)[metric] - _drawn(b, draws, seed, stream)[metric]
        whole = np.ones((1, len(a)), np.int64)
        of_seeds[number] = (metrics_of_draws(a, whole)[metric] - metrics_of_draws(b, whole)[metric])[0]
    chosen = np.random.default_rng(seed).integers(len(pairs), size=(draws, len(pairs)))
    means = differences.mean(axis=1) + _widening(len(pairs)) * (of_seeds[chosen].mean(axis=1) - of_seeds.mean())
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(means, (tail, 100 - tail))
    return float(low), float(high)


def _widening(seeds: int) -> float:
    """By how much the t-interval of a mean over this number of seeds is wider than a bootstrap's, whose draws have the
    variance of the sample about its own mean."""
    if seeds == 1:
        return 1.0  # nothing is drawn
    from scipy.stats import norm, t

    upper = (1 + LEVEL) / 2
    return float(t.ppf(upper, seeds - 1) / norm.ppf(upper)) * (seeds / (seeds - 1)) ** 0.5


def paired(
    ours: Mapping[int, MeasuredUnits], theirs: Mapping[int, MeasuredUnits], metric: str
) -> list[tuple[int, MeasuredUnits, MeasuredUnits]]:
    """(seed, units of both rows) of every seed that has both, with the same number of units, and the metric."""
    return [
        (seed, units, theirs[seed])
        for seed, units in ours.items()
        if seed in theirs and len(units) == len(theirs[seed]) > 0 and metric in metric_names(units, theirs[seed])
    ]


def metric_names(*units: MeasuredUnits) -> set[str]:
    """The metrics that can be computed from all of these."""
    return set.intersection(*(set(_metrics_of(of_run)) for of_run in units))


def metrics_of_draws(units: MeasuredUnits, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Metric -> its value on each draw, float64 [draws].

    It is NaN where a draw does not have it. `weights`: how often each unit is in each draw, [draws, n].
    """
    if units.kind == "rankings":
        ranking = _Ranking(units)
        rows = [ranking.metrics(of_draw) for of_draw in weights]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}
    sums = {name: weights.astype(np.float64) @ array for name, array in units.arrays.items()}
    return {name: compute(sums, units.positive) for name, compute in _metrics_of(units).items()}


_cache: weakref.WeakKeyDictionary[MeasuredUnits, dict[tuple[int, int, int], dict[str, np.ndarray]]] = (
    weakref.WeakKeyDictionary()
)
"""Units -> (draws, seed, stream) -> metrics: a row's are needed for each metric, the baseline's for each row."""


def _drawn(units: MeasuredUnits, draws: int, seed: int, stream: int) -> dict[str, np.ndarray]:
    """The metrics of bootstrap samples, which of equally many units are samples of the same ones."""
    known, key = _cache.setdefault(units, {}), (draws, seed, stream)
    if key not in known:
        parts = [metrics_of_draws(units, part) for part in _weights(len(units), draws, seed, stream)]
        known[key] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return known[key]


def _weights(units: int, draws: int, seed: int, stream: int) -> Iterator[np.ndarray]:
    """How often each unit is in each draw, in parts int64 [m, units]."""
    generator, size = np.random.default_rng([seed, stream]), max(1, _AT_ONCE // units)
    for first in range(0, draws, size):
        yield generator.multinomial(units, np.full(units, 1 / units), size=min(size, draws - first))


# Metrics of sums


def _metrics_of(units: MeasuredUnits) -> Mapping[str, Callable[[Sums, tuple[int, ...] | None], np.ndarray]]:
    """Metric -> (sums, classes that F1 counts) -> values."""
    if units.kind == "rankings":
        return dict.fromkeys(_ranked(), _not_of_sums)
    of_kind = {"pairs": _OF_PAIRS, "classes": _OF_CLASSES, "entities": _OF_ENTITIES}[units.kind]
    if units.kind != "classes":
        return of_kind
    left_out = {"test/micro_f1"} if units.positive is None else set()
    left_out |= {"test/matthews"} if units.positive is None or len(units.positive) != 1 else set()
    return {name: compute for name, compute in of_kind.items() if name not in left_out}


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, zero where whole is zero."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


def _f1(precision: np.ndarray, recall: np.ndarray) -> np.ndarray:
    return _ratio(2 * precision * recall, precision + recall)


def _total(sums: Sums, name: str, classes: tuple[int, ...] | None = None) -> np.ndarray:
    array = sums[name]
    return array.sum(axis=-1) if classes is None else array[..., list(classes)].sum(axis=-1)


def _micro_f1(sums: Sums, classes: tuple[int, ...] | None) -> np.ndarray:
    whole = _total(sums, "predicted", classes) + _total(sums, "actual", classes)
    return _ratio(2 * _total(sums, "true_positives", classes), whole)


def _macro_f1(sums: Sums, classes: tuple[int, ...] | None) -> np.ndarray:
    """The mean over the classes that occur or are predicted in the draw."""
    picked = slice(None) if classes is None else list(classes)
    true, predicted, actual = (sums[name][..., picked] for name in ("true_positives", "predicted", "actual"))
    whole = predicted + actual
    return _ratio(_ratio(2 * true, whole).sum(axis=-1), (whole > 0).sum(axis=-1))


def _matthews(sums: Sums, classes: tuple[int, ...] | None) -> np.ndarray:
    """Matthews' correlation coefficient of any number of classes (Gorodkin, 2004), from the matrix' sums."""
    del classes  # all count
    true, predicted, actual = _total(sums, "true_positives"), sums["predicted"], sums["actual"]
    examples = actual.sum(axis=-1)
    covariance = true * examples - (predicted * actual).sum(axis=-1)
    spread = (examples**2 - (predicted**2).sum(axis=-1)) * (examples**2 - (actual**2).sum(axis=-1))
    return _ratio(covariance, np.sqrt(np.maximum(spread, 0)))


def _lenient(sums: Sums) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall."""
    return tuple(_ratio(_total(sums, f"overlapping_{name}"), _total(sums, name)) for name in ("predicted", "actual"))


def _not_of_sums(sums: Sums, classes: Any) -> np.ndarray:
    raise TypeError("rankings are not computed from sums")


_OF_PAIRS = {
    "test/f1": lambda sums, _: _ratio(2 * sums["counts"][..., 0], sums["counts"][..., 1] + sums["counts"][..., 2]),
    "test/precision": lambda sums, _: _ratio(sums["counts"][..., 0], sums["counts"][..., 1]),
    "test/recall": lambda sums, _: _ratio(sums["counts"][..., 0], sums["counts"][..., 2]),
}
_OF_CLASSES = {
    "test/accuracy": lambda sums, _: _ratio(_total(sums, "true_positives"), _total(sums, "actual")),
    "test/macro_f1": _macro_f1,
    "test/micro_f1": _micro_f1,
    "test/matthews": _matthews,
}
_OF_ENTITIES = {
    "test/precision": lambda sums, _: _ratio(_total(sums, "true_positives"), _total(sums, "predicted")),
    "test/recall": lambda sums, _: _ratio(_total(sums, "true_positives"), _total(sums, "actual")),
    "test/f1": lambda sums, _: _micro_f1(sums, None),
    "test/macro_f1": lambda sums, _: _macro_f1(sums, None),
    "test/lenient_precision": lambda sums, _: _lenient(sums)[0],
    "test/lenient_recall": lambda sums, _: _lenient(sums)[1],
    "test/lenient_f1": lambda sums, _: _f1(*_lenient(sums)),
}


# Metrics of rankings


@functools.cache
def _ranked() -> tuple[str, ...]:
    from tff_re.tasks.ranking_metrics import RANKING_METRICS  # scikit-learn is slow to import

    return tuple(f"test/{name}" for name in RANKING_METRICS)


class _Ranking:
    """The predictions of all bags, sorted once, from which `ranking_metrics` of drawn bags are computed."""

    def __init__(self, units: MeasuredUnits):
        scores = np.asarray(units.arrays["scores"])
        order = np.argsort(-scores.ravel(), kind="stable")
        self._true = np.asarray(units.arrays["true"]).ravel()[order].astype(np.int64)
        self._bag = order // scores.shape[1]
        in_order = scores.ravel()[order]
        self._ends = np.flatnonzero(np.append(in_order[1:] != in_order[:-1], True))  # of predictions with one score

    def metrics(self, weights: np.ndarray) -> dict[str, float]:
        """The `ranking_metrics` of the bags, each as often as its weight says, or NaN for all if none is true."""
        from tff_re.tasks.ranking_metrics import PRECISION_AT, TOP

        copies = weights[self._bag].astype(np.int64)
        count, hits = np.cumsum(copies), np.cumsum(copies * self._true)
        if not hits[-1]:
            return dict.fromkeys(_ranked(), np.nan)
        drawn = self._ends[count[self._ends] > 0]
        precision, recall = hits[drawn] / count[drawn], hits[drawn] / hits[-1]
        top = min(TOP, int(count[-1]))
        first = int(np.searchsorted(count, top)) + 1
        of_top = np.cumsum(np.repeat(self._true[:first], copies[:first])[:top])
        at = {f"test/p_at_{n}": float(of_top[min(n, top) - 1] / min(n, top)) for n in PRECISION_AT}
        return {
            "test/auc": _area(recall, precision),
            "test/auc_2000": _area(of_top / hits[-1], of_top / np.arange(1, top + 1)),
            **at,
            "test/p_at_mean": float(np.mean(list(at.values()))),
            "test/max_f1": float(_f1(precision, recall).max()),
        }


def _area(recall: np.ndarray, precision: np.ndarray) -> float:
    """Under the curve by trapezoids, which begins at recall zero and precision one."""
    x, y = np.append(0.0, recall), np.append(1.0, precision)
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
