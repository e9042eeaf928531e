"""What canaries' statistics say of epsilon: an estimate (Andrew et al. 2023, Section 3) and a lower bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, betaln, log_ndtr, logsumexp

from tff_re.auditing.sections import CONFIDENCE

RESAMPLES = 300
ORDERS = 10
"""Number of the canaries' cosines that are tried as thresholds."""


def epsilon_of_normals(mean0: float, std0: float, mean1: float, std1: float, delta: float) -> float:
    """The least epsilon with which two normal distributions are (epsilon, delta)-indistinguishable, exactly, in both
    directions: the paper's estimate, Section 3. Zero where delta alone suffices."""

    def log_delta(m1, s1, m2, s2, epsilon):
        # log of sup over S of P1(S) - e^epsilon P2(S): S is where a x^2 + b x + c > 0.
        a, b = 0.5 * (s2**-2 - s1**-2), m1 / s1**2 - m2 / s2**2
        c = 0.5 * ((m2 / s2) ** 2 - (m1 / s1) ** 2) + np.log(s2 / s1) - epsilon
        ends = _where_positive(a, b, c)
        (p1, p2) = (_log_mass(ends, m, s) for m, s in ((m1, s1), (m2, s2)))
        gap = epsilon + p2 - p1
        return p1 + np.log1p(-np.exp(gap)) if gap < 0 else -np.inf

    def both(epsilon):
        forward = log_delta(mean0, std0, mean1, std1, epsilon)
        return max(forward, log_delta(mean1, std1, mean0, std0, epsilon)) - np.log(delta)

    if both(0.0) <= 0:
        return 0.0
    high = 1.0
    while both(high) > 0:
        high *= 2
    # log_delta may be -inf at the upper end, which brentq does not take.
    return float(brentq(lambda e: max(both(e), -1e3), 0.0, high, xtol=1e-6))


def _where_positive(a: float, b: float, c: float) -> list[tuple[float, float]]:
    """The intervals where a x^2 + b x + c > 0."""
    everywhere = [(-np.inf, np.inf)]
    if a == 0:
        if b == 0:
            return everywhere if c > 0 else []
        return [(-c / b, np.inf)] if b > 0 else [(-np.inf, -c / b)]
    inside = b * b - 4 * a * c
    if inside <= 0:
        return everywhere if a > 0 else []
    low, high = sorted([(-b - np.sqrt(inside)) / (2 * a), (-b + np.sqrt(inside)) / (2 * a)])
    return [(-np.inf, low), (high, np.inf)] if a > 0 else [(low, high)]


def _log_mass(intervals: list[tuple[float, float]], mean: float, std: float) -> float:
    """The log of a normal distribution's mass in intervals.

    It is computed from the nearer tail, so that small masses are accurate.
    """
    parts = []
    for low, high in intervals:
        low, high = (low - mean) / std, (high - mean) / std
        if low > 0:
            low, high = -high, -low
        below, above = log_ndtr(low), log_ndtr(high)
        parts.append(above + np.log1p(-np.exp(below - above)) if above > below else -np.inf)
    return float(logsumexp(parts)) if parts else -np.inf


def log_tail(cosines: np.ndarray, dimension: int) -> np.ndarray:
    """log P(cosine >= t) of a fixed vector with a uniformly random direction in `dimension` >= 2 dimensions.

    (1 + cosine) / 2 has the distribution Beta((d - 1) / 2, (d - 1) / 2), a tail is I_(1 - t^2)((d - 1) / 2, 1/2) / 2.
    Where a tail is too small for a float, it is bounded from above: I_x(a, 1/2) <= x^a / (a B(a, 1/2) sqrt(1 - x)).
    """
    t, a = np.asarray(cosines, np.float64), (dimension - 1) / 2
    exact = betainc(a, a, (1 - t) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = a * np.log1p(-(t**2)) - np.log(2 * a * t) - betaln(a, 0.5)
        return np.where(exact > 1e-250, np.log(exact), bound)


def epsilon_lower_bound(statistics: np.ndarray, log_false_positive: Callable, delta: float) -> float:
    """A lower bound of epsilon that holds with `CONFIDENCE` and supposes no distribution of the canaries' statistics.

    An adversary says "was there" above a threshold. Any (epsilon, delta) guarantee limits both of its errors
    (Kairouz et al. 2015): FPR >= e^-epsilon (1 - delta - FNR), FNR >= e^-epsilon (1 - delta - FPR). Thresholds are the
    canaries' own statistics of certain ranks j of k, below which a share of mass lies that has the distribution
    Beta(j, k - j + 1); the error probability is divided among them.

    Args:
      statistics: [k], of the canaries, which count as independent draws.
      log_false_positive: thresholds -> log of (a bound of) the probability that a canary that nobody sent passes.
    """
    ranked, k = np.sort(statistics), len(statistics)
    ranks = np.unique(np.linspace(1, k, min(ORDERS, k)).round().astype(int))
    fnr = betaincinv(ranks, k - ranks + 1, 1 - (1 - CONFIDENCE) / len(ranks))
    log_fpr = log_false_positive(ranked[ranks - 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.concatenate([np.log(1 - delta - fnr) - log_fpr, np.log(1 - delta - np.exp(log_fpr)) - np.log(fnr)])
    return float(max(0.0, np.nanmax(np.where(np.isnan(bounds), 0, bounds))))


@dataclass(frozen=True)
class Estimate:
    """What one kind of adversary learns.

    Attributes:
      epsilon: the paper's estimate.
      interval: of it, by bootstrap over the canaries.
      lower: `epsilon_lower_bound`.
    """

    epsilon: float
    interval: tuple[float, float]
    lower: float


def estimate(
    observed: np.ndarray, null: tuple[float, float], log_false_positive: Callable, delta: float, seed: int
) -> Estimate:
    """Estimates epsilon from the canaries' statistics [k >= 2].

    `null` is (mean, standard deviation) of the statistics of canaries that nobody sent.
    """

    def eps(values):
        return epsilon_of_normals(*null, values.mean(), max(values.std(ddof=1), 1e-12), delta)

    draw = np.random.default_rng([seed, 6])
    drawn = [eps(draw.choice(observed, len(observed))) for _ in range(RESAMPLES)]
    outside = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [outside, 100 - outside])
    return Estimate(eps(observed), (float(low), float(high)), epsilon_lower_bound(observed, log_false_positive, delta))
