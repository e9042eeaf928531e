"""Progress of training: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:  # it imports TensorFlow, before which the limits of the shell are looked at
    from tff_re.runs.training import RoundReport

_LINES = 20


class RoundProgress:
    """Shows rounds as they end; a context manager, to be called with each RoundReport."""

    def __init__(self, console: Console, title: str, rounds: int):
        """Args:
        console: where to show.
        title: what is trained.
        rounds: how many there will be.
        """
        self._console, self._title, self._rounds = console, title, rounds
        self._bar = None
        self._so_far: dict[str, float] = {}

    def __enter__(self) -> RoundProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[metrics]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._rounds, metrics="")
        return self

    def __exit__(self, *exception) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, report: RoundReport) -> None:
        self._so_far.update(report.metrics)
        text = describe(self._so_far)
        if self._bar is not None:
            self._bar.update(self._task, completed=report.round, metrics=text)
        elif report.round == report.rounds or report.round % max(1, self._rounds // _LINES) == 0:
            self._console.print(
                f"{self._title}: round {report.round}/{report.rounds}, {text}, {report.seconds:.2f} s", highlight=False
            )


def describe(metrics: dict[str, float]) -> str:
    """Loss and accuracy so far in a few words; of a ranking the area, of a threshold the F1, on dev."""
    shown = (("local/loss", "loss"), ("test/accuracy", "accuracy"), ("dev/auc", "dev AUC"), ("dev/f1", "dev F1"))
    parts = [f"{label} {metrics[name]:.4f}" for name, label in shown if name in metrics]
    lost = metrics.get("clients/non_finite", 0)
    return ", ".join(parts + ([f"{lost:.0f} clients not finite"] if lost else []))
