"""Privacy accounting of a run with dp-accounting.

It is plain Python, without TensorFlow or federated computations.

Every number here is an upper bound of epsilon at a given delta for a trusted server: it holds for whoever sees the
models of all rounds, not for the server, which sees the clients' updates. Neighbouring data sets, by the sampling:

- Poisson sampling (each unit by itself with probability q): **add or remove one** unit. Privacy loss distributions of
  the sampled Gaussian mechanism (Koskela et al. 2020; Doroshenko et al. 2022).
- a fixed number K of N clients, drawn without replacement: **zero out one** client: N stays, its updates are zero
  (Kairouz et al. 2021, Definition 1.1). The smaller of two bounds: without amplification, the Gaussian mechanism of
  multiplier z; with it, the Renyi bound of Wang, Balle and Kasiviswanathan (2019). That one is for the replacement of
  one client, of which zeroing out is a case; who is drawn in a client's place moves the sum as well, so the sensitivity
  is twice the clip and the multiplier z / 2.
- every client in every round: zero out one client; with a fixed denominator that is adding or removing one, too. The
  Gaussian mechanism without amplification, exactly.
- tree aggregation: zero out one client, without amplification; see `tree_multiplier`.

Amplification by sampling holds only where nobody outside of the server knows who was drawn.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Literal

import attrs
import dp_accounting
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution, privacy_loss_mechanism
from scipy import optimize

from computations.privacy.options import PrivacyOptions, rounded_up

ADD_OR_REMOVE, ZERO_OUT = "adding or removing", "zeroing out"

_ORDERS = (*range(2, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256)
"""Of Renyi divergences: whole numbers, which have a short sum each."""

_ONLY_RENYI = 100.0
"""An epsilon from which on it is Renyi's bound alone: the exact one takes seconds, and neither means anything."""


@attrs.frozen(kw_only=True, eq=False)
class Accounting:
    """What the rounds of a run spend.

    Make it with `client_accounting` or `example_accounting`.

    Attributes:
      unit: `client`, `example` or `group`.
      noise_multiplier: z, standard deviation of the noise over the sensitivity; given, or calibrated to `budget`.
      delta: of (epsilon, delta).
      budget: the epsilon that may be spent, or None.
      relation: which data sets are neighbours, `ADD_OR_REMOVE` or `ZERO_OUT`, of one unit.
      accountant: `PLD`, `RDP` (where it is the smaller bound) or `exact`.
      sampling: how units are drawn, in words.
      warning: one line where delta is too large to mean anything, else None.
      releases: at the level of examples, client -> (share of its units in a step, steps of a round); a client without
        units is not there.
    """

    unit: Literal["client", "example", "group"]
    noise_multiplier: float
    delta: float
    budget: float | None
    relation: str
    accountant: str
    sampling: str
    warning: str | None
    releases: Mapping[Hashable, tuple[float, int]] = attrs.field(factory=dict, repr=False)
    _of_rounds: Callable[[int], float] = attrs.field(repr=False)
    _of_participations: Callable[[Mapping[Hashable, int]], float] | None = attrs.field(default=None, repr=False)

    def epsilon(self, rounds_done: int) -> float:
        """Return the ε that this number of rounds spends.

        At the level of examples, this holds if every client takes part in all of them.

        0 before the first round; infinite without noise. Never falls from one round to the next.
        """
        if rounds_done <= 0:
            return 0.0
        return self._of_rounds(int(rounds_done)) if self.noise_multiplier > 0 else math.inf

    def epsilon_of(self, participations: Mapping[Hashable, int]) -> float:
        """Return the ε spent if each client took part in its number of rounds.

        It is the largest over clients, whose examples are disjoint.

        Args:
          participations: client, as in `example_accounting` -> rounds that it took part in; who is missing took part
            in none.

        Raises:
          ValueError: at the level of clients, where rounds count and not who was drawn.
          KeyError: for an unknown client.
        """
        if self._of_participations is None:
            raise ValueError('with unit = "client" ε counts rounds, not participations; use epsilon(rounds_done)')
        taken = {client: int(rounds) for client, rounds in participations.items() if rounds > 0}
        if not taken:
            return 0.0
        return self._of_participations(taken) if self.noise_multiplier > 0 else math.inf

    def statement(self, spent: float, server: str = "server") -> str:
        """Return one sentence on the guarantee after `spent` ε, for a model card.

        `server` is how the sentence calls the server.
        """
        if math.isinf(spent):
            return f"no guarantee of differential privacy: the noise multiplier is {self.noise_multiplier:g}"
        whole = f"(ε, δ) = ({rounded_up(spent)}, {self.delta:g}) for {self.relation} one {self.unit}"
        seen = (
            f"the models, but not against the {server}"
            if self.unit == "client"
            else "the clients' updates or the models"
        )
        return (
            f"{whole}: Gaussian noise of {self.noise_multiplier:.4g} times the sensitivity, {self.sampling}, "
            f"counted by dp-accounting ({self.accountant}); it protects against anyone who sees {seen}"
        )


