"""Intervals that include the test sample: a bootstrap over test units within seeds, together with one over seeds.

A unit is a test document, or a sentence where documents are not known. A run keeps counts of each unit, from which its
metric is computed; the same units are drawn for all rows, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

LEVEL = 0.95
"""Of all intervals and tests."""

METRICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "test/f1": lambda counts: _share(2 * counts[..., 0], counts[..., 1] + counts[..., 2]),
    "test/precision": lambda counts: _share(counts[..., 0], counts[..., 1]),
    "test/recall": lambda counts: _share(counts[..., 0], counts[..., 2]),
}
"""Metric -> (sums [..., 3] of the units' correct, predicted and stated relations -> its values [...])."""

DRAWS = 2000
"""Bootstrap samples of an interval."""


def difference_interval(
    ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray], metric: str, *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float] | None:
    """The interval (`LEVEL`, percentiles) of the mean difference over seeds and test units.

    Each draw takes the seeds with replacement, and the test units with replacement once for all seeds and both rows.
    Where the seeds' runs have different numbers of units, each seed's are drawn separately.

    Args:
      ours, theirs: seed -> the units' counts of a run, float [n, k], see `METRICS`.
      metric: a key of `METRICS`.
      draws: bootstrap samples.
      seed: of the draws.

    Returns:
      None where no seed has both rows with the same number of units.
    """
    pairs = paired(ours, theirs)
    if not pairs:
        return None
    generator, sizes = np.random.default_rng(seed), [len(counts) for counts, _ in pairs]
    same = len(set(sizes)) == 1
    chosen = generator.integers(len(pairs), size=(draws, len(pairs)))
    differences = np.empty((draws, len(pairs)))
    weights = _weights(generator, sizes[0], draws) if same else None
    for number, (a, b) in enumerate(pairs):
        of_pair = weights if same else _weights(generator, len(a), draws)
        differences[:, number] = METRICS[metric](of_pair @ a) - METRICS[metric](of_pair @ b)
    means = np.take_along_axis(differences, chosen, axis=1).mean(axis=1)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(means, (tail, 100 - tail))
    return float(low), float(high)


def paired(ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the counts of both rows for every seed that has both with the same number of units."""
    return [(ours[s], theirs[s]) for s in ours if s in theirs and len(ours[s]) == len(theirs[s]) > 0]


def _weights(generator: np.random.Generator, units: int, draws: int) -> np.ndarray:
    """How often each unit is in each draw, float64 [draws, units]."""
    return generator.multinomial(units, np.full(units, 1 / units), size=draws).astype(np.float64)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, zero where whole is zero."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)
