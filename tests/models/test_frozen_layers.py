"""Frozen layers run once: what is trained behind them is what would be trained with them inside."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.documents_for_tests import document_table, marking_encoder
from tests.models.encoders_for_tests import encoder, full_adapted_model
from tests.upper_floors import assert_same_weights
from tff_re.models import MODELS
from tff_re.models.inputs import HiddenInput, RelationInput
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.results import keras_model
from tff_re.runs.run import train_run
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_paths import DataPaths

LABELS = ("ACTIVATOR", "INHIBITOR", "AGONIST")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("frozen") / "train.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(18):
            label = number % len(LABELS)
            text = f"<< drug {'a' * (number % 3)}x >> {'abc'[label]} binds {'the ' * (number % 4)}[[ gene ]] ."
            file.write(json.dumps({"text": text, "label": LABELS[label], "metadata": []}) + "\n")
    return path


def with_frozen_layers(recipe):
    """What an experiment has of the data and the model, and the data before the frozen layers ran."""
    plain = ExperimentBuilder(DataPaths()).prepare(recipe)
    prepared = plain.precomputed(recipe.model, recipe.seed)
    return SimpleNamespace(recipe=recipe, prepared=prepared, model=prepared.local_model(recipe.model)), plain


def recipe(corpus, kind="bert", seed=0, task=None, **model):
    fixed = {"name": "sentence_relations", "path": str(corpus), "max_length": 20, "test_share": 0.3}
    table = {
        "name": "frozen",
        "task": {**fixed, "tokenizer": str(encoder(kind)), **(task or {})},
        "partition": {"name": "iid", "num_clients": 2},
        "model": {"name": "sentence_encoder", "frozen_layers": 1, "encoder_dropout": 0.0, **model},
        "algorithm": {"name": "fedavg", "learning_rate": 0.05, "local_epochs": 2, "batch_size": 4},
        "training": {"rounds": 2, "client_fraction": 1.0},
    }
    return resolve(table, "frozen.toml", seed=seed)


def in_order(examples):
    """A client's arrays as tensors, its labels left out."""
    return {name: tf.constant(array) for name, array in examples.items() if name != "y"}


@pytest.mark.parametrize(
    ("kind", "frozen_layers"),
    [("bert", 1), *(pytest.param(kind, n, marks=pytest.mark.slow) for kind, n in (("bert", 2), ("distilbert", 2)))],
)
def test_logits_are_those_of_the_whole_model(kind, frozen_layers, corpus):
    """At the clients, and of what the server holds."""
    task = {"server_share": 0.3, "server_stratified": True} if kind == "bert" else {}
    apart, plain = with_frozen_layers(recipe(corpus, kind, task=task, frozen_layers=frozen_layers))
    assert isinstance(apart.prepared.inputs, HiddenInput) and isinstance(plain.inputs, RelationInput)
    weights = apart.model.initial_weights(0)
    upper, whole = apart.model.keras_model(weights), keras_model(apart, weights)
    held = [(apart.prepared.examples.server, plain.examples.server)] if task else []
    for client, theirs in zip(apart.prepared.examples.clients, plain.examples.clients, strict=True):
        held += [(client.train, theirs.train), (client.test, theirs.test)]
    assert not task or len(held[0][0]["y"]) == 5
    for ours, pieces in held:
        np.testing.assert_array_equal(ours["y"], pieces["y"])
        assert ours["hidden"].dtype == np.float16 and not ours["hidden"][pieces["attention_mask"] == 0].any()
        assert "input_ids" not in ours
        np.testing.assert_allclose(
            upper(in_order(ours))["logits"], whole(in_order(pieces))["logits"], rtol=0, atol=2e-2
        )


