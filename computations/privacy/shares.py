"""Noise in shares: each site adds its part of the noise to its own sum, before the sums are masked and added up.

Distributed discrete Gaussian (Kairouz, Liu and Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML). Clients round their clipped updates to a grid and send integers. A site adds
an independent sample of the discrete Gaussian to each number of its sum. Only the total over the sites is opened, and
it has the noise of all of them.

A total is over at least m sites, and up to t of them may work together, with or without the coordinator, and take their
own noise off. So the shares of m - t sites have the noise that epsilon counts. The noise of further sites is added to
it and protects no less.

It is plain Python, without TensorFlow or federated computations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping

import attrs
from attrs.validators import ge
from dp_accounting import rdp

from computations.privacy.accounting import ZERO_OUT, Accounting, calibrate, delta_warning, noise_multiplier_of
from computations.privacy.discrete_gaussian import MAX_VARIANCE
from computations.privacy.options import PrivacyOptions, rounded_up
from computations.ranges import POSITIVE

SLACK = 2.0**-19
"""Relative, of the noise above what the multiplier asks for. A quarter of it covers that a client adds up squares in
floating point, a quarter that a sum of discrete Gaussians is only nearly one."""

TAIL = 12
"""Standard deviations of the noise for which the modulus has room. A number is beyond once in 10^32, and then it wraps
around, which costs accuracy and no privacy."""


@attrs.frozen(kw_only=True)
class NoiseShares:
    """How updates become integers, and how much noise a site adds to its sum of them.

    With b bits and the bound B the grid has the step s = B / (2^(b-1) - 1), as for `SecureSumFactory`. An update of d
    numbers and of norm at most C is rounded to the nearest integers of the grid. These have a norm of at most
    D = min(C / s + sqrt(d) / 2, 2 C / s): rounding moves each number by at most a half, and none to more than twice its
    size. A client shrinks integers of a larger norm, which only rounding errors of floating point give, to D. So D is
    the sensitivity to a client, and of m - t shares of variance v the noise has the multiplier
    z = sqrt((m - t) v) / D.

    Attributes:
      clip: C, of an update's L2 norm.
      noise_multiplier: z.
      bits: b.
      bound: B, to which each number is clipped.
      clients: the most that a total is over.
      least_sites: m.
      colluding_sites: t, fewer than m.
    """

    clip: float = attrs.field(validator=POSITIVE)
    noise_multiplier: float = attrs.field(validator=POSITIVE)
    bits: int = attrs.field(validator=ge(2))
    bound: float = attrs.field(validator=POSITIVE)
    clients: int = attrs.field(validator=ge(1))
    least_sites: int = attrs.field(validator=ge(1))
    colluding_sites: int = attrs.field(default=0, validator=ge(0))

    @property
    def honest_sites(self) -> int:
        """Return m - t, the number of shares whose noise is counted."""
        return self.least_sites - self.colluding_sites

    @property
    def levels(self) -> int:
        """Return the largest integer of a number."""
        return 2 ** (self.bits - 1) - 1

    @property
    def step(self) -> float:
        """Return s."""
        return self.bound / self.levels

    def norm(self, numbers: int) -> float:
        """Return D, for updates of d numbers."""
        scaled = self.clip / self.step
        return min(scaled + math.sqrt(numbers) / 2, 2 * scaled)

    def variance(self, numbers: int) -> int:
        """Return v, of a site's share on each number.

        Raises:
          ValueError: it is too small against the grid for sums of shares to be counted as discrete Gaussians, or too
            large to be drawn.
        """
        share = (self.noise_multiplier * self.norm(numbers) * (1 + SLACK)) ** 2 / self.honest_sites
        variance = math.ceil(share)
        gap = closeness(variance, self.honest_sites) * math.sqrt(numbers) * self.noise_multiplier
        if variance > MAX_VARIANCE or gap > SLACK / 4:
            lack = "fine: the noise is beyond 2^30" if variance > MAX_VARIANCE else "coarse: the noise is only"
            raise ValueError(
                f"the grid of aggregation.secure_bits = {self.bits} and secure_bound = {self.bound:g} is too {lack} "
                f"({math.sqrt(share):.3g}) steps at a site; {'lower' if variance > MAX_VARIANCE else 'raise'} "
                "aggregation.secure_bits"
            )
        return variance

    def least_variance(self, numbers: int) -> int:
        """Return (m - t) v, of the noise that is counted."""
        return self.honest_sites * self.variance(numbers)

    def modulus_bits(self, numbers: int) -> int:
        """Return the smallest n for which a total modulo 2^n holds all clients' integers and all sites' noise.

        There may be as many sites as clients.
        """
        noise = TAIL * math.sqrt(max(self.clients, self.least_sites) * self.variance(numbers))
        return (2 * (self.clients * self.levels + math.ceil(noise))).bit_length()


def closeness(variance: float, shares: int) -> float:
    """Return tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 v k / (k + 1)) of n shares of variance v.

    In a number, the sum of n discrete Gaussians of variance v is within tau of the discrete Gaussian of variance n v
    (Kairouz et al. 2021, Proposition 14, for v of at least 1/4). This is the bound 10 (n - 1) exp(-pi^2 v) of it.
    """
    return 10 * (shares - 1) * math.exp(-min(math.pi**2 * variance, 700.0))


def concentrated_divergence(sensitivity: float, variance: float, shares: int, numbers: int) -> float:
    """Return rho for which the Renyi divergence of order a is at most rho a, for every a from 1 on.

    Kairouz et al. 2021, Proposition 14, its third bound: (D / sqrt(n v) + tau sqrt(d))^2 / 2, for the sum of n shares
    of variance v on each of d integers that a client moves by at most D in L2.
    """
    if variance < 0.25:
        raise ValueError(f"the bound holds for variances of at least 1/4, got {variance}")
    gap = closeness(variance, shares) * math.sqrt(numbers)
    return (sensitivity / math.sqrt(shares * variance) + gap) ** 2 / 2


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at delta of a mechanism whose Renyi divergence of each order a is at most rho a.

    The conversion of Canonne, Kamath and Steinke 2020, Proposition 12, which dp-accounting has, at orders around the
    one that is best for small delta. Any order gives an upper bound.
    """
    if rho <= 0:
        return 0.0
    best = math.sqrt(max(math.log(1 / delta), 1e-9) / rho)
    orders = [1.02 + best * 2.0 ** (exponent / 16) for exponent in range(-64, 49)]
    return rdp.compute_epsilon(orders, [rho * order for order in orders], delta)[0]


