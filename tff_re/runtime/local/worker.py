"""TFF's C++ worker as a process that we start, watch and stop."""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import tempfile
import time
import urllib.parse
from collections.abc import Mapping

from tff_re.runtime.base import THREADS_AN_OPERATION, cores_to_use, threads_an_operation, usable_cores
from tff_re.runtime.errors import RuntimeProblem, WorkerDied, WorkerStartFailed
from tff_re.runtime.local.supervised import Supervised

_PORT_ATTEMPTS = 4
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}


# TensorFlow's allocator for oneDNN never gives memory back, and doubles what it has when that is used up. The C
# library's gives blocks above the first threshold back as they are freed, and a heap's free end above the second. A
# lower one takes more time: what an operation makes and frees would cost a page fault for every 4 KiB. Few heaps keep
# small what lies free in them; with fewer than two a core, threads wait for each other (an LSTM: 1.5 times the time).
_GIVE_MEMORY_BACK = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**23),
    "MALLOC_TRIM_THRESHOLD_": str(2**26),
    "MALLOC_ARENA_MAX": str(2 * usable_cores()),
}


def find_worker_binary() -> pathlib.Path:
    """Return the path of the worker in the installed tensorflow-federated, without importing it.

    Raises WorkerStartFailed if there is none.
    """
    spec = importlib.util.find_spec("tensorflow_federated")
    if spec is None or not spec.submodule_search_locations:
        raise WorkerStartFailed("tensorflow-federated is not installed in this Python environment")
    binary = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "worker_binary"
    if not os.access(binary, os.X_OK):
        raise WorkerStartFailed(f"tensorflow-federated is installed without an executable worker: {binary}")
    return binary


