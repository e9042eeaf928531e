"""Statistics over the seeds: best values, means over the last tenth of the rounds, paired differences, gains."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tff_re.tasks.resampling import LEVEL

if TYPE_CHECKING:  # tables of numbers need no TensorFlow
    from tff_re.comparison.suite import GainOptions


POWER = 0.8
"""Of the smallest difference that a design could have shown."""
BOOTSTRAP_FROM = 8
"""Seeds from which a bootstrap interval says something that Student's t does not."""


ROUNDING = 1e-7
"""Differences below it count as none: float32 and float64 hold the same value so far apart."""


class Difference(NamedTuple):
    """A paired difference a - b over seeds.

    Attributes:
      mean, std: of a - b; std is the sample deviation, None for one pair.
      wins, n: pairs with a > b, all pairs.
      low, high: the interval of the mean (`LEVEL`, Student's t); None where the pairs' differences do not vary: for one
        pair, or if all are alike, which says nothing of how they would.
      bootstrap_low, bootstrap_high: the same by bootstrap, None for fewer than `BOOTSTRAP_FROM` pairs.
      detectable: the least true difference that this design shows with probability `POWER`, see `detectable`.
      p: of the paired t-test, two-sided; of a sign test where all differences are alike; None for one pair.
    """

    mean: float
    std: float | None
    wins: int
    n: int
    low: float | None = None
    high: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    detectable: float | None = None
    p: float | None = None


def difference_of(mean: float, std: float | None, n: int, wins: int = 0) -> Difference:
    """The difference of n pairs with this mean and sample deviation, without a bootstrap interval, which needs the
    pairs."""
    difference = Difference(mean, std, wins, n)
    if std is None or not math.isfinite(std):
        return difference
    if std <= 1e-9 * abs(mean) or std == 0:  # alike but for rounding
        return difference._replace(p=1.0 if mean == 0 else min(1.0, 2.0 ** (1 - n)))
    from scipy.stats import t

    half = half_width(std, n)
    p = 2 * float(t.sf(abs(mean) / (std / n**0.5), n - 1))
    return difference._replace(low=mean - half, high=mean + half, detectable=detectable(std, n), p=p)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """The differences a[i] - b[i] over seeds, at least one.

    A tie is not a win.
    """
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True)]
    differences = [0.0 if abs(d) < ROUNDING else d for d in differences]
    mean, std = mean_std(differences)
    difference = difference_of(mean, std, len(differences), sum(d > 0 for d in differences))
    if difference.low is None or difference.n < BOOTSTRAP_FROM:
        return difference
    low, high = bootstrap_interval(tuple(differences))
    return difference._replace(bootstrap_low=low, bootstrap_high=high)


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
    if len(values) == 1:
        return mean, None
    return mean, statistics.stdev(values) if math.isfinite(mean) else math.nan


