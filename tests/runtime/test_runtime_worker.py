"""The worker process by itself, without TensorFlow."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tff_re.runtime import RuntimeProblem, WorkerStartFailed, install_signal_handlers
from tff_re.runtime import worker as worker_module
from tff_re.runtime.worker import Worker


@pytest.fixture
def worker(tmp_path):
    with Worker(tmp_path / "logs" / "worker.log", environment={"TF_CPP_MIN_LOG_LEVEL": "0"}) as worker:
        yield worker


def test_start_and_stop(worker, processes):
    assert worker.alive and not worker.stopped
    assert sorted(processes.running()) == sorted([worker.pid, worker.supervisor_pid])
    socket.create_connection(("127.0.0.1", worker.port), timeout=5).close()
    with pytest.raises(RuntimeProblem, match="running already"):
        worker.start()
    worker.stop()
    worker.stop()
    assert worker.stopped and not worker.alive
    assert not processes.alive(worker.pid) and not processes.alive(worker.supervisor_pid)


def test_starts_again_after_stop(worker, processes):
    first = worker.pid
    worker.stop()
    worker.start()
    assert worker.alive and not worker.stopped and worker.pid != first
    assert len(processes.running()) == 2


def test_log_gets_the_output_and_is_appended_to(worker):
    for starts in (1, 2):
        if starts == 2:
            worker.start()
        # The worker says so a moment after it began to listen.
        deadline = time.monotonic() + 5
        while worker.log_path.read_text().count("TFF ExecutorService started") < starts:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        worker.stop()
        assert worker.log_path.read_text().count("killed 9 as asked") == starts


def test_holds_none_of_our_files(worker):
    for pid in (worker.pid, worker.supervisor_pid):
        process = psutil.Process(pid)
        assert {file.path for file in process.open_files()} == {str(worker.log_path)}
        assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{worker.pid}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{worker.pid}/fd/1") == os.readlink(f"/proc/{worker.pid}/fd/2") == str(worker.log_path)


def test_signal_dispositions_are_not_inherited(worker):
    # Python ignores SIGPIPE, and what is ignored stays so over exec.
    with open(f"/proc/{worker.pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    assert int(fields["SigBlk"], 16) == 0
    assert not int(fields["SigIgn"], 16) & (1 << (signal.SIGTERM - 1))


def test_killed_worker_is_told_by_signal(worker, processes):
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.wait_for_end(2)
    death = worker.death()
    assert (death.signal_number, death.exit_code, death.pid) == (signal.SIGKILL, None, worker.pid)
    assert f"process {worker.pid}" in str(death) and "SIGKILL" in str(death) and "memory" in str(death)
    assert str(worker.log_path) in str(death) and "\n" not in str(death)
    assert not worker.stopped


def test_worker_dies_with_its_supervisor(worker, processes):
    os.kill(worker.supervisor_pid, signal.SIGKILL)
    assert processes.wait_until_gone(worker.pid)
    assert not worker.alive
    assert "supervisor" in str(worker.death())


def test_outlives_the_thread_that_started_it(tmp_path):
    worker = Worker(tmp_path / "worker.log")
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join()
    try:
        assert not worker.wait_for_end(0.7)
    finally:
        worker.stop()


def test_forked_child_does_not_stop_it(worker):
    child = os.fork()
    if not child:
        try:
            worker.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not worker.wait_for_end(0.2)


def test_stop_while_a_forked_child_holds_the_lifeline(worker):
    child = os.fork()
    if not child:
        signal.pause()
    try:
        worker.stop(timeout=2)
        assert (worker.death().signal_number, worker.alive) == (signal.SIGKILL, False)
        assert "as asked" in worker.log_path.read_text()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_takes_another_port_if_the_first_is_taken(tmp_path, monkeypatch, processes):
    taken = socket.socket()
    taken.bind(("", 0))

    class Reservation:
        def getsockname(self):
            return taken.getsockname()

        def close(self):
            pass

    reserve = worker_module.reserve_port
    reservations = [Reservation()]
    monkeypatch.setattr(worker_module, "reserve_port", lambda: reservations.pop() if reservations else reserve())
    with taken, Worker(tmp_path / "worker.log") as worker:
        assert worker.port != taken.getsockname()[1]
        assert len(processes.running()) == 2


def test_reserved_ports_differ():
    reservations = [worker_module.reserve_port() for _ in range(50)]
    assert len({reservation.getsockname()[1] for reservation in reservations}) == 50
    for reservation in reservations:
        reservation.close()


def test_worker_that_cannot_start(tmp_path, monkeypatch):
    broken = tmp_path / "worker_binary"
    broken.write_text("#!/bin/sh\necho no good\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(worker_module, "find_worker_binary", lambda: broken)
    worker = Worker(tmp_path / "worker.log")
    with pytest.raises(WorkerStartFailed, match=r"exit code 3 .*worker\.log"):
        worker.start()
    assert "no good" in worker.log_path.read_text()
    broken.write_text("not a program")
    with pytest.raises(WorkerStartFailed, match="exit code 127"):
        worker.start()
    assert "cannot run" in worker.log_path.read_text()


def test_worker_that_never_listens(tmp_path, monkeypatch, processes):
    idle = tmp_path / "worker_binary"
    idle.write_text("#!/bin/sh\nexec sleep 60\n")
    idle.chmod(0o755)
    monkeypatch.setattr(worker_module, "find_worker_binary", lambda: idle)
    worker = Worker(tmp_path / "worker.log", start_timeout=0.5)
    with pytest.raises(WorkerStartFailed, match=r"0\.5 s"):
        worker.start()
    assert not worker.alive and not processes.running()


def test_missing_log_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkerStartFailed, match="file"):
        Worker(tmp_path / "file" / "worker.log").start()


def test_no_calls_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 1"):
        Worker(tmp_path / "worker.log", max_concurrent_computation_calls=0)


def test_signal_handler_is_ours_only_where_there_was_none():
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert not install_signal_handlers()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        in_thread = []
        thread = threading.Thread(target=lambda: in_thread.append(install_signal_handlers()))
        thread.start()
        thread.join()
        assert in_thread == [False] and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert install_signal_handlers() and install_signal_handlers()
        with pytest.raises(SystemExit) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(1)
        assert caught.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, before)


def test_import_is_light():
    code = (
        "import sys, tff_re.runtime; tff_re.runtime.open_runtime('local', log_path='never-written');"
        "print([m for m in ('tensorflow', 'tensorflow_federated', 'grpc', 'numpy') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "[]\n"
