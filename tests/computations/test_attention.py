import functools

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregators import AttentionFactory
from computations.traffic import intrinsic_calls, type_bytes
from tests.computations import toolbox
from tests.stacks import needs_tff

WEIGHT = tff.TensorType(np.float32)


def value_type(*shapes):
    return tff.types.to_type([tff.TensorType(np.float32, shape) for shape in shapes])


@pytest.fixture(scope="module")
def processes():
    """Built attention processes by (granularity, shapes)."""

    @functools.cache
    def get(granularity, *shapes):
        return AttentionFactory(granularity).create(value_type(*shapes), WEIGHT)

    return get


granularities = pytest.mark.parametrize("granularity", ["layer", "model"])


def aggregate(process, updates, weights):
    values = [[np.asarray(t, np.float32) for t in update] for update in updates]
    output = process.next(process.initialize(), values, [np.float32(w) for w in weights])
    return list(output.result), output.measurements


def attention_in_numpy(updates, granularity, counts=None):
    """sum_k a_k D_k and the mean of 1 / sum_k a_k^2, with plain softmaxes in float64."""
    counts = counts or [1] * len(updates)
    updates = [[np.asarray(t, float) for t in u] for u, c in zip(updates, counts, strict=True) if c > 0]
    norms = np.array([[np.linalg.norm(t) for t in u] for u in updates])
    if granularity == "model":
        norms = np.repeat(np.sqrt((norms**2).sum(axis=1, keepdims=True)), norms.shape[1], axis=1)
    attention = toolbox.softmax(norms.T).T
    result = [sum(a[i] * u[i] for a, u in zip(attention, updates, strict=True)) for i in range(norms.shape[1])]
    effective = (1 / (attention**2).sum(axis=0)).mean()
    return result, effective


# Norms by hand: the first tensors are 0.5 and 1 long, the second ones 1.2 and 0; the models 1.3 and 1.
FIRST = [[0.3, 0.4], [1.2]]
SECOND = [[0.8, -0.6], [0.0]]


# By layer: softmax(0.5, 1) = 1/(1+e^0.5), 1/(1+e^-0.5) = 0.3775407, 0.6224593, and
# 0.3775407 * (0.3, 0.4) + 0.6224593 * (0.8, -0.6); softmax(1.2, 0) = 0.7685248, 0.2314752, and 0.7685248 * 1.2;
# effective: 1/(0.3775407^2 + 0.6224593^2) = 1.8868188; 1/(0.7685248^2 + 0.2314752^2) = 1.5522862; their mean.
# By model: softmax(1.3, 1) = 0.5744425, 0.4255575 for both tensors.
BY_HAND = {
    "layer": ([0.6112297, -0.2224593], 0.9222298, (1.8868188 + 1.5522862) / 2),
    "model": ([0.5127788, -0.0255575], 0.5744425 * 1.2, 1.9566279),
}


@granularities
def test_two_clients_by_hand(processes, granularity):
    result, measurements = aggregate(processes(granularity, (2,), (1,)), [FIRST, SECOND], [1, 1])
    first, second, effective = BY_HAND[granularity]
    np.testing.assert_allclose(result[0], first, atol=1e-6)
    np.testing.assert_allclose(result[1], [second], atol=1e-6)
    np.testing.assert_allclose(measurements["attention/effective_clients"], effective, atol=1e-5)


THREE = ((4, 3), (5,), ())


def three_layer_updates(count, scale=1.0, seed=0):
    generator = np.random.default_rng(seed)
    return [[np.float32(scale * (k + 1) * generator.normal(size=shape)) for shape in THREE] for k in range(count)]


@granularities
@pytest.mark.parametrize("weights", [[1] * 5, [0, 1, 0, 7, 200], [0, 0, 0, 0, 17], [0] * 5], ids=str)
def test_three_layers_of_different_sizes(processes, granularity, weights):
    """A weight says only whether a client counts; one alone gets all the attention, and of none there is no update."""
    updates = three_layer_updates(5, scale=0.3)
    zeros = [np.zeros(shape) for shape in THREE]
    wanted, effective = attention_in_numpy(updates, granularity, weights) if any(weights) else (zeros, 0)
    for order in (slice(None), slice(None, None, -1)):  # the largest comes last, and first
        process = processes(granularity, *THREE)
        result, measurements = aggregate(process, updates[order], weights[order])
        toolbox.assert_close(result, wanted, 1e-6)
        np.testing.assert_allclose(measurements["attention/effective_clients"], effective, rtol=1e-5)


def test_a_bare_tensor_is_one_layer():
    """As TFF's own aggregators take it: a tensor's type rather than a structure's."""
    process = AttentionFactory().create(tff.TensorType(np.float32, (4, 3)), WEIGHT)
    updates = [update[0] for update in three_layer_updates(4, scale=0.3)]
    output = process.next(process.initialize(), updates, [np.float32(w) for w in (1, 1, 0, 1)])
    (wanted,), _ = attention_in_numpy([[update] for update in updates], "layer", [1, 1, 0, 1])
    np.testing.assert_allclose(output.result, wanted, atol=1e-6)


@granularities
def test_norms_of_ten_thousand_stay_finite(processes, granularity):
    updates = [[1e4 * np.ones(shape) * k for shape in THREE] for k in (0.5, 1.0, 1.00001)]
    result, _ = aggregate(processes(granularity, *THREE), updates, [1] * 3)
    # The first is 5,000 and more behind: no attention at all; the other two share it and are almost the same.
    toolbox.assert_close([t / 1e4 for t in result], [np.ones(shape) for shape in THREE], 2e-5)


