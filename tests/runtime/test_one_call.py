"""A call as one function gives what the stages give, bit for bit, and runs only where its rule allows it."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from tests.computations import toolbox
from tests.computations.built import NAMES, STATEFUL, begin, clients_of_round, model_of, options_of, play
from tests.computations.cases import case
from tff_re.runtime import ComputationFailed, open_runtime
from tff_re.runtime.in_process import client_arrays, leaves, one_call
from tff_re.runtime.in_process.stages import Plan

THREADS = 3
VECTOR = tff.TensorType(np.float32, [None])
CLIENT = tff.types.to_type(
    collections.OrderedDict(x=tff.TensorType(np.float32, [None, 2]), y=VECTOR, seed=np.int32, words=[np.str_])
)


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory):
    with open_runtime("in-process", log_path=tmp_path_factory.mktemp("runtime") / "log", threads=THREADS) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _from_the_first_call(monkeypatch):
    monkeypatch.setattr(one_call, "FIRST_CALL", 1)


@pytest.fixture
def calls(monkeypatch):
    """Grows by one for each function that leaves run."""
    counted, run = [], leaves.run_function
    monkeypatch.setattr(leaves, "run_function", lambda *a: counted.append(None) or run(*a))
    return counted


def at_clients(kind):
    return tff.FederatedType(kind, tff.CLIENTS)


@tff.tensorflow.computation(CLIENT, np.float32)
def work(client, factor):
    """Steps on a variable, one for each row: a client that began before the last one ended would disturb it."""
    weights = tf.Variable(tf.zeros([2]))

    def step(i):
        gradient = tf.reduce_sum(client["x"][i] * client["y"][i]) * factor - weights
        with tf.control_dependencies([weights.assign_sub(0.1 * gradient)]):
            return i + 1

    rows = tf.shape(client["y"])[0]
    with tf.control_dependencies([weights.assign(tf.ones([2]) * tf.cast(client["seed"], tf.float32))]):
        start = tf.identity(tf.constant(0))
    done = tf.while_loop(lambda i: i < rows, step, [start])[0]
    with tf.control_dependencies([done]):
        trained = weights.read_value()
    known = tf.cast(tf.equal(client["words"][0], "药"), tf.int32)
    return collections.OrderedDict(weights=trained, rows=rows, known=known)


@tff.tensorflow.computation(work.type_signature.result.weights, work.type_signature.result.weights)
def less(x, mean):
    return x - mean


@tff.federated_computation(at_clients(CLIENT), tff.FederatedType(np.float32, tff.SERVER))
def two_stages(clients, factor):
    given = tff.federated_map(work, tff.federated_zip((clients, tff.federated_broadcast(factor))))
    total = tff.federated_sum(given["weights"])
    both = tff.federated_zip((given["weights"], tff.federated_broadcast(total)))
    away = tff.federated_map(less, both)
    return given, total, tff.federated_sum(away), tff.federated_max(given["rows"]), away


def some_clients(number):
    rng = np.random.default_rng(number)
    sizes = rng.integers(0, 40, number)
    return [
        collections.OrderedDict(
            x=rng.normal(size=(n, 2)).astype(np.float32),
            y=rng.normal(size=n).astype(np.float32),
            seed=np.int32(i),
            words=["药" if i % 2 else "a"],
        )
        for i, n in enumerate(sizes)
    ]


def in_stages(monkeypatch, function, *arguments):
    with monkeypatch.context() as changed:
        changed.setattr(one_call, "MAX_BYTES", -1)
        return function(*arguments)


def assert_equal(ours, others):
    tf.nest.assert_same_structure(ours, others, check_types=True)
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(others), strict=True):
        assert type(a) is type(b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("number", [0, 1, 2, 13])
def test_one_function_gives_the_bits_of_the_stages(monkeypatch, calls, number):
    clients = some_clients(number)
    for _ in range(5):
        before = len(calls)
        result = two_stages(clients, 0.5)
        assert len(calls) == before + 1
        assert_equal(result, in_stages(monkeypatch, two_stages, clients, 0.5))
        assert len(calls) > before + 1 + number
    assert [c["rows"] for c in result[0]] == [len(c["y"]) for c in clients]
    assert [c["known"] for c in result[0]] == [i % 2 for i in range(number)]


def test_a_clients_result_does_not_keep_those_of_all():
    given = two_stages(some_clients(5), 0.5)[0]
    assert all(client["weights"].base is None for client in given)


def one_call_of(computation):
    return one_call.OneCall(Plan(computation), THREADS)


def test_the_rule(monkeypatch):
    given = one_call_of(two_stages)
    results, summed = (8 + 4 + 4) + 8, 8 + 8 + 4
    assert results + summed <= given._bytes <= 3 * (results + summed)  # some values are stored under two names
    monkeypatch.setattr(one_call, "MAX_BYTES", 10 * given._bytes)
    assert given.fits(0) and given.fits(10) and not given.fits(11)
    monkeypatch.undo()
    same, total = (tff.tensorflow.computation(lambda x: x, kind) for kind in (VECTOR, np.int32))
    add = tff.tensorflow.computation(lambda x, y: x + y, np.int32, np.int32)
    of_unknown_size = tff.federated_computation(at_clients(VECTOR))(lambda x: tff.federated_map(same, x))
    of_nobody = tff.federated_computation(tff.FederatedType(np.int32, tff.SERVER))(
        lambda x: tff.federated_map(total, x)
    )
    sequence = tff.SequenceType(np.int32)
    reduce = tff.tensorflow.computation(lambda s: s.reduce(0, lambda a, b: a + b), sequence)
    of_sequences = tff.federated_computation(at_clients(sequence))(
        lambda s: tff.federated_sum(tff.federated_map(reduce, s))
    )
    assert not any(one_call_of(c).fits(1) for c in (of_unknown_size, of_nobody, add, of_sequences))
    monkeypatch.setattr(one_call, "gpu_names", lambda: ["/physical_device:GPU:0"])
    assert not one_call_of(two_stages).fits(1)


def test_arguments_that_are_too_large_go_through_the_stages(monkeypatch, calls):
    clients = some_clients(4)
    expected = two_stages(clients, 0.5)
    assert len(calls) == 1
    monkeypatch.setattr(one_call, "MAX_BYTES", 4 * one_call_of(two_stages)._bytes)
    assert sum(c["x"].nbytes + c["y"].nbytes for c in clients) > one_call.MAX_BYTES
    assert_equal(two_stages(clients, 0.5), expected)
    assert len(calls) > 4


def test_a_single_call_goes_through_the_stages(monkeypatch, calls):
    monkeypatch.undo()
    run = leaves.run_function
    monkeypatch.setattr(leaves, "run_function", lambda *a: calls.append(None) or run(*a))
    double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)
    doubled = tff.federated_computation(at_clients(np.int32))(lambda x: tff.federated_map(double, x))
    for expected in (3, 4, 5):
        assert doubled([1, 2, 3]) == [2, 4, 6] and len(calls) == expected


def test_clients_are_divided_by_their_sizes():
    lanes = client_arrays.divided(5, np.array([1.0, 9.0, 4.0, 4.0, 2.0]), 2)
    assert [lane.tolist() for lane in lanes] == [[1, 0], [2, 3, 4]]
    assert [lane.tolist() for lane in client_arrays.divided(0, np.ones(0), 2)] == [[], []]


def test_an_error_names_the_client_and_the_next_call_is_right(monkeypatch):
    @tff.tensorflow.computation(np.int32)
    def checked(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
            return tf.identity(x)

    total = tff.federated_computation(at_clients(np.int32))(lambda x: tff.federated_sum(tff.federated_map(checked, x)))
    with pytest.raises(ComputationFailed, match=r"client 3 of 4: .*not positive") as caught:
        total([1, 2, -3, 4])
    assert caught.value.client == 2
    assert total([1, 2, 3]) == 6


def test_a_call_at_the_same_time_goes_through_the_stages(runtime):
    clients, results = some_clients(13), []
    expected = two_stages(clients, 0.5)

    def call():
        tff.framework.set_default_context(runtime.context)
        results.extend(two_stages(clients, 0.5) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for result in results:
        assert_equal(result, expected)


QUICK = {"fedcmc"}
"""It has the most stages."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_rounds_of_algorithms_have_the_bits_of_the_stages(monkeypatch, name):
    algorithm = algorithms.find(name).build(model_of(case(name).bags), options_of(name, **STATEFUL, num_clients=3))

    def clients(number):
        x, y = toolbox.examples(9, seed=9)
        return [*clients_of_round(number), toolbox.client(np.where(np.arange(3) == 1, np.nan, x), y, seed=(0, 9))]

    def rounds():
        return play(algorithm, begin(algorithm), range(3), clients)

    assert_equal(rounds(), in_stages(monkeypatch, rounds))
