"""The mean whose noise is added in shares: words, the simulated noise, and what it goes with."""

import math

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregators import has_noise, shared_noise, with_noise_seed
from computations.aggregators.shared_noise import SharedNoiseMeanFactory
from computations.algorithms.arranged import SharedNoise, privatised
from computations.errors import CompositionError
from computations.privacy.options import PrivacyOptions
from computations.privacy.shares import NoiseShares
from computations.traffic import uploads, words_bits
from tests.computations.built import begin, build, clients_of_round, play

pytestmark = pytest.mark.xdist_group("algorithms")

WEIGHT = tff.TensorType(np.float32)
SHAPES = ([2], [3, 1], [])
VALUE = tff.types.to_type([tff.TensorType(np.float32, shape) for shape in SHAPES])
NUMBERS = 6
SEED = (11, 12)


def shares_of(**changes):
    return NoiseShares(
        **{"clip": 1.0, "noise_multiplier": 0.5, "bits": 12, "bound": 0.8, "clients": 5, "least_sites": 3, **changes}
    )


def updates(count, scale, seed=0):
    rng = np.random.default_rng(seed)
    return [[np.float32(scale * rng.normal(size=shape)) for shape in SHAPES] for _ in range(count)]


def flat(update):
    return np.concatenate([np.ravel(t) for t in update]).astype(np.float64)


def aggregate(values, weights, *, at_sites, seed=SEED, **changes):
    process = SharedNoiseMeanFactory(shares_of(**changes), 4.0, at_sites=at_sites).create(VALUE, WEIGHT)
    state = process.initialize()
    return process.next(state if at_sites else with_noise_seed(state, seed), values, [np.float32(w) for w in weights])


def expected_integers(update, shares):
    wide = flat(update)
    clipped = np.clip(wide * min(1, shares.clip / np.linalg.norm(wide)), -shares.bound, shares.bound)
    return np.rint(clipped / shares.step)


def test_across_sites_the_server_divides_the_total_and_adds_nothing():
    """Clients count alike, and one of weight zero sends zeros even if its update is not finite."""
    lost = [np.full(shape, np.nan, np.float32) for shape in SHAPES]
    sent, weights, shares = [*updates(3, 0.2), *updates(1, 5.0), lost], [3, 200, 1, 1, 0], shares_of()
    output = aggregate(sent, weights, at_sites=True)
    total = sum(expected_integers(update, shares) for update in sent[:4])
    assert np.array_equal(flat(output.result), np.float32(total * shares.step / 4.0).astype(np.float64))
    assert output.state == () and output.measurements == {"privacy/clip": 1.0}


def test_a_simulation_adds_the_least_noise_in_steps_of_the_grid():
    sent, shares = updates(3, 0.2), shares_of()
    without = flat(aggregate(sent, [1, 1, 1], at_sites=True).result)
    steps = []
    for number in range(60):
        output = aggregate(sent, [1, 1, 1], at_sites=False, seed=(number, 1))
        steps.append((flat(output.result) - without) * 4.0 / shares.step)
        assert not np.any(output.state["noise_seed"]) and output.state["round"] == 1
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-2)
    deviation = math.sqrt(shares.least_variance(NUMBERS))
    assert np.std(steps) == pytest.approx(deviation, rel=0.15) and abs(np.mean(steps)) < 0.2 * deviation
    assert np.isnan(flat(aggregate(sent, [1, 1, 1], at_sites=False, seed=(0, 1)).result)).sum() == 0


def test_a_simulation_without_a_seed_of_the_noise_gives_no_number():
    process = SharedNoiseMeanFactory(shares_of(), 4.0, at_sites=False).create(VALUE, WEIGHT)
    output = process.next(process.initialize(), updates(2, 0.2), [np.float32(1)] * 2)
    assert np.isnan(flat(output.result)).all()


