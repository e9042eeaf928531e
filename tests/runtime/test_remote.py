"""Clients spread over workers: the numbers, and what happens when a worker is lost."""

import logging
import socket
import threading
import time

import numpy as np
import psutil
import pytest

from tests.runtime.conftest import wait_until
from tff_re.runtime import (
    ComputationFailed,
    RemoteRuntime,
    RuntimeClosed,
    RuntimeProblem,
    WorkerDied,
    WorkerStartFailed,
    open_runtime,
)
from tff_re.runtime.local.worker import Worker, reserve_port

NUM_CLIENTS = 7


@pytest.fixture(scope="module")
def tff():
    return pytest.importorskip("tensorflow_federated")


@pytest.fixture(scope="module")
def tf(tff):
    return pytest.importorskip("tensorflow")


def free_port():
    with reserve_port() as keeper:
        return keeper.getsockname()[1]


@pytest.fixture(scope="module")
def workers(tmp_path_factory, processes):
    """Three workers on ports of their own; a test that kills one starts it again."""
    folder = tmp_path_factory.mktemp("workers")
    started = [Worker(folder / f"{n}.log", max_concurrent_computation_calls=1, port=free_port()) for n in range(3)]
    try:
        for worker in started:
            worker.start()
        yield started
    finally:
        for worker in started:
            worker.stop()


@pytest.fixture(scope="module")
def runtime(workers, tff, tmp_path_factory):
    addresses = [f"127.0.0.1:{worker.port}" for worker in workers]
    log = tmp_path_factory.mktemp("runtime") / "worker.log"
    with RemoteRuntime(log, addresses=addresses, patience=1.0, restart_timeout=10) as runtime:
        yield runtime


@pytest.fixture
def all_there(workers, runtime):
    """All workers run at the beginning and at the end of the test."""
    yield
    for worker in workers:
        if not worker.alive:
            worker.end()
            worker.start()
    assert wait_until(lambda: runtime.restart() is None and not runtime.describe()["lost"], 10)


@pytest.fixture(scope="module")
def algorithms(tff):
    """Name -> algorithm on a tiny model, built once; local training long enough to be interrupted."""
    from computations import algorithms
    from tests.computations.toolbox import linear_model

    built = {}

    def get(name):
        if name not in built:
            entry = algorithms.find(name)
            built[name] = entry.build(linear_model(3, 3), entry.options(batch_size=2, local_epochs=40))
        return built[name]

    return get


def one_round(algorithm):
    """Output of a round of clients of different sizes."""
    from tests.computations import toolbox
    from tests.computations.cases import NUM_AT_SERVER

    clients = [toolbox.client(*toolbox.examples(40 + i, seed=i), seed=(i, 1)) for i in range(NUM_CLIENTS)]
    if "triple" in algorithm.model.input_spec:
        clients = [toolbox.in_bags(one, platform) for platform, one in enumerate(clients)]
    state = algorithm.initialize(toolbox.model_weights(*toolbox.start_weights()))
    rest = []
    if algorithm.client_work.client_state_type is not None:
        rest.append([algorithm.client_work.initial_client_state(one["examples"]) for one in clients])
    if algorithm.server_type is not None:
        rest.append(toolbox.client(*toolbox.examples(NUM_AT_SERVER, seed=40)))
    return algorithm.next(state, clients, *rest)


def leaves(tf, output):
    return [np.asarray(value) for value in tf.nest.flatten(output)]


# fedpap: a maximum before the sums; fedcmc: a minimum, and what stays at the clients
ALGORITHMS = ["fedpap", "fedcmc"]


@pytest.fixture(scope="module")
def local_outputs(algorithms, tff, tmp_path_factory):
    """What a worker on this machine alone makes of the same rounds."""
    log = tmp_path_factory.mktemp("local") / "worker.log"
    with open_runtime("local", log_path=log, max_concurrent_computation_calls=2):
        return {name: one_round(algorithms(name)) for name in ALGORITHMS}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round_gives_the_numbers_of_one_worker(name, local_outputs, runtime, algorithms, tf):
    output = one_round(algorithms(name))
    tf.nest.assert_same_structure(output, local_outputs[name])
    for spread, alone in zip(leaves(tf, output), leaves(tf, local_outputs[name]), strict=True):
        assert spread.dtype == alone.dtype and spread.shape == alone.shape
        np.testing.assert_allclose(spread, alone, rtol=1e-5, atol=1e-6)
    if "client_state" in output:  # a client's own, so no sum over clients: it is the same number for number
        for spread, alone in zip(
            leaves(tf, output["client_state"]), leaves(tf, local_outputs[name]["client_state"]), strict=True
        ):
            np.testing.assert_array_equal(spread, alone)


