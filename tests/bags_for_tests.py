"""Tiny runs on bags of sentences: files in NYT10's and PubTator's form, and one run of each method, trained once."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.built_once import temporary_folder
from tests.upper_floors import builder, command, keras_weights
from tff_re.recipes.metric_names import SPLITS, require_known
from tff_re.recipes.reading import resolve
from tff_re.runs.evaluation import metric_names
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.tasks.data_paths import DataPaths

HIDDEN = "zyxwv"
"""A word of every sentence; it must not appear in any output or file."""

REL2ID = {"NA": 0, "/a/visits": 1, "/b/likes": 2}
RELATIONS = tuple(REL2ID)
CUES = ("sees", "visits", "likes")

METHODS = ("mil_none", "mil_one", "mil_att", "mil_ave", "mil_att_ra", "lazy_mil")

MEASURES = ("auc", "auc_2000", "p_at_100", "p_at_200", "p_at_300", "p_at_mean", "max_f1")


# Files


def nyt10_line(pair: int, number: int, relation: str, **changes) -> dict:
    """Sentence `number` of a pair; the second one's words do not state the relation."""
    cue = CUES[0] if number == 1 else CUES[REL2ID.get(relation, 0)]
    text = f"{HIDDEN} Ann{pair} {cue} {'then ' * number}Bonn{pair} ."
    entities = {}
    for key, name in (("h", f"Ann{pair}"), ("t", f"Bonn{pair}")):
        start = text.index(name)
        entities[key] = {"id": f"{key}{pair}", "name": name, "pos": [start, start + len(name)]}
    return {"text": text, "relation": relation, **entities, **changes}


def nyt10_lines(pairs: range, sentences: int = 3) -> list[dict]:
    """Every third pair is unrelated; every sixth has both relations."""
    lines = []
    for pair in pairs:
        relations = RELATIONS[1:] if pair % 6 == 1 else [RELATIONS[pair % 3]]
        lines += [nyt10_line(pair, number, relation) for number in range(sentences) for relation in relations]
    return lines


def write_lines(path: Path, lines: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (path.parent / "nyt10_rel2id.json").write_text(json.dumps(REL2ID), "utf-8")
    return path


def write_nyt10(data: Path) -> Path:
    """A data folder: 12 pairs for training, 8 for dev and 12 for testing, of which 2 and 3 are trained on, too."""
    for name, pairs in (("train", range(12)), ("val", range(10, 18)), ("test", range(9, 21))):
        write_lines(data / "nyt10" / f"nyt10_{name}.txt", nyt10_lines(pairs))
    return data


def write_pubtator(path: Path, documents: range) -> Path:
    """A chemical and two diseases a document; it induces the first."""
    blocks = []
    for number in documents:
        title, abstract = (
            f"{HIDDEN} drug{number} and pain.",
            f"drug{number} gives ulcer{number}. No rash with drug{number}.",
        )
        text = f"{title} {abstract}"
        lines = [f"{number}|t|{title}", f"{number}|a|{abstract}"]
        for name, kind, mesh in (
            (f"drug{number}", "Chemical", f"C{number}"),
            (f"ulcer{number}", "Disease", f"D{number}"),
            ("pain", "Disease", "D100"),
            ("rash", "Disease", "D200"),
        ):
            start = -1
            while (start := text.find(name, start + 1)) >= 0:
                lines.append(f"{number}\t{start}\t{start + len(name)}\t{name}\t{kind}\t{mesh}")
        blocks.append("\n".join([*lines, f"{number}\tCID\tC{number}\tD{number}"]) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(blocks) + "\n", "utf-8")
    return path


@functools.cache
def data_folder() -> Path:
    """Written once in a session."""
    return write_nyt10(temporary_folder("bags") / "data")


# Recipes

PCNN = {"name": "pcnn", "filters": 4, "embedding_width": 4, "position_width": 2, "position_limit": 5}


def bag_table(**sections) -> dict:
    """Tables of a recipe on the tiny NYT10; `task` adds to the task, other sections replace."""
    train, test = (str(data_folder() / "nyt10" / f"nyt10_{name}.txt") for name in ("train", "test"))
    task = {"dataset": "nyt10", "path": train, "test_path": test, "encoding": "words", "max_length": 16}
    task = {"name": "bag_relations", **task, "min_clients": 1, **sections.pop("task", {})}
    return {
        "name": "tiny-bags",
        "task": {key: value for key, value in task.items() if value is not None},
        "partition": {"name": "iid", "num_clients": 3},
        "model": PCNN,
        "algorithm": {"name": "lazy_mil", "learning_rate": 0.5, "local_epochs": 1, "batch_size": 8},
        "training": {"rounds": 3, "client_fraction": 0.67, "checkpoint_every": 2},
        "evaluation": {"train_split": False},
        **sections,
    }


def planted_table(**sections) -> dict:
    """The same on made-up sentences."""
    file_keys = dict.fromkeys(("path", "test_path"))
    task = {**file_keys, "dataset": "planted", "max_length": 24, "planted_bags": 24, "planted_relations": 2}
    return bag_table(task={**task, **sections.pop("task", {})}, **sections)


def with_method(name: str, **options) -> dict:
    return {"name": name, "learning_rate": 0.5, "local_epochs": 1, "batch_size": 8, **options}


def prepare(table: dict, *, seed: int = 0, **data_paths):
    return ExperimentBuilder(DataPaths(**data_paths)).prepare(resolve(table, "bags.toml", seed=seed))


# Runs


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text("utf-8"))


