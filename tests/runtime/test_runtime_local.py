"""The local runtime: computations in it, and what is raised when one of them or the worker fails."""

import json
import logging
import os
import pathlib
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from tests.runtime.conftest import supervisor_without_namespaces
from tff_re.runtime import (
    ComputationFailed,
    LocalRuntime,
    RuntimeClosed,
    RuntimeProblem,
    UnknownRuntime,
    WorkerDied,
    open_runtime,
    require_runtime,
)
from tff_re.runtime.base import THREADS_AN_OPERATION
from tff_re.runtime.local import runtime as local
from tff_re.runtime.local import supervised


@pytest.fixture(scope="module")
def runtime(tmp_path_factory, processes):
    """One runtime for all tests; a test that kills its worker restarts it."""
    with open_runtime("local", log_path=tmp_path_factory.mktemp("runtime") / "worker.log") as runtime:
        yield runtime


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)


@tff.tensorflow.computation(np.int64)
def count(n):
    """Counts up to n in the worker, 300,000 steps a second or so."""
    return tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]


@tff.tensorflow.computation(np.int32)
def checked(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
        return tf.identity(x)


def test_numbers_of_clients_in_one_context(runtime):
    for _ in range(2):
        assert total([np.float32(i) for i in range(10)]) == 45
        assert total([np.float32(i) for i in range(30)]) == 435

    @tff.federated_computation()
    def ones():
        return tff.federated_sum(tff.federated_value(1, tff.CLIENTS))

    assert ones() == 0


def test_error_in_a_computation_surfaces_and_the_worker_lives(runtime):
    pid = runtime.worker.pid
    with pytest.raises(ComputationFailed, match="not positive") as caught:
        checked(-1)
    assert caught.value.code == "INTERNAL" and "\n" not in str(caught.value)

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def checked_total(values):
        return tff.federated_sum(tff.federated_map(checked, values))

    with pytest.raises(ComputationFailed, match="not positive"):
        checked_total([1, 2, -3])
    assert checked_total([1, 2, 3]) == 6
    assert runtime.describe()["max_concurrent_computation_calls"] == len(os.sched_getaffinity(0))
    assert runtime.alive and runtime.worker.pid == pid


def test_worker_killed_while_idle(runtime):
    values = [np.float32(i / 7) for i in range(10)]
    before = total(values)
    pid = runtime.worker.pid
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(WorkerDied, match=f"{pid}.*SIGKILL.*worker.log") as caught:
        total(values)
    assert time.monotonic() - begin < 5
    assert caught.value.signal_number == signal.SIGKILL
    assert not runtime.alive
    with pytest.raises(WorkerDied):  # again, not a hang
        total(values)

    runtime.restart()
    assert runtime.alive and runtime.worker.pid != pid
    assert total(values) == before


def test_worker_killed_in_the_middle_of_a_call(runtime):
    assert count(3) == 3
    threading.Timer(0.2, os.kill, (runtime.worker.pid, signal.SIGSEGV)).start()
    begin = time.monotonic()
    with pytest.raises(WorkerDied, match="SIGSEGV") as caught:
        count(10**12)
    assert time.monotonic() - begin < 5
    assert caught.value.signal_number == signal.SIGSEGV

    runtime.restart()
    assert count(5) == 5


@pytest.mark.parametrize("name", ["local", "in-process"])
def test_a_runtime_within_a_runtime_restarted_closed_and_opened_again(name, runtime, tmp_path):
    stack = tff.framework.get_context_stack()
    outer, ones = stack.current, [np.float32(1)] * 2
    with open_runtime(name, log_path=tmp_path / "inner.log", default_num_clients=1) as inner:
        first = inner.context
        assert stack.current is first is not outer
        assert total(ones) == 2
        with pytest.raises(RuntimeProblem, match="open already"):
            inner.__enter__()
        inner.restart()
        assert stack.current is inner.context is not first and inner.alive
        assert total(ones) == 2
    assert stack.current is outer
    assert not inner.alive
    assert total(ones) == 2
    for use in (lambda: inner.context, inner.restart, lambda: first.invoke(total, ones)):
        with pytest.raises(RuntimeClosed):
            use()
    with inner:
        assert inner.alive and total(ones) == 2
        description = inner.describe()
    assert json.loads(json.dumps(description)) == description
    assert description["runtime"] == name and description["alive"] and description["default_num_clients"] == 1


def test_interrupted_call_does_not_hold_up_the_closing(tmp_path, runtime, processes):
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), LocalRuntime(tmp_path / "worker.log") as inner:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        count(10**12)
    assert time.monotonic() - begin < 5
    assert processes.wait_until_gone(inner.worker.pid, inner.worker.supervisor_pid, seconds=0)


def test_an_exposed_worker_is_told_of_once(runtime, tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setattr(supervised, "_SUPERVISOR", supervisor_without_namespaces(tmp_path))
    monkeypatch.setattr(local, "_announced", set())
    with caplog.at_level(logging.INFO, "tff_re"):
        for _ in range(2):
            with LocalRuntime(tmp_path / "worker.log") as inner:
                assert total([np.float32(1)] * 3) == 3
                assert inner.describe()["why_exposed"] == "not on this machine" and not inner.describe()["private"]
    printed = capfd.readouterr().err
    assert printed.count("not on this machine") == 1 and "everybody on this machine" in printed
    assert "--runtime in-process" in printed
    assert caplog.text.count("everybody on this machine") == 2  # each run's log has it


def test_unknown_name_and_options(tmp_path):
    with pytest.raises(UnknownRuntime, match=r"'nowhere'.*local"):
        open_runtime("nowhere", log_path=tmp_path / "log")
    with pytest.raises(TypeError, match="colour"):
        open_runtime("local", log_path=tmp_path / "log", colour="red")
    for name, options in (
        ("local", {"default_num_clients": -1}),
        ("in-process", {"default_num_clients": -1}),
        ("in-process", {"threads": 0}),
        ("in-process", {"clients": 0}),
        ("local", {"clients": 0}),
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            open_runtime(name, log_path=tmp_path / "log", **options)


@pytest.mark.parametrize(("clients", "threads"), [(1, b"4"), (2, b"2"), (3, b"1"), (10, b"1"), (None, None)])
def test_clients_side_by_side_share_the_cores(tmp_path, monkeypatch, clients, threads):
    monkeypatch.delenv(THREADS_AN_OPERATION, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(4))
    with open_runtime("local", log_path=tmp_path / "log", clients=clients) as inner:
        entries = pathlib.Path(f"/proc/{inner.worker.pid}/environ").read_bytes().split(b"\0")
    variables = dict(entry.partition(b"=")[::2] for entry in entries)
    assert variables.get(THREADS_AN_OPERATION.encode()) == threads
    chosen = []
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", chosen.append)
    require_runtime("in-process", clients=clients)
    once = [] if threads is None else [int(threads)]
    assert chosen == once
    monkeypatch.setenv(THREADS_AN_OPERATION, "3")  # the user's own choice
    require_runtime("in-process", clients=clients)
    assert chosen == once


def test_no_thread_stays_in_grpc_while_nothing_is_asked(runtime):
    """Python's end can break one off in the middle of C++, and the process then ends with SIGABRT."""
    assert total([np.float32(1), np.float32(2)]) == 3
    files = {
        inner.f_code.co_filename for frame in sys._current_frames().values() for inner, _ in traceback.walk_stack(frame)
    }
    assert any(file.endswith("asyncio/base_events.py") for file in files)  # the thread of TFF's context is seen
    assert not [file for file in files if "grpc" in pathlib.PurePath(file).parts]
