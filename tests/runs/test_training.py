"""The training loop: the same numbers every time, the same clients for every method, workers that die on the way."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.federated import ClientExamples, FederatedExamples
from tests.stacks import computing_on, needs_tff
from tests.upper_floors import (
    assert_same_weights,
    builder,
    command,
    consultations,
    refusal,
    rounds_in,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.runs import training
from tff_re.runs.evaluation import Evaluation
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.results import best_values, write_results
from tff_re.runs.run import train_run
from tff_re.runs.sampling import sample_clients
from tff_re.runs.training import Result, client_seed, flat_metrics, train
from tff_re.runtime import open_runtime


def run(folder, runtime, *overrides, seed=None, **options):
    options = {"details": False, "builder": builder(), **options}
    return train_run(tiny(*overrides, seed=seed), folder, runtime=runtime, **options)


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def undisturbed(runtime, tmp_path_factory):
    """The tiny recipe, five rounds: its folder, experiment and result."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    experiment, result = run(folder, runtime, "training.rounds=5")
    return SimpleNamespace(folder=folder, experiment=experiment, result=result)


def columns(folder, prefix):
    """Round -> the names of its metrics with this prefix."""
    return {int(row["round"]): [k for k in row if k.startswith(prefix)] for row in read_history(RunFolder(folder))}


# The same numbers


def test_the_same_recipe_and_seed_give_the_same_bytes(undisturbed, runtime, tmp_path):
    _, result = run(tmp_path / "again", runtime, "training.rounds=5")
    for name in ("metrics.csv", "clients.csv", "summary.json", "recipe.toml"):
        assert (tmp_path / "again" / name).read_bytes() == (undisturbed.folder / name).read_bytes(), name
    assert_same_weights(result.weights, undisturbed.result.weights)


def test_another_seed_gives_other_numbers(undisturbed, runtime, tmp_path):
    experiment, result = run(tmp_path / "other", runtime, "training.rounds=5", seed=1)
    assert not np.array_equal(result.weights.trainable[0], undisturbed.result.weights.trainable[0])
    first = experiment.prepared.examples.clients[0].train["x"]
    assert not np.array_equal(first[:5], undisturbed.experiment.prepared.examples.clients[0].train["x"][:5])


def test_training_trains(undisturbed):
    history = read_history(RunFolder(undisturbed.folder))
    losses = [row["train/loss"] for row in history]
    assert losses[-1] < losses[0]
    initial = undisturbed.experiment.model.initial_weights(0)
    assert not np.array_equal(np.asarray(initial.trainable[0]), undisturbed.result.weights.trainable[0])


# Who takes part


@given(st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.integers(1, 200), st.data())
def test_sampling_is_without_replacement_and_from_seed_and_round_alone(seed, round_num, eligible, data):
    count = data.draw(st.integers(1, eligible))
    chosen = sample_clients(seed, round_num, eligible, count)
    assert len(set(chosen.tolist())) == count and sorted(chosen.tolist()) == chosen.tolist()
    assert chosen.min() >= 0 and chosen.max() < eligible
    np.testing.assert_array_equal(chosen, sample_clients(seed, round_num, eligible, count))


def test_every_client_gets_its_turn_and_rounds_differ():
    rounds = [tuple(sample_clients(0, r, 30, 10)) for r in range(1, 101)]
    assert len(set(rounds)) == 100
    counts = np.bincount(np.concatenate(rounds), minlength=30)
    # Binomial(100, 1/3): mean 33.3, standard deviation 4.7.
    assert counts.min() > 15 and counts.max() < 52


def test_seeds_of_clients_differ_by_seed_round_and_client():
    seeds = {tuple(client_seed(s, r, c)) for s in (0, 1) for r in (1, 2, 3) for c in ("a", "b", "诊断")}
    assert len(seeds) == 18
    assert client_seed(0, 1, "a").dtype == np.int32 and client_seed(0, 1, "a").shape == (2,)


