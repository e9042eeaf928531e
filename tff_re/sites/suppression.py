"""Hiding small counts, so that they cannot be computed from the counts that are shown.

A row of counts has a known sum: the number of texts of its split. Counts from 1 to k - 1 are hidden, where k is the
least count; zeros are shown. If h counts of a row are hidden and sum to less than k + h - 1, one of the other counts is
drawn at random and hidden, too. Where there is nothing to draw, the whole row is hidden.

So who knows the sum, the shown counts and this algorithm cannot rule out any value from 1 to k - 1 for a hidden count.
Let it be x, and let the h hidden counts sum to S. Then one of the others may be y = S - x - (h - 2), and the rest 1. If
y < k, all are small, and S is enough. If y >= k, the small ones sum to x + h - 2 < k + (h - 1) - 1, so that one more is
hidden, and y was drawn. A draw is needed: if the smallest count was taken, it would be known to be at most the smallest
of those that are shown. `tests/sites/test_suppression.py` tries all rows.

Sums over columns (splits) are not told, so that rows do not bound each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence


def protected_row(
    counts: Sequence[int], least: int, choose: Callable[[Sequence[int]], int] = secrets.choice
) -> tuple[int | None, ...]:
    """Return the counts of a row, with None for those that are hidden.

    Args:
      counts: at least 0; their sum is taken as known.
      least: smaller counts are hidden, except zeros.
      choose: draws one of the indices of larger counts.
    """
    hidden = {index for index, count in enumerate(counts) if 0 < count < least}
    if hidden and sum(counts[index] for index in hidden) < least + len(hidden) - 1:
        larger = [index for index, count in enumerate(counts) if count >= least]
        if not larger:
            return (None,) * len(counts)
        hidden.add(choose(larger))
    return tuple(None if index in hidden else count for index, count in enumerate(counts))


def protected_shares(counts: Sequence[int], total: int, least: int) -> tuple[int | None, ...]:
    """Return counts of texts that may belong to several columns, with None for those that are hidden.

    Args:
      counts: each from 0 to `total`, which is taken as known.
      total: the number of texts.
      least: a count is hidden if it is smaller, or if it leaves out fewer texts; zeros are shown.
    """
    return tuple(None if 0 < count < least or 0 < total - count < least else count for count in counts)
