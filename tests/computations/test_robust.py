"""Robust rules against NumPy, what bad clients can do to each, and that nothing that is not finite passes."""

import asyncio
import functools

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.aggregation_rules.fltrust import trusted
from computations.aggregation_rules.krum import collected_krum
from computations.aggregation_rules.rfa import GeometricMedianFactory
from computations.aggregation_rules.trimmed_mean import collected_trimmed_mean
from computations.aggregators import AttentionFactory, PredictionsFactory, mean
from computations.aggregators.collected import collected_median, require_room
from computations.aggregators.defence import AdaptiveNorm, defended
from computations.client_work.attacks import attacked
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from computations.traffic import round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.built import build
from tests.computations.test_attention import fits_one_model, what_the_server_gathers
from tests.computations.toolbox import client, examples, model_weights, start_weights
from tests.stacks import computing_on

pytestmark = pytest.mark.xdist_group("algorithms")

SHAPES = ((6,), (2, 3), ())
VALUE = tff.types.to_type([tff.TensorType(np.float32, shape) for shape in SHAPES])
WEIGHT = tff.TensorType(np.float32)


# Updates: nine honest ones around a truth, 13 numbers in three tensors.


def tensors(vector):
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [np.float32(v.reshape(s)) for v, s in zip(np.split(vector, ends[:-1]), SHAPES, strict=True)]


def vector(update):
    return np.concatenate([np.ravel(t) for t in update]).astype(float)


TRUTH = 0.3 * np.random.default_rng(1).normal(size=13)
HONEST = [TRUTH + 0.1 * np.random.default_rng(k).normal(size=13) for k in range(2, 11)]


def aggregate(process, updates, weights=None, state=None):
    values = [tensors(u) for u in updates]
    weights = [np.float32(w) for w in (weights or [1] * len(updates))]
    output = process.next(process.initialize() if state is None else state, values, weights)
    return vector(output.result), output.measurements, output.state


# The same rules in NumPy.


