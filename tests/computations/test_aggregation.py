"""The table [aggregation]: simulated secure sums and compression, in numbers worked out by hand or in NumPy."""

import collections
import functools

import attrs
import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregation_rules import AggregationOptions
from computations.aggregators import AttentionFactory, PredictionsFactory, mean
from computations.aggregators.compression import EightBits, EncodedSumFactory, TopShare
from computations.aggregators.secure import SecureSumFactory, modulus_bits_for
from computations.algorithms.aggregation import with_aggregation, with_replaced_sums
from computations.client_work import ClientWork
from computations.client_work.compression import with_error_feedback, with_lossy_updates
from computations.errors import CompositionError
from computations.native_form import native_block
from computations.traffic import intrinsic_calls, round_traffic, type_bytes, words_of
from tests.computations.built import begin, build, clients_of_round, initial_client_states, play
from tests.computations.toolbox import bits
from tests.stacks import computing_on
from tff_re.runtime.compiled_form import compiled_form

pytestmark = pytest.mark.xdist_group("algorithms")

PAIR = tff.types.to_type(collections.OrderedDict(a=tff.TensorType(np.float32, [2]), b=np.float32))


def pair(a, b):
    return collections.OrderedDict(a=np.array(a, np.float32), b=np.float32(b))


def summed(factory, values, value_type=PAIR, rounds=1):
    process = factory.create(value_type)
    state = process.initialize()
    for _ in range(rounds):
        output = process.next(state, values)
        state = output.state
    return output


# Secure sums


