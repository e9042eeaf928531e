import itertools
import math
import subprocess
import sys

import attrs
import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import stats

from computations.privacy import accounting
from computations.privacy.accounting import client_accounting, example_accounting, tree_multiplier
from computations.privacy.options import PrivacyOptions


@pytest.fixture(autouse=True)
def _in_the_session_worker():
    """No test here calls one."""


def clients(number, drawn, rounds, z=None, sampling="fixed", **options):
    options = {"delta": number**-1.1, **options}
    rest = {key: options.pop(key) for key in ("max_participations",) if key in options}
    return client_accounting(
        PrivacyOptions(noise_multiplier=z, **options),
        num_clients=number,
        per_round=drawn,
        rounds=rounds,
        sampling=sampling,
        **rest,
    )


def examples(units, steps, rounds, batch=10, **options):
    return example_accounting(
        PrivacyOptions(**{"unit": "example", **options}), units=units, steps=steps, batch=batch, rounds=rounds
    )


def by_library(event, delta):
    """The library's accountant, on a grid ten times as coarse as its default."""
    return pld.PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(delta)


def poisson_event(share, z, count):
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(z)), count
    )


def delta_of_gaussian(mu, epsilon):
    """Balle and Wang 2018, Theorem 8; mu is the sensitivity over the standard deviation."""
    above = stats.norm.logsf(epsilon / mu + mu / 2)
    return stats.norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon + above)


# Figures of a study of the three ways to sample, made with dp-accounting's own defaults; delta is N^-1.1.
@pytest.mark.parametrize(
    "number, drawn, rounds, z, poisson, fixed, plain",
    [
        (100, 10, 50, 1.0, 2.48, 40.6, 41.8),
        (100, 10, 50, 3.0, 0.41, 3.37, 7.98),
        (2000, 20, 200, 0.8, 1.16, 26.7, 217),
        (10, 10, 50, 4.0, 3.3, 3.34, 3.34),  # a fixed number that is all of them: without amplification
    ],
)
def test_a_table_of_samplings(number, drawn, rounds, z, poisson, fixed, plain):
    by_poisson, by_number = (clients(number, drawn, rounds, z, how) for how in ("poisson", "fixed"))
    assert by_poisson.epsilon(rounds) == pytest.approx(poisson, rel=0.015)
    assert by_number.epsilon(rounds) == pytest.approx(fixed, rel=0.005)
    mu = math.sqrt(rounds) / z
    assert delta_of_gaussian(mu, plain * 1.005) < number**-1.1 < delta_of_gaussian(mu, plain * 0.995)
    assert by_number.epsilon(rounds) <= plain * 1.005
    assert by_poisson.relation == accounting.ADD_OR_REMOVE and by_number.relation == accounting.ZERO_OUT


def test_the_bounds_are_those_of_the_library():
    delta = 1e-5
    exact = by_library(poisson_event(0.02, 0.9, 30), delta)
    assert clients(50, 1, 30, 0.9, "poisson", delta=delta).epsilon(30) == pytest.approx(exact, rel=1e-3)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.SampledWithoutReplacementDpEvent(50, 1, dp_accounting.GaussianDpEvent(2.0)), 30
    )
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    sampled = rdp.RdpAccountant(accounting._ORDERS, relation).compose(event).get_epsilon(delta)
    assert clients(50, 1, 30, 4.0, delta=delta).epsilon(30) == pytest.approx(sampled, rel=1e-6)
    for z in (0.5, 2.0, 30.0):
        plain = by_library(dp_accounting.GaussianDpEvent(z), delta)
        assert clients(50, 50, 1, z, delta=delta).epsilon(1) == pytest.approx(plain, rel=1e-3)


def hockey_stick(p, q, epsilon):
    """The delta of two densities on a grid of step 1e-3, in the worse direction."""
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() * 1e-3 for a, b in ((p, q), (q, p)))


