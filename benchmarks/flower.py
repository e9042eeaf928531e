"""Flower on this machine: a SuperLink with TLS, a node with its key for each site, the relay; all ends with us."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def _programs() -> Path:
    """The folder of Flower's programs, chosen as scripts/role.bash does."""
    if folder := os.environ.get("FLOWER"):
        return Path(folder).absolute()
    return ROOT / ".flower" / "bin" if (ROOT / ".flower").is_dir() else Path(sys.executable).parent


PROGRAMS = _programs()

QUICK = (PROGRAMS / "python", ROOT / "scripts" / "flower" / "supernode")
"""The command of a node; Flower's own is PROGRAMS / "flower-supernode"."""

_CURVE = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


def missing() -> str | None:
    """Why Flower cannot be started here; None where it can."""
    if not (PROGRAMS / "flower-superlink").exists():
        return f"there is no Flower in {PROGRAMS}; scripts/setup-flower makes .flower"
    for program in ("openssl", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return None


def free_port(*above: int) -> int:
    """A port of this machine that nobody listens on now, nor on those so many above it.

    It is below the ports that the kernel gives to connections, one of which might have it before it is used.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = first - 100 if first > 14_000 else 32_000
    for _ in range(100):
        port = random.randrange(highest - 12_000, highest)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for further in (0, *above):
                stack.enter_context(socket.create_server(("127.0.0.1", port + further)))
            return port
    raise RuntimeError("no port of this machine is free")


def wait_for(there: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Raises RuntimeError where something does not come."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} is not there after {seconds:g} s")
        time.sleep(0.1)


def begun(home: Path) -> list[psutil.Process]:
    """The processes that run and were started with this FLWR_HOME, orphans too."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("FLWR_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Flower:
    """All of Flower's processes, with their logs and keys in a folder."""

    def __init__(self, folder: Path, sockets: Mapping[str, Path], node: Iterable[str | Path] = QUICK):
        """Prepares; `start` begins.

        Args:
          folder: new.
          sockets: site -> where its process listens.
          node: the command of a node.
        """
        self.folder, self.home, self._node = folder, folder / "home", [str(part) for part in node]
        self.relay, self.port = folder / "relay.sock", free_port()
        self.sockets: dict[str, Path] = {}
        self._ports: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen] = {}
        folder.mkdir(mode=0o700)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FLWR_"))},
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        self.home.mkdir()
        address = f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{folder / "link.pem"}"\n'
        (self.home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{address}')
        names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        files = ("-keyout", folder / "link.key", "-out", folder / "link.pem")
        self._call("openssl", "req", "-x509", "-newkey", *_CURVE, *names, *files)
        for site, path in sockets.items():
            self.add(site, path)

    def add(self, site: str, path: Path) -> None:
        """One more site, with a key that is not registered."""
        self.sockets[site], self._ports[site] = path, free_port()
        self._call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", site, "-f", self.folder / site)

    def register(self, site: str) -> None:
        """Tells the SuperLink the site's key."""
        self._call("flwr", "supernode", "register", self.folder / f"{site}.pub", "here", "--name", site)

    def start(self) -> None:
        """Begins all; every site's node is connected then, and the relay listens."""
        self.start_link()
        for site in self.sockets:
            self.register(site)
            self.start_node(site)
        self.start_relay()
        for site in self.sockets:
            self.wait_for_node(site)

    def start_link(self) -> None:
        """Begins the SuperLink; it goes on with its database."""
        tls = ("--ssl-certfile", "link.pem", "--ssl-keyfile", "link.key", "--ssl-ca-certfile", "link.pem")
        options = ("--enable-supernode-auth", "--disable-runtime-dependency-installation", "--database", "link.db")
        self._begin("link", "flower-superlink", "--port", self.port, *options, *tls)
        wait_for(self._answers, "the SuperLink")

    def start_node(self, site: str) -> None:
        """Begins a site's node."""
        link = ("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", "link.pem")
        own = ("--auth-supernode-private-key", site, "--port", self._ports[site])
        self._begin(site, *self._node, *link, *own, "--node-config", f'socket="{self.sockets[site]}"')

    def wait_for_node(self, site: str) -> None:
        """Until a site's node is connected."""
        wait_for(lambda: "SuperNode ID" in self.log(site), f"the node of {site}")

    def start_relay(self) -> None:
        """Begins the relay at the SuperLink."""
        self.relay.unlink(missing_ok=True)
        config = f'socket="{self.relay}" seconds=600.0'
        self._call("flwr", "run", ROOT / "scripts" / "flower", "here", "--run-config", config)
        wait_for(self.relay.is_socket, "the relay")

    def log(self, name: str) -> str:
        """What a process has written since it was begun last: `link`, or a site's node."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def kill(self, name: str) -> None:
        """SIGKILL to a process alone; what it started ends by itself, as Flower has it."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def cpu_seconds(self) -> float:
        """Of the processes that run and of those below them that have ended."""
        total = 0.0
        for process in begun(self.home):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total

    def peak_memory(self) -> dict[str, int]:
        """Program -> the most bytes that one of its processes which run now has had."""
        found: dict[str, int] = {}
        for process in begun(self.home):
            with contextlib.suppress(psutil.Error, OSError, IndexError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                name = Path(process.cmdline()[1]).name
                name = "copy for a ClientApp" if name == "-c" else name
                found[name] = max(found.get(name, 0), 1024 * int(status.split("VmHWM:")[1].split()[0]))
        return found

    def close(self) -> None:
        """Ends all of it."""
        left = begun(self.home)
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(process)
            _, left = psutil.wait_procs(left, timeout=5)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    def __enter__(self) -> Flower:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def _begin(self, name: str, *command) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            given = {"cwd": self.folder, "env": self._environment, "stdin": subprocess.DEVNULL}
            made = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, **given)
        self.processes[name] = made

    def _call(self, *command) -> None:
        given = {"cwd": self.folder, "env": self._environment, "stdin": subprocess.DEVNULL}
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **given)
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
