"""The page of a finished run, from its folder alone."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from computations.privacy.options import rounded_up
from tff_re.comparison.costs import megabytes_by_round, steps_by_round
from tff_re.errors import UserError
from tff_re.pages import charts
from tff_re.pages.page import Block, Chart, Code, Facts, Heading, Items, Section, Table, Words, page
from tff_re.pages.run_facts import facts_of, needs_data_folder
from tff_re.report import headline
from tff_re.report.drawing import colours_of
from tff_re.report.partition_table import largest_and_smallest
from tff_re.report.precision_recall import GRID, on_grid
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import (
    clients_at_sites,
    read_history,
    read_json,
    read_precision_recall,
    read_summary,
    read_table,
    read_text,
)
from tff_re.runs.site_comparisons import site_comparisons

_QUALITIES = ("accuracy", "macro_f1", "micro_f1", "f1", "matthews", "auc", "max_f1", "p_at_mean")
_MOST_ROWS, _MOST_CELLS = 24, 12_000
_SPREAD = ("_worst", "_median", "_best")


def run_page(path: Path) -> str:
    """The page of a finished run. Raises UserError for one that is not finished or damaged."""
    folder = RunFolder(path)
    if not folder.summary.exists():
        raise UserError(f"{path}: the run is not finished (summary.json is missing); continue it with train --resume")
    summary, history = read_summary(folder), read_history(folder)
    if not history:
        raise UserError(f"{folder.metrics}: is missing or empty; train with --resume restores it from the checkpoint")
    classes, clients, labels = (
        read_table(folder.classes, "class", "precision", "recall", "f1", "examples"),
        read_table(folder.clients, "client", "examples", "loss"),
        read_table(folder.labels, "client", "split"),
    )
    environment = read_json(folder.environment) if folder.environment.exists() else {}
    timings = read_table(folder.timings)
    title = f"{summary['recipe']}, seed {summary['seed']}"
    recipe = read_text(folder.recipe)
    sites = sites_of(folder)
    sections = [
        Section(
            "run",
            "What was run",
            [
                Facts(
                    {
                        **facts_of(folder, summary, len(history), len(labels) // 2, timings),
                        **(summary.get("data") or {}),
                        **({"sites": "; ".join(sites.values())} if sites else {}),
                    }
                ),
                *_notes(summary),
            ],
        ),
        Section("results", "Results", _run_results(summary)),
        Section("curves", "Curves", [*curve_blocks(history, _bytes_of_client(summary)), *_precision_recall(folder)]),
        Section("partition", "Partition", partition_blocks(labels)),
        Section("classes", "Classes", _run_classes(classes, folder)),
        Section("sites", "Was it worth it at the sites?", comparison_blocks(summary)),
        Section("clients", "Clients", _run_clients(clients, summary.get("personalised") or {})),
        Section("costs", "Bytes and seconds", _run_costs(summary, history, timings)),
        Section("privacy", "Privacy", _run_privacy(summary.get("privacy") or {})),
        Section("environment", "Environment", [environment_facts(environment)] if environment else []),
        Section("repeat", "Repeat it", [*_repeat(folder, list(sites)), Code(recipe, folded="recipe.toml")]),
    ]
    result = " ".join(filter(None, (headline.of_run(summary), headline.no_better(summary))))
    return page(title, result, sections, made_by(environment))


def sites_of(folder: RunFolder) -> dict[str, str]:
    """Site -> what the run recorded for it across sites, by site number.

    Empty for a simulation.
    """
    if not folder.sites.exists():
        return {}
    clients = clients_at_sites(folder)
    rounds = [str(row["sites"]).split() for row in read_table(folder.took_part, "round", "sites")]
    descriptions = {}
    for site in dict.fromkeys(name for name, _ in clients):
        sizes = [examples for name, examples in clients if name == site]
        count = "1 client" if len(sizes) == 1 else f"{len(sizes)} clients"
        examples, took_part = sum(sizes), sum(site in sites for sites in rounds)
        descriptions[site] = f"{site} ({count}, {examples} training examples, in {took_part} of {len(rounds)} rounds)"
    return descriptions


def _repeat(folder: RunFolder, sites: Sequence[str]) -> list[Block]:
    """The command that makes the run again."""
    parts = ["python -m tff_re.run train", shlex.quote(str(folder.recipe)), "--out runs/again"]
    if sites:
        parts.insert(2, f"--runtime flower:SOCKET --sites {','.join(sites)}")
        note = "SOCKET is the relay's (docs/sites.md). The sites hold the data. The recipe, with all its values:"
        return [Code(" ".join(parts)), Words(note)]
    if folder.partition.exists():
        parts.insert(2, f"--partition {shlex.quote(str(folder.partition))}")
    note = "Its data are not shipped with the project: add --data DIR. " if needs_data_folder(folder) else ""
    return [Code(" ".join(parts)), Words(f"{note}The recipe, with all its values:")]


def _run_results(summary: Mapping[str, Any]) -> list[Block]:
    final, best = summary["final"], summary["best"]
    chosen, references = summary.get("chosen") or {}, summary.get("references") or {}
    names = [
        name
        for name in final
        if name.partition("/")[0] in ("test", "dev", "train", "local") and not name.endswith((*_SPREAD, "/steps"))
    ]
    names.sort(key=lambda name: (not name.startswith("test/"), not name.startswith("dev/")))
    heading = ["metric", "last round", "best round", *references]
    blocks: list[Block] = []
    if (sites := (summary.get("sites") or {}).get("test")) and sites["answered"] < sites["of"]:
        blocks.append(Words(f"The test covers {sites['answered']} of {sites['of']} sites; the others did not answer."))
    if chosen:
        blocks.append(Words(f"The result is from round {chosen['round']}, selected on dev by {chosen['by']}."))
        heading.insert(1, f"round {chosen['round']}, chosen by {chosen['by']}")
    rows = []
    for name in names:
        values = [final.get(name), best.get(name), *(reference.get(name) for reference in references.values())]
        if chosen:
            values.insert(0, chosen.get(name))
        rows.append([name, *(_number(name, value) for value in values)])
    caption = (
        "Best round: the highest value over the rounds (for a loss the lowest), selected on the same examples "
        "that it measures."
    )
    spread = [name for name in final if name.startswith("test/") and name.endswith(_SPREAD)]
    if spread:
        caption += " Over the clients: " + ", ".join(
            f"{n.removeprefix('test/')} {_number(n, final[n])}" for n in spread
        )
        caption += "."
    return [*blocks, Table(heading, rows, caption=caption)] if rows else blocks


def _bytes_of_client(summary: Mapping[str, Any]) -> float:
    return summary["bytes_down_per_client_and_round"] + summary["bytes_up_per_client_and_round"]


def curve_blocks(history: Sequence[dict[str, float]], each: float | None) -> list[Block]:
    """Charts of a run's metrics.

    `each`: bytes of a client in a round, down and up; None: not known.
    """
    names = list(dict.fromkeys(name for row in history for name in row if name != "round"))

    def over_rounds(name: str) -> list[tuple[float, ...]]:
        return [(row["round"], *[row[name]] * 3) for row in history if math.isfinite(row.get(name, math.nan))]

    def chart(title: str, metrics: Iterable[str], ylabel: str, percent: bool = False) -> list[Block]:
        series = {name: points for name in metrics if (points := over_rounds(name))}
        ways = {"percent": percent, "colours": colours_of(list(series))}
        return [Chart(charts.lines(series, "round", ylabel, **ways), title)] if series else []

    of_splits = [name for name in names if name.startswith(("test/", "dev/", "train/"))]
    blocks = chart("Loss", [name for name in names if name.endswith("/loss")], "loss")
    main = None
    for quality in _QUALITIES:
        metrics = [name for name in of_splits if name.partition("/")[2] == quality]
        blocks += chart(quality, metrics, quality, _is_share(quality))
        main = main or next((name for name in metrics if name.startswith("test/")), None)
    for label, places in (
        ("MB to and from all clients", None if each is None else megabytes_by_round(history, each)),
        ("local steps over all clients", steps_by_round(history)),
    ):
        if main is not None and places is not None:
            points = [(places[number], *values) for number, *values in over_rounds(main)]
            ways = {"percent": _is_share(main), "colours": colours_of([main])}
            made = charts.lines({main: points}, label, main, **ways)
            blocks.append(Chart(made, f"{main} over the {'bytes sent' if 'MB' in label else 'local steps'}"))
    spread = [name for name in of_splits if name.endswith(_SPREAD)]
    blocks += chart("Over the clients", [name for name in spread if name.startswith("test/")], "share", True)
    prefixes = ("attention/", "selection/", "privacy/", "distributor/", "finalizer/")
    for name in (name for name in names if name.startswith(prefixes)):
        if len({row[name] for row in history if name in row}) > 1:
            blocks += chart(name, [name], name)
    return blocks


def _precision_recall(folder: RunFolder) -> list[Block]:
    points = read_precision_recall(folder.precision_recall)
    if points is None:
        return []
    on = zip(GRID, on_grid(points), strict=True)
    curve = [(recall, *[precision] * 3) for recall, precision in on if math.isfinite(precision)]
    ways = {"percent": True, "colours": colours_of(["test"])}
    return [Chart(charts.lines({"test": curve}, "recall", "precision", **ways), "Precision-recall curve")]


def partition_blocks(labels: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Sizes, and the samples of each class at each client, from the rows of labels.csv."""
    if not labels:
        return [Words("The labels of its clients are unknown here (there is no labels.csv).")]
    names = [name for name in labels[0] if name not in ("client", "split")]
    counts = {
        split: {row["client"]: [row[name] for name in names] for row in labels if row["split"] == split}
        for split in ("train", "test")
    }
    sizes = [sum(counts_of_client) for counts_of_client in counts["train"].values()] or [0]
    facts = {
        "clients": f"{len(sizes):,}",
        "training samples": f"{sum(sizes):,.0f}",
        "test samples at clients": f"{sum(map(sum, counts['test'].values())):,.0f}",
        "of a client, training": f"{min(sizes):,.0f} to {max(sizes):,.0f}, median {statistics.median(sizes):,.0f}",
    }
    clients = list(counts["train"])
    blocks: list[Block] = [Facts(facts)]
    if len(clients) * len(names) > _MOST_CELLS:
        chosen = sorted(largest_and_smallest(sizes, _MOST_CELLS // len(names)))
        blocks.append(Words(f"Shows the largest and the smallest clients, {len(chosen):,} in all."))
        clients = [clients[number] for number in chosen]
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
    rows = [[row["class"], *(percent_text(row[key]) for key in measures), f"{row['examples']:,.0f}"] for row in classes]
    blocks: list[Block] = [
        Chart(charts.bars(names, series, "share", percent=True), "Final precision, recall and F1 on test examples"),
        Table(["class", *measures, "examples"], rows),
    ]
    confusion = read_table(folder.confusion, "class")
    if confusion:
        predicted = [name for name in confusion[0] if name != "class"]
        matrix = [[row[name] for name in predicted] for row in confusion]
        ways = {"row_title": "true class", "column_title": "predicted", "value": "examples", "by_row": True}
        blocks.append(Chart(charts.cells(matrix, [r["class"] for r in confusion], predicted, **ways), "Confusion"))
    return blocks


_OF_CLIENTS = {"": None, "_personal": "after fine-tuning", "_all": "on all clients' examples"}
"""Columns of clients.csv, after the name of the measure -> what the page calls them; None: as the measure."""


def _run_clients(clients: Sequence[Mapping[str, Any]], personalised: Mapping[str, Any]) -> list[Block]:
    if not clients:
        return []
    names = [row["client"] for row in clients]
    quality, measure = ("accuracy", "accuracy") if "accuracy" in clients[0] else ("f1", "F1")
    columns = {f"{quality}{end}": title or measure for end, title in _OF_CLIENTS.items() if quality + end in clients[0]}
    series = {title: [row[name] for row in clients] for name, title in columns.items()}
    blocks: list[Block] = []
    if "personal/gain" in personalised:
        facts = {"gain by fine-tuning, all examples": percent_text(personalised["personal/gain"])}
        if personalised.get("client_that_gains_least") is not None:
            worst = personalised["client_that_gains_least"]
            facts["gains least"] = f"{worst}: {percent_text(personalised['personal/gain_worst'])}"
        facts["clients that do not get worse"] = percent_text(personalised["personal/not_worse"])
        blocks.append(Facts(facts))
    title = f"{measure[0].upper()}{measure[1:]} of the final model on each client's own test examples"
    blocks.append(Chart(charts.dots(names, series, "client", measure), title))
    by_gain = "gain" in clients[0]
    ordered = sorted(clients, key=lambda row: row["gain" if by_gain else quality])
    rows_of, caption = ordered, ""
    if len(ordered) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        rows_of = [*ordered[:half], *ordered[-half:]]
        caption = f"The {half} lowest and the {half} highest of {len(ordered):,} clients."
    more = ["gain"] if by_gain else []
    rows = [
        [
            *(row["client"], f"{row['examples']:,.0f}"),
            *(percent_text(row[name]) for name in (*columns, *more)),
            f"{row['loss']:.4f}",
        ]
        for row in rows_of
    ]
    heading = ["client", "examples", *columns.values(), *more, "loss"]
    return [*blocks, Table(heading, rows, caption=caption)]


def comparison_blocks(summary: Mapping[str, Any]) -> list[Block]:
    """What sites tell of their own models and the federated one, a table for each kind of model."""
    blocks: list[Block] = []
    for compared in site_comparisons(summary.get("comparisons")):
        blocks += [Heading(compared.title), Table(list(compared.heading), compared.rows, caption=compared.caption)]
    return blocks


def _run_costs(
    summary: Mapping[str, Any], history: Sequence[dict[str, float]], timings: Sequence[Mapping[str, Any]]
) -> list[Block]:
    down, up = (summary[f"bytes_{way}_per_client_and_round"] for way in ("down", "up"))
    facts = {"down, per client and round": bytes_text(down), "up, per client and round": bytes_text(up)}
    if (sent := megabytes_by_round(history, down + up)) is not None:
        facts["all clients, all rounds"] = bytes_text(max(sent.values()) * 1e6)
    if (steps := steps_by_round(history)) is not None:
        facts["local steps, all clients"] = f"{max(steps.values()):,.0f}"
    for name in ("training", "evaluation"):
        seconds = [value for row in timings if math.isfinite(value := row.get(f"seconds/{name}", math.nan))]
        if seconds:
            facts[f"seconds of {name}"] = (
                f"{statistics.median(seconds):.2f} a round (median), {sum(seconds):,.1f} in all"
            )
    return [Facts(facts), Words("Bytes count what the algorithm sends, not the messages of the simulation.")]


def _run_privacy(privacy: Mapping[str, Any]) -> list[Block]:
    if not privacy:
        return [Words("Trained without differential privacy: there is no privacy guarantee.")]
    blocks: list[Block] = [Words(str(privacy.get("statement", "")))]
    keys = ("noise_multiplier", "clip", "mechanism", "sampling", "accountant", "neighbours", "noise")
    epsilon = privacy.get("epsilon")
    facts = {
        "ε": rounded_up(math.inf if epsilon is None else float(epsilon)),
        "δ": f"{privacy.get('delta')}",
        "unit": str(privacy.get("unit")),
        **{name.replace("_", " "): str(privacy[name]) for name in keys if privacy.get(name) is not None},
    }
    blocks.append(Facts(facts))
    if privacy.get("stopped"):
        blocks.append(Words(str(privacy["stopped"])))
    for name in ("covered", "not_covered"):
        if privacy.get(name):
            blocks += [Heading(name.replace("_", " ").capitalize()), Items([str(line) for line in privacy[name]])]
    return blocks


def environment_facts(values: Mapping[str, Any]) -> Facts:
    """environment.json as a list."""
    return Facts({str(name): str(value) for name, value in values.items()})


def _notes(summary: Mapping[str, Any]) -> list[Block]:
    notes = [str(note) for note in summary.get("notes") or ()]
    return [Heading("Notes"), Items(notes)] if notes else []


def made_by(environment: Mapping[str, Any]) -> str:
    """The line at the end of a page."""
    version = environment.get("tff-re")
    return f"Made by tff-re{f' {version}' if version else ''}. This file needs no network and sends nothing."


def _is_share(metric: str) -> bool:
    return not metric.endswith(("loss", "threshold", "matthews", "/steps", "/counted", "/non_finite"))


def _number(metric: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return percent_text(value) if _is_share(metric) else f"{value:.4f}"


def percent_text(value: float) -> str:
    """A share in percent, or a dash if it is not finite."""
    return f"{100 * value:.2f} %" if math.isfinite(value) else "–"


def bytes_text(count: float) -> str:
    """A number of bytes, in the largest unit below it."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"
