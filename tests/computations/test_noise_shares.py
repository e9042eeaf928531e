"""Noise in shares: exact samples, and an epsilon that is compared with sums over the probabilities themselves."""

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import special, stats

from computations.privacy.accounting import client_accounting
from computations.privacy.discrete_gaussian import MAX_VARIANCE, discrete_gaussian
from computations.privacy.options import PrivacyOptions
from computations.privacy.shares import (
    NoiseShares,
    closeness,
    concentrated_divergence,
    concentrated_epsilon,
    shares_accounting,
)


@pytest.fixture(autouse=True)
def _in_the_session_worker():
    """No test here calls one."""


def words(seed):
    generator = np.random.default_rng(seed)
    return lambda number: generator.integers(0, 2**64, number, dtype=np.uint64)


context = Context(prec=60)


WIDE = np.arange(-400, 401)


def probabilities(variance, shares=1):
    """Of the sum of discrete Gaussians on `WIDE`."""
    one = np.exp(-np.square(WIDE) / (2 * variance))
    total = np.array([1.0])
    for _ in range(shares):
        total = np.convolve(total, one / one.sum())
    middle = len(total) // 2
    return total[middle - 400 : middle + 401]


# Samples


@pytest.mark.parametrize("variance", [1, 2, 3, 7, 30])
def test_samples_have_the_probabilities_of_the_discrete_gaussian(variance):
    count, expected = 300_000, probabilities(variance)
    samples = discrete_gaussian(count, variance, words(variance))
    assert samples.dtype == np.int64 and samples.shape == (count,)
    counts = np.bincount(samples + 400, minlength=801)
    often = count * expected > 20
    assert counts[~often].sum() < 200
    squares = (counts - count * expected)[often] ** 2 / (count * expected)[often]
    assert stats.chi2.sf(squares.sum(), often.sum() - 1) > 1e-3


@pytest.mark.parametrize("variance", [12345, 2**38 + 1, MAX_VARIANCE])
def test_wide_samples_look_like_a_gaussian(variance):
    samples = discrete_gaussian(200_000, variance, words(5)) / math.sqrt(variance)
    assert stats.kstest(samples, "norm").pvalue > 1e-3
    assert samples.mean() == pytest.approx(0, abs=0.01) and samples.std() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("variance", [1, 6, 2**40 + 7])
def test_samples_are_those_of_exact_comparisons(variance):
    """With a margin of 2 nothing is decided in floating point."""
    exact = discrete_gaussian(300, variance, words(3), margin=2.0)
    assert np.array_equal(discrete_gaussian(300, variance, words(3)), exact)


@pytest.mark.parametrize(("following", "below"), [(0, True), (2**64 - 1, False)])
def test_undecided_comparisons_take_more_bits(following, below):
    """A word has the first 64 bits of 1/e, and the next word lies below or above its next bits."""
    first = int(Fraction(context.exp(Decimal(-1))) * 2**64)
    # The uniform number 0 with a positive sign; a block more if below 1/e, and then the end of blocks; acceptance.
    script = [0, first, following, *([2**64 - 1] if below else []), 0]
    drawn = iter(script)
    sample = discrete_gaussian(1, 1, lambda number: np.array([next(drawn) for _ in range(number)], np.uint64))
    assert sample[0] == (2 if below else 0) and next(drawn, None) is None


def test_samples_depend_on_the_words_only():
    assert np.array_equal(discrete_gaussian(200_000, 9, words(1)), discrete_gaussian(200_000, 9, words(1)))
    assert (discrete_gaussian(1000, 900, words(1)) != discrete_gaussian(1000, 900, words(2))).mean() > 0.9
    assert discrete_gaussian(0, 1, words(1)).shape == (0,)


@pytest.mark.parametrize("variance", [0, -1, MAX_VARIANCE + 1])
def test_a_variance_that_cannot_be_drawn_is_refused(variance):
    with pytest.raises(ValueError, match="variance must be an integer from 1 to"):
        discrete_gaussian(1, variance, words(1))


# Epsilon, against sums over the probabilities