def assert_has_weights(folder: Path, weights) -> None:
    """Asserts that model.keras has these trainable weights."""
    written = list(keras_weights(folder / "model.keras").values())
    for value in weights.trainable:
        assert any(np.array_equal(value, array) for array in written)


def assert_best_round_is_chosen(run, criterion: str, measures) -> dict[str, float]:
    """Asserts that rows have the measures of dev and test, and that the first best one is the run's; returns it."""
    rows = read_history(RunFolder(run.folder))
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert all(0 <= row[f"{split}/{measure}"] <= 1 for split in ("dev", "test") for measure in measures)
    assert metric_names(run.experiment) == {name for name in rows[-1] if name.startswith(SPLITS)}
    require_known(rows[-1].keys() - {"round"}, "metrics.csv")
    chosen = max(rows, key=lambda row: row[criterion])  # the first of equals
    metrics = {name: value for name, value in chosen.items() if name.startswith(("dev/", "test/"))}
    summary = summary_of(run.folder)
    assert summary["chosen"] == {"round": chosen["round"], "by": criterion, "on": run.result.chosen_on, **metrics}
    assert run.result.chosen == (chosen["round"], criterion) and run.result.test is None
    assert criterion in summary["best"]
    assert not any(name.startswith("test/") or "threshold" in name for name in summary["best"])
    for path in [path for path in run.folder.rglob("*") if path.is_file()]:
        assert HIDDEN.encode() not in path.read_bytes(), path
    return chosen


def assert_evaluates(capture, run, criterion: str, measures) -> str:
    """Asserts that `evaluate` prints the chosen round's measures of the server's examples, and evaluates the clients'.

    Returns what it prints for the clients' examples.
    """
    chosen = summary_of(run.folder)["chosen"]
    typed = command(capture, "evaluate", run.folder, "--split", "dev")
    assert typed.code == 0 and typed.err == ""
    assert f"dev examples at the server after round {chosen['round']}" in " ".join(typed.out.split())
    assert all(measure in typed.out for measure in measures) and f"{chosen[criterion]:.4f}" in typed.out
    typed = command(capture, "evaluate", run.folder, "--split", "train")
    assert typed.code == 0 and typed.err == "" and HIDDEN not in typed.out
    return typed.out


def train_table(table: dict, folder: Path, runtime, *, seed: int = 0, data_paths: DataPaths | None = None, **options):
    """Trains a recipe's tables with the session's built computations."""
    experiment_builder = ExperimentBuilder(data_paths or DataPaths(), _computations=builder()._computations)
    return train_run(
        resolve(table, "bags.toml", seed=seed), folder, builder=experiment_builder, runtime=runtime, **options
    )


@functools.cache
def trained(runtime, method: str) -> SimpleNamespace:
    """A run of the method, trained once in a session: folder, experiment, result, table; Lazy MIL's with its plots."""
    folder = temporary_folder("bags") / "runs" / method
    table = bag_table(algorithm=with_method(method))
    experiment, result = train_table(table, folder, runtime, details=method == "lazy_mil")
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, table=table)


def assert_tunes_without_test(run: SimpleNamespace, folder: Path, runtime):
    """A run of the same table that leaves test out has the same dev metrics and choice, and no number of test."""
    _, result = train_table(run.table, folder, runtime, details=False, tested=False)
    of_dev = [
        [
            {name: value for name, value in row.items() if name.startswith("dev/")}
            for row in read_history(RunFolder(path))
        ]
        for path in (run.folder, folder)
    ]
    assert of_dev[0] == of_dev[1] and any(of_dev[0])
    assert result.chosen == run.result.chosen is not None
    names = {name for row in read_history(RunFolder(folder)) for name in row} | summary_of(folder)["chosen"].keys()
    assert not any(name.startswith("test/") for name in names)
    assert not any((folder / name).exists() for name in ("precision_recall.csv", "test_units.npz"))


@functools.cache
def trained_without_dev(runtime) -> tuple:
    """A run of Lazy MIL's control on made-up bags, whose task has no dev examples: folder, experiment, result."""
    folder, training = temporary_folder("bags") / "runs" / "without-dev", {"rounds": 2, "client_fraction": 0.67}
    table = planted_table(algorithm=with_method("lazy_mil_alias"), task={"dev_share": 0.0}, training=training)
    return folder, *train_table(table, folder, runtime, details=False)