@pytest.mark.slow
def test_every_algorithm_gives_the_numbers_of_one_worker(runtime, tff, tf, tmp_path):
    from computations import algorithms
    from tests.computations import cases, toolbox

    for name in algorithms.names():
        entry, model = algorithms.find(name), toolbox.linear_model(3, 3, bags=cases.case(name).bags)
        algorithm = entry.build(model, entry.options(**{**cases.case(name).required, "local_epochs": 2}))
        spread = one_round(algorithm)
        with open_runtime("local", log_path=tmp_path / "log", max_concurrent_computation_calls=2):
            alone = one_round(algorithm)
        for a, b in zip(leaves(tf, spread), leaves(tf, alone), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("name", "victim"), [("fedpap", 0), ("fedcmc", 2)])
def test_a_worker_killed_in_a_round(name, victim, runtime, workers, all_there, algorithms, tf, caplog):
    algorithm = algorithms(name)
    undisturbed = one_round(algorithm)
    seconds = timed(lambda: one_round(algorithm))
    caplog.clear()
    killer = threading.Timer(0.5 * seconds, workers[victim].stop)
    killer.start()
    with caplog.at_level(logging.WARNING, "tff_re"):
        output = one_round(algorithm)
        if "was lost" not in caplog.text:  # this time, the round was faster
            killer.join()
            output = one_round(algorithm)
    address = f"127.0.0.1:{workers[victim].port}"
    assert caplog.text.count("was lost") == 1 and address in caplog.text
    assert "the others repeat" in caplog.text
    for disturbed, quiet in zip(leaves(tf, output), leaves(tf, undisturbed), strict=True):
        np.testing.assert_array_equal(disturbed, quiet)  # to the bit


def timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@pytest.fixture(scope="module")
def count(tff, tf):
    """Every client counts up to its number in the worker, 300,000 steps a second or so; the sum of all."""

    @tff.tensorflow.computation(np.int64)
    def up_to(n):
        return tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]

    @tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
    def count(numbers):
        return tff.federated_sum(tff.federated_map(up_to, numbers))

    return count


def test_a_worker_killed_in_the_midst_of_a_call(runtime, workers, all_there, count, caplog):
    assert count([1, 2, 3]) == 6
    threading.Timer(0.3, workers[1].stop).start()
    with caplog.at_level(logging.WARNING, "tff_re"):
        assert count([200_000, 200_001, 200_002]) == 600_003
    assert caplog.text.count("was lost") == 1
    assert runtime.alive and runtime.describe()["lost"] == [f"127.0.0.1:{workers[1].port}"]


def test_a_worker_that_hangs(runtime, workers, all_there, count, caplog):
    assert count([1, 2, 3]) == 6
    hanging = psutil.Process(workers[2].pid)
    hanging.suspend()
    try:
        with caplog.at_level(logging.WARNING, "tff_re"):
            assert count([1, 2, 3]) == 6  # nobody answers within `patience`, twice
        assert f"127.0.0.1:{workers[2].port} was lost" in caplog.text
    finally:
        hanging.resume()
    assert wait_until(lambda: count([1, 2, 3]) == 6 and not runtime.describe()["lost"], 10)


def test_a_slow_call_is_no_loss(runtime, workers, count, caplog):
    with caplog.at_level(logging.WARNING, "tff_re"):
        assert timed(lambda: count([600_000, 1, 1])) > 1.0  # longer than `patience`
    assert not caplog.text


def test_all_workers_lost_and_back_again(runtime, workers, all_there, count):
    for worker in workers:
        worker.stop()
    with pytest.raises(WorkerDied, match=r"all workers are lost \(127\.0\.0\.1:\d+, .*\)"):
        count([1, 2, 3])
    assert not runtime.alive
    threading.Timer(0.5, workers[0].start).start()
    runtime.restart()
    assert runtime.alive and count([1, 2, 3]) == 6


def test_nobody_comes_back(runtime, workers, all_there, count, monkeypatch):
    for worker in workers:
        worker.stop()
    with pytest.raises(WorkerDied):
        count([1, 2, 3])
    monkeypatch.setattr(runtime, "_restart_timeout", 0.1)
    with pytest.raises(WorkerStartFailed, match=r"came back within 0\.1 s; start them, then continue with --resume"):
        runtime.restart()


