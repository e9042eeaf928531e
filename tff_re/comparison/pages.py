"""The page of a run or of a comparison, from its folder alone: no data, no TensorFlow, no text of a patient."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.files import write_atomically
from tff_re.comparison.costs import megabytes_by_round, steps_by_round
from tff_re.errors import UserError
from tff_re.report import charts
from tff_re.report.page import Block, Chart, Code, Facts, Heading, Items, Section, Table, Words, page
from tff_re.report.precision_recall import GRID, on_grid, read_precision_recall
from tff_re.report.tables import largest_and_smallest, rounded_up
from tff_re.runs.folder import RunFolder, permissions
from tff_re.runs.record import rows_up_to

RECORD, FORMAT = "comparison.json", 1
"""What a comparison leaves for its page."""

_QUALITIES = ("accuracy", "macro_f1", "micro_f1", "f1", "matthews", "auc", "max_f1", "p_at_mean")
_MOST_ROWS, _MOST_CELLS = 24, 12_000
_NAMES = ("client", "class", "split")
_SPREAD = ("_worst", "_median", "_best")


def write_page(path: Path, out: Path | None = None) -> Path:
    """Writes the page of a finished run's or comparison's folder; `report.html` in it, or `out`.

    Raises:
      UserError: the folder is neither, is not finished, or a file in it is missing or damaged.
      DataError: the page cannot be written.
    """
    if not path.is_dir():
        raise UserError(
            f"{path}: {'is a file; give the folder of a run or a comparison' if path.exists() else 'no such folder'}"
        )
    if (path / RECORD).exists():
        text = comparison_page(path)
    elif (path / "recipe.toml").exists():
        text = run_page(path)
    elif (path / "comparison.md").exists():
        raise UserError(f"{path}: has no {RECORD} (it is of an older version); run its `compare` again with --resume")
    else:
        raise UserError(f"{path}: holds no run (recipe.toml is missing) and no comparison ({RECORD} is missing)")
    out = out or path / "report.html"
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder; give a file, e.g. {out / 'report.html'}")
    with permissions():
        write_atomically(out, text.encode("utf-8"))
    return out


# A run


def run_page(path: Path) -> str:
    """The page of a finished run. Raises UserError as `write_page` does."""
    folder = RunFolder(path)
    if not folder.summary.exists():
        raise UserError(f"{path}: the run is not finished (summary.json is missing); continue it with train --resume")
    summary, history = _summary(folder), _history(folder)
    classes, clients, labels = _csv(folder.classes), _csv(folder.clients), _csv(folder.labels)
    environment = _json(folder.environment) if folder.environment.exists() else {}
    title = f"{summary['recipe']}, seed {summary['seed']}"
    recipe = _text(folder.recipe)
    repeat = ["python -m tff_re.run train", shlex.quote(str(folder.recipe)), "--out runs/again"]
    if folder.partition.exists():
        repeat.insert(2, f"--partition {shlex.quote(str(folder.partition))}")
    sections = [
        Section(
            "run",
            "What was run",
            [
                Facts(
                    {
                        "recipe": str(summary["recipe"]),
                        "algorithm": str(summary["algorithm"]),
                        "seed": str(summary["seed"]),
                        "rounds": f"{len(history)} of {summary['rounds']}",
                        **_shares(labels),
                    }
                ),
                *_notes(summary),
            ],
        ),
        Section("results", "Results", _run_results(summary)),
        Section("curves", "Curves", [*_run_curves(summary, history), *_precision_recall(folder)]),
        Section("partition", "Partition", _partition(labels)),
        Section("classes", "Classes", _run_classes(classes, folder)),
        Section("clients", "Clients", _run_clients(clients)),
        Section("costs", "Bytes and seconds", _run_costs(summary, history, _csv(folder.timings))),
        Section("privacy", "Privacy", _run_privacy(summary.get("privacy") or {})),
        Section("environment", "Environment", [_facts(environment)] if environment else []),
        Section(
            "repeat",
            "Repeat it",
            [
                Code(" ".join(repeat)),
                Words("Real data need --data DIR. The recipe, with all its values:"),
                Code(recipe, folded="recipe.toml"),
            ],
        ),
    ]
    return page(
        title, f"A federated run of {summary['algorithm']}, {len(history)} rounds", sections, _made_by(environment)
    )


def _run_results(summary: Mapping[str, Any]) -> list[Block]:
    final, best = summary["final"], summary["best"]
    chosen, references = summary.get("chosen") or {}, summary.get("references") or {}
    names = [
        name
        for name in final
        if name.partition("/")[0] in ("test", "dev", "train", "local") and not name.endswith((*_SPREAD, "/steps"))
    ]
    of_test = {name.partition("/")[2] for name in final if name.startswith("test/")}
    names.sort(key=lambda name: (not name.startswith("test/"), not name.startswith("dev/")))
    heading = ["metric", "last round", "best round", *references]
    blocks: list[Block] = []
    if chosen:
        blocks.append(Words(f"The run's result is that of round {chosen['round']}, which {chosen['by']} chose on dev."))
        heading.insert(1, f"round {chosen['round']}, chosen by {chosen['by']}")
    rows = []
    for name in names:
        values = [final.get(name), best.get(name), *(own.get(name) for own in references.values())]
        if chosen:
            metric = name.removeprefix("test/")
            values.insert(0, chosen.get(metric) if metric in of_test and name.startswith("test/") else None)
        rows.append([name, *(_number(name, value) for value in values)])
    caption = "Best round: the highest (a loss: the lowest) over the rounds, chosen on what it measures."
    spread = [name for name in final if name.startswith("test/") and name.endswith(_SPREAD)]
    if spread:
        caption += " Over the clients: " + ", ".join(
            f"{n.removeprefix('test/')} {_number(n, final[n])}" for n in spread
        )
        caption += "."
    return [*blocks, Table(heading, rows, caption=caption)] if rows else blocks


def _run_curves(summary: Mapping[str, Any], history: Sequence[dict[str, float]]) -> list[Block]:
    names = list(dict.fromkeys(name for row in history for name in row if name != "round"))

    def over_rounds(name: str) -> list[tuple[float, ...]]:
        return [(row["round"], *[row[name]] * 3) for row in history if math.isfinite(row.get(name, math.nan))]

    def chart(title: str, shown: Iterable[str], ylabel: str, percent: bool = False) -> list[Block]:
        series = {name: points for name in shown if (points := over_rounds(name))}
        return [Chart(charts.lines(series, "round", ylabel, percent=percent), title)] if series else []

    of_splits = [name for name in names if name.startswith(("test/", "dev/", "train/"))]
    blocks = chart("Loss", [name for name in names if name.endswith("/loss")], "loss")
    main = None
    for quality in _QUALITIES:
        own = [name for name in of_splits if name.partition("/")[2] == quality]
        blocks += chart(quality, own, quality, _is_share(quality))
        main = main or next((name for name in own if name.startswith("test/")), None)
    each = summary["bytes_down_per_client_and_round"] + summary["bytes_up_per_client_and_round"]
    for label, places in (
        ("MB to and from all clients", megabytes_by_round(history, each)),
        ("local steps of all clients", steps_by_round(history)),
    ):
        if main is not None and places is not None:
            points = [(places[number], *values) for number, *values in over_rounds(main)]
            made = charts.lines({main: points}, label, main, percent=_is_share(main))
            blocks.append(Chart(made, f"{main} over the {'bytes sent' if 'MB' in label else 'local steps'}"))
    spread = [name for name in of_splits if name.endswith(_SPREAD)]
    blocks += chart("Over the clients", [name for name in spread if name.startswith("test/")], "share", True)
    shown = ("attention/", "selection/", "privacy/", "distributor/", "finalizer/")
    for name in (name for name in names if name.startswith(shown)):
        if len({row[name] for row in history if name in row}) > 1:
            blocks += chart(name, [name], name)
    return blocks


def _precision_recall(folder: RunFolder) -> list[Block]:
    points = read_precision_recall(folder.precision_recall)
    if points is None:
        return []
    on = zip(GRID, on_grid(points), strict=True)
    curve = [(recall, *[precision] * 3) for recall, precision in on if math.isfinite(precision)]
    return [Chart(charts.lines({"test": curve}, "recall", "precision", percent=True), "Precision over recall")]


def _partition(labels: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not labels:
        return [
            Words("The run's folder does not hold the labels of its clients (labels.csv): it is of an older version.")
        ]
    names = [name for name in labels[0] if name not in ("client", "split")]
    counts = {
        split: {row["client"]: [int(row[name]) for name in names] for row in labels if row["split"] == split}
        for split in ("train", "test")
    }
    sizes = [sum(own) for own in counts["train"].values()]
    facts = {
        "clients": f"{len(sizes):,}",
        "training samples": f"{sum(sizes):,}",
        "test samples at clients": f"{sum(map(sum, counts['test'].values())):,}",
        "of a client, training": f"{min(sizes):,} to {max(sizes):,}, median {statistics.median(sizes):,.0f}",
    }
    clients = list(counts["train"])
    blocks: list[Block] = [Facts(facts)]
    if len(clients) * len(names) > _MOST_CELLS:
        kept = sorted(largest_and_smallest(sizes, _MOST_CELLS // len(names)))
        blocks.append(Words(f"Shown are the largest and the smallest {len(kept):,} clients."))
        clients = [clients[number] for number in kept]
    matrix = [[counts["train"][client][number] for client in clients] for number in range(len(names))]
    ways = {"row_title": "class", "column_title": "client", "value": "samples", "logarithmic": True}
    return [
        *blocks,
        Chart(charts.cells(matrix, names, clients, **ways), "Training samples of each class at each client"),
    ]


def _run_classes(classes: Sequence[Mapping[str, Any]], folder: RunFolder) -> list[Block]:
    if not classes:
        return []
    names = [row["class"] for row in classes]
    measures = ("precision", "recall", "f1")
    series = {key: [row[key] for row in classes] for key in measures}
    rows = [[row["class"], *(_percent(row[key]) for key in measures), f"{row['examples']:,.0f}"] for row in classes]
    blocks: list[Block] = [
        Chart(charts.bars(names, series, "share", percent=True), "Precision, recall and F1 at the end, test examples"),
        Table(["class", *measures, "examples"], rows),
    ]
    confusion = _csv(folder.confusion)
    if confusion:
        predicted = [name for name in confusion[0] if name != "class"]
        matrix = [[row[name] for name in predicted] for row in confusion]
        ways = {"row_title": "true class", "column_title": "predicted", "value": "examples", "by_row": True}
        blocks.append(Chart(charts.cells(matrix, [r["class"] for r in confusion], predicted, **ways), "Confusion"))
    return blocks


def _run_clients(clients: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not clients:
        return []
    names = [row["client"] for row in clients]
    made = charts.dots(names, {"accuracy": [row["accuracy"] for row in clients]}, "client", "accuracy")
    ordered = sorted(clients, key=lambda row: row["accuracy"])
    shown, caption = ordered, ""
    if len(ordered) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        shown = [*ordered[:half], *ordered[-half:]]
        caption = f"The {half} lowest and the {half} highest of {len(ordered):,} clients."
    rows = [
        [row["client"], f"{row['examples']:,.0f}", _percent(row["accuracy"]), f"{row['loss']:.4f}"] for row in shown
    ]
    title = "Accuracy of the final model on each client's own test examples"
    return [Chart(made, title), Table(["client", "examples", "accuracy", "loss"], rows, caption=caption)]


def _run_costs(
    summary: Mapping[str, Any], history: Sequence[dict[str, float]], timings: Sequence[Mapping[str, Any]]
) -> list[Block]:
    down, up = (summary[f"bytes_{way}_per_client_and_round"] for way in ("down", "up"))
    facts = {"down, per client and round": _bytes(down), "up, per client and round": _bytes(up)}
    if (sent := megabytes_by_round(history, down + up)) is not None:
        facts["all clients, all rounds"] = _bytes(max(sent.values()) * 1e6)
    if (steps := steps_by_round(history)) is not None:
        facts["local steps, all clients"] = f"{max(steps.values()):,.0f}"
    for name in ("training", "evaluation"):
        seconds = [value for row in timings if math.isfinite(value := row.get(f"seconds/{name}", math.nan))]
        if seconds:
            facts[f"seconds of {name}"] = (
                f"{statistics.median(seconds):.2f} a round (median), {sum(seconds):,.1f} in all"
            )
    return [Facts(facts), Words("Bytes are those that the algorithm sends, not those of the simulation's messages.")]


def _run_privacy(privacy: Mapping[str, Any]) -> list[Block]:
    if not privacy:
        return [Words("Trained without differential privacy: nothing is guaranteed.")]
    blocks: list[Block] = [Words(str(privacy.get("statement", "")))]
    shown = ("noise_multiplier", "clip", "mechanism", "sampling", "accountant", "neighbours", "noise")
    epsilon = privacy.get("epsilon")
    facts = {
        "ε": rounded_up(math.inf if epsilon is None else float(epsilon)),
        "δ": f"{privacy.get('delta')}",
        "unit": str(privacy.get("unit")),
        **{name.replace("_", " "): str(privacy[name]) for name in shown if privacy.get(name) is not None},
    }
    blocks.append(Facts(facts))
    if privacy.get("stopped"):
        blocks.append(Words(str(privacy["stopped"])))
    for name in ("covered", "not_covered"):
        if privacy.get(name):
            blocks += [Heading(name.replace("_", " ").capitalize()), Items([str(line) for line in privacy[name]])]
    return blocks


# A comparison


def comparison_page(path: Path) -> str:
    """The page of a comparison. Raises UserError as `write_page` does."""
    record = _json(path / RECORD)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UserError(f"{path / RECORD}: is of another version; run its `compare` again with --resume")
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
    found = _json(environment) if environment.exists() else {}
    plan = [
        Facts(
            {
                "rows trained": f"{methods}, in {len(tables)} table{'s' if len(tables) > 1 else ''}",
                "seeds": ", ".join(map(str, seeds)),
                "values": f"of the round with the best {record['chosen_by']}, and of the last tenth of the rounds"
                if record["chosen_by"]
                else "the best over the rounds, and of the last tenth of them",
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
        Section("environment", "Environment", [_facts(found)] if found else []),
        Section("repeat", "Repeat it", [Code(str(record["command"]))]),
    ]
    subtitle = (
        f"{methods} rows over {len(seeds)} seed{'s' if len(seeds) > 1 else ''}, on the same partitions and batches"
    )
    return page(str(record["title"]), subtitle, sections, _made_by(found))


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
    for metric, by_axis in table["curves"].items():
        for xlabel, series in by_axis.items():
            made = charts.lines(series, xlabel, metric, controls=controls, percent=metric in table["percent"])
            over = "the rounds" if xlabel == "round" else xlabel
            blocks.append(Chart(made, f"{metric} over {over} (mean over the seeds, least to greatest shaded)"))
    for metric, series in table["lines"].items():
        blocks += _over(metric, series, table["over"], metric in table["percent"])
    if table["precision_recall"]:
        made = charts.lines(table["precision_recall"], "recall", "precision", percent=True)
        blocks.append(Chart(made, "Precision over recall"))
    folders = {name: [path / run for run in runs.values()] for name, runs in table["runs"].items()}
    if not all(run.is_dir() for runs in folders.values() for run in runs):
        return [*blocks, Words("The folders of the runs are not there: no partition, classes and clients.")]
    blocks += _compared_classes(folders) + _compared_clients(folders)
    name, runs = next(iter(folders.items()))
    return [*blocks, Heading(f"Partition ({name}, first seed)"), *_partition(_csv(runs[0] / "labels.csv"))]


def _over(metric: str, series: Mapping[str, Sequence[Sequence[Any]]], over: str, percent: bool) -> list[Block]:
    """A metric's final values over a setting, whose values stand at equal distances."""
    values = list(dict.fromkeys(at for points in series.values() for at, *_ in points))
    if not values:
        return []
    placed = {name: [(values.index(at) + 1, *numbers) for at, *numbers in points] for name, points in series.items()}
    told = ", ".join(f"{number}: {value}" for number, value in enumerate(values, 1))
    made = charts.lines(placed, f"{over} ({told})", metric, percent=percent, band="95 % interval")
    return [Chart(made, f"{metric}, final, over {over}; shaded: 95 % interval over the seeds")]


