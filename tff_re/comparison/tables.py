"""Algorithms side by side: mean and deviation over seeds, differences paired by seed, published values, costs."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from computations.privacy.options import rounded_up
from datasets.files import csv_text, write_atomically
from tff_re.comparison.rows import ComparisonRow, Judged, Table, judge, judge_gains
from tff_re.comparison.statistics import BOOTSTRAP_FROM, LEVEL, POWER, Difference, MetricSummary, mean_std
from tff_re.comparison.sweep import BEYOND
from tff_re.comparison.verdicts import LEAST_SEEDS
from tff_re.tasks.resampling import difference_interval, paired

if TYPE_CHECKING:
    from rich.console import Group


MISSING = "–"
_LEVEL = f"{100 * LEVEL:.0f} %"
TEST_SAMPLE = f"{_LEVEL}, test sample"

_BEYOND = re.compile(f"{BEYOND}[0-9]+ beyond the edge")

ON_TEST = "(on test)"
"""Marks the best of all rounds on the test examples themselves, as papers print it."""


def comparison_markdown(table: Table) -> str:
    """A Markdown table, a row an algorithm.

    Differences are to the table's baseline. With more than two metrics the differences of each are a table of their
    own, without the rows that have none.
    """
    parts = [columns for _, columns in table_parts(table)]
    apart = [] if len(table.metric_names) <= 2 else [columns for columns in parts if columns[-1].title == "verdict"]
    lines = []
    for columns in [[c for part in parts if part not in apart for c in part], *apart]:
        lines.append("| algorithm | " + " | ".join(_cell(c.title) for c in columns) + " |")
        lines.append("| :-- |" + " --: |" * len(columns))
        for number, row in enumerate(table.rows):
            cells = [c.cells[number] for c in columns]
            if columns in apart and set(cells) == {MISSING}:
                continue
            name = _cell(row.algorithm) + (f" ({kind})" if (kind := row.kind) else "")
            lines.append(f"| {name} | " + " | ".join(map(_cell, cells)) + " |")
        lines.append("")
    return "\n".join([*lines, table_note(table), ""])


def comparison_rich(table: Table) -> Group:
    """The same for the terminal: a table for each metric and one for the costs, so that each fits into 80 columns."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    tables = []
    for title, columns in table_parts(table):
        # The title of a table says the metric; its columns need not repeat it.
        rich_table = RichTable(title=Text(title), title_justify="left", title_style="bold")
        rich_table.add_column("algorithm", overflow="fold")
        columns = [column for column in columns if column.title != "bootstrap"]  # for which 80 columns are too few
        for column in columns:
            heading = "difference" if column.title == title and len(columns) > 1 else column.title
            whole = {"no_wrap": heading.endswith("interval")}
            rich_table.add_column(Text(heading.removeprefix(title + " ")), justify="right", overflow="fold", **whole)
        for number, row in enumerate(table.rows):
            style = "dim" if row.kind else "bold" if row.algorithm == table.baseline else ""
            rich_table.add_row(Text(row.algorithm), *(Text(c.cells[number]) for c in columns), style=style)
        tables.append(rich_table)
    return Group(*tables, Text(table_note(table, bootstrap=False), style="dim"))


def comparison_csv(path: str | os.PathLike, table: Table) -> None:
    """Writes a CSV file with one row for each algorithm.

    Numbers are plain and in the metrics' own units. Unknown values are empty.

    Raises:
      DataError: the file cannot be written; an older one is still whole then.
    """
    rows = table.rows
    judged = {(name, w): judge(table, name, w) for name in table.metric_names for w in ("best", "final")}
    records = []
    for number, row in enumerate(rows):
        record: dict[str, Any] = {"algorithm": row.algorithm, "control": int(row.control)}
        for name in table.metric_names:
            first = first_values(rows, name)
            of_row = {which: judged[name, which][number] for which in ("best", "final")}
            for key, value in _numbers(row.metrics.get(name), of_row).items():
                record[f"{name}_{re.sub('^best', first, key)}"] = value
        for name, target in row.rounds_to:
            record[f"{name}_rounds_to_{target:g}"] = _rounds(row, (name, target), ";", "")
        record |= {key: getattr(row, key) for key in ("bytes_up", "bytes_down", "seconds_per_round")}
        if any(r.steps is not None for r in rows):
            record["steps"] = row.steps
        if any(r.tried for r in rows):
            record["tried"] = row.tried
        if any(r.privacy is not None for r in rows):
            record |= dict(zip(("epsilon", "delta", "privacy_unit"), row.privacy or (None,) * 3, strict=True))
        records.append(record)
    heading = list(dict.fromkeys(key for record in records for key in record)) or ["algorithm"]
    text = csv_text([heading, *([record.get(key) for key in heading] for record in records)])
    write_atomically(path, text.encode("utf-8"))


