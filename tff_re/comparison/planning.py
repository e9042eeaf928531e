"""The runs of a comparison as work to share out: which run, for which worker, and who is told of its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.folder import RunFolder

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.runs.training import RoundReport


@dataclass(frozen=True)
class PlannedRun:
    """A run of a comparison.

    Attributes:
      title: the entry's name, in a sweep with the setting.
      recipe: resolved.
      folder: of the run.
      unit: what has the same computations on every seed: the entry, in a sweep also the number of the setting.
      in_sweep: whether the run tunes: it may diverge, and has no metrics of test.
    """

    title: str
    recipe: Recipe
    folder: Path
    unit: tuple[str, int] = ("", 0)
    in_sweep: bool = False


def has_diverged(run: PlannedRun) -> bool:
    """Whether a sweep's run diverged before: it left a file in its folder that says so, and is not run again."""
    folder = RunFolder(run.folder)
    if not (run.in_sweep and folder.diverged.exists() and folder.recipe.exists()):
        return False
    return folder.recipe.read_bytes() == run.recipe.to_toml().encode("utf-8")


@dataclass(frozen=True)
class Part:
    """One of the disjoint parts of a suite's runs, for several machines or batch jobs.

    Attributes:
      index: from 1 to `count`.
      count: how many parts there are.
    """

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """Reads `2/4`. Raises UserError for anything else."""
        index, separator, count = text.partition("/")
        if not separator or not (index.isdecimal() and count.isdecimal()) or not 1 <= int(index) <= int(count):
            raise UserError(f"--part {text}: must be I/N with I from 1 to N, e.g. 2/4 for the second of four parts")
        return cls(int(index), int(count))

    def indices(self, runs: Sequence[PlannedRun]) -> set[int]:
        """The indices of this part's runs, which share data and computations as far as possible."""
        return set(shares(runs, self.count)[self.index - 1])


def shares(runs: Sequence[PlannedRun], number: int) -> list[list[int]]:
    """The indices of the runs for each of `number` workers, in the order in which a worker does them.

    The sizes differ by at most one. Runs on the same data stay together, and of these the seeds of an entry, whose
    computations are compiled once. Where layers are frozen, the entries of a seed stay together instead: their outputs
    are computed once for a seed, which takes longer than compiling.
    """
    data, models = {}, {}
    keys = []
    for index, run in enumerate(runs):
        recipe = run.recipe
        on = data.setdefault((recipe.task, recipe.partition), len(data))
        model = models.setdefault((on, recipe.model), len(models))
        frozen = getattr(recipe.model.options, "frozen_layers", 0)
        keys.append((on, model, recipe.seed, index) if frozen else (on, model, *_first(runs, run.unit), index))
    order = sorted(range(len(runs)), key=keys.__getitem__)
    small, larger = divmod(len(runs), number)
    taken, parts = 0, []
    for worker in range(number):
        size = small + (worker < larger)
        # A worker prepares data for one seed at a time.
        part = sorted(order[taken : taken + size], key=lambda index: (keys[index][0], runs[index].recipe.seed, index))
        parts.append(part)
        taken += size
    return parts


def _first(runs: Sequence[PlannedRun], unit: tuple[str, int]) -> tuple[int]:
    """The place of the first run with these computations."""
    return (next(index for index, run in enumerate(runs) if run.unit == unit),)


class Watcher:
    """Base of what shows the progress of a comparison with several runs under way.

    Runs are numbered from 0, in the suite's order. Those that were finished before only begin and end, and those of a
    sweep that diverged before only end.
    """

    def plan(self, runs: Sequence[PlannedRun]) -> None:
        """Further runs are ahead.

        A sweep's runs are planned before those of the tables.
        """

    def at_once(self, number: int) -> None:
        """This number of workers can do runs, on a cluster whose workers come and go."""

    def begin(self, number: int) -> None:
        """A run begins."""

    def round(self, number: int, report: RoundReport) -> None:
        """A round of a run has ended."""

    def end(self, number: int) -> None:
        """A run has ended."""


class InOrder(Watcher):
    """Reports runs in the suite's order, one after the other.

    Reports of a run wait until all runs before it have ended, so that the output has one order.
    """

    def __init__(self, on_start: Callable[[str, int, int], None], on_round: Callable[[RoundReport], None]):
        """Args:
        on_start: called with a run's title, seed and number of rounds.
        on_round: called with the report of each of its rounds.
        """
        self._on_start, self._on_round = on_start, on_round
        self._runs: list[PlannedRun] = []
        self._waiting: dict[int, list[RoundReport]] = {}
        self._ended: set[int] = set()
        self._next = 0

    def plan(self, runs):
        """See `Watcher`."""
        self._runs += runs

    def begin(self, number):
        """See `Watcher`."""
        self._waiting[number] = []
        if number == self._next:
            self._start(number)

    def round(self, number, report):
        """See `Watcher`."""
        if number == self._next:
            self._on_round(report)
        else:
            self._waiting[number].append(report)

    def end(self, number):
        """See `Watcher`."""
        self._ended.add(number)
        while self._next in self._ended:
            self._next += 1
            if self._next in self._waiting:
                self._start(self._next)

    def _start(self, number: int) -> None:
        run = self._runs[number]
        self._on_start(run.title, run.recipe.seed, run.recipe.training.rounds)
        for report in self._waiting[number]:
            self._on_round(report)
        self._waiting[number].clear()
