"""Statistics over the seeds: best values, means over the last tenth of the rounds, paired differences, gains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # tables of numbers need no TensorFlow
    from tff_re.comparison.outcome import Outcome
    from tff_re.comparison.suite import GainOptions


class Difference(NamedTuple):
    """A paired difference: mean and sample deviation (None for one pair) of a - b, pairs with a > b, all pairs."""

    mean: float
    std: float | None
    wins: int
    n: int


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """The differences a[i] - b[i] over seeds, at least one. A tie is no win."""
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True)]
    return Difference(*mean_std(differences), sum(d > 0 for d in differences), len(differences))


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
    if len(values) == 1:
        return mean, None
    return mean, statistics.stdev(values) if math.isfinite(mean) else math.nan


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The interval of the mean over seeds from Student's t; without bounds for fewer than two values."""
    mean, std = mean_std(values)
    if std is None:
        return -math.inf, math.inf
    from scipy.stats import t

    half = t.ppf((1 + level) / 2, len(values) - 1) * std / len(values) ** 0.5
    return mean - half, mean + half


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
        """The summary of each seed's values, one for each evaluated round in order; `options` are the other attributes.
        With `chosen`, seed to its value in the round that was chosen, that is its `best`.

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
        """This - baseline of 'final' or 'best' over the seeds that both have, or None if they share none; `wins` counts
        the seeds that favour this algorithm."""
        ours, theirs = getattr(self, which), getattr(baseline, which)
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
        if not pairs:
            return None
        a, b = zip(*pairs, strict=True)
        difference = paired_difference(a, b)
        return difference if self.higher_is_better else difference._replace(wins=paired_difference(b, a).wins)


def explain_gain(gain: GainOptions, metric: str, outcomes: Mapping[str, Mapping[int, Outcome]]) -> str:
    """How much of a method's gain over its baseline, in the best values of a metric over the rounds, the server's step
    size alone brings, in a sentence. `outcomes`: entry -> seed -> outcome."""

    def difference(a: str, b: str) -> Difference:
        return paired_difference(*([outcomes[name][seed].best[metric] for seed in outcomes[a]] for name in (a, b)))

    whole, step = difference(gain.method, gain.baseline), difference(gain.control, gain.baseline)
    rest = difference(gain.method, gain.control)
    sentence = (
        f"{gain.method} against {gain.baseline}: {_signed(whole)}. The control '{gain.control}' alone brings "
        f"{_signed(step)}, what is {gain.method}'s own beyond it {_signed(rest)}"
    )
    if whole.mean <= 0 or (whole.std is not None and whole.mean <= whole.std / whole.n**0.5):
        return sentence + "; there is no gain to explain."
    if step.mean <= 0:
        return sentence + "; the control alone gains nothing."
    if step.mean >= whole.mean:
        return sentence + "; the control alone makes all of the gain."
    return sentence + f"; the control alone makes {100 * step.mean / whole.mean:.0f} % of the gain."


def _signed(difference: Difference) -> str:
    spread = "" if difference.std is None else f" ± {difference.std:.3f}"
    return f"{difference.mean:+.3f}{spread} ({difference.wins} of {difference.n} seeds better)"