def client_accounting(
    options: PrivacyOptions,
    *,
    num_clients: int,
    per_round: int,
    rounds: int,
    sampling: Literal["fixed", "poisson"] = "fixed",
    max_participations: int | None = None,
) -> Accounting:
    """Return the accounting of `unit = "client"`, with independent noise or with tree aggregation.

    Args:
      options: the recipe's; with `epsilon` and without `noise_multiplier` the noise is calibrated to all `rounds`.
      num_clients: N, of whom a round draws.
      per_round: K; with Poisson sampling the expected number, drawn with probability K / N each.
      rounds: of the whole run.
      sampling: `fixed`: K clients without replacement; `poisson`.
      max_participations: `tree` alone: in how many rounds one client takes part at most; `rounds` if None.

    Raises:
      ValueError: without epsilon and noise_multiplier, for impossible numbers of clients, and for an epsilon that no
        noise reaches.
    """
    if not 1 <= per_round <= num_clients:
        raise ValueError(f"per_round must lie in [1, {num_clients}], the number of clients; got {per_round}")
    share, relation = per_round / num_clients, ZERO_OUT
    if options.mechanism == "tree":
        participations = rounds if max_participations is None else max_participations
        accountant, drawn = "exact", f"tree aggregation with at most {participations} rounds of one client"

        def spent(z: float, count: int) -> float:
            return _gaussian(tree_multiplier(z, count, participations), options.delta)

    elif sampling == "poisson":
        relation, accountant = ADD_OR_REMOVE, "PLD"
        drawn = f"Poisson sampling of clients with probability {share:.4g}"

        def spent(z: float, count: int) -> float:
            return _poisson(z, share, count, options.delta)

    elif per_round == num_clients:
        accountant, drawn = "exact", "every client in every round"

        def spent(z: float, count: int) -> float:
            return _gaussian(z / math.sqrt(count), options.delta)

    else:
        accountant = "the smaller of RDP with sampling and exact without"
        drawn = f"{per_round} of {num_clients} clients drawn without replacement"

        def spent(z: float, count: int) -> float:
            plain = _gaussian(z / math.sqrt(count), options.delta)
            return min(plain, _without_replacement(z, num_clients, per_round, count, options.delta))

    z = noise_multiplier_of(options, lambda target: calibrate(lambda z: spent(z, rounds), target, options.delta))
    return Accounting(
        unit="client",
        noise_multiplier=z,
        delta=options.delta,
        budget=options.epsilon,
        relation=relation,
        accountant=accountant,
        sampling=drawn,
        warning=delta_warning(options.delta, num_clients, "client"),
        of_rounds=functools.lru_cache(maxsize=None)(functools.partial(spent, z)),
    )


def example_accounting(
    options: PrivacyOptions,
    *,
    units: Mapping[Hashable, int],
    steps: Mapping[Hashable, int],
    batch: float,
    rounds: int,
) -> Accounting:
    """Return the accounting of `unit = "example"` and `"group"`, which is DP-SGD with Poisson batches at every client.

    A step of client k draws each of its n_k units with probability batch / n_k and adds noise of multiplier z to the
    sum of their clipped contributions. Sampling of clients does not amplify: who took part is counted. How many units
    a client has counts as public.

    Args:
      options: the recipe's; with `epsilon` and without `noise_multiplier` the noise is calibrated to clients that take
        part in all `rounds`.
      units: client -> n_k, examples or groups; a client without any spends nothing.
      steps: client -> its steps in one round.
      batch: expected number of units in a batch.
      rounds: of the whole run.

    Raises:
      ValueError: as `client_accounting`; for a batch that is not above zero.
    """
    if not batch > 0:
        raise ValueError(f"batch must be above zero, got {batch}")
    kind = {client: (min(1.0, batch / n), steps[client]) for client, n in units.items() if n > 0 and steps[client] > 0}
    nothing = {client for client in units if client not in kind}
    delta = options.delta

    def spent(z: float, taken: Mapping[Hashable, int]) -> float:
        pairs = [(kind[client], r) for client, r in taken.items() if client not in nothing]
        return _largest(z, frozenset((share, count * r) for (share, count), r in pairs), delta)[0]

    def calibrated(target: float) -> float:
        def spent_by(pair: tuple[float, int]) -> Callable[[float], float]:
            return lambda z: _poisson(z, *pair, delta)

        pairs = frozenset((share, count * rounds) for share, count in kind.values())
        if not pairs:
            raise ValueError("no client has an example to train on, so the noise cannot be calibrated")
        worst = max(pairs, key=lambda pair: _poisson_renyi(1.0, pair[0], pair[1], delta))
        while True:  # ends: each pair at most once, for the noise only grows
            z = calibrate(spent_by(worst), target, delta)
            epsilon, largest = _largest(z, pairs, delta)
            if epsilon <= target or largest is None:
                return z
            worst = largest

    z = noise_multiplier_of(options, calibrated)
    name = "example" if options.unit == "example" else "group of examples"
    everybody = functools.lru_cache(maxsize=None)(lambda count: spent(z, dict.fromkeys(kind, int(count))))
    return Accounting(
        unit=options.unit,
        noise_multiplier=z,
        delta=delta,
        budget=options.epsilon,
        relation=ADD_OR_REMOVE,
        accountant="PLD",
        sampling=f"Poisson batches of {batch:g} expected {options.unit}s inside of every client",
        warning=delta_warning(delta, sum(units.values()), name),
        releases=kind,
        of_rounds=everybody,
        of_participations=lambda taken: spent(z, taken),
    )


