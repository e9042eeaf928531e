"""`worker`: a worker for the runs of other machines, with HAProxy in front, from its start until it is told to end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable

from tff_re.runtime.addresses import is_loopback
from tff_re.runtime.errors import RuntimeProblem, WorkerStartFailed
from tff_re.runtime.local.private_network import enter_private_network, others_can_reach_us
from tff_re.runtime.local.supervised import Supervised
from tff_re.runtime.local.worker import Worker
from tff_re.runtime.tls import Tls

# A worker that dies so soon after its start so many times in a row is not started again.
_SOON_SECONDS, _SOON_DEATHS = 10.0, 3
# A client that computes for hours sends nothing meanwhile. HAProxy counts milliseconds in 32 bits.
_LONGEST = "24d"
_INSECURE = "--insecure if everybody who reaches the port may use this machine"
_REMEDY = f"give --tls-cert, --tls-key and --tls-ca, or {_INSECURE}"


def find_proxy() -> str | None:
    """Path of the installed HAProxy, or None. Debian puts it where only root looks for programs."""
    return shutil.which("haproxy", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def configuration(listener: int, port: int, tls: tuple[str, str] | None) -> str:
    """HAProxy's configuration: from the socket of this descriptor to a port of the loopback.

    `tls` names a PEM file with our certificate and its key, and the CA certificate of the clients.
    """
    secured = ""
    if tls is not None:
        # gRPC uses HTTP/2 and requires that TLS has negotiated it.
        secured = f' ssl crt "{tls[0]}" ca-file "{tls[1]}" verify required alpn h2 ssl-min-ver TLSv1.2'
    return f"""global
    maxconn 512
    log stderr format raw local0 info
defaults
    mode tcp
    log global
    option tcplog
    option clitcpka
    timeout connect 5s
    timeout client {_LONGEST}
    timeout server {_LONGEST}
frontend outside
    bind fd@{listener}{secured}
    default_backend worker
backend worker
    server worker 127.0.0.1:{port}
"""


def _started_proxy(log_path: str | os.PathLike, listener: socket.socket, port: int, tls: Tls | None) -> Supervised:
    """HAProxy, which passes on what reaches a socket that listens already to a port of the loopback."""
    if (program := find_proxy()) is None:
        raise WorkerStartFailed("HAProxy is not installed; on Debian and Ubuntu: apt-get install haproxy")
    proxy, passed = Supervised("proxy", log_path), [listener.fileno()]
    with contextlib.ExitStack() as stack:

        def in_memory(contents: bytes) -> str:  # not on a disk: one of these files holds the key
            file = stack.enter_context(open(os.memfd_create("tff-re-proxy"), "wb", buffering=0))
            file.write(contents)
            passed.append(file.fileno())
            return f"/proc/self/fd/{file.fileno()}"

        files = None
        if tls is not None:
            contents = tls.contents()
            own = contents["cert"].rstrip() + b"\n" + contents["key"]
            files = (in_memory(own), in_memory(contents["ca"]))
        command = [program, "-db", "-f", in_memory(configuration(listener.fileno(), port, files).encode())]
        tried = subprocess.run([*command, "-c"], capture_output=True, text=True, pass_fds=passed)
        if tried.returncode:
            alerts = [line for line in tried.stderr.splitlines() if "[ALERT]" in line] or [tried.stderr]
            raise WorkerStartFailed(f"the proxy refuses its configuration: {alerts[0].strip()}")
        proxy.spawn(command, {}, passed)
    return proxy


def serve(
    port: int,
    *,
    bind: str | None = None,
    max_concurrent_computation_calls: int | None = None,
    tls: Tls | None = None,
    insecure: bool = False,
    log_path: str | os.PathLike,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Runs a worker until this process is asked to end; starts it again where it dies.

    TFF's worker listens on all interfaces without authentication. So this process moves into a network of its own,
    starts the worker there, and HAProxy passes on to it what reaches a socket that was opened before. Only a process
    that does nothing else may call this.

    Args:
      port: where to listen.
      bind: address to listen on; None: with TLS all, without it this machine alone.
      max_concurrent_computation_calls: see `Worker`.
      tls: certificates for mutual TLS; None: without.
      insecure: the bare worker, on all interfaces.
      log_path: a file for the output of worker and proxy.
      say: called with lines for the user.

    Raises:
      RuntimeProblem: the options contradict one another, or would be unsafe without `insecure`; or see `Tls.check`.
      WorkerStartFailed: worker or proxy cannot be started, or the worker keeps dying.
    """
    guarded = _guarded(bind, tls, insecure)
    how = f"mutual TLS, certificate valid until {tls.check()}" if tls else "without encryption"
    worker = Worker(log_path, max_concurrent_computation_calls=max_concurrent_computation_calls, port=port)
    with contextlib.ExitStack() as stack:
        proxy = None
        where = "all interfaces, open to everybody" if insecure else "127.0.0.1"
        if guarded:
            where = bind or ("0.0.0.0" if tls else "127.0.0.1")
            listener = stack.enter_context(_listen(where, port))
            if reason := enter_private_network():
                raise WorkerStartFailed(
                    f"this machine allows no network namespace ({reason}), without which the worker listens on all "
                    f"interfaces; allow namespaces, or use --insecure behind a firewall"
                )
        stack.callback(worker.stop)
        worker.start()
        if guarded:
            proxy = _started_proxy(log_path, listener, port, tls)
            stack.callback(proxy.stop)
        calls = worker.max_concurrent_computation_calls
        say(f"a worker listens on {where}, port {port} ({how}); {calls} clients side by side; its log: {log_path}")
        _watch(worker, proxy, say)


def _guarded(bind: str | None, tls: Tls | None, insecure: bool) -> bool:
    """Whether a proxy and a private network are needed."""
    if insecure:
        if tls is not None or bind is not None:
            raise RuntimeProblem(
                "--insecure is the bare worker, which listens on all interfaces without TLS: leave out --bind and "
                "--tls-… (TFF_RE_TLS_…), or --insecure"
            )
        return False
    if tls is None and bind is not None and not is_loopback(bind):
        raise RuntimeProblem(f"without TLS a worker on {bind} would serve everybody who reaches it; {_REMEDY}")
    if tls is None and not others_can_reach_us():
        return False
    if find_proxy() is None:
        raise RuntimeProblem(
            "TFF's worker listens on all interfaces, and HAProxy, which listens in its place, is not installed "
            f"(Debian and Ubuntu: apt-get install haproxy); install it, or give {_INSECURE}"
        )
    return True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=512)
    except OSError as error:
        raise WorkerStartFailed(f"{host}, port {port}: {error.strerror or error}") from None


def _watch(worker: Worker, proxy: Supervised | None, say: Callable[[str], None]) -> None:
    """Never returns; ends by an exception."""
    began, soon = time.monotonic(), 0
    while True:
        if proxy is not None and not proxy.alive:
            raise WorkerStartFailed(f"the proxy {proxy.how_it_ended()}; see {proxy.log_path}")
        if not worker.wait_for_end(0.5):
            continue
        soon = soon + 1 if time.monotonic() - began < _SOON_SECONDS else 0
        if soon == _SOON_DEATHS:
            raise worker.death()
        say(f"{worker.death()}; starting it again")
        worker.end()
        worker.start()
        began = time.monotonic()
