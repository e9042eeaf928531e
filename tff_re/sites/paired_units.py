"""The interval of the difference between two models on one site's test units.

The same units are drawn for both models, so that the difference is paired.
"""

from __future__ import annotations

import numpy as np

LEVEL = 0.95
"""Of the interval."""

DRAWS = 2000
"""Bootstrap samples."""


def f1(counts: np.ndarray) -> np.ndarray:
    """Return F1 of counts [..., 3], correct, predicted and stated, or 0 where there is nothing."""
    whole = counts[..., 1] + counts[..., 2]
    return np.divide(2 * counts[..., 0], whole, out=np.zeros(whole.shape), where=whole > 0)


def difference_interval(before: np.ndarray, after: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Return the interval (`LEVEL`, percentiles of a bootstrap over units) of F1 after less F1 before.

    Args:
      before, after: counts of the same units, float [n, 3], see `f1`.
      seed: of the draws.
    """
    units = len(before)
    weights = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), size=DRAWS).astype(np.float64)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(f1(weights @ after) - f1(weights @ before), (tail, 100 - tail))
    return float(low), float(high)
