"""The page of a comparison: tables, curves, verdicts, and what its runs left."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_re.comparison.record import RECORD, read_record
from tff_re.comparison.verdicts import VERDICTS
from tff_re.errors import UserError
from tff_re.pages import charts
from tff_re.pages.page import Block, Chart, Code, Facts, Heading, Items, Section, Table, Words, page
from tff_re.pages.run_page import environment_facts, made_by, partition_blocks, percent_text
from tff_re.runs.reading import read_json, read_table, read_text

_MOST_HEADLINES = 3


def comparison_page(path: Path) -> str:
    """The page of a comparison. Raises UserError for a damaged record."""
    record = read_record(path)
    try:
        return _comparison_page(path, record)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path / RECORD}: is damaged; run its `compare` again with --resume") from None


def _comparison_page(path: Path, record: Mapping[str, Any]) -> str:
    tables, seeds = record["tables"], record["seeds"]
    methods = sum(len(table["runs"]) for table in tables)
    first = next(iter(tables[0]["runs"].values()))[str(seeds[0])]
    environment = path / first / "environment.json"
    environment_table = read_json(environment) if environment.exists() else {}
    plan = [
        Facts(
            {
                "rows trained": f"{methods}, in {len(tables)} table{'s' if len(tables) > 1 else ''}",
                "seeds": ", ".join(map(str, seeds)),
                "values": f"in the round with the best {record['chosen_by']}, and over the last tenth of the rounds"
                if record["chosen_by"]
                else "the best round, and the last tenth of the rounds",
            }
        )
    ]
    paragraphs = [Words(text) for text in str(record["text"]).split("\n\n") if text.strip()]
    sections = [Section("run", "What was run", [*paragraphs, *plan])]
    for number, table in enumerate(tables):
        name = table["group"] or "Results"
        sections.append(Section(f"table-{number}", name, _compared(path, table)))
    if record["gains"]:
        sections.append(
            Section("gains", "What a gain is made of", [Items([str(sentence) for sentence in record["gains"]])])
        )
    sections += [
        Section("environment", "Environment", [environment_facts(environment_table)] if environment_table else []),
        Section("repeat", "Repeat it", [Code(str(record["command"]))]),
    ]
    over = f"{methods} rows over {len(seeds)} seed{'s' if len(seeds) > 1 else ''}, on the same partitions and batches."
    headline = " ".join([*filter(None, map(_headline, tables[:_MOST_HEADLINES])), over])
    return page(str(record["title"]), headline, sections, made_by(environment_table))


def _headline(table: Mapping[str, Any]) -> str | None:
    """One sentence with the verdicts on the first metric of a table, or None for a table without verdicts."""
    compared = (part for part in table["parts"] if any(name == "verdict" for name, _ in part["columns"]))
    part = next(compared, None)
    if part is None:
        return None
    metric, _, baseline = part["title"].partition(" − ")
    names_of: dict[str, list[str]] = {}
    for row, verdict in zip(table["rows"], dict(part["columns"])["verdict"], strict=True):
        if not row["kind"] and verdict in VERDICTS:
            names_of.setdefault(verdict, []).append(row["name"])
    said = "; ".join(f"{verdict}: {', '.join(names_of[verdict])}" for verdict in VERDICTS if verdict in names_of)
    group = f"{table['group']}, " if table["group"] else ""
    return f"{group}{metric} against {baseline}: {said}." if said else None


def _compared(path: Path, table: Mapping[str, Any]) -> list[Block]:
    rows, muted = table["rows"], frozenset(n for n, row in enumerate(table["rows"]) if row["kind"])
    names = [f"{row['name']} ({row['kind']})" if row["kind"] else row["name"] for row in rows]
    controls = {row["name"] for row in rows if row["kind"]}
    blocks: list[Block] = []
    for part in table["parts"]:
        title, columns = part["title"], part["columns"]
        # The title says the metric; the columns need not repeat it.
        heading = [name.removeprefix(f"{title} ") for name, _ in columns]
        if len(columns) > 1 and columns[0][0] == title:
            heading[0] = "difference"
            columns = [columns[-1], *columns[:-1]]  # the verdict first: a phone does not show the last column
            heading = [heading[-1], *heading[:-1]]
        cells = zip(names, *(cells for _, cells in columns), strict=True)
        blocks += [Heading(title), Table(["row", *heading], [list(row) for row in cells], muted)]
    blocks.append(Words(table["note"]))
    if table["claims"]:
        blocks += [Heading("Published gains"), Items(table["claims"])]
    blocks += [
        Heading("Curves"),
        Words("Mean over the seeds; shading runs from lowest to highest; dashed lines are controls."),
    ]
    for metric, by_axis in table["curves"].items():
        for xlabel, series in by_axis.items():
            made = charts.lines(series, xlabel, metric, controls=controls, percent=metric in table["percent"])
            over = "the rounds" if xlabel == "round" else xlabel
            blocks.append(Chart(made, f"{metric} over {over}"))
    for metric, series in table["lines"].items():
        blocks += _over(metric, series, table["over"], metric in table["percent"])
    if table["precision_recall"]:
        made = charts.lines(table["precision_recall"], "recall", "precision", percent=True)
        blocks.append(Chart(made, "Precision-recall curve"))
    folders = {name: [path / run for run in runs.values()] for name, runs in table["runs"].items()}
    if not all(run.is_dir() for runs in folders.values() for run in runs):
        return [*blocks, Words("The run folders are missing, so partition, classes and clients are not shown.")]
    blocks += _compared_classes(folders) + _compared_clients(folders)
    name, runs = next(iter(folders.items()))
    recipes = [
        Code(read_text(paths[0] / "recipe.toml"), folded=f"recipe of {title}") for title, paths in folders.items()
    ]
    return [
        *blocks,
        *(Heading("Settings (first seed)"), *recipes),
        Heading(f"Partition ({name}, first seed)"),
        *partition_blocks(read_table(runs[0] / "labels.csv", "client", "split")),
    ]


def _over(metric: str, series: Mapping[str, Sequence[Sequence[Any]]], over: str, percent: bool) -> list[Block]:
    """A metric's final values over a setting, whose values stand at equal distances."""
    values = list(dict.fromkeys(at for points in series.values() for at, *_ in points))
    if not values:
        return []
    placed = {name: [(values.index(at) + 1, *numbers) for at, *numbers in points] for name, points in series.items()}
    legend = ", ".join(f"{number}: {value}" for number, value in enumerate(values, 1))
    made = charts.lines(placed, f"{over} ({legend})", metric, percent=percent, band="95 % interval")
    return [Chart(made, f"{metric}, final, over {over}; shaded: 95 % interval over the seeds")]


