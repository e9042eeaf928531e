"""The seeded noise, the trees, and what one client can move; in TensorFlow without a federated computation."""

import collections
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize

from computations.aggregators import Noise, private_attention, private_mean, with_noise_seed
from computations.aggregators.private_noise import NOISE_SEED


@pytest.fixture(autouse=True)
def _in_the_session_worker():
    """No test here calls one."""


WIDE = (40_000,)


def noise(z=1.0, **options):
    return Noise(**{"clip": 0.5, "expected_clients": 10, "noise_multiplier": z, **options})


def at(number, seed=(3, 4), clip=0.5):
    return collections.OrderedDict(
        [(NOISE_SEED, tf.constant(seed)), ("round", tf.constant(number)), ("clip", tf.constant(clip))]
    )


def drawn(source, number, shapes=(WIDE,), seed=(3, 4), sensitivity=1.0):
    return [t.numpy() for t in source.added(at(number, seed), [tf.zeros(s) for s in shapes], sensitivity)]


def correlation(a, b):
    return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_its_deviation_is_the_multiplier_times_the_sensitivity():
    (values,) = drawn(noise(2.5), 0, sensitivity=0.3)
    assert values.std() == pytest.approx(0.75, rel=0.02) and abs(values.mean()) < 0.02
    quantile = noise(2.5, quantile=0.5)  # sigma_b = 2.5: multiplier 2.5 / sqrt(3/4)
    assert quantile.multiplier_of_values == pytest.approx(2.5 / math.sqrt(0.75))
    assert drawn(quantile, 0)[0].std() == pytest.approx(2.8868, rel=0.02)


@pytest.mark.parametrize("z, expected", [(0.7, 10), (3.0, 10), (1.0, 500)])
def test_values_and_count_are_together_one_gaussian_mechanism(z, expected):
    source = noise(z, expected_clients=expected, quantile=0.5)
    # A client moves the values by the sensitivity and the count by a half: the shifts over the deviations, squared.
    joint = source.multiplier_of_values**-2 + (0.5 / source.count_stddev) ** 2
    assert joint == pytest.approx(z**-2)
    assert source.count_stddev >= expected / 20 and source.multiplier_of_values < 1.16 * z


@pytest.mark.parametrize("tree", [False, True])
def test_rounds_tensors_and_seeds_have_their_own(tree):
    source = noise(tree=tree)
    kinds = [*drawn(source, 0, (WIDE, WIDE)), *drawn(source, 1, (WIDE,), (3, 5)), *drawn(source, 4, (WIDE,))]
    for left, right in itertools.combinations(kinds, 2):
        assert correlation(left, right) < 0.025
    again = drawn(source, 0, (WIDE, WIDE))
    assert all(np.array_equal(a, b) for a, b in zip(kinds, again, strict=False))


def test_there_is_none_without_a_seed():
    assert np.isnan(drawn(noise(), 0, seed=(0, 0))[0]).all()
    assert not drawn(noise(0.0), 0, seed=(0, 0))[0].any()
    unknown, _ = noise(quantile=0.5).next_state(at(0, (0, 0)), tf.constant(0.0))
    assert np.isnan(unknown["clip"])


# Trees


def test_sums_of_rounds_have_the_noise_of_the_nodes_that_make_them_up():
    source = noise(tree=True)
    sums = np.cumsum([drawn(source, number)[0] for number in range(13)], axis=0)
    for rounds in range(1, 14):
        assert sums[rounds - 1].var() == pytest.approx(bin(rounds).count("1"), rel=0.05)
    # Nodes of 8, of 4 and of one round: what 12 and 8 rounds share is that of 8, and what is left are independent.
    nodes = [sums[7], sums[11] - sums[7], sums[12] - sums[11]]
    for left, right in itertools.combinations(nodes, 2):
        assert correlation(left, right) < 0.025
    assert all(node.var() == pytest.approx(1, rel=0.05) for node in nodes)
    # A node is not made of those below it: 4 rounds share nothing with 2 and with 3.
    assert correlation(sums[3], sums[1]) < 0.025 and correlation(sums[3], sums[2]) < 0.025
    # 3 rounds are a node of two and one of one.
    assert correlation(sums[2], sums[1]) == pytest.approx(math.sqrt(0.5), abs=0.025)


def test_a_tree_needs_one_bound():
    with pytest.raises(ValueError, match="the same bound in all rounds"):
        noise(tree=True, quantile=0.5)


# The bound


def test_the_bound_follows_the_quantile():
    """15 of 20 clients within it: the step is exp(-0.2 (0.75 - 0.5)), without noise."""
    source = noise(0.0, expected_clients=20, quantile=0.5)
    state, measured = source.next_state(at(7), tf.constant(15 * 0.5 - 5 * 0.5))
    assert float(state["clip"]) == pytest.approx(0.5 * math.exp(-0.05)) and int(state["round"]) == 8
    assert float(measured["privacy/clipped_share"]) == pytest.approx(0.25)
    assert float(measured["privacy/clip"]) == 0.5 and not state[NOISE_SEED].numpy().any()
    fixed, measured = noise().next_state(at(7))
    assert float(fixed["clip"]) == 0.5 and list(measured) == ["privacy/clip"]


