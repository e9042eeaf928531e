"""Tables, curves and sentences of a comparison, from what its runs left."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datasets.files import write_atomically
from tff_re.comparison.costs import megabytes_by_round, steps_by_round
from tff_re.comparison.outcome import Outcome, compare, run_folder
from tff_re.comparison.planning import Part
from tff_re.comparison.record import FORMAT, RECORD
from tff_re.comparison.rows import ComparisonRow, Table
from tff_re.comparison.statistics import t_interval
from tff_re.comparison.suite import Entry, Suite, slug
from tff_re.comparison.sweep import add_to_report
from tff_re.comparison.tables import (
    class_csv,
    class_markdown,
    gain_lines,
    table_note,
    table_parts,
)
from tff_re.comparison.units_file import UNITS, write_units
from tff_re.comparison.values import collect, collect_units, facts_of, read_values, tables_of, write_values
from tff_re.comparison.write_tables import Report, explain, show, stem_of, write_csv
from tff_re.report.curves import curves, over_values
from tff_re.report.precision_recall import GRID, on_grid, precision_recall_png, precision_recall_table
from tff_re.report.similarity import rank_correlations, similarity_figure
from tff_re.runs.folder import permissions, writing


def run_and_report(suite: Suite, out: Path, *, part: Part | None = None, **ways: Any) -> Report:
    """Runs a suite into a folder and writes its report, unless only a part is run.

    `ways` are further arguments of `outcome.compare`.
    """
    with writing(out):
        outcomes = compare(suite, out, part=part, **ways)
        if part is not None:
            return report_of_part(suite, part, outcomes)
        report = write_report(suite, outcomes, out)
        if suite.tuning is not None:
            add_to_report(report, suite.tuning, outcomes, out)
        return report


MOST_CURVES = 20
"""In one picture of a suite with `over`, whose own picture has a line for each method and not for each row."""


@permissions()
def write_report(suite: Suite, outcomes: dict[str, dict[int, Outcome]], out: Path) -> Report:
    """comparison.md, comparison.json for pages, and for each of the suite's tables a CSV table, curves, those of
    precision over recall where the task ranks, and FedCMC's Figure 1 of the first entry that recorded similarities."""
    tables, files, text, table_records, markdown = [], [], [], [], [f"# {suite.title}", ""]
    if suite.text:
        markdown += [suite.text, ""]
    markdown += [f"`{suite.command}`, seeds {', '.join(map(str, suite.seeds))}.", ""]
    files += write_values(out, collect(suite, outcomes), facts_of(suite, outcomes))
    if units := collect_units(suite, outcomes):
        write_units(out / UNITS, units)
        files.append(out / UNITS)
    else:
        (out / UNITS).unlink(missing_ok=True)  # of another choice of rounds
    values, facts = read_values(out)  # nothing in a table comes from elsewhere
    for (group, entries), table in zip(suite.groups().items(), tables_of(values, facts, units), strict=True):
        rows = table.rows
        stem = stem_of(table)
        show(table, tables, markdown, text)
        files.append(write_csv(table, out))
        drawn = curves_of(suite, entries, outcomes)
        table_records.append(_for_pages(suite, table, entries, drawn, outcomes))
        if suite.classes:
            by_class = {entry.title: [o.class_f1 for o in outcomes[entry.name].values()] for entry in entries}
            class_csv(out / f"{stem}-classes.csv", by_class)
            files.append(out / f"{stem}-classes.csv")
            markdown += [class_markdown(by_class)]
        controls = [entry.title for entry in entries if entry.control]
        drawable = not suite.over or len(entries) <= MOST_CURVES
        for metric in suite.metrics:
            for axis, series in drawn.get(metric, {}).items() if drawable else ():
                picture = out / f"{stem}-{metric.replace('/', '-')}{AXES[axis].suffix}.png"
                options = {"xlabel": AXES[axis].label, "controls": controls}
                files += curves(picture, series, metric, group or suite.title, **options)
                markdown += [f"![{metric} over {AXES[axis].words}]({picture.name})", ""]
            if suite.over and (lines := _lines(rows, entries, metric)):
                picture = out / f"{stem}-{metric.replace('/', '-')}-over.png"
                files += over_values(picture, lines, suite.over, f"{metric}, final", group or suite.title)
                markdown += [f"![{metric} over {suite.over}]({picture.name})", ""]
        ranked = {e.title: [o.precision_recall for o in outcomes[e.name].values()] for e in entries}
        if all(points is not None for seeds in ranked.values() for points in seeds):
            picture = out / f"{stem}-precision-recall.png"
            files += precision_recall_png(picture, ranked, group or suite.title)
            files += [precision_recall_table(picture.with_suffix(".csv"), ranked)]
            markdown += [f"![precision over recall]({picture.name})", ""]
        for entry in entries:
            seed, outcome = next(iter(outcomes[entry.name].items()))
            if outcome.similarities:
                picture = out / f"similarity-{slug(entry.name)}.png"
                counts = outcome.counts
                files += similarity_figure(
                    picture, counts.train, counts.clients, counts.label_names, outcome.similarities
                )
                markdown += [_similarity_sentence(entry.name, seed, outcome), ""]
                markdown += [f"![Labels and local average similarities by client]({picture.name})", ""]
                break
    explained = explain(values, facts, markdown, text)
    write_atomically(out / "comparison.md", "\n".join(markdown).encode("utf-8"))
    record = {
        **{"format": FORMAT, "title": suite.title, "text": suite.text, "command": suite.command},
        **{"seeds": list(suite.seeds), "chosen_by": suite.choose_by, "gains": explained, "tables": table_records},
    }
    write_atomically(out / RECORD, json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    return Report(tables, text, [out / "comparison.md", *files, out / RECORD])


def report_of_part(suite: Suite, part: Part, outcomes: dict[str, dict[int, Outcome]]) -> Report:
    """Says how many runs of a part are finished, and how to make the tables of all parts."""
    done, every = sum(map(len, outcomes.values())), len(suite.entries) * len(suite.seeds)
    line = f"part {part}: {done} of {every} runs are finished; when all parts are, run the command with --resume and "
    return Report([], [line + "without --part, which writes the tables"], [])


def _for_pages(
    suite: Suite,
    table: Table,
    entries: list[Entry],
    drawn: dict[str, dict[str, dict[str, Curve]]],
    outcomes: dict[str, dict[int, Outcome]],
) -> dict[str, Any]:
    """A table as `tff_re.pages` shows it: plain values, and where the runs' folders are."""
    ranked, rows = {}, table.rows
    for entry in entries:
        points = [outcome.precision_recall for outcome in outcomes[entry.name].values()]
        if all(points_of_seed is not None for points_of_seed in points):
            on = np.array([on_grid(points_of_seed) for points_of_seed in points])
            steps = zip(GRID, on.mean(0), on.min(0), on.max(0), strict=True)
            ranked[entry.title] = [list(map(float, point)) for point in steps if np.isfinite(point).all()]
    return {
        "group": table.group,
        "rows": [{"name": row.algorithm, "kind": row.kind} for row in rows],
        "runs": {e.title: {str(s): str(run_folder(Path(), e.name, s)) for s in suite.seeds} for e in entries},
        "parts": [
            {"title": title, "columns": [list(column) for column in columns]} for title, columns in table_parts(table)
        ],
        "note": table_note(table),
        "claims": gain_lines(table),
        "curves": {
            metric: {
                AXES[axis].label: {name: list(map(list, points)) for name, points in series.items()}
                for axis, series in by_axis.items()
            }
            for metric, by_axis in drawn.items()
        },
        "percent": sorted({name for row in rows for name, metric in row.metrics.items() if metric.percent}),
        "precision_recall": ranked,
        "over": suite.over,
        "lines": {
            metric: {
                name: [point for point in points if all(map(math.isfinite, point[1:]))]
                for name, points in _lines(rows, entries, metric).items()
            }
            for metric in (suite.metrics if suite.over else ())
        },
    }


def _lines(rows: Sequence[ComparisonRow], entries: list[Entry], metric: str) -> dict[str, list[tuple]]:
    """Line -> (at, mean, low, high) of the entries with a place in the picture: final values, 95 % intervals (t)."""
    lines: dict[str, list[tuple]] = {}
    for row, entry in zip(rows, entries, strict=False):
        if entry.at and metric in row.metrics:
            values = list(row.metrics[metric].final.values())
            low, high = t_interval(values) if len(values) > 1 else (values[0], values[0])
            lines.setdefault(entry.line or entry.title, []).append((entry.at, statistics.fmean(values), low, high))
    return lines


def _similarity_sentence(name: str, seed: int, outcome: Outcome) -> str:
    """Both rank correlations of the recorded rounds, and what FedCMC expects of them."""
    correlations_of = {
        r: rank_correlations(outcome.counts.train, matrix) for r, matrix in sorted(outcome.similarities.items())
    }

    def by_round(direction: str) -> str:
        values = [(r, getattr(correlations, direction)) for r, correlations in correlations_of.items()]
        return " and ".join(f"{'–' if math.isnan(v) else f'{v:+.2f}'} in round {r}" for r, v in values)

    return (
        f"{name}, seed {seed}: the rank correlation (Spearman) of a client's number of samples of a class with the "
        "local average similarity of its classifier's vector of that class is, across the classes of a client (mean "
        f"over clients), {by_round('across_classes')}; across the clients of a class (mean over classes), "
        f"{by_round('across_clients')}. FedCMC expects the former to be below zero in the first rounds (Observation 1) "
        "and the latter in all rounds (Observation 3)."
    )


class _Axis(NamedTuple):
    """What a curve is over: its label, in words, the end of its picture's name, and its value after each round of a
    run, None where the run does not say."""

    label: str
    words: str
    suffix: str
    values: Callable[[Outcome], dict[float, float] | None]


AXES = {
    "rounds": _Axis("round", "the rounds", "", lambda outcome: {row["round"]: row["round"] for row in outcome.history}),
    "bytes": _Axis(
        "MB to and from all clients",
        "the bytes sent",
        "-by-bytes",
        lambda outcome: megabytes_by_round(outcome.history, outcome.bytes_down + outcome.bytes_up),
    ),
    "steps": _Axis(
        "local steps of all clients", "local steps", "-by-steps", lambda outcome: steps_by_round(outcome.history)
    ),
}

Curve = list[tuple[float, float, float, float]]
"""(x, mean, least, greatest) over the seeds."""


def curves_of(
    suite: Suite, entries: list[Entry], outcomes: dict[str, dict[int, Outcome]]
) -> dict[str, dict[str, dict[str, Curve]]]:
    """Metric -> axis -> entry's title -> its curve: all metrics over the rounds, the first one over all axes. What no
    entry of a table measures has no curve; an entry whose runs do not say what they sent or did is over the rounds
    alone."""
    curves_by_metric: dict[str, dict[str, dict[str, Curve]]] = {}
    for metric in suite.metrics:
        for axis in AXES if metric == suite.metrics[0] else ("rounds",):
            series = {e.title: _points(outcomes[e.name], metric, not e.control, axis) for e in entries}
            if any(series.values()):
                curves_by_metric.setdefault(metric, {})[axis] = series
    return curves_by_metric


def _points(outcomes: dict[int, Outcome], metric: str, band: bool, axis: str) -> Curve:
    """(x, mean, lowest, highest) over the seeds, for the evaluated rounds.

    Without a band it is three times the mean. Seeds that came to different x in a round, such as steps, are drawn
    at their mean.
    """
    by_round: dict[float, list[tuple[float, float]]] = {}
    for outcome in outcomes.values():
        x_of = AXES[axis].values(outcome)
        if x_of is None:
            return []
        for row in outcome.history:
            if metric in row:
                by_round.setdefault(row["round"], []).append((x_of[row["round"]], row[metric]))
    points = []
    for _, pairs in sorted(by_round.items()):
        x = statistics.fmean(x for x, _ in pairs)
        finite = [value for _, value in pairs if math.isfinite(value)]
        if finite:
            mean = statistics.fmean(finite)
            points.append((x, mean, min(finite), max(finite)) if band else (x, mean, mean, mean))
    return points