def test_noise_in_words_cannot_wrap_around():
    """Beside the largest updates, and with much noise."""
    largest = [[np.full(shape, 1 / math.sqrt(NUMBERS), np.float32) for shape in SHAPES]] * 5
    quiet = flat(aggregate(largest, [1] * 5, at_sites=True).result)
    loud = flat(aggregate(largest, [1] * 5, at_sites=False, noise_multiplier=20.0).result)
    deviation = 20.0 / 4.0
    assert (np.abs(loud - quiet) < 6 * deviation).all() and (np.abs(loud - quiet) > 1e-4).all()


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_integers_beyond_the_norm_are_shrunk(monkeypatch, weight):
    """Rounding of floating point alone would give them; a smaller norm shows what happens then."""
    monkeypatch.setattr(NoiseShares, "norm", lambda self, numbers: 100.0)
    encode = shared_noise._encoder(shares_of(), NUMBERS, 20)
    update = [tf.constant(t) for t in updates(1, 5.0)[0]]
    (words,) = encode(update, tf.constant(weight)).values()
    integers = np.concatenate([np.ravel(w.numpy()) for w in words]).astype(np.int64)
    integers = np.where(integers >= 2**19, integers - 2**20, integers)
    size = np.linalg.norm(integers)
    assert size <= 100.0 and size == pytest.approx(98.5 * weight, abs=1.6 * weight)
    ways = integers @ flat([t.numpy() for t in update])
    assert ways >= 0.999 * size * np.linalg.norm(flat([t.numpy() for t in update]))


@pytest.mark.parametrize(
    ("changes", "modulus", "line"),
    [
        ({}, 12, "secure_modulus_bits is 12, and the clients' numbers with their noise need 1"),
        ({"bits": 2, "noise_multiplier": 0.01}, None, "secure_bits = 2 .* is too coarse: the noise is only"),
        ({"bits": 32, "bound": 1e-6, "noise_multiplier": 50.0}, None, "is too fine: the noise is beyond"),
    ],
)
def test_grids_that_do_not_go_with_the_noise_are_refused(changes, modulus, line):
    factory = SharedNoiseMeanFactory(shares_of(**changes), 4.0, at_sites=True, modulus_bits=modulus)
    with pytest.raises(CompositionError, match=line):
        factory.create(VALUE, WEIGHT)


# Algorithms


def private(name, *, at_sites=True, **options):
    privacy = PrivacyOptions(noise_multiplier=1.0, least_sites=3, **options)
    noise = SharedNoise(shares_of(clip=privacy.clip), at_sites=at_sites, modulus_bits=None)
    return privatised(build(name), privacy, expected_clients=2, noise_multiplier=1.0, shares=noise)


def test_words_are_all_that_leaves_a_client():
    (sent,) = uploads(private("fedavg").next)
    ((name, member),) = tff.structure.iter_elements(sent)
    assert words_bits(name) and sum(math.prod(t.shape) for t in member) == 3 * 3 + 3
    assert not has_noise(private("fedavg")) and has_noise(private("fedavg", at_sites=False))


def test_rounds_move_the_weights():
    algorithm = private("fedprox")
    start = begin(algorithm)
    state, _, metrics = play(algorithm, start, [0, 1], clients_of_round)
    before, after = (np.ravel(s["weights"].trainable[0]) for s in (start, state))
    assert np.isfinite(after).all() and np.abs(after - before).max() > 1e-3
    assert "work" not in metrics[0] or not metrics[0]["work"]


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("fedpa", {}, "is for the mean, and this algorithm aggregates with attention"),
        ("fedavg", {"clip_quantile": 0.5}, "privacy.clip_quantile is for noise that the server adds"),
        ("fedavg", {"mechanism": "tree"}, 'privacy.mechanism = "tree" is for noise that the server adds'),
        ("fedavg", {"normaliser": 1.0}, "privacy.normaliser is for noise that the server adds"),
        ("fednova", {}, "noise in shares .* is for the mean, "),
        ("scaffold", {}, "control variates"),
        ("fedcmc", {}, "classifier vector"),
    ],
)
def test_what_does_not_go_with_shares_is_named(name, options, reason):
    with pytest.raises(CompositionError, match=reason) as caught:
        private(name, **options)
    assert "\n" not in str(caught.value)