def _compared_classes(folders: Mapping[str, Sequence[Path]]) -> list[Block]:
    f1_of, labels = _means(folders, "classes.csv", "class", "f1")
    if not f1_of:
        return []
    matrix = [[values.get(label, math.nan) for label in labels] for values in f1_of.values()]
    ways = {"row_title": "row", "column_title": "class", "value": "F1", "percent": True}
    rows = [
        [label, *(percent_text(values[label]) if label in values else "–" for values in f1_of.values())]
        for label in labels
    ]
    return [
        Heading("Classes: F1 at the end, mean over the seeds"),
        Chart(charts.cells(matrix, list(f1_of), labels, **ways), "F1 by class"),
        Table(["class", *f1_of], rows),
    ]


def _compared_clients(folders: Mapping[str, Sequence[Path]]) -> list[Block]:
    measure = "accuracy"
    value_of, clients = _means(folders, "clients.csv", "client", "accuracy")
    if not value_of:
        measure = "F1"
        value_of, clients = _means(folders, "clients.csv", "client", "f1")
    if not value_of:
        return []
    series = {name: [values.get(client, math.nan) for client in clients] for name, values in value_of.items()}
    rows = [
        [
            name,
            *(percent_text(pick(values.values())) for pick in (min, statistics.median, max)),
            f"{sum(value < 0.5 for value in values.values())} of {len(values)}",
        ]
        for name, values in value_of.items()
    ]
    return [
        Heading(f"Clients: {measure} on their own test examples, mean over the seeds"),
        Chart(charts.dots(clients, series, "client", measure), f"{measure[0].upper()}{measure[1:]} by client"),
        Table(["row", "worst client", "median", "best", "below 50 %"], rows),
    ]


def _means(
    folders: Mapping[str, Sequence[Path]], file: str, key: str, value: str
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """(row -> class or client -> mean over the seeds, all classes or clients in order).

    Rows without any value are left out.
    """
    means = {name: _mean_over(runs, file, key, value) for name, runs in folders.items()}
    means = {name: values for name, values in means.items() if values}
    return means, list(dict.fromkeys(label for values in means.values() for label in values))


def _mean_over(runs: Sequence[Path], file: str, key: str, value: str) -> dict[str, float]:
    """What a CSV file of each run says of a class or client -> the mean over the runs that say it."""
    values_of: dict[str, list[float]] = {}
    for run in runs:
        for row in read_table(run / file, key):
            if math.isfinite(number := row.get(value, math.nan)):
                values_of.setdefault(row[key], []).append(number)
    return {name: statistics.fmean(values) for name, values in values_of.items()}
