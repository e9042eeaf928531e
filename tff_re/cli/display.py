"""The console, what several commands print on it, and the progress of training."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from computations.privacy.options import rounded_up
from tff_re.errors import UserError

if TYPE_CHECKING:  # it imports TensorFlow, before which the limits of the shell are looked at
    from tff_re.exporting.training_digests import Seen
    from tff_re.runs.training import RoundReport


class Terminal(Console):
    """A console that stays silent after a pipe's reader has gone (`train … | head -1`), so that work finishes."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        drop_standard_output()


# Names, paths and texts as they are: rich would read "[b]" as markup and ":a:" as an emoji.
console = Terminal(markup=False, emoji=False)


def say(text: str) -> None:
    """Print one line without wrapping it."""
    console.print(text, highlight=False, soft_wrap=True)


def say_written(files) -> None:
    """Print the names of the files that a command wrote."""
    say(f"written: {', '.join(map(str, files))}")


def metrics_table(title: str, metrics: dict[str, float], trivial: dict[str, dict[str, float]] | None = None) -> Table:
    """Return a table of the metrics, next to those of models that assign one class to every example."""
    table = Table(title=title)
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name in trivial or {}:
        table.add_column(name, justify="right", style="dim", overflow="fold")
    for name, value in metrics.items():
        others = (f"{values[name]:.4f}" if name in values else "" for values in (trivial or {}).values())
        table.add_row(name, f"{value:.4f}", *others)
    return table


def class_table(labels, measured, positive) -> Table:
    """Return a table of precision, recall, F1 and number of examples of each class, from `per_class`."""
    left_out = [] if positive is None else [name for label, name in enumerate(labels) if label not in positive]
    table = Table(title="by class", caption=f"micro-F1 and macro-F1 leave out {left_out[0]}" if left_out else None)
    table.add_column("class")
    for heading in ("precision", "recall", "F1", "examples"):
        table.add_column(heading, justify="right")
    for label, *numbers, support in zip(labels, *measured, strict=True):
        table.add_row(label, *(f"{n:.4f}" for n in numbers), f"{support:.0f}")
    return table


def say_seen(seen: Seen | None, name: str, *, table: bool = True) -> None:
    """Say how many examples of a file the run of an export has seen, and warn on standard error if it has seen any.

    Args:
      seen: None: that is not known.
      name: the file's.
      table: whether to print a table too.
    """
    if table and seen is None:
        say("seen in training: not known; the export has no digests of its training texts")
    elif table:
        rows = Table(title="examples that the run had for training or dev")
        rows.add_column("compared by")
        rows.add_column(f"of {seen.examples}", justify="right")
        for what, number in (("id", seen.by_id), ("text", seen.by_text), ("id or text", seen.either)):
            rows.add_row(what, "–" if number is None else str(number))
        console.print(rows)
        if seen.started_from_run:
            say("the run started from another run's weights; whether that one had the examples is not known")
    if seen is not None and (warning := seen.warning(name)) is not None:
        click.echo(f"warning: {warning}", err=True)


class RoundProgress:
    """A context manager that shows rounds as they end.

    Call it with each RoundReport.
    """

    def __init__(self, console: Console, title: str, rounds: int):
        self._console, self._title, self._rounds = console, title, rounds
        self._bar = None
        self._so_far: dict[str, float] = {}

    def __enter__(self) -> RoundProgress:
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
            columns += (MofNCompleteColumn(), TextColumn("{task.fields[metrics]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console)
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
        elif report.round == report.rounds or report.round % max(1, self._rounds // 20) == 0:
            self._console.print(
                f"{self._title}: round {report.round}/{report.rounds}, {text}, {report.seconds:.2f} s", highlight=False
            )


def describe(metrics: dict[str, float]) -> str:
    """Describe loss and accuracy so far in a few words.

    It names the area of a ranking, the F1 of a threshold on dev, and the ε spent.
    """
    accuracy = ("test/accuracy", "accuracy")
    if accuracy[0] not in metrics:  # a run that tunes
        accuracy = ("dev/accuracy", "dev accuracy")
    label_of = (
        *(("local/loss", "loss"), accuracy, ("dev/auc", "dev AUC"), ("dev/f1", "dev F1")),
        ("test/f1", "F1"),
    )
    parts = [f"{label} {metrics[name]:.4f}" for name, label in label_of if name in metrics]
    if (epsilon := metrics.get("privacy/epsilon")) is not None:
        parts.append(f"ε {rounded_up(epsilon)}")
    if (lost := metrics.get("clients/non_finite", 0)) > 0:
        parts.append(f"{lost:.0f} clients not finite")
    if (answered := metrics.get("sites/answered", 0)) < (asked := metrics.get("sites/asked", 0)):
        parts.append(f"{answered:.0f} of {asked:.0f} sites")
    return ", ".join(parts)


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """Raise a UserError in the block if standard output cannot be written.

    An OSError does not name its file, and would be taken for one of the run's folder. BrokenPipeError stays what it is.
    """
    before = sys.stdout
    if before is None:
        yield
        return
    guarded = sys.stdout = _Guarded(before)
    try:
        yield
        guarded.flush()  # else Python prints a traceback at its exit
    finally:
        if guarded.failed:
            drop_standard_output()
        sys.stdout = before


class _Guarded:
    """A stream that errors name."""

    def __init__(self, stream):
        self._stream, self.failed = stream, False
        self.write = functools.partial(self._named, stream.write)
        self.flush = functools.partial(self._named, stream.flush)

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def _named(self, function, *arguments):
        try:
            return function(*arguments)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failed = True
            raise UserError(
                f"standard output cannot be written ({error.strerror}); send it somewhere else (a run continues with "
                "--resume)"
            ) from None


def drop_standard_output() -> None:
    """Discard what is left in standard output's buffer, so that it does not fail again at Python's exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a notebook's stream has no file number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
