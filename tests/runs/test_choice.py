"""The round that a run ends with: chosen on clients' dev examples, kept beside the last, the same after a resume."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runs.resuming import assert_same_files, resumed
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
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.evaluation import Evaluator, metric_names
from tff_re.runs.features.choice import Choice, ChoiceOfEach
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run

# A rate at which the dev loss soon rises, checkpoints between the evaluations, and an end before the last round.
PLAN = (
    *("training.rounds=30", "training.checkpoint_every=3", "evaluation.every=2", "algorithm.learning_rate=0.3"),
    *("choice={dev_share=0.3, patience=6}",),
)


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


def run(folder, runtime, *, resume=False, **options):
    options = {"details": False, **options}
    return train_run(tiny(*PLAN), folder, builder=builder(), runtime=runtime, resume=resume, **options)


@pytest.fixture(scope="module")
def early(runtime, tmp_path_factory):
    """A run that ends early."""
    folder = tmp_path_factory.mktemp("early") / "run"
    experiment, result = run(folder, runtime)
    rows = read_history(RunFolder(folder))
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, rows=rows)


# The rule


def rule(patience=None, criterion="dev/loss", every=1, kind=Choice):
    return kind(criterion, every, patience, "dev")


def followed(choice, values):
    """(chosen round, the round that it ended with or None) of a metric by round."""
    best = choice.start("w0")
    for round_num, value in enumerate(values, 1):
        if round_num % choice.every == 0:
            best = choice.take(best, round_num, {choice.criterion: value}, (), f"w{round_num}")
        assert best["weights"] == f"w{int(best['round'])}"
        if choice.ends(best, round_num):
            return int(best["round"]), round_num
    return int(best["round"]), None


def test_the_first_of_the_best_is_kept():
    assert followed(rule(), [3, 2, 2, 4, math.nan, 2]) == (2, None)
    assert followed(rule(criterion="dev/macro_f1"), [0.1, 0.4, 0.4, 0.2, 0.4]) == (2, None)
    assert followed(rule(), [math.nan, math.inf]) == (0, None), "nothing is chosen by what is not finite"


def test_patience_is_counted_in_rounds_at_evaluations():
    assert followed(rule(patience=2), [3, 2, 2.5, 1, 2, 2, 0]) == (4, 6)
    assert followed(rule(patience=3), [3, 2, 2.5, 1, 2, 2, 0]) == (7, None)
    # Evaluated in 2, 4, 6, 8: three rounds after round 2 is round 5, which nobody looks at.
    assert followed(rule(patience=3, every=2), [9, 1, 9, 2, 9, 2, 9, 0]) == (2, 6)
    assert followed(rule(patience=2), [math.nan] * 3) == (0, 2)


def test_clients_that_train_alone_choose_and_stop_each_for_itself():
    choice, values = rule(patience=2, kind=ChoiceOfEach), {1: (2, 5), 2: (3, 4), 3: (3, 3), 4: (1, 4), 5: (1, 4)}
    best, ended = choice.start({"memory": ["a0", "b0"]}), []
    for round_num, losses in values.items():
        of_each = [{"loss": loss} for loss in losses]
        best = choice.take(best, round_num, {}, of_each, {"memory": [f"a{round_num}", f"b{round_num}"]})
        ended.append(choice.ends(best, round_num))
    # The first stopped after round 3, so that its better fourth round came too late.
    assert [chosen["weights"] for chosen in best] == ["a1", "b3"] and ended == [False] * 4 + [True]
    assert [chosen["round"] for chosen in choice.take(best, 6, {}, [{}, {}], {"memory": ["a6", "b6"]})] == [1, 3]


# Dev examples


def test_dev_examples_are_of_the_training_examples_alone(early):
    whole = builder().build(tiny()).prepared.examples
    shares = []
    for before, after in zip(whole.clients, early.experiment.prepared.examples.clients, strict=True):
        np.testing.assert_array_equal(after.test["x"], before.test["x"])
        rows = [tuple(row) for row in before.train["x"].tolist()]
        parts = [[tuple(row) for row in part["x"].tolist()] for part in (after.train, after.dev)]
        assert sorted(parts[0] + parts[1]) == sorted(rows) and not set(parts[0]) & set(parts[1])
        shares.append((len(parts[1]), max(1, round(0.3 * len(rows)))))
    assert all(dev == wanted for dev, wanted in shares)
    assert any("training examples are kept out of training at 4 clients" in n for n in early.experiment.notes)


@pytest.mark.parametrize("unit", ["document", "sample"])
def test_whole_dialogues_are_kept_out_where_a_client_has_several(unit, tmp_path):
    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    table |= {"partition": {"name": "by_field", "field": "diagnosis"}, "choice": {"dev_unit": unit, "dev_share": 0.4}}
    alone = {**table, "partition": {"name": "natural"}}
    dialogues = []
    for recipe in (table, alone):
        experiment = builder().build(resolve(recipe, "r.toml"))
        prepared = experiment.prepared
        for client in prepared.examples.clients:
            ids = prepared.partition.clients[client.client_id].train
            assert len(client.train["y"]) + len(client.dev["y"]) == len(ids) and len(client.dev["y"])
        dialogues.append([len(client.dev["y"]) for client in prepared.examples.clients])
    # Two dialogues a client of about four training sentences each: one of them is kept out.
    sizes = [len(c.train["y"]) + n for c, n in zip(prepared.examples.clients, dialogues[1], strict=True)]
    assert dialogues[1] == [max(1, round(0.4 * size)) for size in sizes], "a client of one dialogue keeps sentences out"
    assert (dialogues[0] == [3, 3]) == (unit == "sample")


# Runs


def test_the_best_and_the_last_model_are_kept(early, capsys):
    rows, (chosen, criterion) = early.rows, early.result.chosen
    losses = {int(row["round"]): row["dev/loss"] for row in rows if "dev/loss" in row}
    assert criterion == "dev/loss" and losses[chosen] == min(losses.values())
    assert 2 < len(rows) < 30 and len(rows) == chosen + 6, "it ended early, by patience"
    reason = f"stopped after round {len(rows)}: dev/loss has not improved since round {chosen}"
    assert early.result.stopped.startswith(reason)
    summary = json.loads((early.folder / "summary.json").read_text("utf-8"))
    at = next(row for row in rows if row["round"] == chosen)
    assert summary["chosen"]["round"] == chosen and "clients keep out of their training (30 % each)" in str(summary)
    assert summary["chosen"]["test/accuracy"] == at["test/accuracy"] == early.result.test.metrics["accuracy"]
    assert not any(name.startswith("test/") for name in summary["best"]), "nothing is chosen on test"
    assert summary["stopped"] == early.result.stopped and summary["final"]["test/loss"] != at["test/loss"]
    printed = [command(capsys, "evaluate", early.folder, *more).out for more in ((), ("--last",), ("--split", "dev"))]
    assert f"after round {chosen} " in " ".join(printed[0].split())
    assert f"after round {len(rows)} " in " ".join(printed[1].split())
    assert f"{at['test/loss']:.4f}" in printed[0] and f"{rows[-1]['test/loss']:.4f}" in printed[1]
    assert f"{losses[chosen]:.4f}" in printed[2]


def test_its_metrics_are_known_before_the_run(early):
    assert {name for name in early.rows[-1] if name.startswith("dev/")} == {
        name for name in metric_names(early.experiment) if name.startswith("dev/")
    }


def test_dev_metrics_are_sums_over_clients(early):
    evaluation = Evaluator(early.experiment, "dev")(early.result.weights)
    kernel, bias = early.result.weights.trainable
    right, number = 0, 0
    for client in early.experiment.prepared.examples.clients:
        right += int(((client.dev["x"] @ kernel + bias).argmax(1) == client.dev["y"]).sum())
        number += len(client.dev["y"])
    assert evaluation.metrics["accuracy"] == pytest.approx(right / number)


@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["checkpoint", "summary"])
def test_a_run_broken_off_where_it_ends_early_resumes_to_the_same(before, early, runtime, tmp_path):
    folder = tmp_path / "run"
    _, result = resumed(lambda **options: run(folder, runtime, **options), "save", len(early.rows), before)
    assert_same_files(folder, early.folder, "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, early.result.weights)
    assert result.chosen == early.result.chosen and result.stopped == early.result.stopped


@pytest.mark.parametrize(
    ("choice", "parts"),
    [
        ({"metric": "micro_f1"}, ["'choice.metric': there is no metric 'micro_f1'; did you mean 'macro_f1'?"]),
        ({"patience": 0}, ["'choice.patience' must be at least 1, got 0"]),
        ({"dev_share": 1}, ["'choice.dev_share' must be above 0 and at most 0.5, got 1"]),
        ({"pacience": 5}, ["unknown key 'choice.pacience'; did you mean 'patience'?"]),
    ],
    ids=str,
)
def test_keys_that_cannot_be(choice, parts, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", choice=choice)
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "run"), recipe, *parts)
    assert not (tmp_path / "run").exists()


def test_clients_of_one_example_have_nothing_to_choose_on():
    task = "task={name='synthetic', num_clients=4, num_features=5, num_classes=3, total_train=4, total_test=4}"
    with pytest.raises(UserError, match=r"tiny\.toml: \[choice\] needs at least one client with two training examples"):
        builder().build(tiny(task, "choice={}"))


def test_what_is_kept_has_the_form_of_older_checkpoints():
    best = rule().start("w")
    assert isinstance(best, OrderedDict) and list(best) == ["round", "value", "weights"]
