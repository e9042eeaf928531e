"""The rule of the verdict: what an interval over seeds says of two methods, and of a published gain."""

from __future__ import annotations

import math

from tff_re.comparison.statistics import LEVEL, Difference

LEAST_SEEDS = 3
"""With fewer, everything is open: an interval of two differences rests on their being drawn from a normal distribution,
of which two cannot tell anything."""
VERDICTS = ("gain", "loss", "open")


def verdict(difference: Difference, adjusted: float | None, higher_is_better: bool = True) -> str:
    """One of `VERDICTS`: a gain or a loss where the adjusted p-value is below 1 - `LEVEL`, from `LEAST_SEEDS` on."""
    if difference.n < LEAST_SEEDS or adjusted is None or adjusted >= 1 - LEVEL or difference.mean == 0:
        return "open"
    return "gain" if (difference.mean > 0) == higher_is_better else "loss"


def against_published(low: float | None, high: float | None, published: float, seeds: int) -> str:
    """What an interval of a difference over seeds says of a published one: that it `does not show` only where all of
    the interval is short of it and some of it is not on its side of zero; that it `shows` where all is; else `open`, as
    with fewer than `LEAST_SEEDS`."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or seeds < LEAST_SEEDS:
        return "open"
    low, high, published = (low, high, published) if published > 0 else (-high, -low, -published)
    if low > 0:
        return "shows, but smaller" if high < published else "shows"
    return "does not show" if high < published else "open"