def test_three_bits_by_hand():
    """Levels are -3..3 thirds of the bound 1.5, a width of 0.5."""
    output = summed(SecureSumFactory(3, 8, 1.5), [pair([0.24, -0.3], 9.0), pair([0.76, 0.0], -1.6)])
    # 0.24 -> 0, -0.3 -> -0.5, 9 -> 1.5; 0.76 -> 1, 0 -> 0, -1.6 -> -1.5
    np.testing.assert_array_equal(output.result["a"], [1.0, -0.5])
    assert output.result["b"] == 0.0
    # One of three numbers is beyond the bound at each client.
    np.testing.assert_allclose(output.measurements["secure/clipped"], 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("bits_of_a_number", [2, 8, 20, 32])
def test_the_error_of_a_sum_is_at_most_half_a_width_for_each_client(bits_of_a_number):
    values = np.random.default_rng(3).uniform(-2, 2, size=[5, 40]).astype(np.float32)
    factory = SecureSumFactory(bits_of_a_number, modulus_bits_for(bits_of_a_number, 5), 2.0)
    result = summed(factory, list(values), tff.TensorType(np.float32, [40])).result
    width = 2.0 / (2 ** (bits_of_a_number - 1) - 1)
    error = np.abs(result - values.astype(float).sum(axis=0)).max()
    assert error <= 5 * width / 2 + 1e-6
    assert error > (5 * width / 20 if bits_of_a_number < 20 else 0)  # and not by chance: it is rounded


def test_a_sum_wraps_around_where_the_modulus_is_too_small():
    ones = [np.float32(1)] * 3
    scalar = tff.TensorType(np.float32)
    # Three times the integer 3 is 9: modulo 8 that is 1, modulo 16 -7, modulo 32 itself.
    for modulus_bits, integer in ((3, 1), (4, -7), (5, 9)):
        result = summed(SecureSumFactory(3, modulus_bits, 1.0), ones, scalar).result
        np.testing.assert_allclose(result, integer / 3, rtol=1e-6)
    assert modulus_bits_for(3, 3) == 5 and modulus_bits_for(3, 4) == 5 and modulus_bits_for(3, 5) == 6
    assert modulus_bits_for(20, 1) == 20
    # The greatest sum that is possible fits exactly: 4 clients of 3 are 12, and -16..15 are there.
    np.testing.assert_allclose(summed(SecureSumFactory(3, 5, 1.0), [np.float32(-1)] * 4, scalar).result, -4, rtol=1e-6)


def test_words_longer_than_32_bits():
    value = np.float32(0.3)
    result = summed(SecureSumFactory(32, 62, 1.0), [value] * 7, tff.TensorType(np.float32)).result
    np.testing.assert_allclose(result, 7 * value, rtol=1e-7)


def test_the_bound_follows_a_quantile():
    """C <- C exp(-(share below C - quantile)), Andrew et al. 2021, Eq. of Section 2.2 with a rate of 1."""
    values = [np.float32(v) for v in (0.5, 3.0, 5.0, 7.0)]
    process = SecureSumFactory(20, 24, 1.0, 0.75).create(tff.TensorType(np.float32))
    state, bound = process.initialize(), 1.0
    for _ in range(3):
        output = process.next(state, values)
        state = output.state
        np.testing.assert_allclose(output.measurements["secure/bound"], bound, rtol=1e-5)
        np.testing.assert_allclose(output.result, sum(min(float(v), bound) for v in values), rtol=1e-4)
        np.testing.assert_allclose(output.measurements["secure/clipped"], np.mean([v > bound for v in values]))
        bound *= np.exp(-(np.mean([v <= bound for v in values]) - 0.75))


def test_bits_that_are_out_of_range():
    for arguments in ((1, 8, 1.0), (33, 40, 1.0), (8, 63, 1.0)):
        with pytest.raises(ValueError, match="bits must lie between 2 and 32 and modulus_bits between 2 and 62"):
            SecureSumFactory(*arguments)
    with pytest.raises(ValueError, match="bound"):
        SecureSumFactory(8, 8, 0.0)


SECURE = AggregationOptions(secure="simulated", secure_bits=8, secure_bound=2.0)


def aggregated(factory, values, weights, value_type=PAIR):
    process = factory.create(value_type, tff.TensorType(np.float32))
    return process.next(process.initialize(), values, [np.float32(w) for w in weights])


def rounded(x, bound, number_of_bits=8):
    levels = 2 ** (number_of_bits - 1) - 1
    return np.round(np.clip(x, -bound, bound) * levels / bound) * bound / levels


def test_a_secure_mean_rounds_values_and_weights():
    """Weights 3 and 40 are clipped to 10 and divided by it; what is clipped are the weighted numbers."""
    values, scaled = [pair([1.0, -3.0], 0.7), pair([0.25, 5.0], -0.1)], [0.3, 1.0]
    result = aggregated(with_replaced_sums(mean(), SECURE, clients=2, largest_weight=10.0), values, [3, 40]).result
    weight = sum(rounded(w, 1.0) for w in scaled)
    for name in ("a", "b"):
        total = sum(rounded(w * v[name].astype(float), 2.0) for w, v in zip(scaled, values, strict=True))
        np.testing.assert_allclose(result[name], total / weight, rtol=1e-5)
    assert abs(result["a"][1] - (-0.9 + 5) / 1.3) > 0.5  # 5 was clipped


def test_a_client_that_does_not_count_adds_nothing_to_a_secure_mean():
    values, factory = [pair([1.0, -1.0], 0.5), pair([2.0, 2.0], 2.0)], with_replaced_sums(mean(), SECURE, clients=2)
    result = aggregated(factory, values, [1, 0]).result
    np.testing.assert_allclose(result["a"], rounded(np.array([1.0, -1.0]), 2.0), rtol=1e-6)
    nobody = aggregated(factory, values, [0, 0]).result
    np.testing.assert_array_equal([*nobody["a"], nobody["b"]], 0)


@pytest.mark.parametrize("granularity", ["layer", "model"])
def test_secure_attention_rounds_both_sums(granularity):
    values = [pair([1.0, 0.5], 0.7), pair([0.2, 0.1], -1.4), pair([-0.3, 0.9], 0.2)]
    factory = with_replaced_sums(AttentionFactory(granularity), SECURE, clients=3)
    result = aggregated(factory, values, [1, 5, 1]).result
    norms = np.array([[np.linalg.norm(v[name]) for name in "ab"] for v in values])
    if granularity == "model":
        norms = np.repeat(np.linalg.norm(norms, axis=1, keepdims=True), 2, axis=1)
    attention = np.exp(norms - norms.max(axis=0))
    for layer, name in enumerate("ab"):
        total = sum(rounded(a * v[name].astype(float), 2.0) for a, v in zip(attention[:, layer], values, strict=True))
        np.testing.assert_allclose(result[name], total / rounded(attention[:, layer], 1.0).sum(), rtol=1e-4)


@pytest.mark.parametrize("granularity", ["layer", "model"])
@pytest.mark.parametrize("bound", [2.0, 1.0])
def test_attention_with_a_constant_in_place_of_the_largest_norm(granularity, bound):
    """The softmax of the norms, where no norm exceeds the constant; larger ones are shrunk to it."""
    values = [pair([0.6, 0.8], 0.7), pair([0.2, 0.1], -1.4), pair([-0.3, 0.9], 0.2)]
    plain = AttentionFactory(granularity)
    result = aggregated(plain.with_bound(bound), values, [1, 0, 1]).result
    kept = values[::2]
    norms = np.array([[np.linalg.norm(v[name]) for name in "ab"] for v in kept])
    if granularity == "model":
        norms = np.repeat(np.linalg.norm(norms, axis=1, keepdims=True), 2, axis=1)
    shrunk = np.minimum(norms, bound)
    attention = np.exp(shrunk - bound) / np.exp(shrunk - bound).sum(axis=0)
    for layer, name in enumerate("ab"):
        factors = attention[:, layer] * shrunk[:, layer] / norms[:, layer]
        expected = sum(factor * value[name] for factor, value in zip(factors, kept, strict=True))
        np.testing.assert_allclose(result[name], expected, rtol=1e-5)
    if bound == 2.0:
        softmax = aggregated(plain, values, [1, 0, 1]).result
        for name in "ab":
            np.testing.assert_allclose(result[name], softmax[name], rtol=1e-5)
    assert not [call for call in uploads_of(plain.with_bound(bound)) if call != "federated_aggregate"]
    with pytest.raises(ValueError, match="a bound on the norms"):
        AttentionFactory(weighted=True, bound=1.0)


def uploads_of(factory):
    """Names of the intrinsics that take clients' values to the server."""
    process = factory.create(PAIR, tff.TensorType(np.float32))
    uris = {call.function.uri for call in intrinsic_calls(process.next)}
    return uris & {"federated_aggregate", "federated_max", "federated_sum", "federated_collect"}


@pytest.mark.parametrize("name", [pytest.param("fednova", marks=pytest.mark.slow), "feddyn"])
def test_secure_sums_of_means_with_one_sum_more(name):
    plain = build(name)
    secured = with_aggregation(plain, WORDS, clients=2, largest_weight=20.0, largest_size=100.0)
    ours, expected = (play(a, begin(a), range(2), clients_of_round) for a in (secured, plain))
    moved = [np.abs(a - b).max() for a, b in zip(*(o[0]["weights"].trainable for o in (ours, expected)), strict=True)]
    assert 0 < max(moved) < 2e-4
    small = with_aggregation(plain, WORDS, clients=2, largest_weight=20.0, largest_size=1.0)
    if name == "fednova":  # numbers of steps are clipped, so that the update is shorter
        shorter = play(small, begin(small), range(2), clients_of_round)[0]["weights"].trainable
        assert max(np.abs(a - b).max() for a, b in zip(shorter, expected[0]["weights"].trainable, strict=True)) > 1e-3


def test_secure_predictions():
    values = [np.array([[1.0, -1.5]], np.float32), np.array([[0.4, 0.3]], np.float32)]
    factory = with_replaced_sums(PredictionsFactory(2), SECURE, clients=2, largest_weight=4.0)
    result = aggregated(factory, values, [1, 4], values[0].shape and tff.TensorType(np.float32, [1, 2])).result
    total, weight = rounded(values[0] / 4, 2.0) + rounded(values[1], 2.0), rounded(0.25, 1.0) + 1
    np.testing.assert_allclose(result["logits"], total / weight, rtol=1e-5)
    np.testing.assert_allclose(result["weight"], weight, rtol=1e-6)


# Compression


def test_eight_bits_are_unbiased_and_near():
    tensor = tf.constant([[-0.7, 0.3013, 0.8], [0.0, 0.123456, -0.01]])
    width = 1.5 / 255
    draws = np.stack([EightBits().lossy(tensor, [k, 7]).numpy() for k in range(400)]).astype(float)
    assert np.abs(draws - tensor.numpy()).max() <= width * 1.001
    # A number between two levels is one or the other: a standard deviation of at most half a width.
    assert np.abs(draws.mean(axis=0) - tensor.numpy()).max() < 5 * width / 2 / np.sqrt(400)
    assert all(len(np.unique(draws[:, i, j])) == 2 for i, j in ((0, 1), (1, 1), (1, 2)))
    # The ends are levels themselves.
    np.testing.assert_allclose(draws[:, 0, 0], -0.7, rtol=1e-6)
    np.testing.assert_allclose(draws[:, 0, 2], 0.8, rtol=1e-6)
    # Tensors are rounded independently of each other: the errors of two draws are uncorrelated.
    errors = np.stack([EightBits().lossy(tf.linspace(0.0, 1.0, 1000), [k, 1]).numpy() for k in (1, 2)])
    errors -= np.linspace(0, 1, 1000)
    assert abs(np.corrcoef(errors)[0, 1]) < 0.15


@pytest.mark.parametrize("factor", [1.0, 3e-20, 250.0])
def test_a_code_holds_a_lossy_tensor_and_what_it_is_multiplied_by(factor):
    tensor = tf.constant(np.random.default_rng(0).normal(size=[30, 7]).astype(np.float32))
    for code in (EightBits(), TopShare(0.13)):
        lossy = code.lossy(tensor, tf.constant([1, 2])) * factor
        held = code.decode(code.encode(lossy), tensor.shape).numpy()
        np.testing.assert_allclose(held, lossy, rtol=1e-6, atol=1e-6 * factor)


def test_tensors_without_a_range():
    for tensor in (tf.zeros([4]), tf.fill([2, 2], -3.0), tf.constant(5.0)):
        for code in (EightBits(), TopShare(1.0)):
            np.testing.assert_array_equal(code.lossy(tensor, tf.constant([1, 2])), tensor)


def test_a_compressed_mean_is_the_mean_of_what_was_sent():
    generator = np.random.default_rng(8)
    type_spec = tff.types.to_type([tff.TensorType(np.float32, [50, 3]), tff.TensorType(np.float32, [3])])
    values = [[generator.normal(size=shape).astype(np.float32) for shape in ([50, 3], [3])] for _ in range(3)]
    for code, size in ((EightBits(), 150 + 3 + 2 * 8), (TopShare(0.1), 8 * (15 + 1))):
        sent = [[code.lossy(tf.constant(t), [k, 3]).numpy() for t in v] for k, v in enumerate(values)]
        process = mean(EncodedSumFactory(code)).create(type_spec, tff.TensorType(np.float32))
        result = process.next(process.initialize(), sent, [np.float32(w) for w in (1, 5, 2)]).result
        for index, tensor in enumerate(result):
            expected = np.average([v[index].astype(float) for v in sent], axis=0, weights=[1, 5, 2])
            np.testing.assert_allclose(tensor, expected, rtol=1e-5, atol=1e-6)
        assert round_traffic(process.next).up == size + 4  # and the weight


def data_as_updates(state_type=None, fresh=None):
    """Client work that sends its examples, a vector and a number, with a weight of 1, or of 0 for a seed of 9.

    Its own client state, if it has one, grows by one a round from `fresh`.
    """
    update_type = tff.types.to_type([tff.TensorType(np.float32, [4]), tff.TensorType(np.float32)])
    client = tff.types.to_type(collections.OrderedDict(examples=update_type, seed=tff.TensorType(np.int32, [2])))
    inputs = collections.OrderedDict(
        state=tff.FederatedType(np.int32, tff.SERVER),
        weights=tff.FederatedType(np.int32, tff.CLIENTS),
        clients=tff.FederatedType(client, tff.CLIENTS),
    )
    if state_type is not None:
        inputs["client_state"] = tff.FederatedType(state_type, tff.CLIENTS)
        grow = tff.tensorflow.computation(lambda s: tf.nest.map_structure(lambda t: t + 1, s), state_type)
    update = tff.tensorflow.computation(lambda c: c["examples"], client)
    finite = tff.tensorflow.computation(lambda c: 0.0, client)
    weigh = tff.tensorflow.computation(lambda c: tf.where(tf.equal(c["seed"][0], 9), 0.0, 1.0), client)

    @tff.federated_computation(tff.types.to_type(inputs))
    def work(arguments):
        clients = arguments["clients"]
        result = collections.OrderedDict(state=arguments["state"])
        result.update(update=tff.federated_map(update, clients), weight=tff.federated_map(weigh, clients))
        result["not_finite"] = tff.federated_map(finite, clients)
        if state_type is not None:
            result["client_state"] = tff.federated_map(grow, arguments["client_state"])
        return collections.OrderedDict(result, metrics=arguments["state"])

    initialize = tff.federated_computation(lambda weights: weights, tff.FederatedType(np.int32, tff.SERVER))
    return ClientWork(initialize, work, state_type, None if state_type is None else lambda examples, *seed: fresh)


def sent(vector, number, seed=0):
    return collections.OrderedDict(
        examples=[np.array(vector, np.float32), np.float32(number)], seed=np.array([seed, 1], np.int32)
    )


def test_three_rounds_of_top_k_with_error_feedback_by_hand():
    """Two of four numbers; a tensor of one number is sent whole."""
    work = with_error_feedback(data_as_updates(), TopShare(0.5))
    state = [work.initial_client_state(None)]
    rounds = [
        # what the client wants to send with what it kept; sent; kept
        ([3, -1, 2, 0.5], [3, 0, 2, 0], [0, -1, 0, 0.5]),
        ([1, -1, 0.5, 1], [0, -2, 0, 1.5], [1, 0, 0.5, 0]),  # wants 1, -2, 0.5, 1.5
        ([1, 0, 0, -2.5], [2, 0, 0, -2.5], [0, 0, 0.5, 0]),  # wants 2, 0, 0.5, -2.5
    ]
    for vector, expected, residual in rounds:
        output = work.next(state=0, weights=[0], clients=[sent(vector, 0.25)], client_state=state)
        np.testing.assert_array_equal(output["update"][0][0], expected)
        assert output["update"][0][1] == 0.25
        state = output["client_state"]
        np.testing.assert_array_equal(state[0]["residual"][0], residual)
        assert state[0]["residual"][1] == 0 and list(state[0]) == ["residual"]
    # A client that does not count sends nothing and keeps what it had.
    output = work.next(state=0, weights=[0], clients=[sent([7, 7, 7, 7], 1, seed=9)], client_state=state)
    np.testing.assert_array_equal(output["update"][0][0], 0)
    np.testing.assert_array_equal(output["client_state"][0]["residual"][0], rounds[-1][2])


@pytest.mark.parametrize(
    ("fresh", "entries"),
    [([np.float32(0), np.float32(5)], ["own", "residual"]), ({"n": np.float32(0)}, ["n", "residual"])],
    ids=["list", "names"],
)
def test_a_client_that_keeps_already_keeps_both(fresh, entries):
    state_type = tff.types.to_type(tf.nest.map_structure(lambda value: np.float32, fresh))
    work = with_error_feedback(data_as_updates(state_type, fresh), TopShare(0.25))
    first = work.initial_client_state(None, 3)
    assert list(first) == entries
    work.client_state_type.check_equivalent_to(tff.types.to_type(work.client_state_type))
    output = work.next(state=0, weights=[0], clients=[sent([3, -1, 2, 0.5], 1)], client_state=[first])
    after = output["client_state"][0]
    assert list(after) == entries
    inner = after["own"] if "own" in entries else {"n": after["n"]}
    tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(a, b + 1), inner, fresh)
    np.testing.assert_array_equal(after["residual"][0], [0, -1, 2, 0.5])


