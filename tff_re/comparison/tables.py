"""Algorithms side by side: mean and deviation over seeds, differences paired by seed, published values, costs."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from datasets.files import write_atomically
from tff_re.comparison.statistics import Difference, MetricSummary, mean_std
from tff_re.report.tables import csv_text, rounded_up

if TYPE_CHECKING:
    from rich.console import Group


MISSING = "–"

ON_TEST = "(on test)"
"""Marks the best of all rounds on the test examples themselves, as papers print it."""


class Guarantee(NamedTuple):
    """Differential privacy of runs: the largest epsilon of the seeds (infinite: none), delta, and of which unit."""

    epsilon: float
    delta: float
    unit: str


@dataclass(frozen=True)
class ComparisonRow:
    """One algorithm of a comparison.

    Attributes:
      algorithm: Its name as shown.
      metrics: Metric name to summary.
      bytes_up: Sent by a client in a round; None: unknown.
      bytes_down: Received by a client in a round; None: unknown.
      seconds_per_round: Wall time of a round; None: unknown.
      control: Whether it is a control (central or local training), not a competitor.
      rounds_to: (metric, target) to the round, for each seed, in which it was first reached, or None.
      median: Whether medians over the seeds are shown, too.
      steps: Local steps of all clients in all rounds; None: not shown.
      reference: Whether nothing was trained: a ceiling or a trivial baseline of the data.
      notes: What has to be said of its runs, see `Recipe.notes`.
      privacy: What its runs guarantee; None: nothing.
    """

    algorithm: str
    metrics: Mapping[str, MetricSummary]
    bytes_up: float | None = None
    bytes_down: float | None = None
    seconds_per_round: float | None = None
    control: bool = field(default=False)
    rounds_to: Mapping[tuple[str, float], tuple[int | None, ...]] = field(default_factory=dict)
    median: bool = False
    steps: float | None = None
    reference: bool = False
    notes: tuple[str, ...] = ()
    privacy: Guarantee | None = None


def comparison_markdown(rows: Sequence[ComparisonRow], baseline: str | None = None) -> str:
    """A Markdown table, a row an algorithm; `baseline` is the row that differences are taken to."""
    columns = [column for part in _parts(rows, baseline) for column in part[1]]
    lines = ["| algorithm | " + " | ".join(_cell(c.title) for c in columns) + " |"]
    lines.append("| :-- |" + " --: |" * len(columns))
    for row in rows:
        name = _cell(row.algorithm) + (" (control)" if row.control else " (not trained)" if row.reference else "")
        lines.append(f"| {name} | " + " | ".join(_cell(c.text(row)) for c in columns) + " |")
    return "\n".join([*lines, "", _note(rows, baseline), ""])


def comparison_rich(rows: Sequence[ComparisonRow], baseline: str | None = None) -> Group:
    """The same for the terminal: a table for each metric and one for the costs, so that each fits into 80 columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    tables = []
    for title, columns in _parts(rows, baseline):
        # The title of a table says the metric; its columns need not repeat it.
        table = Table(title=Text(title), title_justify="left", title_style="bold")
        table.add_column("algorithm", overflow="fold")
        for column in columns:
            table.add_column(Text(column.title.removeprefix(title + " ")), justify="right", overflow="fold")
        for row in rows:
            style = "dim" if row.control or row.reference else "bold" if row.algorithm == baseline else ""
            table.add_row(Text(row.algorithm), *(Text(c.text(row)) for c in columns), style=style)
        tables.append(table)
    return Group(*tables, Text(_note(rows, baseline), style="dim"))


def comparison_csv(path: str | os.PathLike, rows: Sequence[ComparisonRow], baseline: str | None = None) -> None:
    """Writes a CSV file, a row an algorithm, with plain numbers in the metrics' own units; unknown ones are empty.

    Raises:
      DataError: the file cannot be written; an older one is still whole then.
    """
    base = _baseline(rows, baseline)
    records = []
    for row in rows:
        record: dict[str, Any] = {"algorithm": row.algorithm, "control": int(row.control)}
        for name in _metric_names(rows):
            first = _first(rows, name)
            for key, value in _numbers(row, base, name).items():
                record[f"{name}_{re.sub('^best', first, key)}"] = value
        for name, target in row.rounds_to:
            record[f"{name}_rounds_to_{target:g}"] = _rounds(row, (name, target), ";", "")
        record |= {key: getattr(row, key) for key in ("bytes_up", "bytes_down", "seconds_per_round")}
        if any(r.steps is not None for r in rows):
            record["steps"] = row.steps
        if any(r.privacy is not None for r in rows):
            record |= dict(zip(("epsilon", "delta", "privacy_unit"), row.privacy or (None,) * 3, strict=True))
        records.append(record)
    heading = list(dict.fromkeys(key for record in records for key in record)) or ["algorithm"]
    text = csv_text([heading, *([record.get(key) for key in heading] for record in records)])
    write_atomically(path, text.encode("utf-8"))