def spied(experiment):
    """The experiment, and a list that fills with what `next` is called with: (sizes, seeds) of each round."""
    seen, real = [], experiment.algorithm.next

    def spy(state, clients, *client_state):
        seen.append([(c["examples"]["y"].tolist(), c["seed"].tolist()) for c in clients])
        return real(state, clients, *client_state)

    return dataclasses.replace(experiment, algorithm=dataclasses.replace(experiment.algorithm, next=spy)), seen


def begun(path):
    folder = RunFolder(path)
    folder.begin(tiny().to_toml(), resume=False)
    return folder


def test_methods_get_the_same_clients_and_the_same_seeds(runtime, tmp_path):
    calls = {}
    for name in ("fedpap", "fedavgs"):
        recipe = tiny("algorithm={name='%s'}" % name, "training.rounds=4")  # noqa: UP031 - braces
        experiment, calls[name] = spied(builder().build(recipe))
        train(experiment, begun(tmp_path / name), runtime)
    assert calls["fedpap"] == calls["fedavgs"]
    assert [len(clients) for clients in calls["fedpap"]] == [2] * 4
    seeds = [seed for clients in calls["fedpap"] for _, seed in clients]
    assert len({tuple(seed) for seed in seeds}) == 8


def test_clients_without_training_examples_are_never_sampled(runtime, tmp_path):
    experiment = builder().build(tiny("training.rounds=6", "training.clients_per_round=3"))
    first, *others = experiment.prepared.examples.clients
    untrained = ClientExamples(first.client_id, {k: v[:0] for k, v in first.train.items()}, first.test)
    examples = FederatedExamples((untrained, *others), experiment.prepared.examples.label_names)
    prepared = dataclasses.replace(experiment.prepared, examples=examples)
    experiment, seen = spied(dataclasses.replace(experiment, prepared=prepared))
    result = train(experiment, begun(tmp_path / "run"), runtime)
    labels = {tuple(labels) for clients in seen for labels, _ in clients}
    assert labels == {tuple(client.train["y"].tolist()) for client in others}
    assert first.client_id in result.test.clients, "it is tested all the same"