def test_the_count_has_noise_of_its_own():
    source = noise(2.0, expected_clients=100, quantile=0.5)  # sigma_b = 5, of 100 clients: 0.05
    shares = [float(source.next_state(at(n), tf.constant(0.0))[1]["privacy/clipped_share"]) for n in range(400)]
    assert np.std(shares) == pytest.approx(0.05, rel=0.12) and np.mean(shares) == pytest.approx(0.5, abs=0.01)


# What one client can move: the sums of two data sets that differ by it, searched for the largest difference.

SHAPES = ((2,), (3, 1), ())
SIZES = [math.prod(shape) for shape in SHAPES]


def as_update(flat):
    parts = np.split(np.asarray(flat, np.float32), np.cumsum(SIZES)[:-1])
    return [tf.constant(part.reshape(shape)) for part, shape in zip(parts, SHAPES, strict=True)]


def largest_move(sums):
    """Over one client's update, of any size, the L2 norm of the sums with it less those without it."""
    rng = np.random.default_rng(1)
    others = [as_update(rng.normal(size=sum(SIZES)) * scale) for scale in (0.1, 3.0)]
    without = sum(sums(other) for other in others)

    def moved(flat):
        direction, size = flat[:-1], math.exp(np.clip(flat[-1], -8, 8))
        update = as_update(size * direction / max(np.linalg.norm(direction), 1e-9))
        return np.linalg.norm(sum(sums(added) for added in (*others, update)) - without)

    starts = [*rng.normal(size=[25, sum(SIZES) + 1]) * [1] * sum(SIZES) + [3.0], *np.eye(sum(SIZES) + 1)[:3]]
    moves = [moved(start) for start in starts]
    best = optimize.minimize(lambda x: -moved(x), starts[int(np.argmax(moves))], method="Nelder-Mead", tol=1e-4)
    return max(*moves, -best.fun)


@pytest.mark.parametrize("clip", [0.3, 2.0])
def test_no_client_moves_the_sum_of_a_mean_more_than_the_clip(clip):
    def sums(update):
        added = private_mean.contribution(update, 1.0, clip)
        assert abs(float(added["within"])) == 0.5
        return np.concatenate([np.ravel(t.numpy()) for t in added["values"]])

    assert clip * 0.999 < largest_move(sums) <= clip * 1.0001


@pytest.mark.parametrize("clip, c, whole", [(0.3, 0.3, True), (2.0, 0.5, False), (1.0, 4.0, False)])
def test_no_client_moves_the_sums_of_attention_more_than_their_sensitivity(clip, c, whole):
    contribution = tf.function(lambda update: private_attention.contribution(update, 1.0, clip, c, whole))

    def sums(update):
        added = contribution(update)
        assert abs(float(added["within"])) <= 0.5
        return np.concatenate([*(np.ravel(t.numpy()) for t in added["values"]), added["normaliser"].numpy()])

    bound = math.sqrt(clip**2 + c**2)
    assert bound * 0.99 < largest_move(sums) <= bound * 1.0001
    # One update that is as long as may be in every tensor reaches it.
    assert np.linalg.norm(sums(as_update(np.full(sum(SIZES), 50.0)))) == pytest.approx(bound, rel=1e-5)


def test_a_client_that_does_not_count_adds_nothing():
    update = as_update(np.full(sum(SIZES), np.nan))
    of_mean = private_mean.contribution(update, 0.0, 1.0)
    of_attention = private_attention.contribution(update, 0.0, 1.0, 1.0, False)
    assert not any(np.any(t.numpy()) for t in tf.nest.flatten([of_mean, of_attention]))


# Seeds in a state


def test_the_seed_is_put_wherever_its_name_stands():
    point = collections.namedtuple("point", "noise_seed rest")
    inner = collections.OrderedDict(noise_seed=np.zeros(2, np.int32), round=np.int32(3))
    state = collections.OrderedDict(weights=(1, [2]), aggregator=(inner, (point(0, [inner]),)))
    put = with_noise_seed(state, [7, -1])
    assert put["aggregator"][0]["noise_seed"].tolist() == [7, -1] == put["aggregator"][1][0].noise_seed.tolist()
    assert put["aggregator"][1][0].rest[0]["noise_seed"].dtype == np.int32 and type(put["aggregator"][1][0]) is point
    assert put["weights"] == (1, [2]) and put["aggregator"][0]["round"] == 3
    assert not inner["noise_seed"].any()
    for wrong in ([0, 0], [1, 2, 3], 5):
        with pytest.raises(ValueError, match="seed of the noise"):
            with_noise_seed(state, wrong)