def _numbers(metric: MetricSummary | None, judged: Mapping[str, Judged | None]) -> dict[str, Any]:
    keys = ["seeds", "best_mean", "best_std", "best_median", "final_mean", "final_std", "final_median", "published"]
    numbers = dict.fromkeys(keys)
    for which in ("best", "final"):
        keys = (*Difference._fields, *Judged._fields[1:])
        numbers |= dict.fromkeys(f"{which}_difference_{key}" for key in keys)
    if metric is None:
        return numbers
    numbers["seeds"], numbers["published"] = len(metric.best), metric.published
    for which, judgement in judged.items():
        numbers[f"{which}_mean"], numbers[f"{which}_std"] = mean_std(list(getattr(metric, which).values()))
        numbers[f"{which}_median"] = _median(getattr(metric, which).values())
        if judgement is not None:
            difference, *rest = judgement
            values = (*difference, *rest)
            numbers |= {f"{which}_difference_{key}": value for key, value in zip(keys, values, strict=True)}
    return numbers


def _median(values: Iterable[float]) -> float:
    """The median, or NaN if one of the values is NaN, which has no place in an order."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else statistics.median(values)


class _Column(NamedTuple):
    title: str
    cells: list[str]


def table_parts(table: Table) -> list[tuple[str, list[_Column]]]:
    """(title, columns) of each metric and its differences to the baseline, of what was tried, privacy and the costs."""
    rows, base = table.rows, table.base
    parts = []
    for name in table.metric_names:
        parts.append((name, _metric_columns(name, rows)))
        if columns := _difference_columns(name, table):
            parts.append((columns[0].title, columns))
    if parts:
        seeds = [max((len(metric.best) for metric in row.metrics.values()), default=0) for row in rows]
        parts[0][1].insert(0, _Column("seeds", [str(count) for count in seeds]))

    def column(title: str, text: Callable[[ComparisonRow], str]) -> _Column:
        return _Column(title, [text(row) for row in rows])

    if any(row.tried for row in rows):
        parts.append(("settings tried", [column("settings tried", lambda row: row.tried or MISSING)]))
    targets = list(dict.fromkeys(key for row in rows for key in row.rounds_to))
    if targets:
        rounds = [
            column(f"rounds to {name} {target:g}", lambda row, key=(name, target): _rounds(row, key, ", ", MISSING))
            for name, target in targets
        ]
        parts.append(("rounds to a target", rounds))
    costs = [
        column("kB up", lambda row: _fixed(row.bytes_up, 1e-3, 1)),
        column("kB down", lambda row: _fixed(row.bytes_down, 1e-3, 1)),
        column("s a round", lambda row: _fixed(row.seconds_per_round, 1, 2)),
    ]
    if any(row.steps is not None for row in rows):
        costs.append(column("local steps", lambda row: _fixed(row.steps, 1, 0)))
    if base is not None and base.bytes_up and any((_less_up(row, base) or 0) >= 2 for row in rows):
        costs.insert(
            1, column(f"times less upload than {base.algorithm}", lambda row: _fixed(_less_up(row, base), 1, 0))
        )
    if any(row.privacy is not None for row in rows):
        parts.append(("privacy", [column("ε (δ, unit)", _guarantee)]))
    return [*parts, ("cost", costs)]


def _guarantee(row: ComparisonRow) -> str:
    if row.privacy is None:
        return MISSING
    return f"{rounded_up(row.privacy.epsilon)} ({row.privacy.delta:g}, {row.privacy.unit})"


def _metric_columns(name: str, rows: Sequence[ComparisonRow]) -> list[_Column]:
    def column(title: str, text: Callable[[MetricSummary], str]) -> _Column:
        return _Column(title, [text(row.metrics[name]) if name in row.metrics else MISSING for row in rows])

    def over_seeds(which):
        return lambda metric: _mean_and_std(metric, *mean_std(list(getattr(metric, which).values())))

    def median(which):
        return lambda metric: _fixed(_median(getattr(metric, which).values()), *scale(metric))

    first = first_values(rows, name)
    on_test = first == "best" and name.startswith("test/")
    whiches = {"best": f"best {ON_TEST}" if on_test else first, "final": "final"}
    columns = [column(f"{name} {title}", over_seeds(which)) for which, title in whiches.items()]
    if any(row.median for row in rows):
        columns += [column(f"{name} {title}, median", median(which)) for which, title in whiches.items()]
    if any(row.metrics[name].published is not None for row in rows if name in row.metrics):
        columns.append(column(f"{name} published", lambda metric: _fixed(metric.published, *scale(metric))))
    return columns


def _difference_columns(name: str, table: Table) -> list[_Column]:
    rows, (which, words) = table.rows, compared_values(table.rows, name)
    judged = judge(table, name, which)
    if not any(judged):
        return []
    factor, digits = scale(next(row.metrics[name] for row in rows if name in row.metrics))

    def number(value: float | None, sign: str = "") -> str:
        return MISSING if value is None else f"{value * factor:{sign}.{digits}f}".replace("+nan", "nan")

    def interval(low: float | None, high: float | None) -> str:
        return MISSING if low is None else f"{number(low, '+')} to {number(high, '+')}"

    def column(title: str, text: Callable[[Judged], str]) -> _Column:
        return _Column(title, [MISSING if j is None else text(j) for j in judged])

    columns = [
        column(
            f"{name} {words} − {table.baseline}",
            lambda j: f"{number(j.difference.mean, '+')} ({j.difference.wins}/{j.difference.n})",
        ),
        column(f"{_LEVEL} interval", lambda j: interval(j.difference.low, j.difference.high)),
    ]
    if any(j is not None and j.difference.bootstrap_low is not None for j in judged):
        columns.append(column("bootstrap", lambda j: interval(j.difference.bootstrap_low, j.difference.bootstrap_high)))
    sampled = _sampled_intervals(name, table, which)
    if any(sampled):
        cells = [interval(*(limits or (None, None))) for limits in sampled]
        columns.append(_Column(TEST_SAMPLE, cells))
    if any(j is not None and j.published is not None for j in judged):
        columns += [
            column("published gain", lambda j: number(j.published, "+")),
            column("room", lambda j: number(j.room, "+")),
        ]
    return [
        *columns,
        column("could show", lambda j: number(j.difference.detectable)),
        column("p, Holm", lambda j: _p_value(j.p_holm)),
        column("verdict", lambda j: j.verdict or MISSING),
    ]


def _sampled_intervals(name: str, table: Table, which: str) -> list[tuple[float, float] | None]:
    """Each row's interval that includes the test sample, or None where it has none."""
    return [
        difference_interval(row.test_units, table.base.test_units, name)
        if _is_sampled(row, name, table, which)
        else None
        for row in table.rows
    ]