def test_more_clients_a_round_than_there_are_is_refused_before_the_folder_is_made(capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", training={"rounds": 1, "clients_per_round": 5})
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run")
    refusal(typed, recipe, "training.clients_per_round is 5", "only 4 clients")
    assert not (tmp_path / "run").exists()


# Evaluation


def test_metrics_are_those_of_numpy(undisturbed):
    kernel, bias = undisturbed.result.weights.trainable
    correct, losses, sizes, by_client = 0, 0.0, 0, {}  # the clients' mean is weighted by their sizes
    for client in undisturbed.experiment.prepared.examples.clients:
        logits = client.test["x"].astype(np.float64) @ kernel + bias
        labels = client.test["y"]
        right = logits.argmax(1) == labels
        log_sum = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        loss = log_sum - logits[np.arange(len(labels)), labels]
        correct, losses, sizes = correct + right.sum(), losses + loss.sum(), sizes + len(labels)
        by_client[client.client_id] = (len(labels), right.mean(), loss.mean())
    metrics = undisturbed.result.test.metrics
    assert metrics["accuracy"] == correct / sizes
    assert metrics["loss"] == pytest.approx(losses / sizes, rel=1e-5)
    assert len({size for size, _, _ in by_client.values()}) > 1, "equal sizes would show nothing"
    assert metrics["accuracy_worst"] == min(a for _, a, _ in by_client.values())
    for client, (size, accuracy, loss) in undisturbed.result.test.clients.items():
        assert (size, accuracy) == by_client[client][:2]
        assert loss == pytest.approx(by_client[client][2], rel=1e-5)


def test_no_test_examples_at_all(runtime, tmp_path):
    experiment = builder().build(tiny("training.rounds=2"))
    clients = tuple(
        ClientExamples(c.client_id, c.train, {k: v[:0] for k, v in c.test.items()})
        for c in experiment.prepared.examples.clients
    )
    examples = FederatedExamples(clients, experiment.prepared.examples.label_names)
    prepared = dataclasses.replace(experiment.prepared, examples=examples)
    folder = begun(tmp_path / "run")
    result = train(dataclasses.replace(experiment, prepared=prepared), folder, runtime)
    assert result.test is None
    assert not any(columns(tmp_path / "run", "test/").values()) and rounds_in(folder.metrics) == 2


# What is written


def test_checkpoints_and_evaluations_come_as_the_recipe_says_and_in_the_last_round(runtime, tmp_path):
    plan = ("training.rounds=7", "training.checkpoint_every=3", "evaluation.every=2", "evaluation.train_split=false")
    run(tmp_path / "run", runtime, *plan)
    assert [r for r, names in columns(tmp_path / "run", "test/").items() if names] == [2, 4, 6, 7]
    assert not any(columns(tmp_path / "run", "train/").values())
    assert all(columns(tmp_path / "run", "local/loss").values())
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["round_6", "round_7"]
    assert len((tmp_path / "run" / "timings.csv").read_text().splitlines()) == 8


def test_summary(undisturbed):
    summary = json.loads((undisturbed.folder / "summary.json").read_text("utf-8"))
    history = read_history(RunFolder(undisturbed.folder))
    assert summary["final"] == history[-1] and summary["rounds"] == 5 and summary["algorithm"] == "fedpap"
    assert summary["best"]["test/accuracy"] == max(row["test/accuracy"] for row in history)
    assert summary["best"]["train/loss"] == min(row["train/loss"] for row in history)
    # 5 x 3 weights and 3 biases as float32, and the round for the learning rate: what a client gets.
    assert summary["bytes_down_per_client_and_round"] >= 18 * 4
    assert summary["bytes_up_per_client_and_round"] >= 18 * 4


def test_best_values_leave_out_what_is_not_finite():
    history = [
        {"round": 1, "test/accuracy": 0.5, "test/loss": math.nan, "local/loss": 2.0, "clients/counted": 3},
        {"round": 2, "test/accuracy": math.nan, "test/loss": 1.5, "local/loss": 1.0},
        {"round": 3, "test/accuracy": 0.4, "test/loss": math.inf},
    ]
    assert best_values(history) == {"test/accuracy": 0.5, "test/loss": 1.5, "local/loss": 1.0}


def test_flat_metrics_keep_scalars():
    work = {"local/loss": np.float32(1.5), "vector": np.zeros(2), "empty": (), "many": [1], "inner": {"x": 3}}
    metrics = {"work": work, "aggregator": {"weight": 2}, "finalizer": {"step": 4, "deeper": {"y": 5}}, "none": ()}
    assert flat_metrics(metrics) == {
        "local/loss": 1.5,
        "inner/x": 3.0,
        "weight": 2.0,
        "finalizer/step": 4.0,
        "finalizer/deeper/y": 5.0,
    }


def test_clients_of_any_name_come_back_from_clients_csv(undisturbed, tmp_path):
    names = ["plain", "a,b", 'quo"te', "two\nlines", "re\rturn", "诊断", " blank "]
    test = Evaluation({}, np.zeros((3, 3)), {name: (n, 0.5, 1.25) for n, name in enumerate(names, 1)})
    folder = begun(tmp_path / "run")
    write_results(undisturbed.experiment, folder, Result(None, test), [])
    with open(folder.clients, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == names
    assert [int(row["examples"]) for row in rows] == list(range(1, 8))
    assert {(row["accuracy"], row["loss"]) for row in rows} == {("0.5", "1.25")}


def test_notes_are_logged_and_nothing_of_the_log_is_printed(capsys, runtime, tmp_path):
    from tff_re.recipes.reading import resolve

    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    recipe = resolve(table, "r.toml", ("training.rounds=1",))
    experiment, _ = train_run(recipe, tmp_path / "run", runtime=runtime, details=False)
    log = (tmp_path / "run" / "run.log").read_text("utf-8")
    assert experiment.prepared.notes and all(note in log for note in experiment.prepared.notes)
    assert capsys.readouterr() == ("", "")


# NaN


def test_updates_that_are_nan_everywhere_end_the_run_in_one_line(capsys, tmp_path):
    # With mu the proximal term makes infinity minus infinity of it within a round.
    recipe = write_recipe(tmp_path / "r.toml", algorithm={"name": "fedpa", "learning_rate": 1e30, "local_epochs": 20})
    out = tmp_path / "run"
    typed = command(capsys, "train", recipe, "--out", out)
    refusal(typed, "round 1: no client had a finite update", "(2 of 2 ", "lower algorithm.learning_rate")
    assert rounds_in(out / "metrics.csv") == 0 and not list((out / "checkpoints").iterdir())
    assert not (out / "summary.json").exists() and not (out / "model.keras").exists()
    refusal(command(capsys, "evaluate", out), f"{out}: has no checkpoint yet")


# Workers that die


@pytest.fixture(scope="module")
def undisturbed_there(worker, tmp_path_factory):
    """As `undisturbed`, computed by TFF's worker."""
    folder = tmp_path_factory.mktemp("undisturbed there") / "run"
    with computing_on(worker):
        experiment, result = run(folder, worker, "training.rounds=5")
    return SimpleNamespace(folder=folder, experiment=experiment, result=result)


@pytest.fixture
def killable(tmp_path):
    """A runtime whose worker may be killed."""
    with open_runtime("local", log_path=tmp_path / "worker.log", max_concurrent_computation_calls=2) as opened:
        yield opened


def deaths(folder) -> list[str]:
    log = (folder / "run.log").read_text("utf-8")
    return [line for line in log.splitlines() if "starting it again and repeating its work" in line]


def test_a_worker_killed_between_rounds_changes_nothing(undisturbed_there, killable, tmp_path):
    def kill(report):
        if report.round in (2, 4):
            os.kill(killable.worker.pid, signal.SIGKILL)

    _, result = run(tmp_path / "run", killable, "training.rounds=5", on_round=kill)
    lines = deaths(tmp_path / "run")
    assert len(lines) == 2 and all("WARNING the TFF worker" in line and "SIGKILL" in line for line in lines)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (undisturbed_there.folder / "metrics.csv").read_bytes()
    assert_same_weights(result.weights, undisturbed_there.result.weights)


def test_a_worker_killed_in_the_middle_of_a_round_changes_nothing(undisturbed_there, killable, tmp_path):
    experiment = builder().build(tiny("training.rounds=5"))
    real, attempts = experiment.algorithm.next, []

    def next_with_death(*arguments):
        attempts.append(len(attempts))
        if len(attempts) == 2:  # held, so that the round cannot be over before the worker dies
            os.kill(killable.worker.pid, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (killable.worker.pid, signal.SIGKILL)).start()
        return real(*arguments)

    algorithm = dataclasses.replace(experiment.algorithm, next=next_with_death)
    result = train(dataclasses.replace(experiment, algorithm=algorithm), begun(tmp_path / "run"), killable)
    assert len(attempts) == 6, "round 2 was to be repeated once"
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (undisturbed_there.folder / "metrics.csv").read_bytes()
    assert_same_weights(result.weights, undisturbed_there.result.weights)


@needs_tff
def test_a_worker_that_dies_again_and_again_on_the_command_line(capsys, monkeypatch, tmp_path):
    from tff_re.runtime.local.runtime import LocalRuntime

    real = LocalRuntime._open

    def open_and_die(runtime):
        context = real(runtime)
        os.kill(runtime.worker.pid, signal.SIGKILL)
        return context

    monkeypatch.setattr("tff_re.runs.setup.open_runtime", open_runtime)  # one of its own
    monkeypatch.setattr(LocalRuntime, "_open", open_and_die)
    monkeypatch.setattr(training, "RESTARTS_IN_A_ROW", 1)
    out = tmp_path / "run"
    typed = command(capsys, "train", write_recipe(tmp_path / "r.toml"), "--out", out, "--runtime", "local")
    refusal(typed, "the TFF worker (process", "was killed by signal 9 (SIGKILL)", out / "run.log", "memory ran out")
    assert rounds_in(out / "metrics.csv") == 0 and len(deaths(out)) == 1