def test_groups_do_not_depend_on_who_computes_them(runtime, workers, all_there, tff, tf):
    """A sum whose order shows: the 3 is lost beside -1e8 in its group, and not lost where 1e8 came before."""
    numbers = [np.float32(x) for x in (1e8, 1, -1e8, 3, 0, 0, 5)]
    total = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.float32, tff.CLIENTS))
    groups = [numbers[0:2], numbers[2:4], numbers[4:7]]
    assert [sum_in_order(group) for group in groups] == [1e8, -1e8, 5] and sum_in_order(numbers) == 8
    assert total(numbers) == 5
    workers[0].stop()
    assert total(numbers) == 5


def sum_in_order(numbers):
    total = np.float32(0)
    for number in numbers:
        total = np.float32(total + number)
    return total


def test_fewer_clients_than_workers(runtime, count):
    assert count([4]) == 4
    assert count([4, 5]) == 9


def test_no_clients_and_no_arguments(runtime, tff, tf, count):
    assert count([]) == 0
    assert tff.tensorflow.computation(lambda: tf.constant(7))() == 7
    assert tff.tensorflow.computation(lambda a, b: a - b, np.int32, np.int32)(9, 4) == 5


def test_evaluation_stays_in_the_order_of_the_clients(runtime, tff):
    from computations.evaluation import build_evaluation
    from tests.computations import toolbox

    evaluation = build_evaluation(toolbox.linear_model(3, 3))
    data = [toolbox.client(*toolbox.examples(3 + i, seed=i))["examples"] for i in range(NUM_CLIENTS)]
    per_client = evaluation(toolbox.model_weights(*toolbox.start_weights()), data)
    assert [int(statistics["examples"]) for statistics in per_client] == [3 + i for i in range(NUM_CLIENTS)]


def test_an_error_in_a_computation_is_no_loss(runtime, tff, tf):
    @tff.tensorflow.computation(np.int32)
    def checked(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, "must be positive")]):
            return tf.identity(x)

    mapped = tff.federated_computation(
        lambda values: tff.federated_sum(tff.federated_map(checked, values)), tff.FederatedType(np.int32, tff.CLIENTS)
    )
    with pytest.raises(ComputationFailed, match=r"in the worker 127\.0\.0\.1:\d+: .*must be positive"):
        mapped([1, 2, -3])
    assert mapped([1, 2, 3]) == 6 and not runtime.describe()["lost"]


def test_what_cannot_be_computed_in_groups_is_refused(runtime, tff):
    from computations.errors import CompositionError

    secure = tff.federated_computation(
        lambda values: tff.federated_secure_sum_bitwidth(values, 8), tff.FederatedType(np.int32, tff.CLIENTS)
    )
    with pytest.raises(CompositionError, match="federated_secure_sum_bitwidth"):
        secure([1, 2, 3])


def test_nothing_is_left_at_the_workers_when_a_runtime_closes(workers, tff, count, tmp_path):
    addresses = ",".join(f"127.0.0.1:{worker.port}" for worker in workers)
    before = tff.framework.get_context_stack().current
    with open_runtime(f"remote:{addresses}", log_path=tmp_path / "log") as opened:
        assert tff.framework.get_context_stack().current is opened.context
        assert count([1, 2, 3]) == 6
        described = opened.describe()
        assert described["addresses"] == addresses.split(",") and not described["tls"]
        with pytest.raises(RuntimeProblem, match="open already"):
            opened.__enter__()
        context = opened.context
    assert tff.framework.get_context_stack().current is before
    assert not opened.alive
    with pytest.raises(RuntimeClosed):
        opened.restart()
    with pytest.raises(RuntimeClosed):
        context.invoke(count, [1, 2, 3])
    assert all(worker.alive for worker in workers)


def test_an_unreachable_worker_is_named(workers, tmp_path):
    there, port = f"127.0.0.1:{workers[0].port}", free_port()
    runtime = RemoteRuntime(tmp_path / "log", addresses=[there, f"127.0.0.1:{port}"], connect_timeout=0.5)
    with pytest.raises(WorkerStartFailed, match=rf"at 127\.0\.0\.1:{port} within 0\.5 s .* worker --port {port}$"):
        runtime.__enter__()
    assert not runtime.alive


def test_something_else_that_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        runtime = RemoteRuntime(tmp_path / "log", addresses=f"127.0.0.1:{port}", connect_timeout=0.5)
        with pytest.raises(WorkerStartFailed, match=f"at 127.0.0.1:{port} within"):
            runtime.__enter__()


def test_a_worker_at_a_port_that_is_taken(workers, tmp_path, processes):
    before = len(processes.running())
    with pytest.raises(WorkerStartFailed, match=f"port {workers[0].port} is not available"):
        Worker(tmp_path / "log", port=workers[0].port).start()
    assert len(processes.running()) == before
    assert workers[0].alive
