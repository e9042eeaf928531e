"""Writes the results of a run and reads its metrics.

The results: summary.json, CSV files of its last evaluation, plots and model.keras.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from computations.local_model import assign_weights
from datasets.federated import SPLITS
from datasets.files import csv_text
from tff_re import models
from tff_re.models.inputs import trained_in_parts
from tff_re.models.keras_files import forget_layer_names, save_keras
from tff_re.models.text_layers import forget_initial_values
from tff_re.report.curves import run_curves
from tff_re.report.document_spread import write_documents
from tff_re.report.heatmaps import confusion_png, partition_heatmap
from tff_re.report.precision_recall import precision_recall_png, write_precision_recall
from tff_re.report.similarity import first_and_last, similarity_figure
from tff_re.runs.data_source import data_source
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.attack import Attack
from tff_re.runs.folder import RunFolder, write_text
from tff_re.runs.reading import read_client_states, read_precision_recall
from tff_re.runs.resuming import write_digests
from tff_re.runs.tables import write_table
from tff_re.runs.training import Result
from tff_re.runs.warm_start import stored
from tff_re.tasks.base import Prepared
from tff_re.tasks.held_out import TEST


def write_results(experiment: Experiment, folder: RunFolder, result: Result, history: list[dict[str, float]]) -> None:
    """Writes summary.json, labels.csv and the result tables of a finished run.

    The tables are clients.csv, classes.csv and confusion.csv of its last or selected weights, or what the task writes
    of the examples at the server.
    """
    summary = {
        "recipe": experiment.recipe.name,
        "algorithm": experiment.recipe.algorithm.name,
        "seed": experiment.recipe.seed,
        "rounds": experiment.recipe.training.rounds,
        "bytes_down_per_client_and_round": experiment.traffic.down,
        "bytes_up_per_client_and_round": experiment.traffic.up,
        "final": history[-1] if history else {},
        "best": best_values(history, test=result.chosen is None),
        "references": _references(experiment, result),
        "test_examples": _test_examples(experiment.prepared),
        "data": data_source(experiment),
        "notes": list(experiment.notes),
    }
    for feature in experiment.features:
        summary |= feature.summary(result)
    if result.stopped is not None:
        summary["stopped"] = result.stopped
    if (start := stored(folder)) is not None:
        summary["start"] = start.record
    if result.test is not None and result.test.sites is not None:
        answered, asked = result.test.sites
        by_site = {"by_site": result.test.by_site} if result.test.by_site else {}
        summary["sites"] = {"test": {"answered": answered, "of": asked, **by_site}}
    write_text(folder.summary, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    if (counts := experiment.prepared.counts) is not None:  # else the examples are at sites
        both = np.stack([counts.train, counts.test], axis=1).reshape(-1, len(counts.label_names))  # client by client
        clients, splits = (client for client in counts.clients for _ in SPLITS), list(SPLITS) * len(counts.clients)
        names = zip(counts.label_names, both.T, strict=True)
        columns = [("client", list(clients)), ("split", splits), *((name, column.tolist()) for name, column in names)]
        write_table(folder.path / "labels.csv", columns)
    if result.server_evaluation is not None and TEST in result.server_evaluation.scores:
        points = experiment.prepared.held_out.points(result.server_evaluation.scores)
        if points is not None:
            write_precision_recall(folder.precision_recall, points)
    _write_clients(experiment, folder, result)
    if result.test is not None:
        labels, confusion = experiment.prepared.measured_names, result.test.confusion
        if result.test.per_class is not None:
            measured = zip(labels, *result.test.per_class, strict=True)
            classes = [[label, *map(float, numbers), int(support)] for label, *numbers, support in measured]
            write_text(folder.classes, csv_text([["class", "precision", "recall", "f1", "examples"], *classes]))
        if confusion is not None:
            counts = [[label, *row] for label, row in zip(labels, confusion.tolist(), strict=True)]
            write_text(folder.confusion, csv_text([["class", *labels], *counts]))
    write_digests(folder, experiment.prepared.data_digest)


def _test_examples(prepared: Prepared) -> int | None:
    """How many examples the run is tested on, at the server or at all clients, or None if they are at sites."""
    if prepared.held_out is not None:
        return len(prepared.samples("test")) or None
    return None if prepared.sites else prepared.examples.size("test")


def _write_clients(experiment: Experiment, folder: RunFolder, result: Result) -> None:
    """clients.csv: each client's evaluation with the run's weights, and what features know of it."""
    measured = {} if result.test is None else result.test.clients
    clients, columns = list(measured), {}
    for feature in experiment.features:
        more = feature.columns(clients)
        clients += sorted({client for column in more.values() for client in column}.difference(clients))
        columns |= more
    names = ("examples", experiment.prepared.measures.quality, "loss") if measured else ()
    values = [(name, [measured.get(c, (None,) * 3)[number] for c in clients]) for number, name in enumerate(names)]
    values += [(name, [values_of.get(client) for client in clients]) for name, values_of in columns.items()]
    if clients:
        write_table(folder.path / "clients.csv", [("client", clients), *values])


def _references(experiment: Experiment, result: Result) -> dict[str, dict[str, float]]:
    """Row of a comparison's table -> metric -> value, of models that are not trained."""
    held_out = experiment.prepared.held_out
    references = experiment.prepared.references() if held_out is None else held_out.references()
    for name, metrics in ({} if result.test is None else result.test.trivial).items():
        references[f"trivial: {name}"] = {f"test/{metric}": value for metric, value in metrics.items()}
    return references