def _numbers(row: ComparisonRow, base: ComparisonRow | None, name: str) -> dict[str, Any]:
    keys = ["seeds", "best_mean", "best_std", "best_median", "final_mean", "final_std", "final_median", "published"]
    numbers = dict.fromkeys(keys)
    for which in ("best", "final"):
        numbers |= dict.fromkeys(f"{which}_difference_{key}" for key in Difference._fields)
    metric = row.metrics.get(name)
    if metric is None:
        return numbers
    numbers["seeds"], numbers["published"] = len(metric.best), metric.published
    for which in ("best", "final"):
        numbers[f"{which}_mean"], numbers[f"{which}_std"] = mean_std(list(getattr(metric, which).values()))
        numbers[f"{which}_median"] = statistics.median(getattr(metric, which).values())
        difference = _difference(row, base, name, which)
        if difference is not None:
            numbers |= {f"{which}_difference_{key}": value for key, value in difference._asdict().items()}
    return numbers


class _Column(NamedTuple):
    title: str
    text: Callable[[ComparisonRow], str]


def _parts(rows: Sequence[ComparisonRow], baseline: str | None) -> list[tuple[str, list[_Column]]]:
    """(title, columns) of each metric, then of privacy and the costs."""
    base = _baseline(rows, baseline)
    parts = [(name, _metric_columns(name, base, rows)) for name in _metric_names(rows)]
    targets = list(dict.fromkeys(key for row in rows for key in row.rounds_to))
    if targets:
        rounds = [
            _Column(f"rounds to {name} {target:g}", lambda row, key=(name, target): _rounds(row, key, ", ", MISSING))
            for name, target in targets
        ]
        parts.append(("rounds to a target", rounds))
    costs = [
        _Column("kB up", lambda row: _fixed(row.bytes_up, 1e-3, 1)),
        _Column("kB down", lambda row: _fixed(row.bytes_down, 1e-3, 1)),
        _Column("s a round", lambda row: _fixed(row.seconds_per_round, 1, 2)),
    ]
    if any(row.steps is not None for row in rows):
        costs.append(_Column("local steps", lambda row: _fixed(row.steps, 1, 0)))
    if base is not None and base.bytes_up and any(_less_up(row, base) >= 2 for row in rows):
        costs.insert(1, _Column(f"times less up than {base.algorithm}", lambda row: f"{_less_up(row, base):.0f}"))
    if any(row.privacy is not None for row in rows):
        parts.append(("privacy", [_Column("ε (δ, unit)", _guarantee)]))
    return [*parts, ("cost", costs)]


def _guarantee(row: ComparisonRow) -> str:
    if row.privacy is None:
        return MISSING
    return f"{rounded_up(row.privacy.epsilon)} ({row.privacy.delta:g}, {row.privacy.unit})"


def _metric_columns(name: str, base: ComparisonRow | None, rows: Sequence[ComparisonRow]) -> list[_Column]:
    def show(make):
        def text(row):
            metric = row.metrics.get(name)
            return MISSING if metric is None else make(row, metric)

        return text

    def over_seeds(which):
        return show(lambda row, metric: _mean_and_std(metric, *mean_std(list(getattr(metric, which).values()))))

    def median(which):
        return show(lambda row, metric: _fixed(statistics.median(getattr(metric, which).values()), *_scale(metric)))

    first = _first(rows, name)
    shown, compared = ("chosen", "best") if first == "chosen" else ("final", "final")

    def difference(row, metric):
        value = _difference(row, base, name, compared)
        if value is None:
            return MISSING
        return f"{_mean_and_std(metric, value.mean, value.std, '+')} ({value.wins}/{value.n})"

    on_test = first == "best" and name.startswith("test/")
    whiches = {"best": f"best {ON_TEST}" if on_test else first, "final": "final"}
    columns = [_Column(f"{name} {title}", over_seeds(which)) for which, title in whiches.items()]
    if any(row.median for row in rows):
        columns += [_Column(f"{name} {title}, median", median(which)) for which, title in whiches.items()]
    if base is not None:
        columns.append(_Column(f"{name} {shown} − {base.algorithm}", show(difference)))
    if any(row.metrics[name].published is not None for row in rows if name in row.metrics):
        published = show(lambda row, metric: _fixed(metric.published, *_scale(metric)))
        columns.append(_Column(f"{name} published", published))
    return columns