def geometric_median(updates, weights, start="clipped", steps=3, smoothing=1e-6):
    updates, weights = np.array(updates), np.array(weights, float)
    norms = np.linalg.norm(updates, axis=1)
    used = weights
    if start == "clipped":
        order = np.argsort(norms)
        middle = norms[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
        used = weights * np.minimum(1, 2 ** (np.ceil(2 * np.log2(middle)) / 2) / norms)
    point = used @ updates / used.sum()
    for _ in range(steps):
        used = weights / np.maximum(smoothing, np.linalg.norm(updates - point, axis=1))
        point = used @ updates / used.sum()
    return point


def krum(updates, weights, bad, chosen):
    updates = [u for u, w in zip(updates, weights, strict=True) if w > 0]
    scores = []
    for index, update in enumerate(updates):
        others = updates[:index] + updates[index + 1 :]
        scores.append(sum(sorted(np.sum((update - o) ** 2) for o in others)[: len(updates) - bad - 2]))
    return np.mean([updates[k] for k in np.argsort(scores)[:chosen]], axis=0)


def trimmed_mean(updates, weights, cut):
    ordered = np.sort([u for u, w in zip(updates, weights, strict=True) if w > 0], axis=0)
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def clipped_to(norm, updates):
    return [u * min(1, norm / np.linalg.norm(u)) for u in updates]


def attention(updates, weights):
    factors = np.array(weights) * np.exp(np.linalg.norm(updates, axis=1))
    return factors / factors.sum()


WHOLE = "model"  # one softmax, so that NumPy need not know the layers
RULES = {
    "rfa": (GeometricMedianFactory(), geometric_median),
    "rfa from the mean": (
        GeometricMedianFactory(start="mean", steps=5),
        functools.partial(geometric_median, start="mean", steps=5),
    ),
    "median": (collected_median(), lambda u, w: np.median([a for a, b in zip(u, w, strict=True) if b], axis=0)),
    "trimmed mean": (collected_trimmed_mean(0.2), lambda u, w: trimmed_mean(u, w, cut=np.count_nonzero(w) // 5)),
    "krum": (collected_krum(bad=2), lambda u, w: krum(u, w, 2, 1)),
    "multi-krum": (collected_krum(bad=2, chosen=4), lambda u, w: krum(u, w, 2, 4)),
    "clip, mean": (defended(mean(), clip=1), lambda u, w: np.average(clipped_to(1, u), axis=0, weights=w)),
    "clip, attention": (
        defended(AttentionFactory(WHOLE), clip=1.0),
        lambda u, w: attention(clipped_to(1.0, u), np.sign(w)) @ clipped_to(1.0, u),
    ),
    "clip, rfa": (defended(GeometricMedianFactory(), clip=1.0), lambda u, w: geometric_median(clipped_to(1.0, u), w)),
    "clip, rfa, attention": (
        defended(GeometricMedianFactory(AttentionFactory(WHOLE, weighted=True), start="mean"), clip=1.0),
        lambda u, w: geometric_median(
            clipped_to(1.0, u), np.array(w) * np.exp(np.linalg.norm(clipped_to(1.0, u), axis=1)), start="mean"
        ),
    ),
    "uniform": (defended(mean(), uniform=True), lambda u, w: np.average(u, axis=0, weights=np.sign(w))),
}


# One that collects and one that asks several times.
ON_BOTH_RUNTIMES = ("krum", "clip, rfa, attention")


@pytest.fixture(scope="module")
def processes():
    return functools.cache(lambda name: RULES[name][0].create(VALUE, WEIGHT))


# Parts of "clip, rfa, attention".
SLOW = ("clip, rfa", "clip, attention", "rfa from the mean")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in RULES])
def test_a_rule_is_its_numpy_version_in_any_order(processes, runtimes, name):
    updates, weights = [*HONEST, -5 * TRUTH, 0.2 * TRUTH], [3, 1, 1, 0, 2, 1, 1, 4, 1, 1, 0]
    result = aggregate(processes(name), updates, weights)[0]
    np.testing.assert_allclose(result, RULES[name][1](updates, weights), atol=2e-6)
    if name in ON_BOTH_RUNTIMES:
        for opened in runtimes.values():
            with computing_on(opened):
                np.testing.assert_allclose(aggregate(processes(name), updates, weights)[0], result, atol=1e-6)
    turned = aggregate(processes(name), updates[::-1], weights[::-1])[0]
    np.testing.assert_allclose(turned, result, atol=2e-6)
    nobody, measured, _ = aggregate(processes(name), updates, [0] * len(updates))
    assert not nobody.any()
    assert all(np.isfinite(m) for m in tf.nest.flatten(measured) if np.ndim(m) == 0)


# Bad clients


def error(result):
    """Distance from the honest clients' mean, over the truth's length."""
    return np.linalg.norm(result - np.mean(HONEST, axis=0)) / np.linalg.norm(TRUTH)


def test_one_client_breaks_attention_and_the_mean():
    for factory in (AttentionFactory(), mean()):
        process = factory.create(VALUE, WEIGHT)
        result = aggregate(process, [*HONEST, -10 * TRUTH])[0]
        assert result @ TRUTH < 0
    attentive = aggregate(AttentionFactory().create(VALUE, WEIGHT), [*HONEST, -10 * TRUTH])[0]
    cosine = attentive @ TRUTH / np.linalg.norm(attentive) / np.linalg.norm(TRUTH)
    assert cosine < -0.95 and np.linalg.norm(attentive) > 8 * np.linalg.norm(TRUTH)


# How many bad clients beside the nine honest ones, and what they all send: 1e14 is below what is screened out.
BAD = {"flipped": -TRUTH, "flipped and long": -10 * TRUTH, "far": -1e14 * TRUTH, "zeros": 0 * TRUTH}
HOLDS = {"rfa": 3, "median": 4, "trimmed mean": 2, "krum": 2, "multi-krum": 2, "clip, rfa": 3}


@pytest.mark.parametrize("name, count", HOLDS.items())
def test_bad_clients_move_a_robust_rule_by_a_bounded_way(processes, name, count):
    for sent in BAD.values():
        assert error(aggregate(processes(name), [*HONEST, *[sent] * count])[0]) < 0.45


def test_where_the_rules_end(processes):
    """A bad majority wins the median and RFA, three of twelve a mean that trims two, ten of nineteen Krum."""
    for name, count in (("rfa", 10), ("median", 10), ("trimmed mean", 3), ("multi-krum", 10)):
        assert error(aggregate(processes(name), [*HONEST, *[-10 * TRUTH] * count])[0]) > 1


def test_steps_from_the_mean_do_not_forget_a_far_update(processes):
    """Why they start elsewhere by default; with clipping either start will do."""
    far = [*HONEST, -1e6 * TRUTH]
    assert error(aggregate(processes("rfa from the mean"), far)[0]) > 1
    assert error(aggregate(processes("rfa"), far)[0]) < 0.2
    assert error(aggregate(processes("clip, rfa, attention"), far)[0]) < 0.3


def test_krum_skips_a_round_of_too_few(processes):
    result, measured, _ = aggregate(processes("krum"), HONEST[:6])
    assert not result.any() and measured["robust/too_few"] == 1 and measured["robust/collected"] == 6
    assert aggregate(processes("krum"), HONEST[:7])[1]["robust/too_few"] == 0


# Values that are not finite, and finite ones that overflow

FULL = {
    "mean": lambda: mean(),
    "attention": lambda: AttentionFactory(),
    "rfa": lambda: GeometricMedianFactory(),
    "median": lambda: collected_median(),
    "krum": lambda: collected_krum(2),
}


@pytest.mark.parametrize("name", FULL)
def test_nothing_that_is_not_finite_passes(name):
    """The result is that of the sound clients; the state stays finite, too."""
    bounds = {"clip": AdaptiveNorm(initial=0.9), "zeroing": 2.0} if name in ("mean", "rfa") else {}
    process = defended(FULL[name](), **bounds).create(VALUE, WEIGHT)
    single = np.zeros(13)
    single[7] = np.nan
    bad = [np.full(13, v) for v in (np.nan, np.inf, -np.inf, 1e15, 3e38)] + [single]
    badly_weighted = [HONEST[0]] * 4
    weights = [1] * 9 + [1, 1, 1, 1, 1, 0] + [np.nan, np.inf, -1, 1e20]
    result, measured, state = aggregate(process, [*HONEST, *bad, *badly_weighted], weights)
    expected = aggregate(process, HONEST + [np.zeros(13)] * 10, [1] * 9 + [0] * 10)[0]
    np.testing.assert_allclose(result, expected, atol=1e-6)
    assert measured["robust/screened"] == 10
    assert all(np.isfinite(value).all() for value in tf.nest.flatten(state) if value is not None)
    # The largest that passes overflows nothing either.
    large = aggregate(process, [*HONEST, np.full(13, 2e14)], [1] * 9 + [1e15])[0]
    assert np.isfinite(large).all()


def test_measurements(processes):
    process = defended(AttentionFactory(), clip=1.0, zeroing=4.0).create(VALUE, WEIGHT)
    updates = [TRUTH, 2 * TRUTH, 100 * TRUTH, np.full(13, np.nan)]
    norms = [np.linalg.norm(u) for u in updates[:3]]
    assert norms[0] < 1 < norms[1] and np.abs(updates[1]).max() < 4 < np.abs(updates[2]).max()
    measured = aggregate(process, updates)[1]
    expected = {"screened": 1, "zeroed": 1, "zeroing_norm": 4, "clipped": 1, "clipping_norm": 1}
    assert {name: measured[f"robust/{name}"] for name in expected} == expected
    assert 2 < measured["attention/effective_clients"] <= 3
    # Of ten clients one is at the end almost without weight.
    assert 8 < aggregate(processes("rfa"), [*HONEST, -100 * TRUTH])[1]["robust/effective_clients"] < 9.5


# The adaptive norm is state.


def test_the_clipping_norm_follows_the_quantile_and_lives_in_checkpoints(tmp_path):
    adaptive = AdaptiveNorm(quantile=0.5, initial=4, learning_rate=1)
    process = defended(mean(), clip=adaptive).create(VALUE, WEIGHT)
    manager = tff.program.FileProgramStateManager(tmp_path)
    state, norms = process.initialize(), []
    for _ in range(4):
        _, measured, state = aggregate(process, HONEST, state=state)
        norms.append(float(measured["robust/clipping_norm"]))
    # All nine are shorter than 4 and than the next: each time a factor of exp(-(1 - 0.5)).
    np.testing.assert_allclose(norms[:3], 4 * np.exp([0, -0.5, -1.0]), rtol=1e-5)
    lengths = np.linalg.norm(HONEST, axis=1)
    assert (lengths < norms[2]).all() and (lengths > norms[3]).any()
    asyncio.run(manager.save(state, 4))
    restored = asyncio.run(manager.load(4, process.initialize()))
    again, on = (aggregate(process, HONEST, state=s) for s in (restored, state))
    assert toolbox.bits(again[0]) == toolbox.bits(on[0])
    assert again[1]["robust/clipping_norm"] == on[1]["robust/clipping_norm"] < norms[3]


# What the server holds


def test_only_collecting_rules_collect(processes):
    model = type_bytes(VALUE)
    for name, fits in (("rfa", True), ("clip, mean", True), ("clip, rfa, attention", True), ("median", False)):
        _, gathered = what_the_server_gathers(processes(name).next)
        # The median norm's histogram is longer than this tiny model.
        assert gathered and fits_one_model(gathered, model + 1000) == fits, name
    traffic = round_traffic(GeometricMedianFactory(steps=2).create(VALUE, WEIGHT).next)
    assert traffic.down == 2 * model + 4
    assert traffic.up == 3 * (model + 4) + 4 * 181 + 2 * 8  # three means, a histogram, two sums in 64 bits


def test_the_callers_check_of_sizes():
    room = 52 * (55 + 3 * 10)  # 1 + 2 + ... + 10 updates of 52 bytes, and three lists of ten
    require_room(VALUE, 10, room, "median")
    with pytest.raises(CompositionError, match=r"median collects .* 11 clients .*'rfa'"):
        require_room(VALUE, 11, room, "median")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: GeometricMedianFactory(steps=0), "steps"),
        (lambda: GeometricMedianFactory(smoothing=0.0), "smoothing"),
        (lambda: GeometricMedianFactory(start="zero"), "start.*'zero'"),
        (lambda: GeometricMedianFactory(AttentionFactory()), "weighted=True"),
        (lambda: collected_trimmed_mean(0.5), "share.*0.5"),
        (lambda: collected_krum(-1), "bad"),
        (lambda: collected_krum(1, 0), "chosen"),
        (lambda: defended(mean(), clip=0.0), "clip"),
        (lambda: AdaptiveNorm(quantile=1.5), "quantile"),
        (lambda: PredictionsFactory(3, combine="mode"), "combine.*'mode'"),
        (lambda: PredictionsFactory(3, tff.aggregators.SumFactory(), combine="median"), "inner_sum"),
    ],
)
def test_values_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_does_not_fit():
    votes = tff.TensorType(np.uint8, [4])
    with pytest.raises(CompositionError, match="floating-point"):
        defended(PredictionsFactory(3), clip=1.0).create(votes, WEIGHT)
    with pytest.raises(CompositionError, match="geometric median: needs a weighted mean"):
        GeometricMedianFactory(PredictionsFactory(3)).create(tff.TensorType(np.float32, [4, 3]), WEIGHT)
    with pytest.raises(CompositionError, match="median needs logits"):
        PredictionsFactory(3, combine="median").create(votes, WEIGHT)


