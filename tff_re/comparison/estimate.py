"""What a comparison costs: how many runs, and how long they take, by the runs that were timed before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tff_re.comparison.costs import in_words, seconds_of
from tff_re.comparison.suite import Suite, run_folder, sweep_folder
from tff_re.comparison.sweep import Sweep
from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_table


class Estimate:
    """Counts the runs of a comparison and times them.

    A run that is not timed yet is taken to last as long as the timed ones of its entry, or as all timed ones.
    """

    def __init__(self, suite: Suite, out: Path, clock: Callable[[], float] = time.monotonic, jobs: int | None = 1):
        """Args:
        suite: to run.
        out: its folder; the runs in it that are finished are not counted, and are timed.
        clock: gives seconds.
        jobs: how many runs are under way at once; None: not known yet.
        """
        self.jobs = jobs
        self._clock, self._seconds = clock, {}
        self._runs = [(entry.name, seed) for seed in suite.seeds for entry in suite.entries]
        self._sweep = 0 if suite.tuning is None else suite.tuning.runs
        self._left = []
        for name, seed in self._runs:
            folder = RunFolder(run_folder(out, name, seed))
            if not folder.summary.exists():
                self._left.append(name)
            elif seconds := _timed(folder):
                self._seconds.setdefault(name, []).append(seconds)
        self._sweep_left = 0 if suite.tuning is None else _unfinished(suite.tuning, out)
        self._running: dict[int, _Running] = {}
        self._size = f"{len(suite.entries)} entries on {len(suite.seeds)} seed{'s' if len(suite.seeds) > 1 else ''}"
        if suite.tuning is not None and (timed := _timed_of(suite.tuning, out)):
            self._seconds[""] = timed

    def before(self) -> str:
        """What is ahead, in a line, before the first run starts."""
        runs = len(self._runs) + self._sweep
        runs_of = f"{self._size}, after {self._sweep} of the sweep" if self._sweep else self._size
        finished = runs - len(self._left) - self._sweep_left
        done = f"; {finished} finished" if finished else ""
        ahead = self._time_left() or "no estimate until the first run has finished"
        if self.jobs is None:
            ahead = "no estimate until the workers are known"
        if not self._left and not self._sweep_left:
            ahead = "nothing is left to run"
        return f"cost: {runs} runs ({runs_of}){done}; {ahead}"

    def start(self, name: str, rounds: int) -> str | None:
        """A run starts, and the one before has ended.

        Returns a line on the remaining time, if that is known.

        Args:
          name: of its entry; of the sweep any other name.
          rounds: that it will have.
        """
        self.end(0)
        said = self.left()
        self.begin(0, name, rounds)
        return said

    def begin(self, number: int, name: str, rounds: int) -> None:
        """The run with a number starts, while others may be under way.

        `name` and `rounds` are those of `start`.
        """
        self._running[number] = _Running(name, rounds, self._clock())

    def round(self, number: int = 0) -> None:
        """A round of a running run has ended."""
        self._running[number].done += 1

    def end(self, number: int) -> None:
        """Records the time of a run that has ended.

        A run that was already finished had no rounds and tells nothing.
        """
        run = self._running.pop(number, None)
        if run is None or not run.done:
            return
        if run.name in self._left:
            self._left.remove(run.name)
        else:
            self._sweep_left = max(self._sweep_left - 1, 0)
        seconds = (self._clock() - run.since) * run.rounds / run.done
        self._seconds.setdefault(run.name, []).append(seconds)

    def left(self) -> str | None:
        """A line on the runs that have not ended and their time, if that is known."""
        known, count = self._time_left(), len(self._left) + self._sweep_left
        return f"left: {count} run{'s' if count != 1 else ''}, {known}" if known and count else None

    def _time_left(self) -> str | None:
        """None where nothing was timed, or nobody knows yet how many runs are under way at once."""
        if not self._seconds or self.jobs is None:
            return None
        every = statistics.fmean(seconds for timed in self._seconds.values() for seconds in timed)
        left = sum(statistics.fmean(self._seconds.get(name, [every])) for name in self._left)
        at_once = max(1, min(self.jobs, len(self._left) + self._sweep_left))
        return f"about {in_words((left + every * self._sweep_left) / at_once)}, estimated from the runs so far"


@dataclass
class _Running:
    """A run that is under way."""

    name: str
    rounds: int
    since: float
    done: int = 0


def _unfinished(sweep: Sweep, out: Path) -> int:
    """The number of a sweep's runs that neither finished nor diverged."""
    return sum(not (folder.summary.exists() or folder.diverged.exists()) for folder in _folders(sweep, out))


def _timed_of(sweep: Sweep, out: Path) -> list[float]:
    """Seconds of the sweep's finished runs."""
    return [seconds for folder in _folders(sweep, out) if folder.summary.exists() and (seconds := _timed(folder))]


def _folders(sweep: Sweep, out: Path) -> list[RunFolder]:
    """Those of a sweep's runs."""
    return [
        RunFolder(sweep_folder(out, entry, setting, seed))
        for entry, settings in sweep.settings.items()
        for setting in range(len(settings))
        for seed in sweep.seeds
    ]


def _timed(folder: RunFolder) -> float:
    """Seconds of a finished run, or 0 if its timings are missing or damaged."""
    try:
        return seconds_of(read_table(folder.timings))
    except UserError:
        return 0.0