def _difference(row: ComparisonRow, base: ComparisonRow | None, name: str, which: str) -> Difference | None:
    if base is None or row is base or name not in base.metrics:
        return None
    return row.metrics[name].difference(base.metrics[name], which)


def _rounds(row: ComparisonRow, key: tuple[str, float], separator: str, never: str) -> str:
    """The rounds of all seeds."""
    return separator.join(never if number is None else str(number) for number in row.rounds_to.get(key, ())) or never


def _less_up(row: ComparisonRow, base: ComparisonRow) -> float:
    return base.bytes_up / row.bytes_up if row.bytes_up else math.nan


def class_markdown(by_class: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """A Markdown table of F1 in percent, a row a class, a column an algorithm: the mean over its seeds.

    Args:
      by_class: Algorithm to class to F1, for each of its seeds.
    """
    lines = ["| F1 at the end | " + " | ".join(_cell(name) for name in by_class) + " |"]
    lines.append("| :-- |" + " --: |" * len(by_class))
    for label, *values in _class_rows(by_class):
        cells = (MISSING if v is None else f"{100 * v:.2f}" for v in values)
        lines.append(f"| {_cell(label)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def class_csv(path: str | os.PathLike, by_class: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """The same as a CSV file, as fractions. Raises DataError as `comparison_csv` does."""
    write_atomically(path, csv_text([["class", *by_class], *_class_rows(by_class)]).encode("utf-8"))


def _class_rows(by_class) -> list[list]:
    def mean(seeds, label):
        values = [one[label] for one in seeds if math.isfinite(one.get(label, math.nan))]
        return statistics.fmean(values) if values else None

    labels = dict.fromkeys(label for seeds in by_class.values() for one in seeds for label in one)
    return [[label, *(mean(seeds, label) for seeds in by_class.values())] for label in labels]


def _first(rows: Sequence[ComparisonRow], name: str) -> str:
    """What the `best` values of a metric are called."""
    return "chosen" if any(row.metrics[name].chosen for row in rows if name in row.metrics) else "best"


def _metric_names(rows: Sequence[ComparisonRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.metrics))


def _baseline(rows: Sequence[ComparisonRow], baseline: str | None) -> ComparisonRow | None:
    return None if baseline is None else next(row for row in rows if row.algorithm == baseline)


def _scale(metric: MetricSummary) -> tuple[float, int]:
    return (100, 2) if metric.percent else (1, 4)


def _mean_and_std(metric: MetricSummary, mean: float, std: float | None, sign: str = "") -> str:
    scale, digits = _scale(metric)
    text = f"{mean * scale:{sign}.{digits}f}"
    return text if std is None else f"{text} ± {std * scale:.{digits}f}"


def _fixed(value: float | None, scale: float, digits: int) -> str:
    return MISSING if value is None else f"{value * scale:.{digits}f}"


def _note(rows: Sequence[ComparisonRow], baseline: str | None) -> str:
    metrics = {name: metric for row in rows for name, metric in row.metrics.items()}
    percent = [name for name, metric in metrics.items() if metric.percent]
    seeds = sorted({len(metric.best) for row in rows for metric in row.metrics.values()})
    parts = [f"Mean ± sample standard deviation over {' or '.join(map(str, seeds)) or 'no'} seeds."]
    if seeds == [1]:
        parts = ["One seed."]
    if percent:
        parts.append(f"In percent: {', '.join(percent)}.")
    texts = ("Best: over the rounds.", "Chosen: in the round with the best dev score.")
    parts += [texts[chosen] for chosen in sorted({metric.chosen for metric in metrics.values()})]
    if any(name.startswith("test/") and not metric.chosen for name, metric in metrics.items()):
        parts.append(f"Best {ON_TEST}: test itself chooses the round, as where papers print it; nothing else is so.")
    parts.append("Final: mean over the last tenth of the rounds.")
    if baseline is not None:
        parts.append(f"Differences to {baseline} are paired by seed; in brackets the seeds that favour the row.")
    said: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.notes:
            said.setdefault(row.notes, []).append(row.algorithm)
    if any(row.privacy is not None for row in rows):
        parts.append(f"ε: differential privacy, the largest of the seeds; {MISSING} and ∞: no guarantee.")
    exception = ", but where a note says otherwise" if said else ""
    parts.append(f"kB: thousands of bytes per client and round, uncompressed{exception}.")
    parts += [f"{', '.join(algorithms)}: {'; '.join(notes)}." for notes, algorithms in said.items()]
    return " ".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
