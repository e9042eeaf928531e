"""TFF's C++ worker as a process that we start, watch and stop."""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from tff_re.runtime.errors import RuntimeProblem, WorkerDied, WorkerStartFailed

_SUPERVISOR = pathlib.Path(__file__).with_name("supervisor.py")
_POLL_SECONDS = 0.02
_PORT_ATTEMPTS = 4
# The largest that fits the 32 bits in which gRPC holds it; the worker's own default, 10000, does not.
_MAX_MESSAGE_MEGABYTES = 2047
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}
# TensorFlow's allocator for oneDNN never gives memory back, and doubles what it has when that is used up. The C
# library's gives blocks above the first threshold back as they are freed, and a heap's free end above the second.
_GIVE_MEMORY_BACK = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**26),
}


def usable_cores() -> int:
    """The number of cores that this process may use (fewer than the machine has, in a container or a batch job)."""
    return len(os.sched_getaffinity(0))


def find_worker_binary() -> pathlib.Path:
    """Where the installed tensorflow-federated keeps its worker; does not import it.

    Raises:
      WorkerStartFailed: if tensorflow-federated, or the worker in it, is not installed or may not be executed.
    """
    spec = importlib.util.find_spec("tensorflow_federated")
    if spec is None or not spec.submodule_search_locations:
        raise WorkerStartFailed("tensorflow-federated is not installed in this Python environment")
    binary = pathlib.Path(spec.submodule_search_locations[0]) / "data" / "worker_binary"
    if not os.access(binary, os.X_OK):
        raise WorkerStartFailed(f"tensorflow-federated is installed without an executable worker: {binary}")
    return binary


