"""Clients spread over workers: the numbers, what happens when a worker is lost, and `train --runtime remote:…`."""

import csv
import logging
import socket
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.computations import built, toolbox
from tests.runs.resuming import assert_same_files
from tests.runtime.conftest import free_port, wait_until
from tests.upper_floors import assert_same_weights, builder, command, refusal, tiny, write_recipe
from tff_re.runs.run import train_run
from tff_re.runtime import (
    ComputationFailed,
    RemoteRuntime,
    RuntimeClosed,
    RuntimeProblem,
    WorkerDied,
    WorkerStartFailed,
    open_runtime,
)
from tff_re.runtime.local.worker import Worker


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
def addresses(workers):
    return [f"127.0.0.1:{worker.port}" for worker in workers]


@pytest.fixture(scope="module")
def runtime(addresses, tmp_path_factory):
    log = tmp_path_factory.mktemp("runtime") / "worker.log"
    with RemoteRuntime(log, addresses=addresses, patience=0.7, restart_timeout=10) as runtime:
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
def one_round():
    """Plays a round of clients of different sizes, long enough to be interrupted: a minimum comes before the sums, and
    a state stays at the clients."""
    algorithm = built.build("fedcmc", batch_size=2, local_epochs=40)
    clients = [toolbox.client(*toolbox.examples(40 + i, seed=i), seed=(i, 1)) for i in range(7)]
    return lambda: built.play(algorithm, built.begin(algorithm), range(1), lambda _: clients)


@pytest.fixture(scope="module")
def undisturbed(runtime, one_round):
    """What the round gives, and the seconds that it takes when it is compiled."""
    one_round()
    began = time.perf_counter()
    return one_round(), time.perf_counter() - began


def test_a_round_gives_the_numbers_of_one_worker(undisturbed, one_round, tmp_path):
    spread, _ = undisturbed
    with open_runtime("local", log_path=tmp_path / "log", max_concurrent_computation_calls=2):
        alone = one_round()
    tf.nest.assert_same_structure(spread, alone)
    for a, b in zip(tf.nest.flatten(spread), tf.nest.flatten(alone), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(tf.nest.flatten(spread[1]), tf.nest.flatten(alone[1]), strict=True):
        np.testing.assert_array_equal(a, b)  # a client's own state, so no sum over clients


@pytest.mark.parametrize("victim", [0, 2])
def test_a_worker_killed_in_a_round(victim, undisturbed, one_round, workers, addresses, all_there, caplog):
    quiet, seconds = undisturbed
    killer = threading.Timer(0.5 * seconds, workers[victim].stop)
    killer.start()
    with caplog.at_level(logging.WARNING, "tff_re"):
        output = one_round()
        if "was lost" not in caplog.text:  # this time, the round was faster
            killer.join()
            output = one_round()
    assert caplog.text.count("was lost") == 1 and addresses[victim] in caplog.text
    assert "the others repeat" in caplog.text
    for a, b in zip(tf.nest.flatten(output), tf.nest.flatten(quiet), strict=True):
        np.testing.assert_array_equal(a, b)  # to the bit


@tff.tensorflow.computation(np.int64)
def up_to(n):
    return tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]


@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def count(numbers):
    """Every client counts up to its number in the worker, 300,000 steps a second or so; the sum of all."""
    return tff.federated_sum(tff.federated_map(up_to, numbers))


def test_a_worker_that_hangs(runtime, workers, addresses, all_there, caplog):
    assert count([1, 2, 3]) == 6
    hanging = psutil.Process(workers[2].pid)
    hanging.suspend()
    try:
        with caplog.at_level(logging.WARNING, "tff_re"):
            assert count([1, 2, 3]) == 6  # nobody answers within `patience`, twice
        assert f"{addresses[2]} was lost" in caplog.text
    finally:
        hanging.resume()
    assert wait_until(lambda: count([1, 2, 3]) == 6 and not runtime.describe()["lost"], 10)


def test_a_slow_call_is_no_loss(runtime, caplog):
    began = time.perf_counter()
    with caplog.at_level(logging.WARNING, "tff_re"):
        assert count([400_000, 1, 1]) == 400_002
    assert time.perf_counter() - began > 0.7 and not caplog.text  # longer than `patience`


def test_all_workers_lost_and_back_again(runtime, workers, all_there, monkeypatch):
    for worker in workers:
        worker.stop()
    with pytest.raises(WorkerDied, match=r"all workers are lost \(127\.0\.0\.1:\d+, .*\)"):
        count([1, 2, 3])
    assert not runtime.alive
    with monkeypatch.context() as patched:
        patched.setattr(runtime, "_restart_timeout", 0.1)
        with pytest.raises(WorkerStartFailed, match=r"within 0\.1 s; start them, then continue with --resume"):
            runtime.restart()
    threading.Timer(0.3, workers[0].start).start()
    runtime.restart()
    assert runtime.alive and count([1, 2, 3]) == 6