class Worker(Supervised):
    """One worker process on this machine, which never outlives us.

    It ends with `stop()`, with the `with` block, at Python's exit, and when this process is killed in whatever way.

    The worker offers no choice of address: it listens on all network interfaces, without authentication, and whoever
    reaches its port can run TensorFlow operations as this user, reading and writing files among them. So it gets a
    network of its own (a Linux network namespace), and `address` is a Unix socket that only this user may open, in a
    folder that only this user may enter. **Where the machine allows no namespaces it listens on all interfaces**:
    `why_exposed` gives the reason, which the caller has to show to the user.

    Usable from several threads once it is started; a forked child may not use or stop its parent's worker.
    """

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        max_concurrent_computation_calls: int | None = None,
        clients: int | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ):
        """Prepare a worker, which `start()` starts.

        Args:
          log_path: a file to which the worker's output is appended; its folder is made if need be.
          max_concurrent_computation_calls: how many clients the worker computes side by side; None: as many as there
            are usable cores.
          clients: how many take part in a round, if that is known: operations then get the threads that they leave
            (`threads_an_operation`), unless the environment sets them.
          environment: environment variables for the worker on top of ours, such as `TF_NUM_INTRAOP_THREADS` or
            `TF_CPP_MIN_LOG_LEVEL`; they take precedence over what is set here.
          start_timeout: after how many seconds a worker that is not listening counts as failed.

        Raises:
          ValueError: if `max_concurrent_computation_calls` is below 1.
        """
        calls = cores_to_use() if max_concurrent_computation_calls is None else max_concurrent_computation_calls
        if calls < 1:
            raise ValueError(f"max_concurrent_computation_calls must be at least 1, not {calls}")
        super().__init__("worker", log_path)
        self.max_concurrent_computation_calls = calls
        self._clients = clients
        self.port: int | None = None
        self.environment = dict(environment or {})
        self._start_timeout = start_timeout
        self._socket: str | None = None

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *exception) -> None:
        self.stop()

    @property
    def private(self) -> bool:
        """Return whether no other user of the machine except root can reach it."""
        return self._socket is not None and self.why_exposed is None

    @property
    def address(self) -> str:
        """Return the address at which gRPC reaches the started worker."""
        return f"unix:{urllib.parse.quote(self._socket)}" if self.private else f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the worker and wait until it listens (about 0.2 s).

        Raises:
          WorkerStartFailed: if it cannot be started, ends at once, or is not listening in time.
          RuntimeProblem: if it runs already.
        """
        if self.alive:
            raise RuntimeProblem(f"the worker is running already (process {self.pid})")
        binary = find_worker_binary()
        deadline = time.monotonic() + self._start_timeout
        for attempt in range(_PORT_ATTEMPTS):
            with contextlib.closing(reserve_port()) as reservation:
                try:
                    self._spawn(binary, reservation.getsockname()[1])
                    if self._wait_until_listening(deadline):
                        atexit.register(self.stop)
                        return
                except BaseException:  # Ctrl-C too
                    self.end()
                    raise
            self.end()
            # It ends with exit code 0 if the port is taken.
            if attempt == _PORT_ATTEMPTS - 1 or self.outcome() != ("exited", 0):
                break
        raise WorkerStartFailed(f"the worker {self.how_it_ended()} before it was ready; see {self.log_path}")

    def end(self, timeout: float = 5.0) -> None:
        """See Supervised."""
        super().end(timeout)
        atexit.unregister(self.stop)
        if self._socket is not None:  # the supervisor does it, unless it was killed
            with contextlib.suppress(OSError):
                os.unlink(self._socket)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self._socket))

    def death(self) -> WorkerDied:
        """Return the error that says how the worker ended.

        The worker must have ended.
        """
        kind, number = self.outcome()
        exit_code, signal_number = (number, None) if kind == "exited" else (None, number)
        message = f"the TFF worker (process {self.pid}) {self.how_it_ended()}; its output is in {self.log_path}"
        if signal_number == signal.SIGKILL:
            message += (
                "; SIGKILL often means that memory ran out: take smaller batches, a smaller model, or fewer clients "
                f"side by side (max_concurrent_computation_calls is {self.max_concurrent_computation_calls})"
            )
        where = {"pid": self.pid, "log_path": self.log_path}
        return WorkerDied(message, **where, exit_code=exit_code, signal_number=signal_number)

    def _spawn(self, binary: pathlib.Path, port: int) -> None:
        self.port = port
        calls = f"--max_concurrent_computation_calls={self.max_concurrent_computation_calls}"
        # The largest that fits the 32 bits in which gRPC holds it; the worker's own default, 10000, does not.
        length = "--grpc_max_message_length_megabytes=2047"
        chosen = dict(_GIVE_MEMORY_BACK)
        if self._clients is not None or cores_to_use() < usable_cores():
            threads = threads_an_operation(self._clients or 1, self.max_concurrent_computation_calls)
            chosen[THREADS_AN_OPERATION] = str(threads)
        unless_in_ours = {name: value for name, value in chosen.items() if name not in os.environ}
        self._socket = _make_socket_folder()
        command = [str(binary), f"--port={port}", calls, length]
        self.spawn(command, {**unless_in_ours, **_QUIET, **self.environment}, relay=(self._socket, port))

    def _wait_until_listening(self, deadline: float) -> bool:
        """Return True once the worker answers, or False if it ended before."""
        while self.alive:
            if self.pid is None:
                self.read_report()
            else:
                family = socket.AF_UNIX if self.private else socket.AF_INET
                with contextlib.suppress(OSError), socket.socket(family) as attempt:
                    attempt.settimeout(1)
                    attempt.connect(self._socket if self.private else ("127.0.0.1", self.port))
                    return self.alive
            if time.monotonic() > deadline:
                after = f"{self._start_timeout:g} s"
                raise WorkerStartFailed(f"the worker was not listening after {after}; see {self.log_path}")
            time.sleep(0.02)
        return False


def _make_socket_folder() -> str:
    """Make a folder only for this user, and return the path in it for a Unix socket."""
    # Not in XDG_RUNTIME_DIR: that folder goes when its user logs out, and runs go on (nohup, tmux).
    reason = "no folder for temporary files"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        try:
            folder = tempfile.mkdtemp(prefix="tff-re-", dir=parent)  # mode 0700
        except OSError as error:
            reason = f"{parent}: {error.strerror}"
            continue
        path = os.path.join(folder, "worker")
        if len(os.fsencode(path)) <= 107:  # Linux allows no more
            return path
        os.rmdir(folder)
        reason = f"{parent}: the path is too long"
    raise WorkerStartFailed(f"no folder for the worker's socket ({reason}); set TMPDIR to another folder")


def reserve_port() -> socket.socket:
    """Find a free port and return a socket that reserves it until closed.

    The socket shares its port (SO_REUSEPORT) with the worker alone. Without it two workers started in the same moment
    might share one port, without any error, and each get half of the calls.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind(("", 0))
    return keeper