def renyi(p, shift, order):
    moved = np.roll(p, shift)
    there = (p > 1e-290) & (moved > 1e-290)  # what is left out is far below the rounding of a sum
    return special.logsumexp(order * np.log(p[there]) + (1 - order) * np.log(moved[there])) / (order - 1)


@pytest.mark.parametrize("variance", [0.25, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_divergence_of_a_sum_of_shares_is_bounded(variance, shares, shift):
    p = probabilities(variance, shares)
    rho = concentrated_divergence(shift, variance, shares, numbers=1)
    for order in (1.01, 1.5, 2, 4, 8):
        assert renyi(p, shift, order) <= order * rho * (1 + 1e-9), order
    if variance >= 1:
        assert renyi(p, shift, 2) >= 0.98 * 2 * rho, "and hardly more"


def delta_of(p, moved, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * moved, 0).sum())


@pytest.mark.parametrize(("variance", "shares", "shift"), [(1.0, 3, 1), (2.0, 4, 3), (9.0, 2, 1), (30.0, 1, 8)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_epsilon_holds_by_summation_over_all_outcomes(variance, shares, shift, delta):
    p = probabilities(variance, shares)
    rho = concentrated_divergence(shift, variance, shares, numbers=1)
    epsilon = concentrated_epsilon(rho, delta)
    assert delta_of(p, np.roll(p, shift), epsilon) <= delta
    assert delta_of(p, np.roll(p, shift), 0.75 * epsilon) > delta, "it is not needlessly large"


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_epsilon_holds_for_two_numbers_and_two_rounds(delta):
    """An update of two numbers that moves them by 1 and 2, released twice: four independent integers."""
    p, moves = probabilities(4.0, 3)[370:431], (1, 2)
    rho = concentrated_divergence(math.hypot(*moves), 4.0, 3, numbers=2)
    joint, moved = np.array([1.0]), np.array([1.0])
    for move in (*moves, *moves):
        joint, moved = np.outer(joint, p).ravel(), np.outer(moved, np.roll(p, move)).ravel()
        kept = joint + moved > 1e-13
        joint, moved = joint[kept], moved[kept]
    epsilon = concentrated_epsilon(2 * rho, delta)
    assert delta_of(joint, moved, epsilon) <= delta
    assert delta_of(joint, moved, 0.75 * epsilon) > delta


@pytest.mark.parametrize("deviation", [1.0, 3.0])
@pytest.mark.parametrize("rounds", [1, 20])
def test_epsilon_is_above_that_of_privacy_loss_distributions(deviation, rounds):
    """dp-accounting has them for one integer and one share."""
    loss = privacy_loss_distribution.from_discrete_gaussian_mechanism(deviation).self_compose(rounds)
    tight = loss.get_epsilon_for_delta(1e-5)
    ours = concentrated_epsilon(rounds * concentrated_divergence(1, deviation**2, 1, 1), 1e-5)
    assert tight <= ours <= 1.15 * tight


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("rounds", [1, 100])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_with_much_noise_epsilon_is_near_that_of_the_gaussian(z, rounds, delta):
    options = {"noise_multiplier": z, "delta": delta}
    gaussian = client_accounting(PrivacyOptions(**options), num_clients=9, per_round=9, rounds=rounds).epsilon(rounds)
    shares = PrivacyOptions(**options, least_sites=5)
    ours = shares_accounting(shares, num_clients=9, rounds=rounds, at_sites=True).epsilon(rounds)
    assert gaussian <= ours <= 1.13 * gaussian + 1e-3


def test_a_client_spends_what_it_took_part_in():
    options = PrivacyOptions(epsilon=4.0, least_sites=3, colluding_sites=1)
    accounting = shares_accounting(options, num_clients=6, rounds=10, at_sites=True)
    assert accounting.epsilon(10) == pytest.approx(4.0, rel=2e-3) and accounting.epsilon(10) <= 4.0
    assert accounting.epsilon_of({"a": 10, "b": 2}) == accounting.epsilon(10)
    assert accounting.epsilon_of({"a": 3, "b": 2}) == accounting.epsilon(3) < 0.6 * accounting.epsilon(10)
    assert accounting.epsilon_of({}) == accounting.epsilon(0) == 0.0
    statement = accounting.statement(4.0, "coordinator")
    for said in (
        "the shares of 2 sites are",
        "against the coordinator and anyone who sees the models, also together with up to 1 of the sites",
        "opened over at least 3 sites",
    ):
        assert said in statement
    simulated = shares_accounting(options, num_clients=6, rounds=10, at_sites=False).statement(4.0)
    assert "simulated: it protects against anyone who sees the models, but not against the server" in simulated


# Grids


def shares_of(**changes):
    return NoiseShares(
        **{"clip": 1.0, "noise_multiplier": 1.0, "bits": 12, "bound": 1.0, "clients": 10, "least_sites": 4, **changes}
    )


@pytest.mark.parametrize("bits", [2, 5, 12])
@pytest.mark.parametrize("numbers", [1, 7, 1000])
def test_no_rounding_makes_an_update_larger_than_its_norm(bits, numbers):
    shares, generator = shares_of(bits=bits), np.random.default_rng(bits)
    worst = np.zeros(numbers)
    halves = min(numbers, math.floor((2 * shares.levels) ** 2))  # as many numbers of half a step as the clip allows
    worst[:halves] = 0.5 + 1e-9
    updates = [worst * shares.step, *generator.normal(size=(200, numbers))]
    for update in updates:
        clipped = update * min(1, shares.clip / np.linalg.norm(update))
        rounded = np.rint(clipped / shares.step)
        assert np.linalg.norm(rounded) <= shares.norm(numbers) * (1 + 1e-9)
    assert shares.norm(numbers) <= 2 * shares.levels


def test_the_shares_that_count_have_the_noise_of_the_multiplier():
    for changes in ({}, {"colluding_sites": 3}, {"noise_multiplier": 3.3}, {"clip": 0.1}):
        shares = shares_of(**changes)
        deviation = math.sqrt(shares.least_variance(100))
        assert deviation == pytest.approx(shares.noise_multiplier * shares.norm(100), rel=1e-3)
        assert deviation >= shares.noise_multiplier * shares.norm(100)
        rho = concentrated_divergence(shares.norm(100), shares.variance(100), shares.honest_sites, 100)
        assert rho <= 1 / (2 * shares.noise_multiplier**2)


def test_the_modulus_has_room_for_updates_and_noise():
    small, large = shares_of(), shares_of(noise_multiplier=30.0)
    assert 2 ** small.modulus_bits(50) > 2 * (10 * 2047 + 12 * math.sqrt(10 * small.variance(50)))
    assert small.modulus_bits(50) >= 16 and large.modulus_bits(50) > small.modulus_bits(50) + 2


def test_a_grid_that_is_too_coarse_or_too_fine_for_the_noise_is_refused():
    with pytest.raises(ValueError, match=r"secure_bits = 2 .* is too coarse: the noise is only .*; raise aggregation"):
        shares_of(bits=2).variance(10**6)
    assert shares_of(bits=2, least_sites=1).variance(10**6) > 0  # the noise of one site is exact on any grid
    with pytest.raises(ValueError, match=r"secure_bits = 32 .* is too fine: .*; lower aggregation.secure_bits"):
        shares_of(bits=32, noise_multiplier=10.0).variance(10)
    assert closeness(1.0, 5) > 1e-4 > 1e-30 > closeness(9.0, 5)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"unit": "example", "least_sites": 3}, "least_sites needs unit = 'client'"),
        ({"colluding_sites": 1}, "colluding_sites needs least_sites"),
        ({"least_sites": 3, "colluding_sites": 3}, "colluding_sites must be below least_sites = 3"),
        ({"least_sites": 1}, "least_sites"),
    ],
)
def test_keys_that_leave_no_noise_are_refused(keys, line):
    with pytest.raises(ValueError, match=line):
        PrivacyOptions(noise_multiplier=1.0, **keys)