def test_eight_bits_are_drawn_from_the_clients_seed():
    work, vector = with_lossy_updates(data_as_updates(), EightBits()), [0.0, 0.3333, 0.7777, 1.0]
    clients = [sent(vector, 2, seed=seed) for seed in (1, 2, 3, 4, 5, 1)]
    updates = [u[0] for u in work.next(state=0, weights=[0] * 6, clients=clients)["update"]]
    assert bits(updates[0]) == bits(updates[5]) and len({u.tobytes() for u in updates}) > 1
    assert max(np.abs(u - vector).max() for u in updates) <= 1.001 / 255


# Traffic


def test_words_count_by_their_bits():
    words = tff.types.to_type([tff.TensorType(np.int64, [5]), tff.TensorType(np.int64, [3, 2])])
    assert type_bytes(tff.types.to_type(collections.OrderedDict({words_of(20): words}))) == 28  # 220 bits
    both = collections.OrderedDict({words_of(3): tff.TensorType(np.int32, [8]), "rest": np.float32})
    assert type_bytes(tff.types.to_type(both)) == 3 + 4


# Algorithms. The model of the suite has 9 + 3 numbers; five numbers beside them are statistics, and the weight.

STATISTICS = 5 * 4
EIGHT_BITS = AggregationOptions(compression="stochastic_8bit")
TOP = AggregationOptions(compression="top_k", top_share=0.3)
WORDS = AggregationOptions(secure="simulated", secure_bits=24, secure_bound=64.0)