def composed_shares_epsilon(rounds: Mapping[float, int], delta: float, *, moved: float = 1.0) -> float:
    """Return the ε of noise in shares in several runs on the same data.

    Rounds add up, also of different noise: rho = sum of rounds (moved / z)^2 / 2.

    Args:
      rounds: noise multiplier z -> rounds of all runs together.
      delta: of (epsilon, delta).
      moved: how far the unit moves the integers of its client's update, in multiples of their largest norm. 1: the unit
        is the client, whose update is left out. 2: it is one example of the client, without which the update is another
        one of the same largest norm.
    """
    return concentrated_epsilon(sum(count * (moved / z) ** 2 / 2 for z, count in rounds.items()), delta)


@attrs.frozen(kw_only=True, eq=False)
class SharesAccounting(Accounting):
    """The accounting of noise in shares: it holds against the coordinator, too.

    The coordinator knows who takes part, so sampling does not amplify. What counts is how many rounds a client was
    asked in; `epsilon_of` takes the most.

    Attributes:
      least_sites, colluding_sites: see `NoiseShares`.
      at_sites: whether sites add the noise; else a simulation adds at once as much as is counted.
    """

    least_sites: int
    colluding_sites: int
    at_sites: bool

    def statement(self, spent: float, server: str = "server") -> str:
        """See `Accounting`."""
        if math.isinf(spent):
            return super().statement(spent, server)
        honest = self.least_sites - self.colluding_sites
        noise = (
            f"(ε, δ) = ({rounded_up(spent)}, {self.delta:g}) for {self.relation} one {self.unit}: discrete Gaussian "
            f"noise, of which the shares of {honest} sites are {self.noise_multiplier:.4g} times the sensitivity, "
            f"{self.sampling}, counted by {self.accountant}"
        )
        if not self.at_sites:
            return f"{noise}; simulated: it protects against anyone who sees the models, but not against the {server}"
        sites = (
            f"also together with up to {self.colluding_sites} of the sites"
            if self.colluding_sites
            else "but less against a site, which knows its own share"
        )
        return (
            f"{noise}; it protects against the {server} and anyone who sees the models, {sites}; sums are opened over "
            f"at least {self.least_sites} sites"
        )


def shares_accounting(options: PrivacyOptions, *, num_clients: int, rounds: int, at_sites: bool) -> SharesAccounting:
    """Return the accounting of `unit = "client"` with noise in shares.

    Args:
      options: the recipe's, with `least_sites`; with `epsilon` and without `noise_multiplier` the noise is calibrated
        to clients that take part in all rounds.
      num_clients: with training examples.
      rounds: of the whole run.
      at_sites: see `SharesAccounting`.

    Raises:
      ValueError: without least_sites, without epsilon and noise_multiplier, and for an epsilon that no noise reaches.
    """
    delta, least_sites = options.delta, options.least_sites
    if least_sites is None:
        raise ValueError("noise in shares needs privacy.least_sites")

    @functools.cache
    def spent(z: float, count: int) -> float:
        return concentrated_epsilon(count / (2 * z**2), delta)

    def of_participations(taken: Mapping[Hashable, int]) -> float:
        return spent(z, max(taken.values()))

    z = noise_multiplier_of(options, lambda target: calibrate(lambda z: spent(z, rounds), target, delta))
    return SharesAccounting(
        unit="client",
        noise_multiplier=z,
        delta=delta,
        budget=options.epsilon,
        relation=ZERO_OUT,
        accountant="concentrated differential privacy",
        sampling="without amplification by sampling",
        warning=delta_warning(delta, num_clients, "client"),
        of_rounds=functools.partial(spent, z),
        of_participations=of_participations,
        least_sites=least_sites,
        colluding_sites=options.colluding_sites,
        at_sites=at_sites,
    )
