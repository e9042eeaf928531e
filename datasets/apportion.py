"""Whole numbers in given proportions that add up exactly."""

from __future__ import annotations

import numpy as np


def by_cumulative_shares(total: int, shares: np.ndarray) -> np.ndarray:
    """Split `total` at its cumulative shares, and return int64 [K] that adds up to `total`.

    Args:
      total: At least 0.
      shares: float [K], not negative, adding up to 1.
    """
    cuts = np.floor(np.cumsum(shares)[:-1] * total + 1e-9).astype(np.int64)
    return np.diff(np.concatenate([[0], np.minimum(cuts, total), [total]]))


def by_largest_remainder(total: int, weights: np.ndarray) -> np.ndarray:
    """Return Hamilton's apportionment, int64 [K], proportional to the weights and adding up to `total`.

    Args:
      total: At least 0.
      weights: float [K], not negative, not all zero. Ties go to the smaller index.
    """
    exact = total * np.asarray(weights, np.float64) / np.sum(weights)
    result = np.floor(exact).astype(np.int64)
    left = total - int(result.sum())
    result[np.argsort(-(exact - result), kind="stable")[:left]] += 1
    return result