@functools.cache
def changed(name, how):
    """The suite's algorithm with one of these tables around it."""
    options = {"words": WORDS, "eight_bits": EIGHT_BITS, "top": TOP}[how]
    return with_aggregation(build(name), options, clients=2, largest_weight=20.0)


def test_bytes_up_are_those_of_what_is_sent():
    def uploads(name, how):
        return round_traffic(changed(name, how).next).up - STATISTICS

    # 24 bits and one for the sum of two clients, of 12 numbers; the weight; and what measures clipping.
    assert uploads("fedavg", "words") == 38 + 4 + 8
    # Two norms; the attention and its square for each of two layers are four words.
    assert uploads("fedpap", "words") == 38 + 2 * 4 + 13 + 8
    # Codes and two ranges; and all that attention needs.
    assert uploads("fedpap", "eight_bits") == 12 + 2 * 8 + 2 * 4 + 4 * 4
    # Three numbers and places of nine, one of three, the weight; the control variates are as they were.
    assert uploads("scaffold", "top") == 8 * (3 + 1) + 4 + 12 * 4


@pytest.mark.parametrize(("name", "how", "stages"), [("fedpap", "words", 2), ("scaffold", "top", 1)])
def test_groups_of_clients_can_be_computed_apart(name, how, stages):
    assert compiled_form(native_block(changed(name, how).next)).stages == stages


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("fedavg", "words"),
        pytest.param("feded", "words", marks=pytest.mark.slow),  # its sums are tested above
        pytest.param("fedpap", "eight_bits", marks=pytest.mark.slow),
        ("scaffold", "top"),
    ],
)
def test_two_rounds_are_those_of_the_worker_and_near_the_plain_ones(name, how, runtimes):
    plain, algorithm = build(name), changed(name, how)
    assert algorithm.bag_pooling == plain.bag_pooling and algorithm.server_type == plain.server_type
    outcome = play(algorithm, begin(algorithm), range(2), clients_of_round)
    for opened in runtimes.values():
        with computing_on(opened):
            there = play(algorithm, begin(algorithm), range(2), clients_of_round)
        for ours, theirs in zip(tf.nest.flatten(outcome), tf.nest.flatten(there), strict=True):
            if ours is not None:
                np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    if how != "top":
        weights = play(plain, begin(plain), range(2), clients_of_round)[0]["weights"].trainable
        tolerance = 2e-4 if how == "words" else 0.05
        moved = max(np.abs(a - b).max() for a, b in zip(outcome[0]["weights"].trainable, weights, strict=True))
        assert moved < tolerance
        assert moved > 0  # it was rounded


