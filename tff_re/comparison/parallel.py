"""Several runs of a comparison at once on this machine, each in a worker process that is started once and reused.

Not joblib's loky, which scikit-learn brings: its processes continue after a SIGKILL of the process that started them,
a killed one ends all others without saying whose run it was, and a task cannot choose its process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_re.comparison.planning import PlannedRun, Watcher, has_diverged, shares
from tff_re.comparison.worker import GRACE, Naming, Order, SetUp
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runtime.base import usable_cores
from tff_re.tasks.data_paths import DataPaths

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.comparison.outcome import Outcome, RunsHere
    from tff_re.comparison.suite import Suite

_PROGRAM = "from tff_re.comparison.worker import main; main()"


class Workers:
    """Does the runs of a comparison in several processes.

    The processes end with `close`, and by themselves when this process ends in whatever way.
    """

    def __init__(
        self,
        here: RunsHere,
        jobs: int,
        data_paths: DataPaths,
        watcher: Watcher,
        *,
        runtime_name: str,
        clients: int | None,
        resume: bool,
        check: Suite | None,
    ):
        """Args:
        here: reads the runs that are finished.
        jobs: how many processes there are at most; the cores are divided among them.
        data_paths: where the data are.
        watcher: is told of all runs.
        runtime_name, clients, resume, check: see `RunsHere`.
        """
        self._here, self._jobs, self._watcher = here, jobs, watcher
        cores = max(1, usable_cores() // jobs)
        self._set_up = SetUp(data_paths, runtime_name, clients, resume, check, cores)
        self._workers: list[_Worker] = []
        self._outcomes: dict[Path, Outcome | None] = {}
        self._log_path, self._planned, self._said = Path(os.devnull), 0, set()

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

    def metric_names(self, recipe: Recipe) -> set[str]:
        """The metrics that a run of the recipe will have, from the first worker, which keeps the data."""
        worker = self._started(self._jobs)[0]  # the others import TensorFlow meanwhile
        worker.send(Naming(recipe.to_toml(), recipe.source), f"{recipe.name}, seed {recipe.seed}")
        while worker.busy_with is not None:
            kind, value = worker.receive()
            self._say_or_raise(kind, value)
            if kind == "ended":
                worker.busy_with = None
        return value

    @contextlib.contextmanager
    def opened(self, log_path: Path) -> Iterator[None]:
        """Each worker opens a runtime of its own at its first run.

        They append to the same log.
        """
        self._log_path = log_path
        yield

    def ahead(self, runs: Sequence[PlannedRun]) -> None:
        """Does these runs, and keeps their outcomes for `outcome`."""
        self._watcher.plan(runs)
        todo = {}
        for number, run in enumerate(runs, self._planned):
            if has_diverged(run):
                self._outcomes[run.folder] = None
                self._watcher.end(number)
            elif (outcome := self._here.finished(run)) is not None:
                self._outcomes[run.folder] = outcome
                self._watcher.begin(number)
                self._watcher.end(number)
            else:
                todo[number] = run
        self._planned += len(runs)
        if todo:
            self._do(todo)

    def outcome(self, run: PlannedRun) -> Outcome | None:
        """The outcome of a run that `ahead` did, or None if it is of a sweep and diverged."""
        return self._outcomes.pop(run.folder)

    def _do(self, todo: dict[int, PlannedRun]) -> None:
        """Does the runs: each worker its share, then what is left of the others'."""
        numbers, workers = list(todo), self._started(min(self._jobs, len(todo)))
        queues = [deque(numbers[index] for index in part) for part in shares(list(todo.values()), len(workers))]

        def hand_out(worker: _Worker) -> None:
            queue, longest = queues[workers.index(worker)], max(queues, key=len)
            if not longest:
                worker.busy_with = worker.number = None
                return
            # From another's share the last one, which shares least with what that worker does now.
            number = worker.number = queue.popleft() if queue else longest.pop()
            run = todo[number]
            order = Order(run.recipe.to_toml(), run.recipe.source, run.folder, run.in_sweep, self._log_path)
            worker.send(order, f"{run.title}, seed {run.recipe.seed}")
            self._watcher.begin(number)

        for worker in workers:
            hand_out(worker)
        while busy := [worker for worker in workers if worker.busy_with is not None]:
            ready = wait([worker.connection for worker in busy])
            for worker in (worker for worker in busy if worker.connection in ready):
                kind, value = worker.receive()
                self._say_or_raise(kind, value)
                if kind == "round":
                    self._watcher.round(worker.number, value)
                elif kind == "ended":
                    self._outcomes[todo[worker.number].folder] = value
                    self._watcher.end(worker.number)
                    hand_out(worker)

    def _say_or_raise(self, kind: str, value: Any) -> None:
        """Prints a line of a worker's, each text once, or raises the error that ended its run."""
        if kind == "failed":
            raise value
        if kind == "said" and value not in self._said:
            self._said.add(value)
            with contextlib.suppress(OSError):
                print(value, file=sys.stderr)

    def _started(self, number: int) -> list[_Worker]:
        """The first workers, started if need be."""
        while len(self._workers) < number:
            self._workers.append(_Worker(self._set_up))
        return self._workers[:number]


class _Worker:
    """A process that does one run at a time.

    Attributes:
      connection: to it.
      busy_with: its run in words; None: it waits.
      number: of its run.
    """

    def __init__(self, set_up: SetUp):
        ours, theirs = socket.socketpair()
        # The terminal's Ctrl-C reaches all processes of a command; this one decides when the workers end.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.connection = Connection(ours.detach())
        self.busy_with: str | None = None
        self.number: int | None = None
        self.send(set_up, None)

    def send(self, message: Any, what: str | None) -> None:
        """Gives it something to do, `what` in words."""
        self.busy_with = what
        try:
            self.connection.send(message)
        except OSError:
            raise self._lost() from None

    def receive(self) -> tuple[str, Any]:
        """Its next message: `round`, `ended`, `failed` or `said`, and a value.

        Raises:
          UserError: it has ended.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None

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

    def _lost(self) -> UserError:
        """The line for a worker that ended by itself or was killed."""
        self.wait(time.monotonic() + GRACE)
        code = self._process.poll()
        if code is None:
            how = "closed its connection"
        elif code >= 0:
            how = f"ended with exit code {code}"
        else:
            how = f"was killed by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += ", often for lack of memory (lower --jobs)"
        what = "a worker" if self.busy_with is None else f"{self.busy_with}: its process"
        return UserError(f"{what} {self._process.pid} {how}; finished runs are kept, continue with --resume")
