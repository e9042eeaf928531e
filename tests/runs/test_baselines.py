"""What sites reach alone, pooled and with fine-tuning on top, from the same partition and seed."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import (
    assert_same_weights,
    builder,
    command,
    consultations,
    refusal,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.recipes.reading import resolve
from tff_re.runs.evaluation import Evaluator, metric_names
from tff_re.runs.features.choice import ChoiceOfEach
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run

PLAN = ("training.rounds=6", "training.checkpoint_every=3", "algorithm={name='fedavgs', local_epochs=2}")
ALONE = (*PLAN, "baseline.kind='local'", "choice={dev_share=0.3}", "algorithm.learning_rate=0.3")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


def run(folder, runtime, recipe, **options):
    options = {"details": False, "builder": builder(), **options}
    experiment, result = train_run(recipe, folder, runtime=runtime, **options)
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, rows=read_history(RunFolder(folder)))


def clients_csv(folder):
    with open(folder / "clients.csv", newline="", encoding="utf-8") as file:
        return {row["client"]: row for row in csv.DictReader(file)}


def right(weights, examples):
    kernel, bias = weights.trainable
    return int(((examples["x"] @ kernel + bias).argmax(1) == examples["y"]).sum())


@pytest.fixture(scope="module")
def alone(runtime, tmp_path_factory):
    """A run of clients that train alone; `losses`: of each round, client by client."""
    losses, real = [], ChoiceOfEach.take

    def noted(choice, best, round_num, metrics, of_each, weights):
        losses.append([metrics_of_client["loss"] for metrics_of_client in of_each])
        return real(choice, best, round_num, metrics, of_each, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChoiceOfEach, "take", noted)
        done = run(tmp_path_factory.mktemp("alone") / "run", runtime, tiny(*ALONE))
    return SimpleNamespace(**vars(done), losses=np.array(losses))


def test_every_client_is_tested_on_its_own_and_on_all(alone):
    models, clients = alone.result.weights, alone.experiment.prepared.examples.clients
    table, size = clients_csv(alone.folder), alone.experiment.prepared.examples.size("test")
    on_all = {}
    for client in clients:
        name = client.client_id
        correct = right(models[name], client.test)
        assert float(table[name]["accuracy"]) == pytest.approx(correct / len(client.test["y"]))
        on_all[name] = sum(right(models[name], other.test) for other in clients) / size
        assert float(table[name]["accuracy_all"]) == pytest.approx(on_all[name])
    summary = json.loads((alone.folder / "summary.json").read_text("utf-8"))
    assert summary["on_all"]["all/accuracy"] == pytest.approx(np.mean(list(on_all.values())))
    assert summary["on_all"]["all/accuracy_worst"] == pytest.approx(min(on_all.values()))
    correct = sum(right(models[c.client_id], c.test) for c in clients) / size
    assert summary["chosen"]["test/accuracy"] == alone.result.test.metrics["accuracy"] == pytest.approx(correct)
    assert {f"all/{n}" for n in ("accuracy", "loss", "accuracy_worst")} <= set(alone.rows[-1])
    assert {n for n in metric_names(alone.experiment) if n.startswith(("all/", "dev/", "test/"))} == {
        n for n in alone.rows[-1] if n.startswith(("all/", "dev/", "test/"))
    }


def test_all_train_in_every_round_and_each_chooses_its_own(alone):
    assert [row["clients/counted"] for row in alone.rows] == [4] * 6 and alone.experiment.clients_per_round == 4
    rounds = {name: int(row["round"]) for name, row in clients_csv(alone.folder).items()}
    clients = [client.client_id for client in alone.experiment.prepared.examples.clients]
    assert alone.losses.shape == (6, 4) and [rounds[c] for c in clients] == (alone.losses.argmin(0) + 1).tolist()
    on_dev = Evaluator(alone.experiment, "dev")(alone.result.weights)
    assert [on_dev.clients[c][2] for c in clients] == pytest.approx(alone.losses.min(0))
    assert alone.result.chosen == (max(rounds.values()), "dev/loss")
    summary = json.loads((alone.folder / "summary.json").read_text("utf-8"))
    assert summary["chosen"]["on"].startswith("each client by itself") and summary["bytes_up_per_client_and_round"] == 0
    assert any("nothing is sent" in note for note in summary["notes"])


def test_a_resumed_run_alone_is_the_same(alone, runtime, tmp_path):
    def train(**options):
        return run(tmp_path / "run", runtime, tiny(*ALONE), **options)

    again = resumed_after(train, 4)
    assert_same_files(again.folder, alone.folder, "metrics.csv", "clients.csv", "summary.json")
    for name, weights in alone.result.weights.items():
        assert_same_weights(weights, again.result.weights[name])


def test_what_needs_one_model_says_so(alone, capsys):
    refusal(command(capsys, "export", alone.folder), "this run has one model per client")
    typed = command(capsys, "evaluate", alone.folder)
    assert typed.code == 0 and f"{alone.result.test.metrics['loss']:.4f}" in typed.out


def test_pooled_is_one_client_tested_like_the_federation(runtime, tmp_path):
    federated = builder().build(tiny(*PLAN))
    pooled = run(tmp_path / "run", runtime, tiny(*PLAN, "baseline.kind='pooled'", "training.clients_per_round=2"))
    first, *others = pooled.experiment.prepared.examples.clients
    whole = federated.prepared.examples
    np.testing.assert_array_equal(first.train["x"], whole.pooled("train")["x"])
    assert [c.client_id for c in others] == [c.client_id for c in whole.clients]
    for mine, theirs in zip(others, whole.clients, strict=True):
        np.testing.assert_array_equal(mine.test["x"], theirs.test["x"])
        assert not len(mine.train["y"])
    assert list(clients_csv(pooled.folder)) == [c.client_id for c in whole.clients]
    steps = 2 * -(-whole.size("train") // 10)
    assert [row["local/steps"] for row in pooled.rows] == [steps] * 6
    accuracy = sum(right(pooled.result.weights, c.test) for c in whole.clients) / whole.size("test")
    assert pooled.rows[-1]["test/accuracy"] == pytest.approx(accuracy)


@pytest.fixture(scope="module")
def personal(runtime, tmp_path_factory):
    recipe = tiny(*PLAN, "personalise={epochs=5, learning_rate=0.1}", "choice={dev_share=0.3}")
    return run(tmp_path_factory.mktemp("personal") / "run", runtime, recipe)


def test_before_and_after_fine_tuning_by_client(personal):
    table, personalised = clients_csv(personal.folder), personal.result.personalised
    gains = {name: float(row["gain"]) for name, row in table.items()}
    sizes = {name: int(row["examples"]) for name, row in table.items()}
    for name, row in table.items():
        assert gains[name] == pytest.approx(float(row["accuracy_personal"]) - float(row["accuracy"]))
        assert float(row["accuracy"]) == personal.result.test.clients[name][1], "before is the run's own evaluation"
    total = sum(sizes.values())
    mean = sum(gains[name] * sizes[name] for name in gains) / total
    assert personalised.metrics["personal/gain"] == pytest.approx(mean) and personalised.metrics["personal/gain"] != 0
    assert personalised.metrics["personal/gain_worst"] == min(gains.values()) == gains[personalised.worst]
    assert personalised.metrics["personal/not_worse"] == np.mean([gain >= 0 for gain in gains.values()])
    summary = json.loads((personal.folder / "summary.json").read_text("utf-8"))["personalised"]
    assert summary["client_that_gains_least"] == personalised.worst and summary["epochs"] == 5
    after = sum(float(table[n]["accuracy_personal"]) * sizes[n] for n in sizes) / total
    assert summary["personal/accuracy"] == pytest.approx(after) and "personal_dev/gain" in summary


def test_fine_tuning_is_the_same_after_a_resume(personal, runtime, tmp_path):
    def train(**options):
        return run(tmp_path / "run", runtime, personal.experiment.recipe, **options)

    again = resumed_after(train, 4)
    assert_same_files(again.folder, personal.folder, "metrics.csv", "clients.csv", "summary.json")


def test_local_heads_are_kept_and_resumed(runtime, tmp_path):
    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    table["model"] = {"name": "lstm", "units": 3, "embedding_width": 2}
    table["training"] = {"rounds": 2, "clients_per_round": 2, "checkpoint_every": 1}
    table["algorithm"]["local_epochs"] = 1
    recipe = resolve({**table, "personalise": {"epochs": 0, "local_head": True}, "choice": {}}, "r.toml")
    whole = run(tmp_path / "whole", runtime, recipe)
    models = whole.result.weights
    heads = {name: weights.trainable[-2] for name, weights in models.items()}
    assert len({head.tobytes() for head in heads.values()}) > 1
    bodies = {np.asarray(weights.trainable[0]).tobytes() for weights in models.values()}
    assert len(bodies) == 1 and whole.result.personalised is None

    again = resumed_after(lambda **options: run(tmp_path / "again", runtime, recipe, **options), 1)
    assert_same_files(again.folder, whole.folder, "metrics.csv", "clients.csv", "summary.json")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"baseline": {"kind": "lokal"}}, ["'baseline.kind' must be one of 'local', 'pooled', got 'lokal'"]),
        ({"baseline": {"kind": "local"}, "personalise": {}}, ["[personalise] needs a global model"]),
        (
            {"baseline": {"kind": "pooled"}, "personalise": {"local_head": True}},
            ["'personalise.local_head' cannot be combined with"],
        ),
        (
            {"baseline": {"kind": "local"}, "aggregation": {"compression": "stochastic_8bit"}},
            ["a [baseline] run has no server"],
        ),
        ({"baseline": {"kind": "pooled"}, "server_optimizer": {"name": "adam"}}, ["[server_optimizer] has no effect"]),
        ({"baseline": {"kind": "local"}, "attack": {"kind": "nan"}}, ["[attack] has no effect"]),
        ({"baseline": {"kind": "local"}, "failures": {"dropout": 0.1}}, ["[failures] has no effect"]),
        (
            {"baseline": {"kind": "local"}, "algorithm": {"name": "scaffold"}},
            ["[baseline] with scaffold", "keep their own state"],
        ),
        ({"personalise": {"epochs": 0}}, ["'personalise.epochs' must be at least 1 if local_head is false"]),
        ({"personalise": {"layers": "adapter"}}, ["'personalise.layers' is 'adapter', but the model has no adapter"]),
        (
            {"personalise": {"local_head": True}},
            ["'personalise.local_head' with fedpap", "consists only of its classifier"],
        ),
    ],
    ids=str,
)
def test_tables_that_do_not_go_together(change, parts, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", **change)
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "run"), recipe, *parts)
    assert not (tmp_path / "run").exists()