@pytest.mark.parametrize("far", [1e6, np.nan])
def test_an_excluded_client_sets_no_maximum(processes, far):
    """Were it to, the exponents of all others would vanish."""
    small = three_layer_updates(2, scale=0.1)
    updates = [[np.full(shape, far) for shape in THREE], *small]
    result, _ = aggregate(processes("layer", *THREE), updates, [0, 1, 1])
    toolbox.assert_close(result, attention_in_numpy(small, "layer")[0], 1e-6)


def test_a_huge_finite_update_does_not_silence_the_round(processes):
    """Its square overflows float32; the client may get all the attention or none, but the others may not vanish."""
    huge, ordinary = [[1e20] * 2, [1.0]], [[1.0] * 2, [1.0]]
    result, _ = aggregate(processes("layer", (2,), (1,)), [huge, ordinary], [1, 1])
    assert np.isfinite(result[0]).all() and np.abs(result[0]).min() > 0.5


def test_impossible_granularity_is_refused():
    with pytest.raises(ValueError, match=r"granularity.*'tensor'"):
        AttentionFactory("tensor")


# Composition with other factories.


def test_clipping_around_it():
    factory = tff.aggregators.clipping_factory(2.0, AttentionFactory("model"))
    process = factory.create(value_type((2,)), WEIGHT)
    result, _ = aggregate(process, [[[3.0, 4.0]], [[0.6, 0.8]]], [1, 1])
    # Clipped to (1.2, 1.6), length 2; softmax(2, 1) = 0.7310586, 0.2689414
    # 0.7310586 * (1.2, 1.6) + 0.2689414 * (0.6, 0.8)
    np.testing.assert_allclose(result[0], [1.0386352, 1.3848469], atol=1e-6)


@needs_tff
def test_a_private_sum_inside_it():
    def private(noise):
        return tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=noise, clients_per_round=1.0, clip=100.0
        )

    updates = three_layer_updates(3)
    process = AttentionFactory(inner_sum=private(1e-9)).create(value_type(*THREE), WEIGHT)
    toolbox.assert_close(aggregate(process, updates, [1] * 3)[0], attention_in_numpy(updates, "layer")[0], 1e-5)
    noisy = AttentionFactory(inner_sum=private(1.0)).create(value_type(*THREE), WEIGHT)
    assert np.abs(aggregate(noisy, updates, [1] * 3)[0][0] - attention_in_numpy(updates, "layer")[0][0]).max() > 1.0


def test_it_keeps_the_inner_sums_state():
    estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(1.0, 0.5, learning_rate=1.0)
    clipped = tff.aggregators.clipping_factory(estimate, tff.aggregators.SumFactory())
    process = AttentionFactory(inner_sum=clipped).create(value_type((2,)), WEIGHT)
    state, norms = process.initialize(), [1.0]
    for _ in range(2):
        output = process.next(state, [[np.full(2, 9, np.float32)]], [np.float32(1)])
        state = output.state
        norms.append(float(output.measurements["sum"]["clipping_norm"]))
    assert norms[1] == 1.0 < norms[2]


# The server holds one model, never a list of client models.

ALLOWED = {
    "federated_aggregate",
    "federated_apply",
    "federated_broadcast",
    "federated_eval_at_server",
    "federated_map",
    "federated_map_all_equal",
    "federated_value_at_clients",
    "federated_value_at_server",
    "federated_zip_at_clients",
    "federated_zip_at_server",
}


def what_the_server_gathers(computation):
    """(names of the intrinsics, what each aggregation makes of the clients' values, accumulators too)."""
    calls = intrinsic_calls(computation)
    gathered = []
    for call in calls:
        if call.function.uri == "federated_aggregate":
            _, zero, accumulate, merge, report = call.argument.type_signature
            gathered += [zero, accumulate.result, merge.result, report.result]
    return {call.function.uri for call in calls}, gathered


def fits_one_model(gathered, model_bytes):
    """Whether every accumulator has a fixed size of one model at most; a list over clients has none."""
    try:
        return all(type_bytes(t) <= model_bytes for t in gathered)
    except ValueError:
        return False


@granularities
def test_no_client_update_is_collected(processes, granularity):
    uris, gathered = what_the_server_gathers(processes(granularity, *THREE).next)
    assert uris <= ALLOWED and "federated_aggregate" in uris
    assert gathered and fits_one_model(gathered, type_bytes(value_type(*THREE)))


def test_the_check_knows_a_collection_when_it_sees_one():
    member = tff.TensorType(np.float32, [2])
    many = tff.TensorType(np.float32, [None, 2])
    add = tff.tensorflow.computation(lambda a, v: tf.concat([a, v[tf.newaxis]], 0), many, member)
    merge = tff.tensorflow.computation(lambda a, b: tf.concat([a, b], 0), many, many)
    report = tff.tensorflow.computation(lambda a: a, many)

    @tff.tensorflow.computation
    def blank():
        return tf.zeros([tf.random.uniform([], 0, 1, tf.int32), 2])  # no rows, but the type does not say so

    @tff.federated_computation(tff.FederatedType(member, tff.CLIENTS))
    def collect(value):
        return tff.federated_aggregate(value, blank(), add, merge, report)

    _, gathered = what_the_server_gathers(collect)
    assert gathered and not fits_one_model(gathered, 10**9)
