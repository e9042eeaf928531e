"""Several runs of a comparison at once on this machine, each in a worker process that is started once and reused.

Not joblib's loky, which scikit-learn brings: its processes continue after a SIGKILL of the process that started them,
a killed one ends all others without saying whose run it was, and a task cannot choose its process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_re.comparison.planning import Watcher
from tff_re.comparison.pool import Event, Pool
from tff_re.comparison.worker import GRACE, SetUp
from tff_re.errors import UserError
from tff_re.runtime.base import usable_cores

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.comparison.outcome import RunsHere

_PROGRAM = "from tff_re.comparison.worker import main; main()"


class Workers(Pool):
    """Does the runs of a comparison in several processes of this machine.

    The processes end with `close`, and by themselves when this process ends in whatever way.
    """

    def __init__(self, here: RunsHere, jobs: int, set_up: SetUp, watcher: Watcher):
        """Args:
        here: reads the runs that are finished.
        jobs: how many processes there are at most; the cores are divided among them.
        set_up: of the processes.
        watcher: is told of all runs.
        """
        super().__init__(here, watcher)
        self._jobs = jobs
        self._set_up = dataclasses.replace(set_up, cores=max(1, usable_cores() // jobs))
        self._workers: list[WorkerProcess] = []
        self._ready: deque[WorkerProcess] = deque()

    def close(self) -> None:
        """Ends the processes, and runs that are under way."""
        try:
            for worker in self._workers:
                worker.ask_to_end()
            deadline = time.monotonic() + GRACE
            for worker in self._workers:
                worker.wait(deadline)
        finally:
            for worker in self._workers:
                worker.kill()
            self._workers.clear()

    def _first_workers(self):
        return self._started(self._jobs)  # the others import TensorFlow while the first one reads

    def _started(self, number):
        number = min(self._jobs, number)
        while len(self._workers) < number:
            self._workers.append(WorkerProcess(self._set_up))
        return self._workers[:number]

    def _next_event(self):
        if not self._ready:
            busy = {worker.connection: worker for worker in self._workers if worker.busy_with is not None}
            self._ready.extend(busy[connection] for connection in wait(list(busy)))
        worker = self._ready.popleft()
        try:
            return Event(worker, *worker.receive())
        except (EOFError, OSError):
            raise UserError(worker.lost()) from None


class WorkerProcess:
    """A process that does one run at a time.

    Attributes:
      connection: to it.
      busy_with: its run in words; None: it waits.
      number: of its run.
    """

    def __init__(self, set_up: SetUp | bytes, folder: Path | None = None, environment: Mapping[str, str] | None = None):
        """Args:
        set_up: its first message, or the bytes of one.
        folder: that it works in; None: this process's.
        environment: its environment variables; None: this process's.
        """
        ours, theirs = socket.socketpair()
        # The terminal's Ctrl-C reaches all processes of a command; this one decides when the workers end.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        variables = os.environ if environment is None else environment
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=folder,
                    env={**variables, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                )
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.connection = Connection(ours.detach())
        self.busy_with: str | None = None
        self.number: int | None = None
        self.send(set_up, None)

    def send(self, message: Any, what: str | None) -> None:
        """Gives it something to do, `what` in words.

        The message may be bytes, which are sent as they are.

        Raises:
          UserError: it has ended.
        """
        self.busy_with = what
        try:
            (self.connection.send_bytes if isinstance(message, bytes) else self.connection.send)(message)
        except OSError:
            raise UserError(self.lost()) from None

    def receive(self) -> tuple[str, Any]:
        """Its next message: `round`, `ended`, `failed` or `said`, and a value.

        Raises EOFError or OSError if it has ended.
        """
        return self.connection.recv(), self.connection.recv()

    def ask_to_end(self) -> None:
        """Ends it when it waits, and interrupts its run otherwise."""
        if self.busy_with is not None:
            self._process.terminate()
        self.connection.close()

    def wait(self, deadline: float) -> None:
        """Waits for its end, or until the clock shows `deadline`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Ends it in any case."""
        self._process.kill()
        self._process.wait()

    def lost(self) -> str:
        """The line for a worker that ended by itself or was killed."""
        what = "a worker" if self.busy_with is None else f"{self.busy_with}: its process"
        advice = " (lower --jobs)"
        return f"{what} {self.how_it_ended(advice)}; finished runs are kept, continue with --resume"

    def how_it_ended(self, advice: str = "") -> str:
        """Returns its number and how it ended.

        `advice`: against a lack of memory.
        """
        self.wait(time.monotonic() + GRACE)
        code = self._process.poll()
        if code is None:
            how = "closed its connection"
        elif code >= 0:
            how = f"ended with exit code {code}"
        else:
            how = f"was killed by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += f", often for lack of memory{advice}"
        return f"{self._process.pid} {how}"