# The median of predictions


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_median_of_logits_and_its_limit(dtype):
    rng = np.random.default_rng(3)
    honest = [rng.normal(size=[4, 3]).astype(dtype) for _ in range(5)]
    process = defended(PredictionsFactory(3, combine="median")).create(tff.TensorType(dtype, [4, 3]), WEIGHT)

    def combine(values, weights):
        output = process.next(process.initialize(), values, [np.float32(w) for w in weights])
        return output.result["logits"], float(output.result["weight"])

    alone, weight = combine([*honest, honest[0]], [2, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(alone, np.median(honest, axis=0), atol=1e-6)
    assert weight == 6
    bad = [np.full([4, 3], 1e4, dtype)]
    for count, stays in ((2, True), (4, True), (6, False)):
        logits, _ = combine(honest + bad * count, [1] * (5 + count))
        assert (logits <= np.max(honest, axis=0)).all() == stays
    # Inside of the honest clients' range it goes where the bad ones pull it: with four of nine to the highest.
    np.testing.assert_allclose(combine(honest + bad * 4, [1] * 9)[0], np.max(honest, axis=0), atol=1e-6)
    with_nan = combine([*honest, np.full([4, 3], np.nan, dtype)], [1] * 6)
    np.testing.assert_allclose(with_nan[0], alone, atol=1e-6)
    assert with_nan[1] == 5 and not combine(honest, [0] * 5)[0].any()


def test_feded_with_a_median(model):
    entry = algorithms.find("feded")
    options = {"num_server_examples": 12, "batch_size": 50, "optimizer": "sgd", "learning_rate": 0.3}
    data, at_server = [examples(9, seed=k) for k in range(3)], client(*examples(12, seed=40), seed=(0, 77))

    def moved(ensemble):
        """How far one attacker of three moves the server's model."""
        algorithm = entry.build(model, entry.options(**options, ensemble=ensemble))
        algorithm = recompose(algorithm, client_work=attacked(algorithm.client_work, "scale", -1e6))
        ends = []
        for attacks in (False, True):
            clients = [client(x, y, seed=(0, k)) for k, (x, y) in enumerate(data)]
            for index, value in enumerate(clients):
                value["attacks"] = np.bool_(attacks and index == 1)
            output = algorithm.next(algorithm.initialize(model_weights(*start_weights())), clients, at_server)
            ends.append(vector(output["state"]["weights"].trainable))
        return np.linalg.norm(ends[0] - ends[1])

    assert moved("median") < 0.15 < 0.3 < moved("mean")
    with pytest.raises(CompositionError, match="weighting"):
        entry.build(model, entry.options(**options, ensemble="median", weighting="examples"))


# FLTrust

RATE = 0.5


def trusting(model, name="fedavg", kind=None, factor=1.0, **wanted):
    entry = algorithms.find(name)
    options = entry.options(**{"learning_rate": RATE, "local_epochs": 1, "batch_size": 50, **wanted})
    algorithm = entry.build(model, options)
    work = algorithm.client_work if kind is None else attacked(algorithm.client_work, kind, factor)
    work = trusted(work, model)
    return recompose(algorithm, client_work=work, aggregator=mean())


def test_fltrust_by_numpy(model, runtimes):
    """Two honest clients, one that flips its update and one that sends NaN; clients count by their trust alone."""
    x, y = examples(12, seed=40)
    data = [examples(n, seed=n) for n in (6, 15, 9, 8)]
    start = start_weights()
    flat = lambda end: vector(toolbox.difference(start, end))  # noqa: E731
    trusted = flat(toolbox.train(start, x, y, [np.arange(12)], toolbox.Sgd(RATE)))
    updates = [flat(toolbox.train(start, a, b, [np.arange(len(b))], toolbox.Sgd(RATE))) for a, b in data]
    updates[2] = -3 * updates[2]
    length = np.linalg.norm(trusted)
    cosines = [u @ trusted / np.linalg.norm(u) / length for u in updates]
    assert min(cosines[:2]) > 0 > cosines[2]
    scores = np.maximum(cosines[:3], 0)
    expected = scores @ [u * length / np.linalg.norm(u) for u in updates[:3]] / scores.sum()
    algorithm = trusting(model, kind="sign_flip", factor=3.0)
    for opened in runtimes.values():
        with computing_on(opened):
            clients = [client(a, b, seed=(0, k)) for k, (a, b) in enumerate(data)]
            clients[3]["examples"]["x"][0, 0] = np.nan
            for index, value in enumerate(clients):
                value["attacks"] = np.bool_(index == 2)
            state = algorithm.initialize(model_weights(*start))
            output = algorithm.next(state, clients, client(x, y, seed=(0, 77)))
        moved = vector(toolbox.difference(start, output["state"]["weights"].trainable))
        np.testing.assert_allclose(moved, expected, atol=1e-5)
        metrics = output["metrics"]["work"]
        assert metrics["robust/trusted"] == 2 and metrics["clients/counted"] == 3
        np.testing.assert_allclose(metrics["robust/trust"], scores.sum() / 3, rtol=1e-5)
        np.testing.assert_allclose(metrics["robust/server_norm"], length, rtol=1e-5)
    # A server whose own training fails trusts nobody; so does a round of bad clients.
    at_server = client(np.full_like(x, np.nan), y, seed=(0, 77))
    stays = algorithm.next(algorithm.initialize(model_weights(*start)), clients, at_server)
    assert toolbox.bits(stays["state"]["weights"].trainable) == toolbox.bits([np.float32(w) for w in start])


def test_fltrust_and_what_it_does_not_fit(model):
    with pytest.raises(CompositionError, match="updates of the model"):
        trusted(build("feded").client_work, model)
    assert round_traffic(trusting(model).next).down == 2 * type_bytes(model.weights_type.trainable) + 4
