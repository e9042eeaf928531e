"""The worker process by itself, without TensorFlow."""

import errno
import os
import pathlib
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import types

import psutil
import pytest

from tests.runtime.conftest import supervisor_without_namespaces, wait_until
from tff_re.runtime import RuntimeProblem, WorkerStartFailed, install_signal_handlers
from tff_re.runtime.local import supervised
from tff_re.runtime.local import worker as worker_module
from tff_re.runtime.local.connection import connect
from tff_re.runtime.local.supervisor import Forwarder
from tff_re.runtime.local.worker import Worker


@pytest.fixture
def worker(tmp_path):
    with Worker(tmp_path / "logs" / "worker.log", environment={"TF_CPP_MIN_LOG_LEVEL": "0"}) as worker:
        yield worker


@pytest.fixture
def private(worker):
    """The worker, where the machine allows it a network of its own."""
    if not worker.private:
        pytest.skip(f"no network namespace is allowed here: {worker.why_exposed}")
    return worker


@pytest.fixture
def no_namespaces(monkeypatch, tmp_path):
    """A supervisor to whom the machine refuses a network of its own."""
    monkeypatch.setattr(supervised, "_SUPERVISOR", supervisor_without_namespaces(tmp_path))


def socket_path(worker):
    return pathlib.Path(worker.address.removeprefix("unix:"))


def connected(worker):
    """A connection to the worker, as this user has it."""
    if not worker.private:
        return socket.create_connection(("127.0.0.1", worker.port), timeout=5)
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(5)
    stream.connect(str(socket_path(worker)))
    return stream


def listening(pids=None):
    """Addresses on which a program of this machine listens, or on which these processes do."""
    connections = psutil.net_connections("inet")
    return {c.laddr for c in connections if c.status == psutil.CONN_LISTEN and (pids is None or c.pid in pids)}


def test_no_other_user_reaches_it(private):
    path = socket_path(private)
    modes = [(stat.S_IMODE(p.stat().st_mode), p.stat().st_uid) for p in (path.parent, path)]
    assert modes == [(0o700, os.getuid()), (0o600, os.getuid())]
    if os.getuid() != 0:
        pytest.skip("only root can be another user for the rest of this test")
    for open_folder in (False, True):  # the socket alone would do, too
        path.parent.chmod(0o755 if open_folder else 0o700)
        assert seen_by_nobody(path) == errno.EACCES


def seen_by_nobody(path):
    """errno of a connection to a Unix socket by a user without rights, 0 where it succeeds."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as stream:
                code = stream.connect_ex(str(path))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_it_listens_on_no_interface(private):
    connected(private).close()
    assert not listening({private.pid, private.supervisor_pid, os.getpid()})
    assert private.port not in {address.port for address in listening()}
    for address in {
        a.address for addresses in psutil.net_if_addrs().values() for a in addresses if a.family == socket.AF_INET
    }:
        with pytest.raises(OSError), socket.create_connection((address, private.port), timeout=1):
            pass
    namespaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in (private.pid, private.supervisor_pid)}
    assert len(namespaces) == 1 and os.readlink("/proc/self/ns/net") not in namespaces


@pytest.mark.parametrize("killed", [None, "worker", "supervisor"])
def test_nothing_is_left_of_its_socket(private, killed, processes):
    folder = socket_path(private).parent
    if killed:
        os.kill(private.pid if killed == "worker" else private.supervisor_pid, signal.SIGKILL)
        assert private.wait_for_end(5)
        if killed == "worker":
            assert not folder.exists()
        else:
            assert processes.wait_until_gone(private.pid)
            assert not private.alive and "supervisor" in str(private.death())
    private.stop()
    assert not folder.exists()


def test_long_messages_and_many_connections_pass(private, tmp_path, monkeypatch):
    """An echo in the place of TFF's worker: what comes back is what was sent, whatever the pace on both sides."""
    echo = tmp_path / "worker_binary"
    echo.write_text(f"#!{sys.executable}\n{_ECHO}")
    echo.chmod(0o755)
    monkeypatch.setattr(worker_module, "find_worker_binary", lambda: echo)
    sent = os.urandom(3 * 2**20)
    with Worker(tmp_path / "echo.log") as worker:
        for _ in range(2):
            streams = [connected(worker) for _ in range(5)]
            writers = [threading.Thread(target=stream.sendall, args=(sent,)) for stream in streams]
            for writer in writers:
                writer.start()
            time.sleep(0.2)  # all buffers on the way back are full
            for stream in streams:
                back = bytearray()
                while len(back) < len(sent):
                    back += stream.recv(2**20)
                assert back == sent
            for writer, stream in zip(writers, streams, strict=True):
                writer.join()
                stream.close()
        broken = connected(worker)
        broken.sendall(sent[:100])
        broken.close()  # in the midst of it
        ended = connected(worker)
        ended.sendall(b"end")  # the echo's own word for closing
        received = b""
        while piece := ended.recv(100):
            received += piece
        assert received == b"end"