def _is_sampled(row: ComparisonRow, name: str, table: Table, which: str) -> bool:
    """Whether a row has an interval that includes the test sample: both runs of each seed stored what they measured on
    test units.

    That is of the chosen round, or of the last round where the table compares final values.
    """
    base = table.base
    if base is None or row is base:
        return False
    pairs = paired(row.test_units, base.test_units, name)
    difference = table.difference(row.algorithm, base.algorithm, name, which)
    if difference is None or len(pairs) != difference.n:  # an interval of other seeds than the difference's
        return False
    return all(units.chosen == (which == "best") for _, *both in pairs for units in both)


def _p_value(p: float | None) -> str:
    return MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _rounds(row: ComparisonRow, key: tuple[str, float], separator: str, never: str) -> str:
    """The rounds of all seeds."""
    return separator.join(never if number is None else str(number) for number in row.rounds_to.get(key, ())) or never


def _less_up(row: ComparisonRow, base: ComparisonRow) -> float | None:
    """None for a row whose clients send nothing."""
    return base.bytes_up / row.bytes_up if row.bytes_up else None


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
        values = [f1_of[label] for f1_of in seeds if math.isfinite(f1_of.get(label, math.nan))]
        return statistics.fmean(values) if values else None

    labels = dict.fromkeys(label for seeds in by_class.values() for f1_of in seeds for label in f1_of)
    return [[label, *(mean(seeds, label) for seeds in by_class.values())] for label in labels]


def first_values(rows: Sequence[ComparisonRow], name: str) -> str:
    """What the `best` values of a metric are called."""
    return "chosen" if any(row.metrics[name].chosen for row in rows if name in row.metrics) else "best"


def compared_values(rows: Sequence[ComparisonRow], name: str) -> tuple[str, str]:
    """The values whose differences the table shows, as (attribute, name): those of the round chosen on dev, or the
    final ones. The best over the rounds is chosen on what it measures."""
    return ("best", "chosen") if first_values(rows, name) == "chosen" else ("final", "final")


def scale(metric: MetricSummary) -> tuple[float, int]:
    """(factor to multiply a value by for display, digits after its decimal point)."""
    return (100, 2) if metric.percent else (1, 4)


def _mean_and_std(metric: MetricSummary, mean: float, std: float | None) -> str:
    factor, digits = scale(metric)
    text = f"{mean * factor:.{digits}f}"
    return text if std is None else f"{text} ± {std * factor:.{digits}f}"


def _fixed(value: float | None, factor: float, digits: int) -> str:
    return MISSING if value is None else f"{value * factor:.{digits}f}"


