"""The mean whose noise is added in shares: words, the simulated noise, and what it goes with."""

import math

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregators import has_noise, shared_noise, with_noise_seed
from computations.aggregators.shared_noise import SharedNoiseMeanFactory
from computations.aggregators.shared_noise_attention import SharedNoiseAttentionFactory
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
    added = SharedNoiseMeanFactory(shares_of(), 4.0, at_sites=True).added
    encode = shared_noise._encoder(shares_of(), added, NUMBERS, 20)
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


# Attention


def attention(values, weights, *, whole=False, normaliser=None, at_sites=True, expected=4.0, seed=SEED, **changes):
    factory = SharedNoiseAttentionFactory(
        shares_of(bits=24, **changes), expected, "model" if whole else "layer", normaliser, at_sites=at_sites
    )
    process = factory.create(VALUE, WEIGHT)
    state = process.initialize() if at_sites else with_noise_seed(process.initialize(), seed)
    return factory, process.next(state, values, [np.float32(w) for w in weights])


def attended(values, clip, whole):
    """Attention with the constant S in place of the largest norm, of each softmax S / sqrt(L)."""
    part = 1.0 if whole else 1 / math.sqrt(len(SHAPES))
    result = []
    for index in range(len(SHAPES)):
        own = [flat(update) if whole else np.ravel(update[index]).astype(np.float64) for update in values]
        norms = np.array([np.linalg.norm(numbers) for numbers in own])
        scores = np.exp(np.minimum(norms, clip * part) - clip * part)
        shrunk = [update[index] * min(1, clip * part / n) for update, n in zip(values, norms, strict=True)]
        result.append(sum(a * np.asarray(t, np.float64) for a, t in zip(scores, shrunk, strict=True)) / scores.sum())
    return np.concatenate([np.ravel(t) for t in result])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("normaliser", [None, 0.3])
def test_attention_is_the_private_one_but_for_the_grid(whole, normaliser):
    lost = [np.full(shape, np.nan, np.float32) for shape in SHAPES]
    sent = [*updates(3, 0.15), *updates(1, 5.0, seed=1)]
    ways = {"whole": whole, "normaliser": normaliser, "bound": 1.0, "noise_multiplier": 0.05}
    _, output = attention([*sent, lost], [3, 200, 1, 1, 0], **ways)
    np.testing.assert_allclose(flat(output.result), attended(sent, 1.0, whole), atol=1e-5)
    assert output.state == () and output.measurements == {"privacy/clip": 1.0}


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_client_adds_to_attention_is_within_the_norm_that_noise_is_scaled_to(whole):
    factory, _ = attention(updates(1, 0.1), [1], whole=whole, normaliser=0.7, bound=1.0)
    assert factory._shares.clip == pytest.approx(math.hypot(1.0, 0.7))
    assert factory.numbers(VALUE) == NUMBERS + (1 if whole else len(SHAPES))
    sizes = []
    for scale in (0.0, 0.01, 0.3, 1.0, 40.0, 1e30):
        for seed in range(4):
            (update,) = updates(1, scale, seed)
            added = factory.added([tf.constant(t) for t in update], tf.constant(1.0))
            sizes.append(np.linalg.norm(np.concatenate([np.ravel(t) for t in added]).astype(np.float64)))
    assert max(sizes) <= math.hypot(1.0, 0.7) * (1 + 1e-6) and max(sizes) == pytest.approx(math.hypot(1.0, 0.7))
    nothing = factory.added([tf.constant(t) for t in updates(1, 1.0)[0]], tf.constant(0.0))
    assert not any(np.any(t) for t in nothing)


def test_the_noise_of_attention_is_on_the_updates_and_on_the_normaliser():
    """By the sums before the quotient: the words of a total without clients are noise only."""
    ways = {"bound": 1.0, "whole": True, "expected": 2.0, "noise_multiplier": 1.0}
    sent = [[np.zeros(shape, np.float32) for shape in SHAPES]] * 2
    factory, _ = attention(sent, [1, 1], **ways)
    deviation = math.sqrt(factory._shares.least_variance(NUMBERS + 1)) * factory._shares.step
    assert deviation == pytest.approx(math.sqrt(2.0), rel=1e-4)
    results = [flat(attention(sent, [1, 1], at_sites=False, seed=(n, 1), **ways)[1].result) for n in range(40)]
    # The normaliser is at least a deviation of its noise, so that no quotient is larger than its numerator over it.
    assert np.isfinite(results).all() and 0.3 < np.std(results) < 1.2


def test_a_bound_that_cuts_the_normaliser_is_refused():
    with pytest.raises(CompositionError, match=r"secure_bound = 0.8 is below a client's part .*attention, 1; raise it"):
        attention(updates(1, 0.1), [1], whole=True)
    attention(updates(1, 0.1), [1], normaliser=0.8, whole=True)


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


@pytest.mark.parametrize("name", ["fedprox", "fedpap"])
def test_rounds_move_the_weights(name):
    algorithm = private(name)
    start = begin(algorithm)
    state, _, metrics = play(algorithm, start, [0, 1], clients_of_round)
    before, after = (np.ravel(s["weights"].trainable[0]) for s in (start, state))
    assert np.isfinite(after).all() and np.abs(after - before).max() > 1e-3
    assert "work" not in metrics[0] or not metrics[0]["work"]


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("fedavg", {"clip_quantile": 0.5}, "privacy.clip_quantile is for noise that the server adds"),
        ("fedavg", {"mechanism": "tree"}, 'privacy.mechanism = "tree" is for noise that the server adds'),
        ("fedavg", {"normaliser": 1.0}, "privacy.normaliser is only for attention"),
        ("fednova", {}, "noise in shares .* is for the mean and for attention, "),
        ("scaffold", {}, "control variates"),
        ("fedcmc", {}, "classifier vector"),
    ],
)
def test_what_does_not_go_with_shares_is_named(name, options, reason):
    with pytest.raises(CompositionError, match=reason) as caught:
        private(name, **options)
    assert "\n" not in str(caught.value)