def test_groups_do_not_depend_on_who_computes_them(runtime, workers, all_there):
    """A sum whose order shows: the 3 is lost beside -1e8 in its group, and not lost where 1e8 came before."""
    numbers = [np.float32(x) for x in (1e8, 1, -1e8, 3, 0, 0, 5)]
    assert np.cumsum(np.array(numbers))[-1] == 8
    total = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.float32, tff.CLIENTS))
    assert total(numbers) == 5
    workers[0].stop()
    assert total(numbers) == 5


def test_fewer_clients_than_workers_none_and_no_arguments(runtime):
    assert [count(numbers) for numbers in ([], [4], [4, 5])] == [0, 4, 9]
    assert tff.tensorflow.computation(lambda: tf.constant(7))() == 7
    assert tff.tensorflow.computation(lambda a, b: a - b, np.int32, np.int32)(9, 4) == 5


def test_an_error_in_a_computation_is_no_loss(runtime):
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


def test_nothing_is_left_at_the_workers_when_a_runtime_closes(workers, addresses, tmp_path):
    before = tff.framework.get_context_stack().current
    with open_runtime(f"remote:{','.join(addresses)}", log_path=tmp_path / "log") as opened:
        assert tff.framework.get_context_stack().current is opened.context
        assert count([1, 2, 3]) == 6
        described = opened.describe()
        assert described["addresses"] == addresses and not described["tls"]
        with pytest.raises(RuntimeProblem, match="open already"):
            opened.__enter__()
        context = opened.context
    assert tff.framework.get_context_stack().current is before
    assert not opened.alive
    for use in (opened.restart, lambda: context.invoke(count, [1, 2, 3])):
        with pytest.raises(RuntimeClosed):
            use()
    assert all(worker.alive for worker in workers)


def test_something_else_that_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        runtime = RemoteRuntime(tmp_path / "log", addresses=f"127.0.0.1:{port}", connect_timeout=0.2)
        with pytest.raises(WorkerStartFailed, match=f"at 127.0.0.1:{port} within"):
            runtime.__enter__()


def test_a_worker_at_a_port_that_is_taken(workers, tmp_path, processes):
    before = len(processes.running())
    with pytest.raises(WorkerStartFailed, match=f"port {workers[0].port} is not available"):
        Worker(tmp_path / "log", port=workers[0].port).start()
    assert len(processes.running()) == before
    assert workers[0].alive


def test_a_run_that_loses_a_worker(workers, addresses, tmp_path):
    """Everything is as if it had not been lost, and as on one worker alone; the log says that it was."""

    results = {}

    def train(name, runtime, **options):
        options = {"builder": builder(), "runtime": runtime, "details": False, **options}
        with runtime:
            _, results[name] = train_run(tiny(), tmp_path / name, **options)
        with open(tmp_path / name / "metrics.csv", newline="", encoding="utf-8") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]

    def lose_one(report):
        if report.round == 1:
            workers[1].stop()

    alone = train("alone", open_runtime("local", log_path=tmp_path / "log"))
    quiet = train("quiet", RemoteRuntime(tmp_path / "log", addresses=addresses[:2]))
    train("disturbed", RemoteRuntime(tmp_path / "log", addresses=addresses[:2]), on_round=lose_one)
    workers[1].start()
    assert len(quiet) == len(alone) == 3
    for a, b in zip(quiet, alone, strict=True):
        assert list(a) == list(b)
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-4)
    assert_same_files(tmp_path / "disturbed", tmp_path / "quiet", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(results["disturbed"].weights, results["quiet"].weights)
    assert not (tmp_path / "quiet" / "run.log").exists()  # there was nothing to say
    log = (tmp_path / "disturbed" / "run.log").read_text("utf-8")
    assert log.count(f"the worker {addresses[1]} was lost") == 1
    assert "the others repeat the round of its clients" in log


def test_an_unreachable_worker_leaves_no_folder(addresses, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(RemoteRuntime.__init__.__kwdefaults__, "connect_timeout", 0.2)
    recipe, port = write_recipe(tmp_path / "tiny.toml"), free_port()
    for arguments in (["train", recipe], ["compare", recipe]):
        there = f"remote:{addresses[0]},127.0.0.1:{port}"
        typed = command(capsys, *arguments, "--runtime", there, "--out", tmp_path / "run")
        refusal(typed, f"no worker answered at 127.0.0.1:{port} within 0.2 s", f"tff_re.run worker --port {port}")
        assert not (tmp_path / "run").exists()


def test_a_malformed_address_and_some_files_for_tls(tmp_path, capsys, monkeypatch):
    train = ("train", write_recipe(tmp_path / "tiny.toml"), "--runtime")
    refusal(command(capsys, *train, "remote:ward3"), "--runtime")
    monkeypatch.setenv("TFF_RE_TLS_CERT", "me.pem")
    refusal(command(capsys, *train, "remote:ward3:8000"), "missing: --tls-key (TFF_RE_TLS_KEY)")
