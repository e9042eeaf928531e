"""The in-process runtime: each intrinsic, arguments and results, isolation, errors, memory and the end."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import signal
import threading
import time
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from tff_re.runtime import ComputationFailed, InProcessRuntime, RuntimeClosed, RuntimeProblem, open_runtime
from tff_re.runtime.in_process import kept, leaves, one_call
from tff_re.runtime.in_process.expressions import UnknownIntrinsic

THREADS = 3


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    with open_runtime("in-process", log_path=tmp_path_factory.mktemp("runtime") / "log", threads=THREADS) as opened:
        yield opened


pytestmark = pytest.mark.usefixtures("runtime")

in_stages = pytest.mark.parametrize("way", ["stages"], indirect=True)


@pytest.fixture(params=["one function", "stages"], autouse=True)
def way(request, monkeypatch):
    """Every test runs with calls as one function, where they may be, and with all calls in stages."""
    monkeypatch.setattr(one_call, "FIRST_CALL", 1)
    if request.param == "stages":
        monkeypatch.setattr(one_call, "MAX_BYTES", -1)
    return request.param


def at_clients(kind):
    return tff.FederatedType(kind, tff.CLIENTS)


def at_server(kind):
    return tff.FederatedType(kind, tff.SERVER)


computation, federated = tff.tensorflow.computation, tff.federated_computation


@computation(np.int32)
def double(x):
    return 2 * x


@computation(np.int32, np.int32)
def add(x, y):
    return x + y


@computation(np.int32, np.int32)
def digits(total, x):
    """Tells the order in which values came."""
    return 10 * total + x


def counted_calls(monkeypatch):
    """A list that grows by one for each function that leaves run."""
    calls = []
    run = leaves.run_function
    monkeypatch.setattr(leaves, "run_function", lambda *a: calls.append(None) or run(*a))
    return calls


# Each intrinsic.


def test_map_aggregate_and_apply():
    @federated(at_clients(np.int32))
    def total(values):
        doubled = tff.federated_map(double, values)
        return tff.federated_map(double, tff.federated_aggregate(doubled, 0, add, add, double))

    assert [total(values) for values in ([], [1], [1, 2, 3], list(range(50)))] == [0, 8, 48, 9800]


def test_clients_are_folded_in_their_order_whoever_is_ready_first():
    @computation(np.int32)
    def slow(x):
        steps = tf.while_loop(lambda i: i < 10_000 * (5 - x), lambda i: i + 1, [tf.constant(0)])[0]
        with tf.control_dependencies([steps]):
            return tf.identity(x)

    @federated(at_clients(np.int32))
    def in_order(values):
        return tff.federated_aggregate(tff.federated_map(slow, values), 0, digits, add, double)

    assert in_order([1, 2, 3, 4, 5]) == 24690


def test_broadcast_zip_and_second_pass():
    @computation(np.int32, np.int32)
    def from_greatest(x, greatest):
        return greatest - x

    @federated(at_clients(np.int32), at_server(np.int32))
    def gaps(values, offset):
        greatest = tff.federated_max(values)
        both = tff.federated_zip((values, tff.federated_broadcast(greatest)))
        away = tff.federated_map(from_greatest, both)
        shifted = tff.federated_map(add, tff.federated_zip((away, tff.federated_broadcast(offset))))
        at = tff.federated_zip((greatest, offset))
        return away, tff.federated_sum(shifted), at, tff.federated_min(values), values

    assert gaps([4, 9, 7], 100) == ([5, 0, 2], 307, (9, 100), 4, [4, 9, 7])
    least, greatest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    assert gaps([], 100) == ([], 0, (least, 100), greatest, [])


def test_values_and_evaluations_at_both_placements(tmp_path):
    three = tff.tensorflow.computation(lambda: tf.constant(3))

    @federated()
    def everywhere():
        evaluated = tff.federated_eval(three, tff.CLIENTS)
        return (
            evaluated,
            tff.federated_eval(three, tff.SERVER),
            tff.federated_value(4, tff.CLIENTS),
            tff.federated_value((5, 6), tff.SERVER),
            tff.federated_sum(evaluated),
        )

    assert everywhere() == ([], 3, 4, (5, 6), 0)
    with InProcessRuntime(tmp_path / "log", default_num_clients=2):
        assert everywhere() == ([3, 3], 3, 4, (5, 6), 6)


def test_a_draw_at_each_client_is_its_own():
    draw = tff.tensorflow.computation(lambda: tf.random.uniform([]))

    @federated(at_clients(np.int32))
    def draws(values):
        return values, tff.federated_eval(draw, tff.CLIENTS)

    assert len(set(draws([1] * 8)[1])) == 8


@in_stages
def test_map_of_what_all_have(tmp_path, monkeypatch):
    fw, same = tff.framework, tff.FederatedType(np.int32, tff.CLIENTS, all_equal=True)
    argument = fw.Struct([double.to_building_block(), fw.Reference("x", same)])
    of_all = fw.Intrinsic(fw.FEDERATED_MAP_ALL_EQUAL.uri, tff.FunctionType(argument.type_signature, same))
    function = fw.Lambda("x", same, fw.Call(of_all, argument))
    once = fw.ConcreteComputation.from_building_block(function)

    @federated(at_server(np.int32))
    def doubled(value):
        return tff.federated_map(double, tff.federated_broadcast(value)), tff.federated_broadcast(value)

    calls = counted_calls(monkeypatch)
    with InProcessRuntime(tmp_path / "log", default_num_clients=2):
        assert once(4) == 8 and len(calls) == 1
        assert doubled(4) == ([8, 8], 4) and len(calls) == 3


SEQUENCE = tff.SequenceType(np.int32)
SUM = federated(SEQUENCE)(lambda s: tff.sequence_sum(s))


@pytest.mark.parametrize(
    ("uri", "kind", "make", "why"),
    [
        ("federated_secure_sum", np.int32, lambda x: tff.federated_secure_sum(x, 8), "adds in the clear"),
        ("federated_secure_sum_bitwidth", np.int32, lambda x: tff.federated_secure_sum_bitwidth(x, 8), "in the clear"),
        ("sequence_sum", SEQUENCE, lambda x: tff.federated_map(SUM, x), "available: federated_aggregate, federated_a"),
    ],
)
def test_an_intrinsic_that_is_not_available_is_named(uri, kind, make, why):
    """Before anything is computed; a secure sum is never replaced by another one."""
    with pytest.raises(UnknownIntrinsic, match=f"'in-process' has no {uri}: .*{why}") as caught:
        federated(at_clients(kind))(make)([[1], [2]])
    assert caught.value.uri == uri and isinstance(caught.value, RuntimeProblem)


def test_what_is_no_tensorflow_is_refused():
    proto = types.SimpleNamespace(WhichOneof=lambda _: "xla")
    block = types.SimpleNamespace(proto=proto, to_proto=lambda: proto)
    with pytest.raises(RuntimeProblem, match="not xla"):
        leaves.import_leaf(block)


# Arguments and results.


def test_structures_strings_and_containers():
    Point = collections.namedtuple("Point", ["x", "y"])
    kind = tff.types.to_type(Point(np.int32, collections.OrderedDict(b=tff.TensorType(np.str_, [None]), a=np.float32)))

    @computation(kind)
    def turned(point):
        return Point(point.x + 1, collections.OrderedDict(b=point.y["b"][::-1], a=-point.y["a"]))

    result = turned(Point(3, collections.OrderedDict(b=["药", "a"], a=0.5)))
    assert isinstance(result, Point) and isinstance(result.x, np.int32) and list(result.y) == ["b", "a"]
    assert result.x == 4 and result.y["b"].tolist() == [b"a", "药".encode()] and result.y["a"] == np.float32(-0.5)


def test_data_sets_in_and_out():
    element = collections.OrderedDict(x=tff.TensorType(np.int32, [None]), y=np.int32)

    @computation(tff.SequenceType(element))
    def products(data):
        return data.map(lambda e: collections.OrderedDict(p=e["x"] * e["y"]))

    total = tff.tensorflow.computation(
        lambda data: data.reduce(0, lambda so_far, e: so_far + tf.reduce_sum(e["p"])), products.type_signature.result
    )

    @federated(at_clients(tff.SequenceType(element)))
    def totals(data):
        made = tff.federated_map(products, data)
        return made, tff.federated_map(total, made)

    clients = [
        tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(x=np.ones([n, 2], np.int32), y=np.arange(n, dtype=np.int32))
        )
        for n in (0, 3)
    ]
    for _ in range(2):
        made, sums = totals(clients)
        assert [int(s) for s in sums] == [0, 6]
        assert [e["p"].tolist() for e in made[1].as_numpy_iterator()] == [[0, 0], [1, 1], [2, 2]]
    assert totals([[{"x": [1, 2], "y": 3}]])[1] == [9]
    with pytest.raises(TypeError, match="data set"):
        totals([tf.data.Dataset.range(3)])


@pytest.mark.parametrize("value", [np.ones(3, np.float64), np.ones([2, 2], np.float32), tf.ones(4), "text", object()])
def test_an_argument_of_another_type_is_refused(value):
    total = federated(at_clients(tff.TensorType(np.float32, [3])))(lambda x: tff.federated_sum(x))
    with pytest.raises(TypeError):
        total([value])


def test_what_was_given_out_comes_back_without_a_copy(runtime):
    vector = tff.TensorType(np.float32, [None])
    same = tff.tensorflow.computation(lambda x: x, vector)
    grown = tff.tensorflow.computation(lambda x: x + 1, vector)
    first = grown(np.zeros(5000, np.float32))
    assert not first.flags.writeable
    assert same(first).ctypes.data == first.ctypes.data
    assert grown(first)[0] == 2 and first[0] == 1
    values = runtime.context._values._lent
    held = len(values)
    del first
    gc.collect()
    assert len(values) < held


def test_an_array_of_the_callers_is_never_written_to():
    @computation(tff.TensorType(np.float32, [None]))
    def moved(x):
        variable = tf.Variable(tf.zeros([5000]))
        with tf.control_dependencies([variable.assign(x)]):
            step = tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=1.0, delta=tf.ones([5000]))
        with tf.control_dependencies([step]):
            return variable.read_value()

    start = np.zeros(5000, np.float32)
    first = moved(start)
    second = moved(first)
    moved(second)
    assert start.max() == 0 and (first == -1).all() and (second == -2).all()


# Isolation.


def counter():
    """Adds its argument to a variable that begins at zero, in many steps: who shares it gets another sum."""

    @computation(np.int32)
    def count(x):
        variable = tf.Variable(0)

        def step(i):
            with tf.control_dependencies([variable.assign_add(x)]):
                return i + 1

        last = tf.while_loop(lambda i: i < 500, step, [tf.constant(0)])[0]
        with tf.control_dependencies([last]):
            return variable.read_value()

    return count


def test_calls_at_the_same_time_have_variables_of_their_own(runtime):
    counting = counter()
    count = federated(at_clients(np.int32))(lambda x: tff.federated_map(counting, x))
    for _ in range(2):
        assert count(list(range(40))) == [500 * i for i in range(40)]
    (called,) = [called for known, called in runtime.context._calls.items() if known == count]
    assert 2 <= next(iter(called.plan.expressions.leaves.values())).copies <= THREADS


def test_two_graphs_with_functions_and_variables_of_the_same_names():
    def make(factor):
        @computation(np.int32)
        def scaled(x):
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [factor]), -1)
            climb = tf.function(lambda y: tf.while_loop(lambda i: i < 10, lambda i: i + factor, [y])[0])
            return climb(x), table.lookup(tf.constant(1))

        return scaled

    for factor in (3, 4):
        assert make(factor)(0) == (12, factor)


def test_calls_from_several_threads(runtime):
    square = tff.tensorflow.computation(lambda x: x * x, np.int32)
    total = federated(at_clients(np.int32))(lambda x: tff.federated_sum(tff.federated_map(square, x)))
    totals = []

    def work():
        tff.framework.set_default_context(runtime.context)
        totals.append(total([1, 2, 3]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [14] * 4


# Memory.


def watched(monkeypatch, shape):
    """(Function: how many tensors of a shape that leaves made are alive, list of that number after every leaf)."""
    made: list[weakref.ref] = []
    counts: list[int] = []
    run = leaves.run_function

    def alive():
        return sum(reference() is not None for reference in made)

    def spy(*arguments):
        results = run(*arguments)
        made.extend(weakref.ref(tensor) for tensor in results if tensor.shape == shape)
        counts.append(alive())
        return results

    monkeypatch.setattr(leaves, "run_function", spy)
    return alive, counts


@in_stages
@pytest.mark.parametrize("second_pass", [None, "in memory", "in a file"])
def test_updates_are_held_by_no_more_clients_than_threads_and_one(monkeypatch, second_pass):
    """Unless a second pass needs them again: then they stay until it has gone through them, or lie in a file."""
    if second_pass == "in a file":
        monkeypatch.setattr(kept, "MOST_IN_MEMORY", 5 * 4000)
        monkeypatch.setattr(kept, "SMALLEST", 4000)
    vector = tff.TensorType(np.float32, [1000])
    make = tff.tensorflow.computation(lambda x: tf.fill([1000], x), np.float32)
    less = tff.tensorflow.computation(lambda x, y: x - y, vector, vector)

    @federated(at_clients(np.float32))
    def total(values):
        updates = tff.federated_map(make, values)
        if second_pass:
            greatest = tff.federated_broadcast(tff.federated_max(updates))
            updates = tff.federated_map(less, tff.federated_zip((updates, greatest)))
        return tff.federated_sum(updates)

    alive, counts = watched(monkeypatch, [1000])
    summed = total(list(np.arange(50, dtype=np.float32)))
    assert summed[0] == (49 * 25 - 50 * 49 if second_pass else 49 * 25)
    if second_pass == "in memory":
        assert max(counts) >= 50
    else:
        # Zero and the sum, before and after an addition, stand beside the clients' own.
        others = 3 if second_pass is None else 3 + 5 + 2
        assert THREADS < max(counts) <= THREADS + 1 + others
    del summed
    gc.collect()
    assert alive() == 0


def test_what_stays_in_a_file_comes_back_to_the_bit(runtime, monkeypatch):
    """Numbers of several types, in a structure; texts and small tensors stay in memory; places are used again."""
    monkeypatch.setattr(kept, "MOST_IN_MEMORY", 10_000)
    store = kept.Kept(2, frozenset(["given back"]))
    rng = np.random.default_rng(0)
    long = tf.constant(rng.normal(size=[2000]), tf.float32)
    kinds = [tf.constant(rng.normal(size=[30, 100]), kind) for kind in (tf.float64, tf.bfloat16, tf.float16)]
    values = {
        "own": (long, (*kinds, tf.constant(["a"] * 2000)), tf.constant(3.5)),
        "given back": tf.zeros([5000]),
        "empty": (),
    }
    for client in range(2):
        store.add(client, values)
    size = os.fstat(store._file.fileno()).st_size
    assert size == 30 * 100 * (8 + 2 + 2) * 2 + 4 * 2000
    for client in range(2):
        read = store.of(client)
        for restored, original in zip(tf.nest.flatten(read["own"]), tf.nest.flatten(values["own"]), strict=True):
            assert restored.dtype == original.dtype and restored.shape == original.shape
            assert restored.numpy().tobytes() == original.numpy().tobytes()
        assert read["given back"] is values["given back"] and read["empty"] == () and "other" not in read
    with pytest.raises(KeyError):
        store.of(0)["other"]
    for client in range(2):
        store.forget(client, ["own", "empty"])
    assert os.fstat(store._file.fileno()).st_size == 0 and store._held == 0
    store.add(0, {"again": tuple(kinds)})
    assert store.of(0)["again"][0].numpy().tobytes() == kinds[0].numpy().tobytes()
    store.close()

    class Full:
        pwrite = staticmethod(lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    store = kept.Kept(1, frozenset())
    monkeypatch.setattr(kept, "os", Full)
    with pytest.raises(RuntimeProblem, match=r"No space left on device.*TMPDIR"):
        store.add(0, {"own": kinds[0]})
    store.close()


def test_what_nobody_needs_is_not_computed(monkeypatch):
    @federated(at_clients(np.int32))
    def first(values):
        tff.federated_sum(tff.federated_map(double, values))
        return tff.federated_sum(values)

    calls = counted_calls(monkeypatch)
    assert first([1, 2]) == 3
    assert len(calls) <= 3  # zero, and an addition for each client


# Errors and the end.


@computation(np.int32)
def checked(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
        return tf.identity(x)


@computation(np.int64)
def count_up(n):
    return tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]


def test_error_at_the_server_and_at_a_client(runtime):
    with pytest.raises(ComputationFailed, match="not positive") as caught:
        checked(-1)
    assert caught.value.code == "INVALID_ARGUMENT" and "\n" not in str(caught.value)
    assert "_in_process_" not in str(caught.value) and "__inference" not in str(caught.value)
    total = federated(at_clients(np.int32))(lambda x: tff.federated_sum(tff.federated_map(checked, x)))
    with pytest.raises(ComputationFailed, match=r"client 3 of 20: .*not positive") as caught:
        total([1, 2, -3, *range(1, 18)])
    assert caught.value.code == "INVALID_ARGUMENT"
    assert total([1, 2, 3]) == 6 and runtime.alive


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="TensorFlow computes one function at a time on one core")
def test_a_client_that_fails_ends_the_others_soon():
    @computation(np.int64)
    def check_and_count(n):
        with tf.control_dependencies([tf.debugging.assert_positive(n)]):
            return count_up(tf.identity(n))

    total = federated(at_clients(np.int64))(lambda x: tff.federated_sum(tff.federated_map(check_and_count, x)))
    with pytest.raises(ComputationFailed, match="client 2 of 2"):  # the first would count for weeks
        total([10**12, -1])


def test_python_inside_of_a_leaf():
    seen = []

    @computation(np.int32)
    def looked_at(x):
        def look(value):
            seen.append(int(value))
            if value < 0:
                raise KeyError("no such thing")
            return value + 1

        return tf.py_function(look, [x], tf.int32)

    gc.collect()
    assert looked_at(3) == 4 and seen == [3]
    with pytest.raises(ComputationFailed, match="no such thing"):
        looked_at(-1)


def test_text_operations_and_print_inside_of_a_leaf(capfd):
    text = pytest.importorskip("tensorflow_text")

    @computation(tff.TensorType(np.str_, [None]))
    def words(lines):
        with tf.control_dependencies([tf.print("printed in a leaf")]):
            return text.WhitespaceTokenizer().tokenize(lines).flat_values

    assert words(["头 痛", "a"]).tolist() == ["头".encode(), "痛".encode(), b"a"]
    assert "printed in a leaf" in capfd.readouterr().err


def our_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tff-re")]


@pytest.mark.parametrize("where", ["server", "clients"])
def test_interrupted_call_ends_and_leaves_nothing(tmp_path, where):
    total = federated(at_clients(np.int64))(lambda x: tff.federated_sum(tff.federated_map(count_up, x)))
    before = sorted(our_threads())
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), open_runtime("in-process", log_path=tmp_path / "log"):
        assert count_up(3) == 3 and total([1, 2]) == 3
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        count_up(10**12) if where == "server" else total([10**12] * 5)
    assert time.monotonic() - begin < 10
    assert sorted(our_threads()) == before


def test_closing_ends_a_call_of_another_thread(tmp_path):
    errors = []

    def work(context):
        tff.framework.set_default_context(context)
        with contextlib.suppress(ComputationFailed):
            try:
                count_up(10**12)
            except RuntimeClosed as error:
                errors.append(error)

    with open_runtime("in-process", log_path=tmp_path / "log") as inner:
        assert count_up(3) == 3
        thread = threading.Thread(target=work, args=(inner.context,))
        thread.start()
        time.sleep(0.2)
    thread.join(10)
    assert not thread.is_alive() and len(errors) == 1