def test_a_projection_is_what_is_trained_behind_an_encoder_that_is_wholly_frozen(corpus):
    apart, plain = with_frozen_layers(recipe(corpus, frozen_layers=2, projection=5))
    weights = apart.model.initial_weights(0)
    assert [value.shape for value in weights.trainable] == [(32, 5), (5,), (5, 5)]
    ours, pieces = apart.prepared.examples.clients[0].train, plain.examples.clients[0].train
    upper, whole = apart.model.keras_model(weights), keras_model(apart, weights)
    seen, wanted = upper(in_order(ours)), whole(in_order(pieces))
    for name in ("logits", "features"):
        np.testing.assert_allclose(seen[name], wanted[name], rtol=0, atol=2e-2)
    mentions = tf.keras.Model(upper.inputs, upper.get_layer("mentions").output)(in_order(ours))
    dense, bias, classifier = weights.trainable
    features = np.tanh(mentions @ dense + bias)
    np.testing.assert_allclose(seen["features"], features, rtol=0, atol=1e-5)
    np.testing.assert_allclose(seen["logits"], features @ classifier, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_training_is_that_with_the_layers_inside(corpus, runtime, tmp_path, monkeypatch):
    apart, result = train_run(recipe(corpus), tmp_path / "apart", runtime=runtime)
    monkeypatch.setattr(Prepared, "precomputed", lambda self, model, seed: self)
    together, wanted = train_run(recipe(corpus), tmp_path / "inside", runtime=runtime, details=False)
    start = apart.model.initial_weights(0)
    assert not result.weights.non_trainable and wanted.weights.non_trainable
    for first, trained, other in zip(start.trainable, result.weights.trainable, wanted.weights.trainable, strict=True):
        np.testing.assert_allclose(trained, other, rtol=0, atol=0.15 * np.abs(other - first).max() + 1e-6)
    assert apart.traffic.up == together.traffic.up and apart.traffic.down < together.traffic.down
    saved = tf.keras.models.load_model(tmp_path / "apart" / "model.keras", compile=False)
    examples = in_order(ExperimentBuilder(DataPaths()).prepare(recipe(corpus)).examples.clients[0].test)
    np.testing.assert_allclose(
        saved(examples)["logits"], keras_model(apart, result.weights)(examples)["logits"], rtol=0, atol=1e-5
    )


def test_what_the_checkpoint_does_not_have_comes_from_the_seed(corpus):
    built = [with_frozen_layers(recipe(corpus, seed=seed))[0] for seed in (0, 1, 0)]
    assert_same_weights(built[0].model.initial_weights(0), built[2].model.initial_weights(0))
    hidden = [experiment.prepared.examples.pooled("train")["hidden"] for experiment in built]
    np.testing.assert_array_equal(hidden[0], hidden[2])
    assert built[0].prepared.inputs == built[1].prepared.inputs  # seeds differ in data, not in computations
    assert not np.array_equal(np.sort(hidden[0], axis=None), np.sort(hidden[1], axis=None))


@pytest.mark.parametrize(
    ("frozen_layers", "window"), [(1, 12), *(pytest.param(*p, marks=pytest.mark.slow) for p in ((1, None), (2, 12)))]
)
def test_documents_behind_frozen_layers_are_those_of_the_whole_model(frozen_layers, window):
    """Whole and in windows, at the clients and at the server; with all layers frozen the last one still runs."""
    keys = {"frozen_layers": frozen_layers, "encoder_dropout": 0.0, **({"window": window} if window else {})}
    table = document_table(model=keys, task={"tokenizer": str(marking_encoder(layers=2))})
    apart, plain = with_frozen_layers(resolve(table, "documents.toml", seed=0))
    assert isinstance(apart.prepared.inputs, HiddenInput)
    assert (apart.prepared.inputs.shape[0] > 1) == (window is not None)  # windows in the longest document
    weights = apart.model.initial_weights(0)
    upper, whole = apart.model.keras_model(weights), keras_model(apart, weights)
    assert len(upper.trainable_variables) == len(whole.trainable_variables)
    held = zip(apart.prepared.examples.clients, plain.examples.clients, strict=True)
    parts = [(client.train, theirs.train) for client, theirs in held]
    parts.append(tuple(d.held_out.examples(d.local_model(apart.recipe.model), "test") for d in (apart.prepared, plain)))
    for ours, pieces in parts:
        assert "input_ids" not in ours
        outputs = [model(in_order(arrays)) for model, arrays in ((upper, ours), (whole, pieces))]
        for name in ("logits", "context"):
            np.testing.assert_allclose(*(output[name] for output in outputs), rtol=0, atol=2e-2)
        np.testing.assert_array_equal(*(output["pair_labels"] for output in outputs))


def moved_adapter(**model):
    """Documents with an adapter that does something: the parts of `with_frozen_layers`, and the weights."""
    adapter = {"kind": "lora", "rank": 4, "targets": ["query", "key"]}
    table = document_table(model={"adapter": adapter, "window": 12, "encoder_dropout": 0.0, **model})
    if model:
        table["task"]["tokenizer"] = str(marking_encoder(layers=2))
    adapted, plain = with_frozen_layers(resolve(table, "documents.toml", seed=0))
    weights = adapted.model.initial_weights(0)
    random = np.random.default_rng(0)
    weights.trainable[:] = [w + random.normal(0, 0.1, w.shape).astype(np.float32) for w in weights.trainable]
    assert not weights.non_trainable
    return adapted, plain, weights


def test_documents_with_an_adapter():
    """The adapter in the windows' encoder; merged, the model gives the same."""
    adapted, _, weights = moved_adapter()
    examples = in_order(adapted.prepared.examples.clients[0].train)
    logits = [
        model(examples)["logits"] for model in (adapted.model.keras_model(weights), keras_model(adapted, weights))
    ]
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-5)


@pytest.mark.slow  # of sentences it is among the quick tests
def test_documents_with_an_adapter_above_frozen_layers():
    """As a whole model with an adapter in every layer, the lowest ones' without effect."""
    adapted, plain, weights = moved_adapter(frozen_layers=1)
    inputs, options = adapted.prepared.inputs, adapted.recipe.model.options
    assert isinstance(inputs, HiddenInput) and all("layer_._0" not in name for name in adapted.model.weight_names)
    hidden, pieces = (in_order(prepared.examples.clients[0].train) for prepared in (adapted.prepared, plain))
    trained = adapted.model.keras_model(weights)
    expected = trained(hidden)["logits"]
    whole = full_adapted_model(
        adapted.recipe, plain, inputs, MODELS["document_encoder"].adapted(options, inputs, trained)
    )
    exact = whole(pieces)["logits"]
    np.testing.assert_allclose(keras_model(adapted, weights)(pieces)["logits"], exact, rtol=0, atol=1e-5)
    np.testing.assert_allclose(expected, exact, rtol=0, atol=2e-2)
    merged = MODELS["document_encoder"].whole_form(options, inputs, trained, merged=True)
    np.testing.assert_allclose(merged(pieces)["logits"], expected, rtol=0, atol=1e-4)