def table_note(table: Table, *, bootstrap: bool = True) -> str:
    """The note on a table's columns.

    `bootstrap`: whether its intervals are among them.
    """
    rows, baseline = table.rows, table.baseline
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
        parts.append(f"Best {ON_TEST}: the round is selected on test, as in the papers; no other number is.")
    parts.append("Final: mean over the last tenth of the rounds.")
    if baseline is not None:
        parts.append(f"Differences to {baseline} are paired by seed; the seeds that favour the row are in brackets.")
        if seeds != [1]:
            count = sum(row.algorithm != baseline and row.compared for row in rows)
            parts.append(
                f"{_LEVEL} interval: Student's t over the seeds, for one comparison. Could show: the least true "
                f"difference that a paired t-test finds with probability {100 * POWER:.0f} %, given the spread seen "
                f"here, for one comparison. p, Holm: the paired t-test's, adjusted over the table's {count} "
                f"comparisons of a metric. Verdict: gain or loss if that is below {1 - LEVEL:.2f}, with "
                f"{LEAST_SEEDS} seeds at least; else open."
            )
            if any(gain.baseline == baseline for gain in table.gains):
                parts.append(_room_note(table))
            if bootstrap and max(seeds, default=0) >= BOOTSTRAP_FROM:
                parts.append(f"Bootstrap: the same {_LEVEL} interval by bootstrap over the seeds (BCa).")
            if any(_is_sampled(row, name, table, compared_values(rows, name)[0]) for name in metrics for row in rows):
                parts.append(_sample_note(table))
    said: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.notes:
            said.setdefault(row.notes, []).append(row.algorithm)
    if any(row.privacy is not None for row in rows):
        parts.append(f"ε: differential privacy, the largest over the seeds; {MISSING} and ∞: no guarantee.")
    exception = ", unless a note says otherwise" if said else ""
    parts.append(f"kB: thousands of bytes per client and round, uncompressed{exception}.")
    parts += [f"{', '.join(algorithms)}: {'; '.join(notes)}." for notes, algorithms in said.items()]
    return " ".join(parts)


def _sample_note(table: Table) -> str:
    """What was drawn for the intervals that include the test sample."""
    units = [units for row in table.rows for units in row.test_units.values()]
    bags = any(of_run.kind == "rankings" for of_run in units)
    last = "" if all(of_run.chosen for of_run in units) else "; of the last round's weights, not of the mean of rounds"
    what = "bags" if bags else "documents (single examples where no document is known)"
    return (
        f"{TEST_SAMPLE}: bootstrap over the seeds, whose part is widened as Student's t is, and the test {what}, the "
        f"same for all rows{last}."
    )


def _room_note(table: Table) -> str:
    """What the column `room` is, and whether the rows that it rests on were tuned as the methods were."""
    pooled = [row for row in table.rows if row.role == "pooled"]
    compared = [row for row in table.rows if row.compared]
    said = (
        "With a published gain also: no room if the best pooled or oracle row gains less on the baseline than was "
        "published; does not show if the interval contains zero or less and stays below the published gain, also "
        "after Holm's adjustment."
    )
    if not pooled:
        return said
    return f"{said} {', '.join(row.algorithm for row in pooled)}: {pooled_tuning(pooled, compared)}."


def pooled_tuning(pooled: Sequence[ComparisonRow], compared: Sequence[ComparisonRow]) -> str:
    """Whether the pooled rows had as many settings tried as the methods, in words."""
    listed = [{_BEYOND.sub("", row.tried) for row in rows} for rows in (pooled, compared)]
    if listed[0] == listed[1]:
        return "tuned like the methods" if pooled[0].tried else "not tuned, like the methods"
    return "not tuned like the methods"


def gain_lines(table: Table) -> list[str]:
    """Whether each published gain shows, a sentence each."""
    lines = []
    for gain, judged in judge_gains(table):
        factor, digits = scale(table.row(gain.method).metrics[gain.metric])
        words = {"best": first_values(table.rows, gain.metric), "final": "final"}
        said = []
        for which, word in words.items():
            contrast, verdict = judged[which]
            low, high = contrast.difference.low, contrast.difference.high
            interval = "" if low is None else f" ({low * factor:+.{digits}f} to {high * factor:+.{digits}f})"
            room = "" if contrast.room is None else f", room {contrast.room * factor:+.{digits}f}"
            text = f"{word} {contrast.difference.mean * factor:+.{digits}f}{interval}{room}"
            said.append(f"{text}: {verdict}" if verdict else text)
        published = f"published {gain.published * factor:+.{digits}f}"
        lines.append(f"{gain.method} − {gain.baseline}, {gain.metric}, {published}; {'; '.join(said)}.")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