def write_details(experiment: Experiment, folder: RunFolder, result: Result, history: list[dict[str, float]]) -> None:
    """plots/ and model.keras."""
    folder.plots.mkdir(exist_ok=True)
    counts, labels = experiment.prepared.counts, experiment.prepared.label_names
    title = f"{experiment.recipe.name}, seed {experiment.recipe.seed}"
    if (attack := experiment.feature(Attack)) is not None and attack.clients:
        title += ", clients attacked"
    run_curves(folder.plots / "curves.png", _measured(history), title)
    if counts is not None:
        partition_heatmap(folder.plots / "partition.png", counts.train, counts.clients, labels)
    if experiment.prepared.documents is not None:
        write_documents(folder.plots, experiment.prepared.documents)
    if (points := read_precision_recall(folder.precision_recall)) is not None:
        methods = {experiment.recipe.algorithm.name: [points]}
        precision_recall_png(folder.plots / "precision-recall.png", methods, title)
    if result.test is not None and result.test.confusion is not None:
        confusion_png(folder.plots / "confusion-test.png", result.test.confusion, labels)
    if similarities := recorded_similarities(experiment.prepared, folder):
        similarity_figure(folder.plots / "similarity.png", counts.train, counts.clients, labels, similarities)
    if isinstance(result.weights, Mapping):  # every client's own: there is no model of the run
        return
    write_keras(experiment, result.weights, folder.model)


def write_keras(experiment: Experiment, weights, path: Path) -> None:
    """Writes the model with these weights, whole or not at all."""
    temporary = path.with_name(f".{path.stem}.part.keras")
    try:
        save_keras(keras_model(experiment, weights), temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _measured(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """The metrics that a plot of a run shows: without the spread over clients."""
    names = ["round", "local/loss", "train/loss", "dev/loss", "test/loss"]
    at_server = [f"{split}/{name}" for name in ("auc", "f1") for split in ("dev", "test")]
    # Where the server holds test examples, they are the run's result; the clients' accuracy counts "no relation".
    has_server = any(name in row for row in history for name in at_server)
    names += at_server if has_server else ["train/accuracy", "dev/accuracy", "test/accuracy"]
    return [{name: row[name] for name in names if name in row} for row in history]


def keras_model(experiment: Experiment, weights):
    """The run's model in stock Keras layers with these weights, which takes encoded inputs."""
    choice, prepared = experiment.recipe.model, experiment.prepared
    model_of, num_classes = models.MODELS[choice.name], len(prepared.class_names)
    forget_layer_names()
    if trained_in_parts(prepared.inputs):
        return model_of.finished(choice.options, prepared.inputs, num_classes, weights)
    model = model_of.build_plain(choice.options, prepared.inputs, num_classes)
    assign_weights(model, weights)
    forget_initial_values(model)
    return model


def recorded_similarities(prepared: Prepared, folder: RunFolder) -> dict[int, np.ndarray]:
    """FedCMC's local average similarities in the first and the last recorded round (see `first_and_last`).

    Empty for an algorithm without them. The rows are the clients of `prepared.counts`.
    """
    labels = prepared.class_names
    if prepared.counts is None or prepared.counts.label_names != labels:  # at sites; tags of tokens are not counted
        return {}
    recorded = read_client_states(folder, labels).get("similarity", {})
    return first_and_last(recorded, prepared.counts.clients, len(labels))


def best_values(history: list[dict[str, float]], test: bool = True) -> dict[str, float]:
    """Highest accuracies and F1, and lowest losses, over the rounds (the papers' maximum accuracy and minimum loss).

    Without `test`, the test split is left out, for a run whose round is selected on dev.
    """
    best = {}
    splits = ("test/", "train/", "local/") if test else ("dev/", "train/", "local/")
    for row in history:
        for name, value in row.items():
            if name.startswith(splits) and not name.endswith("/threshold") and math.isfinite(value):
                pick = min if name.endswith("/loss") else max
                best[name] = pick(best.get(name, value), value)
    return best
