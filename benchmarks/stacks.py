"""The numbers of both stacks side by side: every algorithm, feature and shipped recipe after two rounds, in-process.

python -m benchmarks.stacks train FOLDER [NAME…]    once in each stack's environment; NAME: substring of a run's name
python -m benchmarks.stacks table TFF LANGUAGE      compare the two folders; prints the table of docs/stacks.md
"""

from __future__ import annotations

import contextlib
import csv
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TWO_ROUNDS = "training.rounds=2"
BAGS = ("lazy_mil", "lazy_mil_alias", "mil_att", "mil_att_ra", "mil_ave", "mil_none", "mil_one")
WITH_SERVER_DATA = ("feded", "fedavg_server_pass")
"""Algorithms that need bags of sentences, or examples at the server."""

TABLES = ("metrics.csv", "clients.csv", "client_states.csv", "answers.csv", "took_part.csv")
ERROR = "error.txt"
TOLERANCE = 1e-6


def runs(folder: Path) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """(name, function that trains it into a folder): the algorithms, then the runs of `tests.recorded_numbers`."""
    from computations.algorithms import names
    from tests import recorded_numbers
    from tests.recipe_data_for_tests import data_folder
    from tests.recipes.test_shipped_recipes import cut
    from tests.upper_floors import consultations, text_recipe, tiny, write_json
    from tff_re.recipes.reading import load, resolve
    from tff_re.runs.run import train_run
    from tff_re.tasks.data_paths import DataPaths

    corpus = write_json(folder / "algorithms.json", consultations(8))

    def shipped(name, *extra):
        overrides = [
            override for override in cut(name) if override != "--set" and not override.startswith("algorithm.")
        ]
        return load(name, (*overrides, *extra, TWO_ROUNDS))

    def recipe(name):
        algorithm_table = f"algorithm={{name='{name}', local_epochs=1}}"
        if name in BAGS:
            return shipped("lazy-mil-planted", algorithm_table)
        if name == "fedlcc":
            return shipped("fedlcc-cdr-short", "model.precision=float32")
        if name in WITH_SERVER_DATA:
            return resolve(text_recipe(corpus, server_share=0.2), "text.toml", (algorithm_table, TWO_ROUNDS))
        return tiny("training.clients_per_round=3", algorithm_table, TWO_ROUNDS)

    def algorithm(name):
        paths = DataPaths(data=data_folder())
        return lambda out: train_run(recipe(name), out, runtime="in-process", data_paths=paths)

    for name in names():
        yield f"algorithm {name}", algorithm(name)
    for name, train in recorded_numbers.runs(folder, TWO_ROUNDS, runtimes=["in-process"]):
        yield name.removesuffix(" / in-process"), train


def train(out: Path, substrings: list[str]) -> None:
    """Trains all runs that are not in the folder yet, or only those whose names contain one of `substrings`.

    The error of a failed run is written to its folder.
    """
    with tempfile.TemporaryDirectory() as inputs:
        for name, run in runs(Path(inputs)):
            if substrings and not any(substring in name for substring in substrings):
                continue
            folder, began, outcome = out / name.replace("/", "_"), time.monotonic(), "done"
            if (folder / "summary.json").exists():
                continue
            try:
                with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
                    shutil.rmtree(folder, ignore_errors=True)
                run(folder)
            except Exception as error:
                outcome = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ERROR).write_text(outcome, "utf-8")
            print(f"{name}: {outcome}, {time.monotonic() - began:.1f} s", flush=True)


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    numbers: largest relative difference in a column of the run's tables.
    weights: largest relative difference in an array of the final model.
    column: the column of `numbers`.
    partition: whether partition.json is the same; None without one.
    choices: whether all texts and integers in the tables are the same.
    """

    numbers: float
    weights: float
    column: str
    partition: bool | None
    choices: bool


def relative(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference of two arrays, relative to their largest number; infinite if only one has a NaN there."""
    if first.shape != second.shape or (np.isnan(first) != np.isnan(second)).any():
        return float("inf")
    first, second = np.nan_to_num(first.astype(np.float64)), np.nan_to_num(second.astype(np.float64))
    largest = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    return float(np.abs(first - second).max(initial=0.0) / largest) if largest else 0.0


def _columns(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _numbers(column: list[str]) -> np.ndarray | None:
    """The numbers of a column with fractions; None for texts and integers, which have to be equal."""
    if all(cell.lstrip("-").isdigit() or not cell for cell in column):
        return None
    try:
        return np.array([float(cell or "nan") for cell in column])
    except ValueError:
        return None


def compare(first: Path, second: Path) -> Comparison:
    """Compares two folders of the same run."""
    from tests.upper_floors import keras_weights

    worst, worst_column, choices = 0.0, "", True
    for table in TABLES:
        if (first / table).exists() != (second / table).exists():
            choices = False
        if not (first / table).exists() or not (second / table).exists():
            continue
        columns, other_columns = _columns(first / table), _columns(second / table)
        choices &= list(columns) == list(other_columns)
        for name in columns.keys() & other_columns.keys():
            numbers, other_numbers = _numbers(columns[name]), _numbers(other_columns[name])
            if numbers is None or other_numbers is None:
                choices &= columns[name] == other_columns[name]
            elif (difference := relative(numbers, other_numbers)) > worst:
                worst, worst_column = difference, f"{table}: {name}"
    weights = 0.0
    if (first / "model.keras").exists():
        arrays, other_arrays = keras_weights(first / "model.keras"), keras_weights(second / "model.keras")
        pairs = zip(arrays.values(), other_arrays.values(), strict=True)
        weights = max((relative(*pair) for pair in pairs), default=0.0)
    partitions = [(folder / "partition.json") for folder in (first, second)]
    partition = partitions[0].read_bytes() == partitions[1].read_bytes() if partitions[0].exists() else None
    return Comparison(worst, weights, worst_column, partition, choices)


def table(tff: Path, language: Path) -> Iterator[str]:
    """The lines of the Markdown table."""
    yield "| run | tables | weights | partition | choices | largest in |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for folder in sorted(path for path in tff.iterdir() if (path / ERROR).exists() or (path / "recipe.toml").exists()):
        other_folder = language / folder.name
        errors = [path / ERROR for path in (folder, other_folder)]
        if not (other_folder / "summary.json").exists() and not errors[1].exists():
            yield f"| {folder.name} | not run on the language stack | | | | |"
        elif any(error.exists() for error in errors):
            texts = [error.read_text("utf-8") if error.exists() else "" for error in errors]
            error_text = (
                texts[0] if texts[0] == texts[1] else f"TFF: {texts[0] or 'done'}; language: {texts[1] or 'done'}"
            )
            yield f"| {folder.name} | {error_text} | | | | |"
        else:
            comparison = compare(folder, other_folder)
            partition = {True: "same", False: "**differs**", None: ""}[comparison.partition]
            choices = "same" if comparison.choices else "**differ**"
            column = comparison.column if comparison.numbers > TOLERANCE else ""
            cells = (f"{comparison.numbers:.1e}", f"{comparison.weights:.1e}", partition, choices, column)
            yield f"| {folder.name} | {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    from tff_re.runtime.quiet import be_quiet

    be_quiet()
    logging.disable(logging.WARNING)
    if arguments[:1] == ["table"] and len(arguments) == 3:
        print("\n".join(table(Path(arguments[1]), Path(arguments[2]))))
    elif arguments[:1] == ["train"] and len(arguments) > 1:
        train(Path(arguments[1]), arguments[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
