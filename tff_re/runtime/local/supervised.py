"""A program that we start, watch and stop, and that ends when this process ends."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from tff_re.runtime.errors import WorkerStartFailed

_SUPERVISOR = pathlib.Path(__file__).with_name("supervisor.py")


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # what a computation prints is in it


class Supervised:
    """Runs a program, possibly several times, under `supervisor.py`, which ends it when this process is gone.

    Both run in a session of their own, so that Ctrl-C in the terminal reaches us first. The program's output goes to
    the log file; it holds none of our files, so that a shell pipeline around us ends when we end.
    """

    def __init__(self, title: str, log_path: str | os.PathLike):
        """Prepare the program.

        `title` names it in errors. Its output is appended to `log_path`, whose folder is made if needed.
        """
        self.title = title
        self.log_path = pathlib.Path(log_path).absolute()
        self.pid: int | None = None
        self.supervisor_pid: int | None = None
        self.why_exposed: str | None = None  # why the machine gave it no network of its own, where that was asked for
        self.stopped = False  # whether it was we who ended it
        self._supervisor: subprocess.Popen | None = None
        self._report, self._outcome = b"", (None, None)
        self._report_lock = threading.Lock()
        self._owner: int | None = None

    @property
    def alive(self) -> bool:
        """Return whether the program runs.

        It costs microseconds, and notices the program's death after some milliseconds.
        """
        return self._supervisor is not None and self._supervisor.poll() is None

    def spawn(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[int] = (),
        relay: tuple[str, int] | None = None,
    ) -> None:
        """Start the program.

        `pid` is known as soon as `read_report` has found it.

        Args:
          command: the program's path and its arguments.
          environment: variables on top of ours.
          files: descriptors of open files that the program gets under the same numbers.
          relay: (path of a Unix socket, port): the program gets a network of its own, and what comes to the socket is
            passed on to that port of its loopback. `why_exposed` tells where the machine did not allow it.
        """
        self.pid, self.why_exposed, self.stopped = None, None, False
        self._report, self._outcome = b"", (None, None)
        self._owner = os.getpid()
        path, port = relay or ("", 0)
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log_path, "ab", opener=_for_us_alone) as log:
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), str(self._owner), path, str(port), *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env={**os.environ, **environment},
                    start_new_session=True,
                    pass_fds=files,
                )
        except OSError as error:
            raise WorkerStartFailed(f"the {self.title} could not be started: {error}") from error
        self.supervisor_pid = self._supervisor.pid
        os.set_blocking(self._supervisor.stdout.fileno(), False)

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the program and wait for its end.

        Does nothing if it does not run, or in a forked child of its owner.

        After `timeout` seconds the supervisor itself is killed, and the program with it.
        """
        if os.getpid() == self._owner:
            self.stopped |= self.alive
            self.end(timeout)

    def wait_for_end(self, seconds: float) -> bool:
        """Wait up to `seconds` for the program to end by itself, and return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(seconds)
        return not self.alive

    def end(self, timeout: float = 5.0) -> None:
        """Like `stop`, for a program that failed to start."""
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
        self.read_report()
        supervisor.stdout.close()

    def read_report(self) -> None:
        """Read what the supervisor has reported since the last call."""
        pipe = self._supervisor.stdout
        with self._report_lock:
            while not pipe.closed and (piece := pipe.read(4096)):  # None: nothing more at the moment
                self._report += piece
        for line in self._report.decode().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "exposed":
                self.why_exposed = rest
            elif kind == "started":
                self.pid = int(rest)
            else:
                self._outcome = kind, int(rest)

    def outcome(self) -> tuple[str | None, int | None]:
        """Return ("exited", code), ("killed", signal), or (None, None) if unknown."""
        self.read_report()
        return self._outcome

    def how_it_ended(self) -> str:
        """Return the outcome in words."""
        kind, number = self.outcome()
        if kind == "exited":
            return f"ended by itself with exit code {number}"
        if kind == "killed":
            name = signal.Signals(number).name if number in set(signal.Signals) else "unknown"
            return f"was killed by signal {number} ({name})"
        return "ended with its supervisor, which was killed"
