"""The progress of a comparison whose runs are under way at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from tff_re.cli.configuration import show_suite
from tff_re.cli.display import RoundProgress, console, describe, say
from tff_re.comparison.estimate import Estimate
from tff_re.comparison.planning import InOrder, PlannedRun, Watcher

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.comparison.suite import Suite
    from tff_re.runs.training import RoundReport


class ParallelProgress(Watcher):
    """Shows a comparison's configuration once, then its runs.

    In a terminal there is one display: a bar for the comparison and one for each run that is under way. Elsewhere each
    run's lines are printed together, in the suite's order.
    """

    def __init__(self, suite: Suite, estimate: Estimate, total: int):
        """Args:
        suite: that is run.
        estimate: is told of the runs.
        total: number of runs, without those beyond a sweep's edge.
        """
        self._suite, self._estimate, self._total = suite, estimate, total
        self._runs: list[PlannedRun] = []
        self._begun = 0
        self._rounds: RoundProgress | None = None
        self._lines = InOrder(self._start_lines, lambda report: self._rounds(report))
        self._bars: Progress | None = None
        self._tasks: dict[int, TaskID] = {}
        self._metrics: dict[int, dict[str, float]] = {}

    def __enter__(self) -> ParallelProgress:
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
            columns += (MofNCompleteColumn(), TextColumn("{task.fields[metrics]}", markup=False))
            self._bars = Progress(*columns, console=console)
        return self

    def __exit__(self, *exception) -> None:
        if self._bars is not None:
            self._bars.stop()

    def plan(self, runs: Sequence[PlannedRun]) -> None:
        """See `Watcher`."""
        if not self._runs:
            show_suite(self._suite)
            if self._bars is not None:
                self._bars.start()
                self._all = self._bars.add_task(self._suite.title, total=self._total, metrics="")
        self._runs += runs
        self._total = max(self._total, len(self._runs))
        if self._bars is not None:
            self._bars.update(self._all, total=self._total)
        self._lines.plan(runs)

    def at_once(self, number: int) -> None:
        """See `Watcher`."""
        self._estimate.jobs = number

    def begin(self, number: int) -> None:
        """See `Watcher`."""
        run = self._runs[number]
        self._estimate.begin(number, run.title, run.recipe.training.rounds)
        if self._bars is None:
            self._lines.begin(number)
            return
        self._metrics[number] = {}
        self._tasks[number] = self._bars.add_task(self._title(number), total=run.recipe.training.rounds, metrics="")

    def round(self, number: int, report: RoundReport) -> None:
        """See `Watcher`."""
        self._estimate.round(number)
        if self._bars is None:
            self._lines.round(number, report)
            return
        self._metrics[number].update(report.metrics)
        self._bars.update(self._tasks[number], completed=report.round, metrics=describe(self._metrics[number]))

    def end(self, number: int) -> None:
        """See `Watcher`."""
        self._estimate.end(number)
        if self._bars is None:
            self._lines.end(number)
            return
        if (task := self._tasks.pop(number, None)) is not None:
            self._bars.remove_task(task)
            del self._metrics[number]
        self._bars.update(self._all, advance=1, metrics=self._estimate.left() or "")

    def _start_lines(self, title: str, seed: int, rounds: int) -> None:
        if self._begun and (left := self._estimate.left()) is not None:
            say(left)
        self._rounds = RoundProgress(console, self._title(self._begun), rounds)
        self._begun += 1

    def _title(self, number: int) -> str:
        run = self._runs[number]
        return f"[{number + 1}/{max(number + 1, self._total)}] {run.title}, seed {run.recipe.seed}"