def test_all_of_each_tensor_is_what_is_sent_without_compression():
    plain = build("scaffold")
    whole = with_aggregation(plain, AggregationOptions(compression="top_k", top_share=1.0), clients=2)
    outcomes = [play(algorithm, begin(algorithm), range(2), clients_of_round) for algorithm in (plain, whole)]
    for a, b in zip(*(o[0]["weights"].trainable for o in outcomes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    for inner, both in zip(*(o[1] for o in outcomes), strict=True):
        assert all(not residual.any() for residual in both["residual"])
        np.testing.assert_allclose(both["own"][0], inner[0], rtol=1e-5, atol=1e-6)


def test_what_a_figure_needs_stays_at_its_place_in_the_client_state():
    algorithm = changed("fedcmc", "top")
    (name,) = algorithm.client_work.recorded_state
    first = initial_client_states(algorithm, clients_of_round(0))[0]
    assert name in first and "residual" in first


def test_nothing_changes_where_nothing_is_asked_for():
    algorithm = build("fedavg")
    assert with_aggregation(algorithm, AggregationOptions(), clients=2) is algorithm


def test_what_does_not_go_together_is_refused():
    def refused(name, options, match, **options_of):
        with pytest.raises(CompositionError, match=match):
            with_aggregation(build(name, **options_of), options, clients=10)

    refused("feded", TOP, "'top_k' sends the left-out numbers in later rounds")
    refused("feded", EIGHT_BITS, "set algorithm.uploads = 'float32'", uploads="label")
    small = AggregationOptions(secure="simulated", secure_bits=16, secure_modulus_bits=19)
    refused("fedavg", small, r"secure_modulus_bits is 19, but the sum of 10 clients' numbers of 16 bits needs 20")
    refused("fednova", EIGHT_BITS, "NormalisedMeanFactory has no sums that could be replaced")
    refused(
        "fedpap", attrs.evolve(WORDS, secure="masks"), "attention needs the largest norm .* set aggregation.secure_norm"
    )
    refused("fedavg", attrs.evolve(WORDS, secure_norm=1.0), "secure_norm is for attention")
    with pytest.raises(CompositionError, match="MeanFactory has no sums that could be replaced"):
        with_replaced_sums(tff.aggregators.MeanFactory(), WORDS, clients=2)
