"""Several runs of a comparison at once: which worker does which run, and what is heard of them."""

from __future__ import annotations

import abc
import contextlib
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tff_re.comparison.planning import PlannedRun, Watcher, has_diverged, shares
from tff_re.comparison.worker import Naming, Order
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.comparison.outcome import Outcome, RunsHere


class Worker(Protocol):
    """Does one run at a time.

    Attributes:
      busy_with: its run in words; None: it waits.
      number: of its run; None: it has none.
    """

    busy_with: str | None
    number: int | None

    def send(self, message: Any, what: str | None) -> None:
        """Gives it something to do, `what` in words."""


class Event(NamedTuple):
    """What is heard of a worker.

    `kind` is one of `round`, `ended`, `failed`, `said` (with a value), `lost` (its run has to be done again) and
    `joined` (it can take runs).
    """

    worker: Any
    kind: str
    value: Any = None


class Pool(abc.ABC):
    """Base of what does the runs of a comparison in several processes."""

    def __init__(self, here: RunsHere, watcher: Watcher):
        """Args:
        here: reads the runs that are finished.
        watcher: is told of all runs.
        """
        self._here, self._watcher = here, watcher
        self._outcomes: dict[Path, Outcome | None] = {}
        self._log_path, self._planned, self._said = Path(os.devnull), 0, set()
        self._repeated: set[int] = set()

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the processes, and runs that are under way."""

    @abc.abstractmethod
    def _started(self, number: int) -> list[Any]:
        """At most this number of workers, started if need be."""

    @abc.abstractmethod
    def _next_event(self) -> Event:
        """Waits for the next event of a worker.

        Raises:
          UserError: a worker was lost whose run is not repeated.
        """

    def metric_names(self, recipe: Recipe) -> set[str]:
        """The metrics that a run of the recipe will have, from the first worker, which keeps the data."""
        worker, *_ = self._first_workers()
        worker.send(Naming(recipe.to_toml(), recipe.source), f"{recipe.name}, seed {recipe.seed}")
        while True:
            event = self._next_event()
            self._say_or_raise(event)
            if event.worker is worker and event.kind in ("ended", "lost"):
                worker.busy_with = None
                if event.kind == "lost":
                    raise UserError(f"the first worker was lost while it read the data: {event.value}")
                return event.value

    @abc.abstractmethod
    def _first_workers(self) -> list[Any]:
        """The workers before the first run, at least one."""

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
        numbers, workers = list(todo), self._started(len(todo))
        parts = shares(list(todo.values()), len(workers))
        queues = {w: deque(numbers[index] for index in part) for w, part in zip(workers, parts, strict=True)}

        def hand_out(worker: Worker) -> None:
            worker.busy_with = worker.number = None
            queue, longest = queues.setdefault(worker, deque()), max(queues.values(), key=len)
            if not longest:
                return
            # From another's share the last one, which shares least with what that worker does now.
            number = worker.number = queue.popleft() if queue else longest.pop()
            run, again = todo[number], number in self._repeated
            toml = run.recipe.to_toml()
            order = Order(toml, run.recipe.source, run.folder, run.in_sweep, self._log_path, again)
            worker.send(order, f"{run.title}, seed {run.recipe.seed}")
            if not again:
                self._watcher.begin(number)

        for worker in workers:
            hand_out(worker)
        left = len(todo)
        while left:
            event = self._next_event()
            worker = event.worker
            self._say_or_raise(event)
            if event.kind == "round":
                self._watcher.round(worker.number, event.value)
            elif event.kind == "ended":
                self._outcomes[todo[worker.number].folder] = event.value
                self._watcher.end(worker.number)
                left -= 1
                hand_out(worker)
            elif event.kind == "joined":
                workers.append(worker)
                hand_out(worker)
            elif event.kind == "lost":
                workers.remove(worker)
                if worker.number is not None:
                    self._repeated.add(worker.number)
                    queues[worker].appendleft(worker.number)
                for idle in [other for other in workers if other.number is None]:
                    hand_out(idle)

    def _say_or_raise(self, event: Event) -> None:
        """Prints a line of a worker's, each text once, or raises the error that ended its run."""
        if event.kind == "failed":
            raise event.value
        if event.kind == "said":
            self._say(event.value)

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr)