_ECHO = """
import asyncio, sys
async def echo(reader, writer):
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
        if piece == b"end":
            break
    writer.close()
async def main():
    port = next(a for a in sys.argv if a.startswith("--port=")).partition("=")[2]
    async with await asyncio.start_server(echo, "127.0.0.1", int(port)) as server:
        await server.serve_forever()
asyncio.run(main())
"""


def test_a_new_connection_gets_no_event_of_a_closed_one(tmp_path):
    """Its sockets may have the numbers of those that were closed in the same turn."""
    path = str(tmp_path / "socket")
    with socket.create_server(("127.0.0.1", 0)) as program, socket.socket(socket.AF_UNIX) as listener:
        program.settimeout(5)
        listener.bind(path)
        forwarder = Forwarder(listener, program.getsockname()[1])
        forwarder.begin()
        program.accept()[0].close()  # it looks whether the program listens
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
            first.connect(path)
            forwarder.work()
            answering = program.accept()[0]
            numbers = {end.stream.family: number for number, end in forwarder._ends.items()}
            first.shutdown(socket.SHUT_WR)
            second.connect(path)
            ended, comes = (numbers[socket.AF_UNIX], select.EPOLLIN), (listener.fileno(), select.EPOLLIN)
            epoll, broken = forwarder._epoll, (numbers[socket.AF_INET], select.EPOLLERR)
            forwarder._epoll = types.SimpleNamespace(poll=lambda _: [ended, comes, broken], register=epoll.register)
            forwarder.work()
            assert len(forwarder._ends) == 2
            with answering, program.accept()[0] as serving:
                serving.sendall(b"all well")
                forwarder._epoll = epoll
                forwarder.work()
                second.settimeout(5)
                assert second.recv(100) == b"all well"
            for end in forwarder._ends.values():
                end.stream.close()


def test_forwarding_costs_no_time_while_nothing_comes(private):
    before = sum(psutil.Process(private.supervisor_pid).cpu_times()[:2])
    with connected(private):
        time.sleep(0.4)
    assert sum(psutil.Process(private.supervisor_pid).cpu_times()[:2]) - before < 0.1


def _printed(code, *arguments):
    """What a Python process of its own prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import os, sys; from tff_re.runtime.local import private_network as p\n" + code]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def test_a_namespace_without_rights_is_none():
    """What Ubuntu does since 23.10: the namespace is given, and nothing is allowed in it."""
    code = (
        "def no(*_): raise PermissionError(1, 'Operation not permitted')\n"
        "p.fcntl.ioctl = no; before = os.readlink('/proc/self/ns/net')\n"
        "print(p.enter_private_network(), before == os.readlink('/proc/self/ns/net'))"
    )
    printed = _printed(code)
    assert printed.endswith(" True") and not printed.startswith("None")


def test_root_keeps_its_right_to_the_files_of_others(tmp_path):
    """The worker's program may be in the home of another user."""
    file = tmp_path / "home" / "file"
    file.parent.mkdir()
    file.write_text("read")
    if os.geteuid() != 0:
        pytest.skip("only root has rights to the files of others")
    for path in (file, file.parent):
        os.chown(path, 1000, 1000)
        path.chmod(0o700)
    code = "print(open(sys.argv[1]).read()); print(p.enter_private_network()); print(open(sys.argv[1]).read())"
    before, reason, after = _printed(code, file).splitlines()
    if reason != "None":
        pytest.skip(f"no network namespace is allowed here: {reason}")
    assert before == after == "read"