def t_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The interval of the mean over seeds from Student's t.

    It has no bounds for fewer than two values.
    """
    mean, std = mean_std(values)
    if std is None:
        return -math.inf, math.inf
    half = half_width(std, len(values), level)
    return mean - half, mean + half


def half_width(std: float, n: int, level: float = LEVEL) -> float:
    """Half of the t-interval of a mean of n >= 2 values with this sample deviation."""
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, n - 1)) * std / n**0.5


@functools.lru_cache(maxsize=1024)  # a table, its CSV file and its note ask for the same
def bootstrap_interval(values: tuple[float, ...], level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """The interval of the mean by bootstrap, bias-corrected and accelerated (Efron 1987).

    The values must not all be equal.
    """
    from numpy import mean
    from scipy.stats import bootstrap

    result = bootstrap((values,), mean, confidence_level=level, random_state=seed, vectorized=True)
    return tuple(map(float, result.confidence_interval))


def detectable(std: float, n: int) -> float:
    """The least true difference that a paired t-test of n >= 2 pairs finds with probability `POWER`, two-sided at
    1 - `LEVEL`, where pairs differ with this standard deviation; before any correction for several comparisons."""
    return _noncentrality(n) * std / n**0.5


def p_against(difference: Difference, value: float) -> float | None:
    """The two-sided p-value of the paired t-test that the true difference is `value`, or None if pairs do not vary."""
    from scipy.stats import t

    if difference.low is None:
        return None
    return 2 * float(t.sf(abs(difference.mean - value) / (difference.std / difference.n**0.5), difference.n - 1))


@functools.cache
def _noncentrality(n: int) -> float:
    """That of Student's t with n - 1 degrees of freedom at which a two-sided test has `POWER`."""
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    df = n - 1
    critical = t.ppf((1 + LEVEL) / 2, df)
    # The second term is the other tail: nct.cdf(-critical, df, d), which is NaN far out in newer versions of SciPy.
    return float(brentq(lambda d: nct.sf(critical, df, d) + nct.sf(critical, df, -d) - POWER, 0, 50))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for several comparisons (Holm 1979), in their order.

    None stays None and does not count.
    """
    order = sorted((number for number, p in enumerate(ps) if p is not None), key=lambda number: ps[number])
    adjusted: list[float | None] = [None] * len(ps)
    least = 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * ps[number]))
        adjusted[number] = least
    return adjusted


@dataclass(frozen=True)
class MetricSummary:
    """One metric of one algorithm, a number for each seed.

    Attributes:
      best: Seed to the best value over the rounds, or with `chosen` to that of the round that was chosen on dev.
      final: Seed to the mean over the last tenth of the rounds.
      published: The value in the paper, in the metric's own unit (a fraction for percentages).
      higher_is_better: False for losses: then a seed favours an algorithm that is lower.
      percent: Whether the values are fractions to be shown as percentages.
      chosen: Whether `best` is not the best of all rounds, but that of a round chosen by another metric.
    """

    best: Mapping[int, float]
    final: Mapping[int, float]
    published: float | None = None
    higher_is_better: bool = True
    percent: bool = True
    chosen: bool = False

    @classmethod
    def from_rounds(
        cls, values: Mapping[int, Sequence[float]], chosen: Mapping[int, float] | None = None, **options
    ) -> MetricSummary:
        """The summary of each seed's values, one for each evaluated round in order.

        `options` are the other attributes. With `chosen`, seed to its value in the round that was chosen, that
        is its `best`.

        The last tenth of n values are the last max(1, round(n / 10)). The best leaves out values that are not
        finite (a diverged round), the final mean does not.
        """
        better = max if options.get("higher_is_better", True) else min
        final = {seed: mean_std(rounds[-max(1, round(len(rounds) / 10)) :])[0] for seed, rounds in values.items()}
        if chosen is not None:
            return cls(chosen, final, chosen=True, **options)
        best = {s: better((v for v in rounds if math.isfinite(v)), default=math.nan) for s, rounds in values.items()}
        return cls(best, final, **options)

    def difference(self, baseline: MetricSummary, which: str = "final") -> Difference | None:
        """This minus the baseline, of 'final' or 'best', over the seeds that both have.

        None if they share no seed. `wins` counts the seeds that favour this algorithm.
        """
        ours, theirs = getattr(self, which), getattr(baseline, which)
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
        if not pairs:
            return None
        a, b = zip(*pairs, strict=True)
        difference = paired_difference(a, b)
        wins = difference.wins if self.higher_is_better else sum(x < y for x, y in pairs)
        return difference._replace(wins=wins)


def explain_gain(gain: GainOptions, best: Mapping[str, Mapping[int, float]]) -> str:
    """A sentence on how much of a method's gain over its baseline the control explains.

    Gains are differences of a metric's best values over the rounds. `best`: entry -> seed -> value.
    """

    def difference(a: str, b: str) -> Difference:
        return paired_difference(*([best[name][seed] for seed in best[a]] for name in (a, b)))

    whole, step = difference(gain.method, gain.baseline), difference(gain.control, gain.baseline)
    rest = difference(gain.method, gain.control)
    sentence = (
        f"{gain.method} against {gain.baseline}: {_signed(whole)}. The control '{gain.control}' contributes "
        f"{_signed(step)}, and {gain.method} itself {_signed(rest)}"
    )
    if whole.mean <= 0:
        return sentence + "; there is no gain to explain."
    if whole.low is None or whole.low <= 0:
        return sentence + "; whether there is a gain to explain is open."
    if step.mean <= 0:
        return sentence + "; the control explains none of it."
    if step.mean >= whole.mean:
        return sentence + "; the control explains all of the gain."
    return sentence + f"; the control explains {100 * step.mean / whole.mean:.0f} % of the gain."


def _signed(difference: Difference) -> str:
    spread = "" if difference.low is None else f"{difference.low:+.3f} to {difference.high:+.3f}; "
    return f"{difference.mean:+.3f} ({spread}{difference.wins} of {difference.n} seeds better)"
