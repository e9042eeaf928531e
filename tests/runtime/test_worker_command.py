"""`python -m tff_re.run worker` as it is typed: what it starts, what it lets through, that nothing is left of it."""

import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import tensorflow_federated as tff

from tests.runtime.conftest import free_port
from tests.upper_floors import Process, command, refusal
from tff_re.runtime import RemoteRuntime, RuntimeProblem, WorkerStartFailed
from tff_re.runtime.connection import check_worker
from tff_re.runtime.remote import serving
from tff_re.runtime.remote.serving import configuration, find_proxy
from tff_re.runtime.tls import Tls

_ENTER = "from tff_re.runtime.local.private_network import enter_private_network as e; r = e(); print(r or '', end='')"


@pytest.fixture(scope="module")
def guard():
    """Skips where a worker cannot be kept from listening on all interfaces."""
    if find_proxy() is None:
        pytest.skip("HAProxy is not installed")
    if reason := subprocess.run([sys.executable, "-c", _ENTER], capture_output=True, text=True, check=True).stdout:
        pytest.skip(f"no network namespace is allowed here: {reason}")


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts the command and waits for its line."""
    running = []
    monkeypatch.chdir(tmp_path)

    def start(*arguments):
        process = Process("worker", *arguments)
        running.append(process)
        line = process.popen.stdout.readline()
        assert line.startswith("a worker listens on "), process.end()
        return process, line

    yield start
    for process in running:
        process.close()


def options(tls):
    return "--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_guarded_worker(number, guard, started, port, capsys, tmp_path):
    process, line = started("--port", port, "--max-concurrent", 3)
    assert f"127.0.0.1, port {port}" in line and "3 clients side by side" in line
    assert (tmp_path / "runs" / f"worker-{port}.log").exists()
    assert command(capsys, "worker", "--check", f"localhost:{port}").out == f"a worker answers at localhost:{port}\n"
    typed = process.end(number)  # looks that nothing is left
    assert typed.code == {signal.SIGINT: 0, signal.SIGKILL: -9}[number] and not typed.err
    refusal(command(capsys, "worker", "--check", f"localhost:{port}", "--timeout", "0.3"), f"localhost:{port}", "0.3 s")


def test_a_guarded_worker_listens_nowhere_else(guard, started, port, certificates):
    process, _ = started("--port", port)
    listening, deadline = [], time.monotonic() + 10
    while not listening and time.monotonic() < deadline:  # a look at /proc can miss a process that is just replaced
        mine = {p.pid for p in process.workers()} | {process.popen.pid}
        listening = [c for c in psutil.net_connections("tcp") if c.pid in mine and c.status == psutil.CONN_LISTEN]
    assert {(c.laddr.ip, c.laddr.port) for c in listening} == {("127.0.0.1", port)}
    addresses = [a.address for own in psutil.net_if_addrs().values() for a in own if a.family == socket.AF_INET]
    for address in [a for a in addresses if not a.startswith("127.")]:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=1):
            pass
    assert check_worker(f"localhost:{port}", certificates["client"], 20) == "the worker does not use TLS"


def test_mutual_tls(guard, started, port, certificates, tmp_path):
    process, line = started("--port", port, *options(certificates["worker"]))
    assert "0.0.0.0" in line and "mutual TLS" in line
    total = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS))
    with RemoteRuntime(tmp_path / "log", addresses=f"localhost:{port}", tls=certificates["client"]) as runtime:
        assert total([1, 2, 3]) == 6
        assert runtime.describe()["tls"]
    assert check_worker(f"localhost:{port}", None, 0.2)
    # Who presents no certificate gets nowhere, even with the right authority.
    bare = ["openssl", "s_client", "-tls1_2", "-CAfile", certificates["client"].ca, "-connect", f"localhost:{port}"]
    assert "alert" in subprocess.run(bare, input="", capture_output=True, text=True).stderr
    process.end(signal.SIGTERM)


def test_a_worker_that_dies_is_started_again(guard, started, port):
    process, _ = started("--port", port)
    (worker,) = [p for p in process.workers() if p.name() == "worker_binary"]
    worker.kill()
    assert "killed by signal 9" in (line := process.popen.stdout.readline()) and "starting it again" in line
    assert check_worker(f"localhost:{port}", None, 20) is None
    process.end(signal.SIGTERM)


def test_the_bare_worker(started, port):
    process, line = started("--port", port, "--insecure")
    assert "all interfaces, open to everybody" in line and "without encryption" in line
    assert check_worker(f"localhost:{port}", None, 20) is None
    process.end(signal.SIGINT)


def test_a_port_that_is_taken(guard, capsys, port, tmp_path):
    with socket.create_server(("127.0.0.1", port)):
        process = Process("worker", "--port", port, "--log", tmp_path / "log")
        refusal(process.end(), f"127.0.0.1, port {port}: Address already in use")


def test_a_worker_looks_at_its_own_certificate(guard, certificates, port, tmp_path):
    process = Process("worker", "--port", port, "--log", tmp_path / "log", *options(certificates["expired"]))
    refusal(process.end(), f"{certificates['expired'].cert}: has expired")
    assert not (tmp_path / "log").exists()


def test_a_client_is_told_what_is_wrong_with_which_certificate(guard, started, port, certificates, capsys):
    started("--port", port, *options(certificates["worker"]))
    client, stranger = certificates["client"], certificates["stranger"]
    here, seconds = f"localhost:{port}", 20  # it is told long before
    assert check_worker(here, client, seconds) is None
    told = check_worker(here, certificates["expired"], seconds)
    assert told == f"the worker refuses our certificate {certificates['expired'].cert}: it has expired"
    told = check_worker(here, stranger, seconds)
    assert told.startswith(f"the worker refuses our certificate {stranger.cert}: it is not signed by the worker's CA")
    misled = Tls(client.cert, client.key, stranger.ca.with_name("theirs.pem"))
    assert (
        check_worker(here, misled, seconds)
        == f"the worker's certificate is not signed by the CA certificate {misled.ca}"
    )
    assert "IP address mismatch" in check_worker(f"127.0.0.2:{port}", client, seconds)
    refusal(command(capsys, "worker", "--check", here, *options(stranger)), str(stranger.cert), "it is not signed")
    expired = certificates["expired"]
    refusal(command(capsys, "worker", "--check", here, *options(expired)), f"{expired.cert}: has expired")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--port PORT", "--check HOST:PORT"]),
        (["--port", "8000", "--check", "ward3:8000"], ["--port PORT", "--check HOST:PORT"]),
        (["--port", "0"], ["--port"]),
        (["--check", "ward3"], ["'ward3' is not the address"]),
        (["--port", "8000", "--tls-cert", "a.pem"], ["missing: --tls-key (TFF_RE_TLS_KEY), --tls-ca"]),
        (["--port", "8000", "--bind", "0.0.0.0"], ["0.0.0.0", "--tls-cert", "--insecure"]),
        (["--port", "8000", "--bind", "0.0.0.0", "--insecure"], ["leave out --bind"]),
    ],
)
def test_refusals(arguments, parts, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refusal(command(capsys, "worker", *arguments), *parts)
    assert not list(tmp_path.iterdir())


def test_without_a_proxy_a_machine_that_others_reach_is_refused(monkeypatch):
    monkeypatch.setattr(serving, "others_can_reach_us", lambda: True)
    monkeypatch.setattr(serving, "find_proxy", lambda: None)
    with pytest.raises(RuntimeProblem, match=r"listens on all interfaces, and HAProxy.* --insecure"):
        serving._guarded(None, None, False)
    monkeypatch.setattr(serving, "others_can_reach_us", lambda: False)
    assert not serving._guarded(None, None, False)


def test_without_namespaces_it_is_refused(monkeypatch, port, tmp_path):
    monkeypatch.setattr(serving, "_guarded", lambda *arguments: True)
    monkeypatch.setattr(serving, "enter_private_network", lambda: "Operation not permitted")
    with pytest.raises(WorkerStartFailed, match=r"no network namespace \(Operation not permitted\).*--insecure"):
        serving.serve(port, log_path=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_tls_is_demanded_of_everybody():
    text = configuration(7, 8000, ("own.pem", "ca.pem"))
    assert 'bind fd@7 ssl crt "own.pem" ca-file "ca.pem" verify required alpn h2' in text
    assert "server worker 127.0.0.1:8000" in text
    assert "ssl" not in configuration(7, 8000, None)