def composed_epsilon(of_clients: Iterable[Mapping[tuple[float, float], int]], delta: float) -> float:
    """Return the ε of DP-SGD in several runs on the same data.

    It is the largest over clients, whose units are disjoint.

    Args:
      of_clients: of each client (noise multiplier, share of its units in a step) -> steps of all runs together.
      delta: of (epsilon, delta).
    """
    composed = {frozenset((*kind, count) for kind, count in counts.items() if count > 0) for counts in of_clients}
    bounds = sorted(
        ((_composed_renyi(releases, delta), releases) for releases in composed if releases), key=lambda pair: -pair[0]
    )
    epsilon = 0.0
    for bound, releases in bounds:
        if bound <= epsilon:
            break
        epsilon = max(epsilon, _composed(releases, delta))
    return epsilon


def tree_multiplier(noise_multiplier: float, rounds: int, participations: int) -> float:
    """Return the multiplier of the one Gaussian mechanism that equals tree aggregation over this number of rounds.

    See Kairouz et al. 2021, Appendix D, and Denisov et al. 2022, Theorem 2.1.

    A node of level l sums 2^l rounds. A client of r rounds adds at most c_i clips to node i of a level, c_i <= 2^l and
    sum_i c_i = r, so the squares add up to at most r min(r, 2^l), and to the height of the tree for r = 1.
    """
    capped = min(participations, rounds)
    squares = sum(capped * min(capped, 2**level) for level in range(rounds.bit_length()))
    return noise_multiplier / math.sqrt(squares)


def noise_multiplier_of(options: PrivacyOptions, calibrated: Callable[[float], float]) -> float:
    if options.noise_multiplier is not None:
        return options.noise_multiplier
    if options.epsilon is None:
        raise ValueError("[privacy] has neither noise_multiplier nor epsilon; set one of them")
    return calibrated(options.epsilon)


def delta_warning(delta: float, number: int, name: str) -> str | None:
    if number < 1 or delta * number < 1:
        return None
    return (
        f"privacy.delta is {delta:g}, not below 1 / {number} (one over the number of {name}s): publishing one of "
        "them unchanged would satisfy this delta; set a smaller delta"
    )


def calibrate(spent: Callable[[float], float], target: float, delta: float) -> float:
    """Return the lowest noise multiplier z, to one in a thousand, with spent(z) <= target for a decreasing `spent`."""
    high = 1.0
    while spent(high) > target:
        high *= 2
        if high > 2**30:
            raise ValueError(f"no noise multiplier reaches epsilon = {target:g} at delta = {delta:g}")
    while spent(high / 2) <= target:
        high /= 2
        if high < 1e-3:
            return high
    return dp_accounting.calibrate_dp_mechanism(
        lambda: _OfNumber(spent),
        dp_accounting.GaussianDpEvent,
        target,
        delta,
        bracket_interval=dp_accounting.ExplicitBracketInterval(high / 2, high),
        tol=1e-3 * high,
    )