def test_two_clients_one_drawn_integrated():
    """The client that is zeroed out moves the sum to 0 from 1, the other one to -1, the worst for who stands in."""
    x, z, delta = np.arange(-20, 20, 1e-3), 1.5, 1e-2
    with_both = (stats.norm.pdf(x, 1, z) + stats.norm.pdf(x, -1, z)) / 2
    with_one = (stats.norm.pdf(x, 0, z) + stats.norm.pdf(x, -1, z)) / 2
    epsilon = clients(2, 1, 1, z, delta=delta).epsilon(1)
    assert hockey_stick(with_both, with_one, epsilon) <= delta
    # Poisson: a client alone is there with probability a half, or not at all; here the bound is sharp.
    there = (stats.norm.pdf(x, 1, z) + stats.norm.pdf(x, 0, z)) / 2
    epsilon = clients(2, 1, 1, z, "poisson", delta=delta).epsilon(1)
    assert hockey_stick(there, stats.norm.pdf(x, 0, z), epsilon) == pytest.approx(delta, rel=2e-3)


@pytest.mark.parametrize("sampling, drawn", [("poisson", 5), ("fixed", 5), ("fixed", 40)])
def test_it_grows_with_the_rounds(sampling, drawn):
    counted = clients(40, drawn, 30, 1.2, sampling)
    spent = [counted.epsilon(done) for done in range(31)]
    assert spent[0] == 0 and all(a < b for a, b in itertools.pairwise(spent))
    assert spent == [counted.epsilon(done) for done in range(31)]
    with pytest.raises(ValueError, match="counts rounds"):
        counted.epsilon_of({"a": 1})


@pytest.mark.parametrize("target", [0.3, 4.0])
@pytest.mark.parametrize("sampling, drawn", [("poisson", 5), ("fixed", 5), ("fixed", 40)])
def test_noise_for_a_budget(sampling, drawn, target):
    counted = clients(40, drawn, 20, None, sampling, epsilon=target)
    assert 0.98 * target < counted.epsilon(20) <= target == counted.budget
    fixed = clients(40, drawn, 20, 1.5, sampling, epsilon=target)
    assert fixed.noise_multiplier == 1.5 and fixed.budget == target


def test_a_huge_budget_needs_little_noise():
    counted = clients(40, 5, 20, None, "poisson", epsilon=1e9)
    assert 0 < counted.noise_multiplier < 0.01 and counted.epsilon(20) <= 1e9


# Trees


def sums_of_squares(rounds, taken):
    """Of a client's contributions of 1 to all whole nodes of a tree over so many rounds."""
    total = 0
    for level in range(rounds.bit_length()):
        size = 2**level
        nodes = [range(start, start + size) for start in range(0, rounds - size + 1, size)]
        total += sum(len(set(node) & set(taken)) ** 2 for node in nodes)
    return total


@pytest.mark.parametrize("rounds", [1, 2, 5, 8])
def test_no_client_moves_the_nodes_of_a_tree_more(rounds):
    for count in range(1, rounds + 1):
        worst = max(sums_of_squares(rounds, taken) for taken in itertools.combinations(range(rounds), count))
        bound = tree_multiplier(1.0, rounds, count) ** -2
        assert worst <= bound + 1e-9
        if rounds in (1, 2, 8) and count in (1, rounds):
            assert worst == pytest.approx(bound)
    assert tree_multiplier(1.0, rounds, 99) == tree_multiplier(1.0, rounds, rounds)


def test_one_round_of_each_client_is_the_librarys_tree():
    relation, delta = dp_accounting.NeighboringRelation.REPLACE_SPECIAL, 1e-5
    for rounds in (1, 7, 8, 100):
        event = dp_accounting.SingleEpochTreeAggregationDpEvent(3.0, rounds)
        theirs = rdp.RdpAccountant(neighboring_relation=relation).compose(event)
        ours = dp_accounting.GaussianDpEvent(tree_multiplier(3.0, rounds, 1))
        same = rdp.RdpAccountant(neighboring_relation=relation).compose(ours)
        np.testing.assert_allclose(theirs.rdp, same.rdp)
        counted = clients(1000, 10, 100, 3.0, mechanism="tree", delta=delta, max_participations=1)
        assert 0.8 * theirs.get_epsilon(delta) < counted.epsilon(rounds) <= theirs.get_epsilon(delta)


