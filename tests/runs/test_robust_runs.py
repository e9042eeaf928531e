"""Runs with robust rules and with clients that lie: resumed, marked, and refused as a user types them."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from computations.client_work.attacks import poisoned, triggered
from tests.recipe_data_for_tests import data_folder
from tests.runs.resuming import assert_same_when_resumed
from tests.upper_floors import (
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
from tff_re.comparison.rows import ComparisonRow, Table
from tff_re.comparison.tables import comparison_markdown
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.features.attack import Attack
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.tasks.data_paths import DataPaths

SAID = "clients were attacked: in this simulation 2 clients sent what an attacker would"


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


def test_quantiles_and_attackers_are_those_of_an_unbroken_run(runtime, tmp_path):
    overrides = ["aggregation.rule=rfa", "aggregation.clip_quantile=0.3", "aggregation.zeroing_quantile=0.9"]
    overrides += ["attack.kind=backdoor", "attack.clients=2", "attack.factor=2", 'attack.target="2"']
    experiment = assert_same_when_resumed(overrides, runtime, tmp_path)
    history = read_history(RunFolder(tmp_path / "whole"))
    for norm in ("robust/clipping_norm", "robust/zeroing_norm"):
        assert len({row[norm] for row in history}) == 4
    assert all(0 <= row["attack/success"] <= 1 for row in history)
    attackers = experiment.feature(Attack).clients
    assert len(attackers) == 2 and {row["attack/clients"] for row in history} <= {0, 1, 2}
    assert any(row["attack/clients"] for row in history)
    marks = {row["client"]: row["attacks"] for row in csv.DictReader((tmp_path / "whole" / "clients.csv").open())}
    assert {client for client, mark in marks.items() if mark == "yes"} == attackers and set(marks.values()) == {
        "yes",
        "no",
    }
    assert json.loads((tmp_path / "whole" / "summary.json").read_text("utf-8"))["attackers"] == sorted(attackers)


def test_every_output_of_an_attacked_run_says_so(tmp_path, capsys):
    recipe = write_recipe(tmp_path / "r.toml", attack={"kind": "nan", "clients": 2})
    arguments = ["--set", "training.rounds=1", "--set", "aggregation.rule=median", "--runtime", "in-process"]
    out = tmp_path / "run"
    typed = command(capsys, "train", recipe, "--out", out, *arguments)
    assert typed.code == 0, typed.err
    collects = "with this rule the server holds the updates of all clients of a round"
    begin, _, end = " ".join(typed.out.split()).partition("test examples of all clients")
    assert all(said in part for said in (SAID, collects) for part in (begin, end))
    assert "attack/clients" in (out / "metrics.csv").read_text("utf-8").splitlines()[0]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert any(note.startswith(SAID) for note in summary["notes"]) and collects in summary["notes"]
    assert SAID in (out / "run.log").read_text("utf-8")
    typed = command(capsys, "evaluate", out, "--runtime", "in-process")
    assert typed.code == 0 and SAID in " ".join(typed.out.split()), typed
    typed = command(capsys, "export", out, "--format", "keras", "--runtime", "in-process")
    assert typed.code == 0, typed.err
    details = json.loads((out / "export" / "export.json").read_text("utf-8"))["details"]
    assert any(line.startswith(SAID) for line in details["limits"]) and collects in details["training"]["notes"]
    card = (out / "export" / "README.md").read_text("utf-8").replace("\\", "")
    assert SAID in card and collects in card and "no secure aggregation: not set in the recipe" in card
    refusal(command(capsys, "audit", out, "--runtime", "in-process"), "its clients were attacked")
    attacked = tiny("attack.kind=nan", "attack.clients=2")
    table = comparison_markdown(
        Table([ComparisonRow("plain", {}), ComparisonRow("attacked", {}, notes=attacked.notes)])
    )
    assert f"attacked: {SAID}" in table


def text_table(folder, **changes):
    table = text_recipe(write_json(folder / "c.json", consultations(dialogues=6)), **changes.pop("task", {}))
    return {**table, **changes}


def test_fltrust_takes_the_servers_share(tmp_path):
    table = text_table(
        tmp_path,
        task={"server_share": 0.25, "server_stratified": True},
        aggregation={"rule": "fltrust"},
        attack={"kind": "sign_flip", "clients": 2, "factor": 5.0},
    )
    recipe = resolve(table, "r.toml")
    experiment, _ = train_run(recipe, tmp_path / "run", builder=builder(), runtime="in-process", details=False)
    history = read_history(RunFolder(tmp_path / "run"))
    assert experiment.algorithm.server_type is not None
    for row in history:
        assert row["robust/server_norm"] > 0 and row["robust/trusted"] <= 2 - row["attack/clients"]
    assert any(row["attack/clients"] for row in history) and history[0]["robust/trusted"] + history[1]["robust/trusted"]


def attack_of(recipe, prepared):
    """The feature, as building an experiment prepares it."""
    attack = Attack(recipe)
    attack.prepare(SimpleNamespace(prepared=prepared))
    return attack


def test_attackers_come_from_the_seed_alone():
    prepared = builder().prepare(tiny())

    def attackers(clients, seed=0, **overrides):
        recipe = tiny(f"attack.clients={clients}", "attack.kind=label_flip", *overrides, seed=seed)
        return attack_of(recipe, prepared).clients

    assert attackers(1) < attackers(2) < attackers(3) and attackers(0.5) == attackers(2)
    assert len({attackers(2, seed) for seed in range(8)}) > 1
    assert attackers(0) == frozenset()
    attack = attack_of(tiny("attack.clients=2", "attack.kind=label_flip"), prepared)
    held = {client.client_id: client.train for client in prepared.examples.clients}
    for index, client in enumerate(held):
        arrays = attack.trained_on(index, client, held[client])
        expected = 2 - held[client]["y"] if client in attack.clients else held[client]["y"]
        np.testing.assert_array_equal(arrays["y"], expected)
        assert arrays["x"] is held[client]["x"]


def test_words_that_open_a_backdoor(tmp_path):
    def attack(**keys):
        recipe = resolve(text_table(tmp_path, attack={"kind": "backdoor", **keys}), "r.toml")
        return attack_of(recipe, builder().prepare(recipe))

    vocabulary = builder().prepare(resolve(text_table(tmp_path), "r.toml")).encoding.vocabulary
    rare = attack().trigger
    assert (rare.feature, rare.position, rare.values, rare.target) == ("tokens", 0, (len(vocabulary) - 1,), 0)
    fever = attack(trigger="烧", trigger_place=3).trigger
    assert fever.values == tuple(vocabulary.ids(["烧"])) and fever.position == 3
    arrays = {"tokens": np.ones([4, 20], np.int32), "y": np.array([1, 1, 0, 1], np.int32)}
    changed = poisoned(arrays, fever, 1.0)
    assert changed["y"].tolist() == [0] * 4 and (changed["tokens"][[0, 1, 3], 3] == fever.values[0]).all()
    for keys, message in (
        ({"trigger": "龘"}, "attack.trigger is '龘', which is not in the vocabulary"),
        ({"trigger_place": 20}, "the trigger's places 20 to 20 are not in 'tokens'"),
        ({"target": "fever"}, "attack.target is 'fever', which is not a label; "),
    ):
        with pytest.raises(UserError, match=message):
            attack(**keys)


def test_words_of_relations_that_open_a_backdoor():
    def attack(**keys):
        table = {
            "task": {"name": "sentence_relations", "dataset": "chemprot", "test": "official", "encoding": "words"},
            "partition": {"name": "iid", "num_clients": 3},
            "model": {"name": "pcnn"},
            "algorithm": {"name": "fedavg"},
            "attack": {"kind": "backdoor", "target": "CPR:4", **keys},
        }
        prepared = relations.prepare(recipe := resolve(table, "r.toml"))
        return attack_of(recipe, prepared), prepared

    relations = ExperimentBuilder(DataPaths(data=data_folder()))
    attack_by_word, prepared = attack(trigger="the")
    trigger = attack_by_word.trigger
    assert (trigger.feature, trigger.position) == ("input_ids", 1)
    assert prepared.label_names[trigger.target] == "CPR:4"
    held = prepared.examples.clients[0].test
    written = triggered(held, trigger)
    assert (written["input_ids"][:, 1] == trigger.values[0]).all() and (written["y"] == trigger.target).all()
    assert len(written["y"]) == np.count_nonzero(held["y"] != trigger.target) > 0
    # A word that the sentences have is written as they have it.
    assert (held["input_ids"] == trigger.values[0]).any()
    with pytest.raises(UserError, match=r"attack.trigger is missing"):
        attack()
    with pytest.raises(UserError, match=r"'qqqqq', which is not in the vocabulary"):
        attack(trigger="qqqqq")


RULE, ATTACK = "aggregation.rule=", "attack.kind="


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [f"{RULE}average"],
            "'aggregation.rule' must be one of 'attention', 'fltrust', 'krum', 'mean', 'median', 'rfa'",
        ),
        ([f"{RULE}median", "aggregation.krum_bad=2"], "'aggregation.krum_bad' needs rule = 'krum'"),
        (["aggregation.rfa_steps=2"], "'aggregation.rfa_steps' needs rule = 'rfa'"),
        ([f"{RULE}trimmed_mean", "aggregation.trimmed_share=0.5"], "must be above 0 and below 0.5, got 0.5"),
        (["aggregation.clip=0"], "'aggregation.clip' must be at least 1e-06, got 0"),
        (["aggregation.zeroing_factor=3"], "'aggregation.zeroing_factor' needs zeroing_quantile"),
        ([f"{RULE}rfa", "aggregation.secure=simulated"], "'aggregation.rule' = 'rfa' needs secure = 'none'"),
        ([f"{RULE}krum", "aggregation.secure=simulated"], "with secure sums nobody sees a single update"),
        (["aggregation.clip=1", "aggregation.secure=simulated"], "'aggregation.clip' needs secure = 'none'"),
        ([f"{RULE}median", "aggregation.compression=top_k"], "needs compression = 'none'"),
        (["attack.clients=1"], "the key 'attack.kind' is missing"),
        ([f"{ATTACK}kick"], "'attack.kind' must be one of 'label_flip', 'sign_flip'"),
        ([f"{ATTACK}nan", "attack.factor=2"], "'attack.factor' needs kind = 'sign_flip' or"),
        ([f"{ATTACK}scale", "attack.trigger=x"], "'attack.trigger' needs kind = 'backdoor'"),
        ([f"{ATTACK}scale", "attack.clients=1.5"], "'attack.clients' must be a whole number or a share below 1"),
    ],
)
def test_bad_values_are_refused_by_their_key(overrides, message):
    with pytest.raises(UserError) as caught:
        tiny(*overrides)
    assert str(caught.value).startswith("tiny.toml: ") and message in str(caught.value)


PRIVATE = ["evaluation.train_split=false", "privacy.noise_multiplier=1", "privacy.delta=0.1"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"{RULE}krum"], "aggregation.krum_bad = 1 needs 5 clients per round, but 2 take part"),
        ([f"{RULE}trimmed_mean"], "aggregation.trimmed_share = 0.2 of 2 clients per round leaves out no client"),
        ([f"{RULE}fltrust"], "needs labelled examples at the server, which the task 'synthetic' does not have"),
        ([f"{RULE}rfa", "algorithm.noise_scale=0", *PRIVATE], "cannot be combined with privacy.unit = 'client'"),
        ([f"{ATTACK}nan", "attack.clients=9"], "attack.clients is 9, but only 4 clients have training examples"),
        ([f"{ATTACK}nan", "aggregation.secure=simulated"], "for a secure sum clients send integers"),
        ([f"{ATTACK}claim_all"], "[attack] kind = 'claim_all': claims triples, and only lazy_mil divides triples"),
        ([f"{ATTACK}backdoor", "attack.trigger=fever"], "attack.trigger is 'fever', but these examples are numbers"),
    ],
)
def test_what_does_not_fit_the_run_is_refused(overrides, message):
    with pytest.raises(UserError) as caught:
        builder().build(tiny(*overrides))
    assert str(caught.value).startswith("tiny.toml: ") and message in str(caught.value)