class _OfNumber(dp_accounting.PrivacyAccountant):
    """The ε of a run as an accountant of its noise multiplier, for dp-accounting's search."""

    def __init__(self, spent: Callable[[float], float]):
        super().__init__(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        self._spent, self._z = spent, math.inf

    def _maybe_compose(self, event: dp_accounting.DpEvent, count: int, do_compose: bool) -> None:
        if do_compose:
            self._z = event.noise_multiplier

    def get_epsilon(self, target_delta: float) -> float:
        return self._spent(self._z)


@functools.lru_cache(maxsize=4096)
def _gaussian(z: float, delta: float) -> float:
    """Return the exact ε of one Gaussian mechanism (Balle and Wang 2018)."""
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(z)
    if loss.get_delta_for_epsilon(0.0) <= delta:
        return 0.0
    bound = 0.5 / z**2 + math.sqrt(2 * math.log(1 / delta)) / z
    return optimize.brentq(lambda e: loss.get_delta_for_epsilon(e) - delta, 0.0, bound + 1, xtol=1e-9 * (bound + 1))


def _grid(z: float, share: float) -> float:
    """Return the grid of a release's privacy loss, fine enough that thousands of releases compose."""
    spread = share * math.sqrt(math.expm1(min(1 / z**2, 100.0)))
    return min(max(0.05 * spread, 1e-5), 5e-3)


@functools.lru_cache(maxsize=256)
def _sampled(z: float, share: float, grid: float | None = None) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return the privacy loss of one release, on its own grid or a finer one."""
    grid = _grid(z, share) if grid is None else grid
    return privacy_loss_distribution.from_gaussian_mechanism(
        z, sampling_prob=share, value_discretization_interval=grid, use_connect_dots=True
    )


@functools.lru_cache(maxsize=1024)
def _sampled_renyi(z: float, share: float) -> np.ndarray:
    """Return the Rényi divergences of one release, at `_ORDERS`."""
    event = dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(z))
    return rdp.RdpAccountant(_ORDERS).compose(event).rdp


def _poisson_renyi(z: float, share: float, count: int, delta: float) -> float:
    return rdp.compute_epsilon(_ORDERS, count * _sampled_renyi(z, share), delta)[0]


@functools.lru_cache(maxsize=65536)
def _poisson(z: float, share: float, count: int, delta: float) -> float:
    """Return the ε of `count` sampled releases."""
    if share >= 1:
        return _gaussian(z / math.sqrt(count), delta)
    bound = _poisson_renyi(z, share, count, delta)
    if bound > _ONLY_RENYI:
        return bound
    return min(bound, _sampled(z, share).self_compose(count).get_epsilon_for_delta(delta))


def _composed_renyi(releases: frozenset[tuple[float, float, int]], delta: float) -> float:
    if any(z <= 0 for z, _, _ in releases):
        return math.inf
    divergences = sum(count * _sampled_renyi(z, share) for z, share, count in releases)
    return rdp.compute_epsilon(_ORDERS, divergences, delta)[0]


@functools.lru_cache(maxsize=4096)
def _composed(releases: frozenset[tuple[float, float, int]], delta: float) -> float:
    """Return the ε of (multiplier, share, count) releases together, by `_poisson` if they are all alike."""
    bound = _composed_renyi(releases, delta)
    if math.isinf(bound):
        return bound
    if len(releases) == 1:
        return _poisson(*next(iter(releases)), delta)
    if all(share >= 1 for _, share, _ in releases):
        return _gaussian(1 / math.sqrt(sum(count / z**2 for z, _, count in releases)), delta)
    if bound > _ONLY_RENYI:
        return bound
    grid = min(_grid(z, share) for z, share, _ in releases)
    losses = [_sampled(z, share, grid).self_compose(count) for z, share, count in sorted(releases)]
    whole = functools.reduce(lambda left, right: left.compose(right), losses)
    return min(bound, whole.get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=4096)
def _largest(z: float, releases: frozenset[tuple[float, int]], delta: float) -> tuple[float, tuple[float, int] | None]:
    """Return the largest ε of (share, count) pairs, and its pair.

    Rényi's bounds say which exact values are not needed.
    """
    largest: tuple[float, tuple[float, int] | None] = (0.0, None)
    for bound, pair in sorted(((_poisson_renyi(z, *pair, delta), pair) for pair in releases), reverse=True):
        if bound <= largest[0]:
            break
        largest = max(largest, (_poisson(z, *pair, delta), pair), key=lambda item: item[0])
    return largest


@functools.lru_cache(maxsize=64)
def _without_replacement_renyi(z: float, num_clients: int, per_round: int, orders: tuple[int, ...]) -> np.ndarray:
    event = dp_accounting.SampledWithoutReplacementDpEvent(num_clients, per_round, dp_accounting.GaussianDpEvent(z / 2))
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return rdp.RdpAccountant(orders, neighboring_relation=relation).compose(event).rdp


def _without_replacement(z: float, num_clients: int, per_round: int, count: int, delta: float) -> float:
    for orders in (_ORDERS[:-6], _ORDERS):  # the large ones take ten times as long, and are for small epsilons
        divergences = _without_replacement_renyi(z, num_clients, per_round, orders)
        epsilon, best = rdp.compute_epsilon(orders, count * divergences, delta)
        if best < orders[-1]:
            break
    return epsilon
