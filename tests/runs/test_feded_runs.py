"""FedED by recipe: the server's share, resume, clients with another model, reports, and what is refused."""

from __future__ import annotations

import csv
import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

from datasets.partition import read_partition
from tests.runs.resuming import assert_same_files, resumed
from tests.upper_floors import (
    SECRET,
    assert_same_weights,
    builder,
    command,
    consultations,
    keras_weights,
    refusal,
    share_computations,
    text_recipe,
    write_json,
    write_recipe,
)
from tff_re.comparison.outcome import Outcome, compare
from tff_re.comparison.statistics import MetricSummary
from tff_re.comparison.suite import load_suite
from tff_re.comparison.tables import class_markdown
from tff_re.recipes.reading import load
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run

FEDED = {"name": "feded", "learning_rate": 0.05, "local_epochs": 2, "temperature": 2.0, "uploads": "label"}
OTHER_MODEL = {"name": "lstm", "units": 4, "embedding_width": 3}


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


def recipe_file(folder, *, server_share=0.25, **sections):
    task = {} if server_share is None else {"server_share": server_share, "server_stratified": True}
    table = text_recipe(write_json(folder / "c.json", consultations(dialogues=6)), **task)
    table["training"] = {"rounds": 4, "clients_per_round": 3, "checkpoint_every": 2}
    return write_recipe(folder / "feded.toml", table, **{"algorithm": FEDED, **sections})


@pytest.fixture(scope="module")
def undisturbed(runtime, tmp_path_factory):
    """Kind of the clients' model -> folder and result of a run that nothing disturbed."""
    runs = {}
    for kind, sections in (("one", {}), ("other", {"client_model": OTHER_MODEL})):
        folder = tmp_path_factory.mktemp(kind)
        path = recipe_file(folder, **sections)
        options = {"builder": builder(), "runtime": runtime, "details": kind == "other"}
        experiment, result = train_run(load(str(path)), folder / "run", **options)
        runs[kind] = SimpleNamespace(path=path, folder=folder / "run", experiment=experiment, result=result)
    return runs


@pytest.mark.parametrize("kind", ["one", "other"])
def test_what_a_run_leaves(undisturbed, kind):
    run = undisturbed[kind]
    partition = read_partition(run.folder / "partition.json")
    assert len(partition.server) == 9 and json.loads((run.folder / "partition.json").read_text())["server"]
    held = {i for client in partition.clients.values() for i in client.train + client.test}
    assert not held & set(partition.server) and len(held) == 27
    assert len(run.experiment.prepared.examples.server["y"]) == 9
    history = read_history(RunFolder(run.folder))
    assert len(history) == 4
    assert all(row["finalizer/trained"] == 1 and 0 <= row["finalizer/teacher_accuracy"] <= 1 for row in history)
    summary = json.loads((run.folder / "summary.json").read_text("utf-8"))
    assert any("the server holds 9 of 36 training samples" in note for note in summary["notes"])
    assert summary["bytes_up_per_client_and_round"] < 9 * 2 * 4 + 40
    if kind == "other":  # the server's model, which is exported
        written = keras_weights(run.folder / "model.keras").values()
        assert all(any(np.array_equal(value, array) for array in written) for value in run.result.weights.trainable)


@pytest.mark.parametrize(("kind", "method", "round_num"), [("one", "release", 3), ("other", "save", 4)])
def test_a_run_that_was_broken_off_comes_to_the_same_numbers(undisturbed, kind, method, round_num, runtime, tmp_path):
    run, folder = undisturbed[kind], tmp_path / "run"
    train = functools.partial(train_run, load(str(run.path)), folder, runtime=runtime, details=False)
    _, result = resumed(train, method, round_num, False)
    assert_same_files(folder, run.folder, "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, run.result.weights)


def test_the_clients_model_is_another(undisturbed):
    same, other = undisturbed["one"].experiment, undisturbed["other"].experiment
    assert same.algorithm.client_work.client_state_type is None
    assert load(str(undisturbed["other"].folder / "recipe.toml")).client_model.options.units == 4
    client_state = other.algorithm.client_work.client_state_type
    assert len(client_state.trainable) == 6, "embedding, three of the LSTM, two of the classifier"
    assert other.traffic.down < same.traffic.down and other.traffic.up == same.traffic.up


def test_parameter_averaging_leaves_the_servers_share_alone(undisturbed, runtime, tmp_path):
    path = recipe_file(tmp_path, algorithm={"name": "fedavgs", "local_epochs": 1})
    experiment, _ = train_run(load(str(path)), tmp_path / "run", runtime=runtime, details=False)
    assert experiment.algorithm.server_type is None
    partition = read_partition(tmp_path / "run" / "partition.json")
    assert partition.server == read_partition(undisturbed["one"].folder / "partition.json").server


def test_a_partition_file_says_what_the_server_holds(undisturbed, capsys, tmp_path):
    file = undisturbed["one"].folder / "partition.json"
    path = undisturbed["one"].path
    typed = command(capsys, "train", path, "--partition", file, "--set", "training.rounds=1", "--out", tmp_path / "a")
    assert typed.code == 0, typed.err
    assert (tmp_path / "a" / "partition.json").read_bytes() == file.read_bytes()
    table = json.loads(file.read_text("utf-8"))
    first = next(iter(table["clients"].values()))
    first["train"] += table.pop("server")
    without = write_json(tmp_path / "without.json", table)
    typed = command(capsys, "train", path, "--partition", without, "--out", tmp_path / "b")
    refusal(typed, without, "the server holds no samples in it", "task.server_share")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("sections", "parts"),
    [
        ({"server_share": None}, ["feded needs labelled examples at the server", "set task.server_share"]),
        ({"algorithm": {**FEDED, "num_server_examples": 5}}, ["num_server_examples is 5", "the server has 9 examples"]),
        ({"algorithm": {"name": "fedatts"}, "client_model": OTHER_MODEL}, ["fedatts combines", "[client_model] out"]),
        ({"client_model": {"name": "pcnn"}}, ["the model 'pcnn' does not take the inputs"]),
        ({"client_model": {"name": "lstm", "unit": 3}}, ["unknown key 'client_model.unit'; did you mean 'units'"]),
    ],
)
def test_recipes_that_do_not_fit_are_refused_in_a_line(sections, parts, capsys, tmp_path):
    path = recipe_file(tmp_path, **sections)
    refusal(command(capsys, "train", path, "--out", tmp_path / "run"), *parts)
    assert not (tmp_path / "run").exists()