def test_an_attempt_that_is_killed_is_a_refusal():
    """What a seccomp filter may do."""
    code = "p._enter = lambda: os.kill(os.getpid(), 31); print(p.enter_private_network())"
    assert _printed(code) == "the process that tried it ended with -31 and reported nothing"


@pytest.mark.parametrize(("name", "used"), [("a folder%" * 12, False), ("a b%20#?é", True)])
def test_a_folder_for_temporary_files_with_a_long_path_or_a_strange_name(name, used, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(prefix=name, dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with Worker(tmp_path / "worker.log") as worker:
            connect(worker.address, 20).close()
            assert len(os.listdir(folder)) == (used and worker.private)
        assert not os.listdir(folder)


def test_start_stop_and_start_again(worker, processes):
    """The log gets the output, and is appended to."""
    pids = set()
    for starts in (1, 2):
        if starts == 2:
            worker.start()
        assert worker.alive and not worker.stopped
        assert sorted(processes.running()) == sorted([worker.pid, worker.supervisor_pid])
        connected(worker).close()
        with pytest.raises(RuntimeProblem, match="running already"):
            worker.start()
        # The worker says so a moment after it began to listen.
        assert wait_until(lambda n=starts: worker.log_path.read_text().count("TFF ExecutorService started") == n, 5)
        worker.stop()
        worker.stop()
        assert worker.stopped and not worker.alive
        assert not processes.alive(worker.pid) and not processes.alive(worker.supervisor_pid)
        assert worker.log_path.read_text().count("killed 9 as asked") == starts
        pids.add(worker.pid)
    assert len(pids) == 2


def test_inherits_none_of_our_files_and_signal_dispositions(worker):
    for pid in (worker.pid, worker.supervisor_pid):
        process = psutil.Process(pid)
        assert {file.path for file in process.open_files()} == {str(worker.log_path)}
        assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{worker.pid}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{worker.pid}/fd/1") == os.readlink(f"/proc/{worker.pid}/fd/2") == str(worker.log_path)

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


def test_outlives_the_thread_that_started_it(tmp_path):
    worker = Worker(tmp_path / "worker.log")
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join()
    try:
        assert not worker.wait_for_end(0.2)
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


def test_takes_another_port_if_the_first_is_taken(no_namespaces, tmp_path, monkeypatch, processes):
    taken = socket.socket()
    taken.bind(("", 0))

    reserve = worker_module.reserve_port
    reservations = [types.SimpleNamespace(getsockname=taken.getsockname, close=lambda: None)]
    monkeypatch.setattr(worker_module, "reserve_port", lambda: reservations.pop() if reservations else reserve())
    with taken, Worker(tmp_path / "worker.log") as worker:
        assert worker.port != taken.getsockname()[1]
        assert len(processes.running()) == 2


def test_reserved_ports_differ():
    reservations = [worker_module.reserve_port() for _ in range(50)]
    assert len({reservation.getsockname()[1] for reservation in reservations}) == 50
    for reservation in reservations:
        reservation.close()


@pytest.mark.parametrize(
    ("program", "error", "logged"),
    [
        ("#!/bin/sh\necho no good\nexit 3\n", r"exit code 3 .*worker\.log", "no good"),
        ("not a program", "exit code 127", "cannot run"),
        ("#!/bin/sh\nexec sleep 60\n", r"not listening after 0\.5 s", "as asked"),
    ],
)
def test_worker_that_cannot_start(program, error, logged, tmp_path, monkeypatch, processes):
    binary = tmp_path / "worker_binary"
    binary.write_text(program)
    binary.chmod(0o755)
    monkeypatch.setattr(worker_module, "find_worker_binary", lambda: binary)
    worker = Worker(tmp_path / "worker.log", start_timeout=0.5 if "sleep" in program else 30)
    with pytest.raises(WorkerStartFailed, match=error):
        worker.start()
    assert not worker.alive and not processes.running()
    assert logged in worker.log_path.read_text()


def test_options_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkerStartFailed, match="file"):
        Worker(tmp_path / "file" / "worker.log").start()
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
