"""[privacy] with unit = "example" or "group" in a recipe: what reaches the clients, and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from computations.privacy.example_gradients import ExamplePrivacy
from tests.upper_floors import SYNTHETIC, consultations, text_recipe, write_json
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.run import train_run
from tff_re.runtime import open_runtime

PRIVACY = {"clip": 0.5, "noise_multiplier": 0.1}
QUIET = {"evaluation": {"train_split": False}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_json(tmp_path_factory.mktemp("corpus") / "train.json", consultations(dialogues=6))


def recipe_of(table, unit, **privacy):
    return resolve(
        {**copy.deepcopy(table), "privacy": {"unit": unit, **PRIVACY, **privacy}, **QUIET}, "private.toml", seed=0
    )


def test_the_examples_of_a_dialogue_are_one_group(corpus):
    """Under whatever number, at all clients; the model is not told it."""
    table = {**text_recipe(corpus), "partition": {"name": "iid", "num_clients": 2}}
    experiment = ExperimentBuilder().build(recipe_of(table, "group"))
    prepared, work = experiment.prepared, experiment.algorithm.client_work
    assert work.example_privacy == ExamplePrivacy(0.5, 0.1, "group")
    assert "group" in str(work.clients_type) and "group" not in prepared.inputs.specs
    number_of = {}
    for client in prepared.examples.clients:
        documents = [i.rpartition("/")[0] for i in prepared.partition.clients[client.client_id].train]
        assert len(documents) == len(client.train["y"]) > len(set(documents))
        for document, number in zip(documents, client.train["group"].tolist(), strict=True):
            assert number_of.setdefault(document, number) == number
        assert (client.test["group"] == -1).all() and len(client.test["group"])
    assert len(set(number_of.values())) == len(number_of) == 6
    assert prepared.notes[-1].startswith("privacy: 6 groups of training examples, ")


@pytest.mark.slow  # their training is tested in tests/computations, runs of protected examples in test_privacy_runs.py
def test_runs_with_protected_examples_and_groups(corpus, tmp_path):
    """Both train and differ from one another."""
    table = {**text_recipe(corpus), "partition": {"name": "iid", "num_clients": 2}}
    builder, weights = ExperimentBuilder(), []
    with open_runtime("in-process", log_path=tmp_path / "log") as runtime:
        ways = {"runtime": runtime, "builder": builder, "details": False}
        for unit in ("example", "group"):
            result = train_run(recipe_of(table, unit), tmp_path / unit, **ways)[1]
            weights.append(np.concatenate([np.ravel(w) for w in result.weights.trainable]))
    assert np.isfinite(weights).all() and np.abs(weights[0] - weights[1]).max() > 1e-4


@pytest.mark.parametrize(
    "table, changes, reason",
    [
        (SYNTHETIC, {}, "privacy.unit is 'group', but this task's examples do not belong to documents or patients"),
        (SYNTHETIC, {"unit": "example", "noise_multiplier": None}, "has neither noise_multiplier nor epsilon"),
    ],
)
def test_what_is_refused_in_one_line(table, changes, reason):
    table = copy.deepcopy(table)
    privacy = {k: v for k, v in {"unit": "group", **PRIVACY, **changes}.items() if v is not None}
    with pytest.raises(UserError, match=f"private.toml: .*{reason}"):
        ExperimentBuilder().build(resolve({**table, "privacy": privacy, **QUIET}, "private.toml", seed=0))


def test_groups_of_single_examples_are_refused(tmp_path):
    corpus = write_json(tmp_path / "train.json", consultations(dialogues=12, sentences=1))
    table = {**text_recipe(corpus), "partition": {"name": "iid", "num_clients": 2}}
    with pytest.raises(UserError, match="no client has two training examples from the same document"):
        ExperimentBuilder().build(recipe_of(table, "group"))