def _compared_classes(folders: Mapping[str, Sequence[Path]]) -> list[Block]:
    found = {name: _mean_over(runs, "classes.csv", "class", "f1") for name, runs in folders.items()}
    found = {name: values for name, values in found.items() if values}
    if not found:
        return []
    labels = list(dict.fromkeys(label for values in found.values() for label in values))
    matrix = [[values.get(label, math.nan) for label in labels] for values in found.values()]
    ways = {"row_title": "row", "column_title": "class", "value": "F1", "percent": True}
    rows = [
        [label, *(_percent(values[label]) if label in values else "–" for values in found.values())] for label in labels
    ]
    return [
        Heading("Classes: F1 at the end, mean over the seeds"),
        Chart(charts.cells(matrix, list(found), labels, **ways), "F1 by class"),
        Table(["class", *found], rows),
    ]


def _compared_clients(folders: Mapping[str, Sequence[Path]]) -> list[Block]:
    found = {name: _mean_over(runs, "clients.csv", "client", "accuracy") for name, runs in folders.items()}
    found = {name: values for name, values in found.items() if values}
    if not found:
        return []
    clients = list(dict.fromkeys(client for values in found.values() for client in values))
    series = {name: [values.get(client, math.nan) for client in clients] for name, values in found.items()}
    rows = [
        [
            name,
            *(_percent(pick(values.values())) for pick in (min, statistics.median, max)),
            f"{sum(value < 0.5 for value in values.values())} of {len(values)}",
        ]
        for name, values in found.items()
    ]
    return [
        Heading("Clients: accuracy on their own test examples, mean over the seeds"),
        Chart(charts.dots(clients, series, "client", "accuracy"), "Accuracy by client"),
        Table(["row", "worst client", "median", "best", "below 50 %"], rows),
    ]