def test_a_class_that_the_server_would_not_have(capsys, tmp_path):
    corpus = consultations(dialogues=6)
    utterances = [utterance for dialogue in corpus.values() for utterance in dialogue["dialogue"]]
    for utterance in utterances[2:]:  # the second alone keeps its symptom
        utterance.update(symptom_norm=[], symptom_type=[])
    table = text_recipe(write_json(tmp_path / "c.json", corpus), server_share=0.1, server_stratified=True)
    path = write_recipe(tmp_path / "r.toml", table, algorithm=FEDED)
    typed = command(capsys, "train", path, "--out", tmp_path / "run")
    assert SECRET not in refusal(typed, "the server has no example of class", "leave the class out")
    assert not (tmp_path / "run").exists()


# The comparison's reports


def test_rounds_to_a_target():
    rows = [{"round": float(r), "test/loss": 1.0 - 0.1 * r} for r in range(1, 6)]
    for row, accuracy in zip(rows[1::2], (0.7, 0.9), strict=True):
        row["test/accuracy"] = accuracy
    outcome = Outcome(rows, 1.0, 1, 1)
    assert outcome.rounds_to("test/accuracy", 0.7) == 2
    assert outcome.rounds_to("test/accuracy", 0.8) == 4
    assert outcome.rounds_to("test/accuracy", 0.95) is None
    assert outcome.rounds_to("test/loss", 0.75) == 3
    assert outcome.rounds_to("test/macro_f1", 0.1) is None


def test_f1_by_class_is_a_mean_over_the_seeds_that_have_it():
    nan = float("nan")
    by_class = {"A": [{"x": 0.5, "y|z": nan}, {"x": 0.7, "y|z": nan}], "B": [{"x": 1.0, "y|z": 0.25}]}
    assert class_markdown(by_class).splitlines() == [
        "| F1 at the end | A | B |",
        "| :-- | --: | --: |",
        "| x | 60.00 | 100.00 |",
        "| y\\|z | – | 25.00 |",
    ]


def test_a_comparison_tells_rounds_classes_medians_and_what_is_sent_less(runtime, capsys, tmp_path):
    recipe_file(tmp_path)
    table = {
        "title": "Tiny",
        "recipe": str(tmp_path / "feded.toml"),
        "seeds": [0, 1],
        "metrics": ["test/accuracy"],
        "targets": {"test/accuracy": 0.1, "test/macro_f1": 1.1},
        "median": True,
        "classes": True,
        "entry": [
            {"name": "FedAvg", "algorithm": {"name": "fedavgs", "local_epochs": 1}},
            {"name": "FedED", "algorithm": FEDED},
        ],
    }
    path = tmp_path / "suite.toml"
    path.write_text(tomli_w.dumps(table), "utf-8")
    outcomes = compare(load_suite(str(path)), tmp_path / "out", builder=builder())
    typed = command(capsys, "compare", "--suite", path, "--out", tmp_path / "out", "--resume")
    assert typed.code == 0 and typed.err == ""
    with open(tmp_path / "out" / "comparison.csv", newline="", encoding="utf-8") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    for name, by_seed in outcomes.items():
        values = {seed: [row["test/accuracy"] for row in o.history] for seed, o in by_seed.items()}
        finals = list(MetricSummary.from_rounds(values).final.values())
        assert float(rows[name]["test/accuracy_final_median"]) == pytest.approx(np.median(finals))
        assert rows[name]["test/accuracy_rounds_to_0.1"] == ";".join(
            str(outcome.rounds_to("test/accuracy", 0.1)) for outcome in by_seed.values()
        )
        assert rows[name]["test/macro_f1_rounds_to_1.1"] == ";"
    markdown = (tmp_path / "out" / "comparison.md").read_text("utf-8")
    assert "rounds to test/accuracy 0.1" in markdown and "test/accuracy final, median" in markdown
    less = round(int(rows["FedAvg"]["bytes_up"]) / int(rows["FedED"]["bytes_up"]))
    assert less >= 2 and "times less upload than FedAvg" in markdown and f"| {less} |" in markdown
    assert "| nan |" not in markdown, "rows that send nothing"
    with open(tmp_path / "out" / "comparison-classes.csv", newline="", encoding="utf-8") as file:
        classes = list(csv.DictReader(file))
    labels = outcomes["FedED"][0].class_f1
    assert [row["class"] for row in classes] == list(labels) and set(classes[0]) == {"class", "FedAvg", "FedED"}
    for row in classes:
        values = [o.class_f1[row["class"]] for o in outcomes["FedED"].values()]
        finite = [v for v in values if np.isfinite(v)]
        assert row["FedED"] == "" if not finite else float(row["FedED"]) == pytest.approx(np.mean(finite))
