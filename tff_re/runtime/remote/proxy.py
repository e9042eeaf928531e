"""HAProxy in front of a worker: it listens, with mutual TLS if asked to."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from tff_re.runtime.errors import WorkerStartFailed
from tff_re.runtime.local.supervised import Supervised
from tff_re.runtime.tls import Tls

# A client that computes for hours sends nothing meanwhile. HAProxy counts milliseconds in 32 bits.
_LONGEST = "24d"


def find_proxy() -> str | None:
    """Path of the installed HAProxy, or None. Debian puts it where only root looks for programs."""
    return shutil.which("haproxy", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def configuration(listener: int, port: int, tls: tuple[str, str] | None) -> str:
    """HAProxy's configuration.

    Args:
      listener: descriptor of the socket that listens.
      port: of the worker on the loopback.
      tls: (a PEM file with our certificate and its key, the CA certificate of the clients), or None.
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


class Proxy(Supervised):
    """HAProxy between a socket that listens already and a port of the loopback."""

    def __init__(self, log_path: str | os.PathLike, listener: socket.socket, port: int, tls: Tls | None):
        """Prepares a proxy, see `configuration`; `start()` starts it."""
        super().__init__("proxy", log_path)
        self._listener, self._port, self._tls = listener, port, tls
        self._files: list[int] = []

    def start(self) -> None:
        """Starts it; from then on what reaches the socket is passed on.

        Raises:
          WorkerStartFailed: HAProxy is not installed, refuses the files for TLS, or cannot be started.
          RuntimeProblem: a file for TLS cannot be read.
        """
        program = find_proxy()
        if program is None:
            raise WorkerStartFailed("HAProxy is not installed; on Debian and Ubuntu: apt-get install haproxy")
        files = None
        if self._tls is not None:
            contents = self._tls.contents()
            own = contents["cert"].rstrip() + b"\n" + contents["key"]
            files = (self._in_memory(own), self._in_memory(contents["ca"]))
        described = self._in_memory(configuration(self._listener.fileno(), self._port, files).encode())
        command = [program, "-db", "-f", described]
        passed = [self._listener.fileno(), *self._files]
        tried = subprocess.run([*command, "-c"], capture_output=True, text=True, pass_fds=passed)
        if tried.returncode:
            alerts = [line for line in tried.stderr.splitlines() if "[ALERT]" in line] or [tried.stderr]
            raise WorkerStartFailed(f"the proxy refuses its configuration: {alerts[0].strip()}")
        self.spawn(command, {}, passed)

    def stop(self, timeout: float = 5.0) -> None:
        """Ends it."""
        super().stop(timeout)
        while self._files:
            os.close(self._files.pop())

    def _in_memory(self, contents: bytes) -> str:
        """Path of a file that the proxy can read and that is not on a disk: one of them holds the key."""
        file = os.memfd_create("tff-re-proxy")
        self._files.append(file)
        os.write(file, contents)
        return f"/proc/self/fd/{file}"