def _mean_over(runs: Sequence[Path], file: str, key: str, value: str) -> dict[str, float]:
    """What a CSV file of each run says of a class or client -> the mean over the runs that say it."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in _csv(run / file):
            if math.isfinite(number := row[value]):
                found.setdefault(row[key], []).append(number)
    return {name: statistics.fmean(values) for name, values in found.items()}


# Files and numbers


def _summary(folder: RunFolder) -> dict[str, Any]:
    summary = _json(folder.summary)
    needed = {
        *("recipe", "algorithm", "seed", "rounds", "final", "best"),
        *("bytes_down_per_client_and_round", "bytes_up_per_client_and_round"),
    }
    if not isinstance(summary, dict) or needed - set(summary):
        raise UserError(f"{folder.summary}: is damaged; remove it, then continue with --resume")
    return summary


def _history(folder: RunFolder) -> list[dict[str, float]]:
    rows = rows_up_to(_text(folder.metrics), "metrics", math.inf)
    if not rows:
        raise UserError(f"{folder.metrics}: is damaged or empty; train with --resume restores it from the checkpoint")
    return [{name: float(value) for name, value in row.items()} for row in rows]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; put it back, or continue the run with --resume") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is damaged (not UTF-8); put it back, or continue the run with --resume") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError:
        raise UserError(f"{path}: is damaged (no JSON); put it back, or continue with --resume") from None


def _csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, with names as text and all else as numbers; empty where there is none."""
    if not path.exists():
        return []
    try:
        heading, *rows = list(csv.reader(io.StringIO(_text(path), newline=""), strict=True)) or [[]]
        return [
            {name: cell if name in _NAMES else float(cell or "nan") for name, cell in zip(heading, row, strict=True)}
            for row in rows
        ]
    except (ValueError, csv.Error):
        raise UserError(f"{path}: is damaged; put it back, or continue the run with --resume") from None


def _facts(values: Mapping[str, Any]) -> Facts:
    return Facts({str(name): str(value) for name, value in values.items()})


def _notes(summary: Mapping[str, Any]) -> list[Block]:
    notes = [str(note) for note in summary.get("notes") or ()]
    return [Heading("Notes"), Items(notes)] if notes else []


def _shares(labels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {"clients": f"{len(labels) // 2:,}"} if labels else {}


def _made_by(environment: Mapping[str, Any]) -> str:
    version = environment.get("tff-re")
    return f"Made by tff-re{f' {version}' if version else ''}. This file needs no network and sends nothing."


def _is_share(metric: str) -> bool:
    return not metric.endswith(("loss", "threshold", "matthews", "/steps", "/counted", "/non_finite"))


def _number(metric: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return _percent(value) if _is_share(metric) else f"{value:.4f}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if math.isfinite(value) else "–"


def _bytes(count: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"