def test_without_a_limit_a_tree_may_have_a_client_in_every_round():
    tree, plain = (clients(100, 10, 64, 8.0, mechanism=kind) for kind in ("tree", "gaussian"))
    assert tree.epsilon(64) > plain.epsilon(64)
    assert clients(100, 10, 64, 8.0, mechanism="tree", max_participations=1).epsilon(64) < plain.epsilon(64)


# Examples


def test_the_largest_over_clients():
    units, steps = {"a": 40, "b": 200, "c": 60, "none": 0}, {"a": 4, "b": 20, "c": 6, "none": 0}
    counted = examples(units, steps, 10, noise_multiplier=1.1)
    taken = {"a": 1, "b": 7, "none": 9}
    alone = {k: by_library(poisson_event(10 / units[k], 1.1, steps[k] * taken[k]), 1e-5) for k in ("a", "b")}
    assert counted.epsilon_of(taken) == pytest.approx(max(alone.values()), rel=1e-3)
    assert counted.epsilon_of({"none": 3}) == counted.epsilon_of({}) == counted.epsilon_of({"a": 0}) == 0
    assert counted.epsilon(7) == counted.epsilon_of(dict.fromkeys(units, 7)) > counted.epsilon_of(taken)
    with pytest.raises(KeyError):
        counted.epsilon_of({"unknown": 1})


def test_a_batch_of_all_is_not_sampled():
    counted = examples({"a": 6}, {"a": 2}, 3, noise_multiplier=5.0)
    plain = by_library(dp_accounting.GaussianDpEvent(5 / math.sqrt(6)), 1e-5)
    assert counted.epsilon(3) == pytest.approx(plain, rel=1e-3)


def test_noise_for_the_worst_of_many_clients():
    units = {k: 30 + 17 * k for k in range(12)}
    counted = examples(units, {k: -(-n // 10) for k, n in units.items()}, 5, epsilon=3.0)
    assert 2.9 < counted.epsilon(5) <= 3.0


# What is refused, and what is said


def test_no_noise_is_no_guarantee():
    with attrs.validators.disabled():  # a recipe cannot say it
        without = clients(10, 5, 3, 0.0), examples({"a": 20}, {"a": 2}, 3, noise_multiplier=0.0)
    for counted in without:
        assert counted.epsilon(0) == 0 and counted.epsilon(1) == math.inf
        assert counted.statement(math.inf) == "no guarantee of differential privacy: the noise multiplier is 0"
    assert counted.epsilon_of({"a": 1}) == math.inf


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="neither noise_multiplier nor epsilon"):
        clients(10, 5, 3)
    with pytest.raises(ValueError, match=r"per_round must lie in \[1, 10\]"):
        clients(10, 11, 3, 1.0)
    with pytest.raises(ValueError, match="batch must be above zero"):
        examples({"a": 1}, {"a": 1}, 1, batch=0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="no client has an example"):
        examples({"a": 0}, {"a": 0}, 1, epsilon=1.0)


def test_a_delta_that_means_nothing_is_named():
    assert clients(100, 10, 1, 1.0, delta=0.009).warning is None
    assert "not below 1 / 100" in clients(100, 10, 1, 1.0, delta=0.01).warning
    assert (
        "number of examples"
        in examples({"a": 50, "b": 60}, {"a": 1, "b": 1}, 1, noise_multiplier=1, delta=0.01).warning
    )


def test_one_sentence_for_a_model_card():
    counted = clients(100, 10, 50, 1.0, "poisson")
    assert counted.statement(counted.epsilon(50)) == (
        "(ε, δ) = (2.48, 0.00630957) for adding or removing one client: Gaussian noise of 1 times the sensitivity, "
        "Poisson sampling of clients with probability 0.1, counted by dp-accounting (PLD); it protects against "
        "anyone who sees the models, but not against the server"
    )


def test_it_needs_no_tensorflow():
    code = "import sys, computations.privacy.accounting; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