class Worker:
    """One worker process on this machine, which never outlives us.

    It ends with `stop()`, with the `with` block, at Python's exit, and when this process is killed in whatever way: a
    small supervisor process (`supervisor.py`) sees to that. Both run in a session of their own, so that Ctrl-C in the
    terminal reaches us first. The worker's output goes to the log file; it holds none of our files, so that a shell
    pipeline around us ends when we end.

    The worker offers no choice of address: **it listens on all network interfaces, without authentication**, and
    whoever reaches its port can run TensorFlow operations as this user. On a machine that others can reach, use a
    firewall or a network namespace.

    Usable from several threads once it is started; a forked child may not use or stop its parent's worker.
    """

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        max_concurrent_computation_calls: int | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ):
        """Prepares a worker; `start()` starts it.

        Args:
          log_path: a file to which the worker's output is appended; its folder is made if need be.
          max_concurrent_computation_calls: how many clients the worker computes side by side; None: as many as there
            are usable cores.
          environment: environment variables for the worker on top of ours, such as `TF_NUM_INTRAOP_THREADS`,
            `OMP_NUM_THREADS` or `TF_CPP_MIN_LOG_LEVEL` (1 unless given here: no mere information in the log). Those
            that say how it allocates memory (`_GIVE_MEMORY_BACK`) hold unless given here or in ours.
          start_timeout: after how many seconds a worker that is not listening counts as failed.

        Raises:
          ValueError: if `max_concurrent_computation_calls` is below 1.
        """
        calls = usable_cores() if max_concurrent_computation_calls is None else max_concurrent_computation_calls
        if calls < 1:
            raise ValueError(f"max_concurrent_computation_calls must be at least 1, not {calls}")
        self.log_path = pathlib.Path(log_path).absolute()
        self.max_concurrent_computation_calls = calls
        self.port: int | None = None
        self.pid: int | None = None
        self.supervisor_pid: int | None = None
        self.environment = dict(environment or {})
        self._start_timeout = start_timeout
        self._supervisor: subprocess.Popen | None = None
        self._report = b""
        self._report_lock = threading.Lock()
        self._owner: int | None = None
        self._stopped = False

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *exception) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the worker runs. Costs microseconds; lags behind the worker's death by some milliseconds."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether it was `stop()` that ended the worker."""
        return self._stopped

    def start(self) -> None:
        """Starts the worker and waits until it listens (some 0.2 s).

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
                    self._end()
                    raise
            self._end()
            # It ends with exit code 0 where it could not have the port.
            if attempt == _PORT_ATTEMPTS - 1 or self._outcome() != ("exited", 0):
                break
        raise WorkerStartFailed(f"the worker {self._how_it_ended()} before it was ready; see {self.log_path}")

    def stop(self, timeout: float = 5.0) -> None:
        """Ends the worker and waits for its end; does nothing if it does not run, or in a forked child of its owner.

        Args:
          timeout: after how many seconds the supervisor itself is killed, and the worker with it.
        """
        if self._supervisor is None or os.getpid() != self._owner:
            return
        if self._supervisor.poll() is None:
            self._stopped = True
        self._end(timeout)
        atexit.unregister(self.stop)

    def wait_for_end(self, seconds: float) -> bool:
        """Waits up to so many seconds for the worker to end by itself; returns whether it has ended."""
        if self._supervisor is None:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(seconds)
        return not self.alive

    def death(self) -> WorkerDied:
        """The error that tells how the worker, which must have ended, came to its end."""
        kind, number = self._outcome()
        message = f"the TFF worker (process {self.pid}) {self._how_it_ended()}; its output is in {self.log_path}"
        if kind == "killed" and number == signal.SIGKILL:
            message += (
                "; SIGKILL often means that memory ran out: take smaller batches, a smaller model, or fewer clients "
                f"side by side (max_concurrent_computation_calls is {self.max_concurrent_computation_calls})"
            )
        return WorkerDied(
            message,
            pid=self.pid,
            log_path=self.log_path,
            exit_code=number if kind == "exited" else None,
            signal_number=number if kind == "killed" else None,
        )

    def _spawn(self, binary: pathlib.Path, port: int) -> None:
        self.port, self.pid, self._report, self._stopped = port, None, b"", False
        self._owner = os.getpid()
        command = [
            str(binary),
            f"--port={port}",
            f"--max_concurrent_computation_calls={self.max_concurrent_computation_calls}",
            f"--grpc_max_message_length_megabytes={_MAX_MESSAGE_MEGABYTES}",
        ]
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log_path, "ab") as log:
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), str(self._owner), *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env={**_GIVE_MEMORY_BACK, **os.environ, **_QUIET, **self.environment},
                    start_new_session=True,
                )
        except OSError as error:
            raise WorkerStartFailed(f"the worker could not be started: {error}") from error
        self.supervisor_pid = self._supervisor.pid
        os.set_blocking(self._supervisor.stdout.fileno(), False)

    def _wait_until_listening(self, deadline: float) -> bool:
        """Returns True once the port answers, False if the worker ended before."""
        while self.alive:
            if self.pid is None:
                self._read_report()
            else:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                    return self.alive
            if time.monotonic() > deadline:
                raise WorkerStartFailed(
                    f"the worker was not listening after {self._start_timeout:g} s; see {self.log_path}"
                )
            time.sleep(_POLL_SECONDS)
        return False

    def _end(self, timeout: float = 5.0) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        with contextlib.suppress(OSError):
            supervisor.stdin.close()
        supervisor.terminate()  # as well, since a forked child of ours may hold the lifeline open
        try:
            supervisor.wait(timeout)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        self._read_report()
        supervisor.stdout.close()

    def _read_report(self) -> None:
        pipe = self._supervisor.stdout
        with self._report_lock:
            while not pipe.closed and (piece := pipe.read(4096)):  # None: nothing more at the moment
                self._report += piece
        for line in self._report.decode().splitlines():
            if line.startswith("started "):
                self.pid = int(line.split()[1])

    def _outcome(self) -> tuple[str | None, int | None]:
        """("exited", code), ("killed", signal) or, where nobody could say it, (None, None)."""
        self._read_report()
        for line in self._report.decode().splitlines():
            kind, _, number = line.partition(" ")
            if kind in ("exited", "killed"):
                return kind, int(number)
        return None, None

    def _how_it_ended(self) -> str:
        kind, number = self._outcome()
        if kind == "exited":
            return f"ended by itself with exit code {number}"
        if kind == "killed":
            name = signal.Signals(number).name if number in set(signal.Signals) else "unknown"
            return f"was killed by signal {number} ({name})"
        return "ended with its supervisor, which was killed"


def reserve_port() -> socket.socket:
    """Finds a free port and returns a socket that keeps it until closed.

    The socket shares its port (SO_REUSEPORT), as the worker's does, so the worker can take the port while it is kept
    from everybody else. Without that, two workers started in the same moment might share one port, without any error,
    and each get half of the calls.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind(("", 0))
    return keeper
