"""Adapters: what is trained and sent, what stays in files, exact means, merging, files in PEFT's form."""

from __future__ import annotations

import dataclasses
import functools
import json
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from computations import algorithms
from computations.privacy.example_gradients import sum_one_by_one, sum_side_by_side
from tests.models.encoders_for_tests import LAYERS, PIECES, WIDTH, encoder, full_adapted_model
from tests.runs.resuming import resumed_after
from tests.stacks import computing_on, needs_tff
from tests.upper_floors import assert_same_weights
from tff_re.errors import UserError
from tff_re.exporting.export_adapter import export_adapter
from tff_re.exporting.export_run import export_run
from tff_re.exporting.forms import HALF_TOLERANCE
from tff_re.models.adapter_files import CONFIG_FILE, WEIGHTS_FILE, contents, weights_of
from tff_re.models.adapters import LowRankDense
from tff_re.models.fixed_weights import FixedWeights, leaf_name
from tff_re.models.sentence_encoder import MODEL as sentence_encoder
from tff_re.recipes.options import PersonaliseOptions
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.features.personalise import trained_indices
from tff_re.runs.results import keras_model
from tff_re.runs.run import train_run
from tff_re.runtime import open_runtime
from tff_re.tasks.data_paths import DataPaths

LABELS = ("ACTIVATOR", "INHIBITOR", "AGONIST")
ADAPTERS = {
    "lora": {"kind": "lora", "rank": 4},
    "ffa_lora": {"kind": "ffa_lora", "rank": 4},
    "bitfit": {"kind": "bitfit"},
}
LENGTH = 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("adapters") / "train.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(24):
            label = number % len(LABELS)
            text = f"<< drug {'a' * (number % 3)}x >> {'abc'[label]} binds {'the ' * (number % 4)}[[ gene ]] ."
            file.write(json.dumps({"text": text, "label": LABELS[label], "metadata": []}) + "\n")
    return path


@pytest.fixture(scope="module")
def builder():
    """For all tests: algorithms that are alike are built once."""
    return ExperimentBuilder(DataPaths())


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    with open_runtime("in-process", log_path=tmp_path_factory.mktemp("log") / "log") as opened:
        yield opened


@pytest.fixture(scope="module")
def run(corpus, in_process, builder, tmp_path_factory):
    """LoRA's, by the algorithm that `recipe` takes; `folder`, `experiment` and `result`."""
    folder = tmp_path_factory.mktemp("run") / "run"
    experiment, result = train_run(recipe(corpus), folder, runtime=in_process, builder=builder, details=False)
    return SimpleNamespace(folder=folder, experiment=experiment, result=result)


def recipe(corpus, kind="lora", *, seed=0, of="bert", layers=1, algorithm="fedpap", rounds=2, privacy=None, **model):
    """Of a small run; `model` adds to the model's keys."""
    at_server = "num_server_examples" in attrs.fields_dict(algorithms.find(algorithm).options)
    more = {"server_share": 0.3, "server_stratified": True} if at_server else {}
    adapter = {} if kind is None else {"adapter": ADAPTERS[kind] if isinstance(kind, str) else kind}
    task = {"name": "sentence_relations", "path": str(corpus), "tokenizer": str(encoder(of, layers)), **more}
    table = {
        "name": "adapters",
        "task": {**task, "max_length": LENGTH, "test_share": 0.3},
        "partition": {"name": "iid", "num_clients": 2},
        "model": {"name": "sentence_encoder", "encoder_dropout": 0.0, **adapter, **model},
        "algorithm": {"name": algorithm, "batch_size": 4},
        "training": {"rounds": rounds, "client_fraction": 1.0, "checkpoint_every": 1},
        **({} if privacy is None else {"privacy": privacy, "evaluation": {"train_split": False}}),
    }
    return resolve(table, "adapters.toml", seed=seed)


def built(recipe):
    """What an experiment has of the data and the model, without its computations."""
    prepared = ExperimentBuilder(DataPaths()).prepare(recipe).precomputed(recipe.model, recipe.seed)
    return SimpleNamespace(recipe=recipe, prepared=prepared, model=prepared.local_model(recipe.model))


@functools.cache
def shared(corpus, kind, **options):
    """`built` of the recipe of these arguments, once, for tests that leave it as it is."""
    return built(recipe(corpus, kind, **options))


def examples_of(experiment):
    """A client's arrays as tensors, its labels left out."""
    train = experiment.prepared.examples.clients[0].train
    return {name: tf.constant(array) for name, array in train.items() if name != "y"}


def moved(weights, seed=0):
    """The weights with something added to each of the trained ones: B is zero before the first round."""
    random = np.random.default_rng(seed)
    weights.trainable[:] = [w + random.normal(0, 0.1, w.shape).astype(np.float32) for w in weights.trainable]
    return weights


def test_a_low_rank_layer_computes_its_formula():
    layer = LowRankDense(5, rank=2, alpha=6.0, low_rank_dropout=0.5)
    x = np.random.default_rng(0).normal(size=[3, 7, 4]).astype(np.float32)
    layer.build(x.shape)
    kernel, bias, a, b = layer.get_weights()
    assert not b.any() and np.abs(a).max() <= 1 / 2  # 1 / sqrt(n)
    layer.set_weights([np.random.default_rng(i).normal(size=w.shape) for i, w in enumerate(layer.get_weights())])
    kernel, bias, a, b = layer.get_weights()
    np.testing.assert_allclose(layer(x), x @ kernel + bias + 6 / 2 * (x @ a) @ b, rtol=0, atol=1e-4)
    np.testing.assert_allclose(layer.product(), 3 * a @ b, rtol=0, atol=1e-5)


PAIRS = (("lora", "bert"), ("lora", "distilbert"), ("ffa_lora", "bert"), ("bitfit", "distilbert"))


@pytest.mark.parametrize(
    ("kind", "of"), [pytest.param(*p, marks=pytest.mark.slow) if p == ("lora", "distilbert") else p for p in PAIRS]
)
def test_the_adapter_the_new_rows_and_the_classifier_are_all_that_is_trained(kind, of, corpus):
    layers, experiment = (
        (1, shared(corpus, kind)) if of == "bert" else (LAYERS, shared(corpus, kind, of=of, layers=LAYERS))
    )
    weights = experiment.model.initial_weights(0)
    assert not weights.non_trainable
    names = {name.rpartition("/")[2] for name in experiment.model.weight_names}
    expected = {"lora": {"lora_a", "lora_b"}, "ffa_lora": {"lora_b"}, "bitfit": {"bias", "beta"}}[kind]
    assert names == expected | {"new_rows", "kernel"}
    sent = sum(array.nbytes for array in weights.trainable)
    pairs = layers * 2 * (1 if kind == "ffa_lora" else 2)
    if kind != "bitfit":
        assert sent == 4 * (pairs * 4 * WIDTH + 4 * WIDTH + 2 * WIDTH * experiment.model.num_classes)


@pytest.mark.parametrize(("layers", "names"), [("adapter", {"lora_a", "lora_b", "new_rows"}), ("head", {"kernel"})])
def test_fine_tuning_of_the_adapter_is_of_all_but_the_classifier(layers, names, corpus):
    experiment = built(dataclasses.replace(recipe(corpus), personalise=PersonaliseOptions(layers=layers)))
    model = experiment.model
    indices = trained_indices(experiment.recipe, model)
    assert {model.weight_names[index].rpartition("/")[2] for index in indices} == names


@pytest.mark.slow
def test_a_run_whose_clients_fine_tune_their_adapters(corpus, in_process, builder, tmp_path):
    personalised = dataclasses.replace(recipe(corpus), personalise=PersonaliseOptions(layers="adapter", epochs=2))
    _, result = train_run(personalised, tmp_path / "run", runtime=in_process, builder=builder)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["personalised"]
    assert summary["layers"] == "adapter" and summary["personal/gain"] == result.personalised.metrics["personal/gain"]


@pytest.mark.parametrize("kind", ["lora", *(pytest.param(k, marks=pytest.mark.slow) for k in ADAPTERS if k != "lora")])
def test_fixed_weights_in_files_compute_what_variables_do(kind, corpus):
    """What clients train, the whole model with the adapter, and the encoder that it is merged into."""
    experiment = shared(corpus, kind)
    weights = moved(experiment.model.initial_weights(0))
    inputs, options = experiment.prepared.inputs, experiment.recipe.model.options
    trained = experiment.model.keras_model(weights)
    whole = sentence_encoder.whole_form(options, inputs, trained)
    merged = keras_model(experiment, weights)
    examples = examples_of(experiment)
    assert any((np.asarray(examples["input_ids"]) >= len(PIECES)).ravel())  # markers, whose rows are new
    expected = trained(examples)["logits"]
    np.testing.assert_allclose(whole(examples)["logits"], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(merged(examples)["logits"], expected, rtol=0, atol=1e-5)
    assert not any(isinstance(part, LowRankDense) for part in merged._flatten_layers())
    assert {leaf_name(v) for v in merged.weights}.isdisjoint({"lora_a", "lora_b", "new_rows"})


def test_training_starts_from_the_checkpoint(corpus):
    """With B at zero the model is the one without an adapter, but for what the seed draws."""
    plain, adapted = (shared(corpus, kind) for kind in (None, "lora"))
    models = [e.model.initial_model(0) for e in (plain, adapted)]
    examples = examples_of(plain)
    old = {**examples, "input_ids": tf.minimum(examples["input_ids"], len(PIECES) - 1)}
    features = [model(old)["features"] for model in models]
    np.testing.assert_allclose(*features, rtol=0, atol=1e-6)


def products(experiment, *of_weights):
    """What an adapter adds to the encoder's kernels, for each of these weights."""
    inputs, options = experiment.prepared.inputs, experiment.recipe.model.options
    for weights in of_weights:
        whole = sentence_encoder.whole_form(options, inputs, experiment.model.keras_model(weights))
        parts = whole.get_layer("encoder").main._flatten_layers()
        yield [part.product().numpy() for part in parts if isinstance(part, LowRankDense)]


@pytest.mark.parametrize(("kind", "exact"), [("ffa_lora", True), ("lora", False)])
def test_the_mean_of_two_clients_products_is_exact_with_a_fixed_a_alone(kind, exact, corpus):
    experiment = shared(corpus, kind)
    start = experiment.model.initial_weights(0)
    first, second = (moved(start._replace(trainable=[*start.trainable]), seed) for seed in (1, 2))
    mean = [(a + b) / 2 for a, b in zip(first.trainable, second.trainable, strict=True)]
    of_mean, *of_each = products(experiment, start._replace(trainable=mean), first, second)
    mean_of = [(a + b) / 2 for a, b in zip(*of_each, strict=True)]
    apart = max(np.abs(a - b).max() for a, b in zip(of_mean, mean_of, strict=True))
    assert apart < 1e-6 if exact else apart > 1e-3


def test_a_is_drawn_by_the_seed(corpus):
    made = (shared(corpus, "ffa_lora"), *(built(recipe(corpus, "ffa_lora", seed=seed)) for seed in (0, 1)))
    digests = [e.prepared.inputs.fixed.digest for e in made]
    assert digests[0] == digests[1] != digests[2]
    # Of LoRA nothing that is drawn is fixed, so that the seeds of a comparison share files and computations.
    lora = [e.prepared.inputs for e in (shared(corpus, "lora"), built(recipe(corpus, "lora", seed=1)))]
    assert lora[0] == lora[1] and not np.array_equal(lora[0].fixed.start[0], lora[1].fixed.start[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_run_goes_on_where_it_was_broken_off(kind, corpus, run, in_process, builder, tmp_path):
    through = run.result
    if kind != "lora":
        through = train_run(recipe(corpus, kind), tmp_path / "through", runtime=in_process, builder=builder)[1]
    again = functools.partial(train_run, recipe(corpus, kind), tmp_path / "broken", runtime=in_process, builder=builder)
    broken = resumed_after(again, 1)[1]
    assert_same_weights(through.weights, broken.weights)
    assert all(np.abs(np.asarray(w)).max() > 0 for w in through.weights.trainable if w.ndim > 1)


def _of_sentences(name: str) -> bool:
    """Whether an algorithm trains on sentences; the others, on bags and documents, have tests with these."""
    return name != "fedlcc" and not name.startswith(("lazy_mil", "mil_"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "fedpap" else pytest.mark.slow) for n in algorithms.names() if _of_sentences(n)],
)
def test_every_algorithm_trains_an_adapter(name, corpus, run, in_process, builder, tmp_path):
    experiment, result = run.experiment, run.result
    if name != "fedpap":
        of_name = recipe(corpus, algorithm=name)
        experiment, result = train_run(of_name, tmp_path / "run", runtime=in_process, builder=builder)
    start = experiment.model.initial_weights(0)
    if name != "feded":
        sent = sum(array.nbytes for array in start.trainable)
        assert sent <= experiment.traffic.up < (3 if name == "scaffold" else 1) * sent + 1000
    assert all(np.isfinite(w).all() for w in result.weights.trainable)
    assert any(not np.array_equal(a, b) for a, b in zip(start.trainable, result.weights.trainable, strict=True))


@needs_tff
@pytest.mark.slow
@pytest.mark.parametrize("frozen", [{}, {"layers": LAYERS, "frozen_layers": 1}], ids=["all layers", "upper layers"])
def test_both_runtimes_train_the_same(frozen, corpus, runtimes, builder, tmp_path):
    results = []
    for name, opened in runtimes.items():
        with computing_on(opened):
            results.append(train_run(recipe(corpus, **frozen), tmp_path / name, runtime=opened, builder=builder)[1])
    for ours, theirs in zip(*(r.weights.trainable for r in results), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


# Above frozen layers


@pytest.fixture(scope="module")
def upper(corpus, in_process, builder, tmp_path_factory):
    """A run with LoRA in the upper of two layers and differential privacy of examples."""
    folder = tmp_path_factory.mktemp("upper") / "run"
    privacy = {"unit": "example", "clip": 1.0, "noise_multiplier": 0.1, "delta": 1e-2}
    private_recipe = recipe(corpus, layers=LAYERS, algorithm="fedavgs", rounds=1, frozen_layers=1, privacy=privacy)
    experiment, result = train_run(private_recipe, folder, runtime=in_process, builder=builder)
    return SimpleNamespace(folder=folder, experiment=experiment, result=result)


@pytest.fixture(scope="module")
def above(corpus):
    """LoRA in the upper of two layers, built without a run, with weights that do something."""
    apart = shared(corpus, "lora", layers=LAYERS, frozen_layers=1)
    return SimpleNamespace(**vars(apart), weights=moved(apart.model.initial_weights(0)))


@pytest.mark.parametrize(
    ("kind", "of"), [p if p == ("lora", "bert") else pytest.param(*p, marks=pytest.mark.slow) for p in PAIRS]
)
def test_an_adapter_above_frozen_layers_is_that_of_the_whole_model(kind, of, corpus):
    """What clients train, its forms, and a whole model with an adapter in every layer; what is trained and sent."""
    apart = shared(corpus, kind, **({} if of == "bert" else {"of": of}), layers=LAYERS, frozen_layers=1)
    plain = ExperimentBuilder(DataPaths()).prepare(apart.recipe)
    weights = moved(apart.model.initial_weights(0))
    names = apart.model.weight_names
    assert not weights.non_trainable and names[-1] == "classifier/kernel"
    assert all("/layer_._1/" in name for name in names[:-1])
    leaves = {"lora": {"lora_a", "lora_b"}, "ffa_lora": {"lora_b"}, "bitfit": {"bias", "beta"}}[kind]
    assert {name.rpartition("/")[2] for name in names} == leaves | {"kernel"}
    assert {layer.name for layer in apart.model.keras_model(weights)._flatten_layers()}.isdisjoint({"embeddings"})

    inputs, options = apart.prepared.inputs, apart.recipe.model.options
    trained = apart.model.keras_model(weights)
    adapted = sentence_encoder.adapted(options, inputs, trained)
    whole = full_adapted_model(apart.recipe, plain, inputs, adapted)
    pieces = {name: tf.constant(a) for name, a in plain.examples.clients[0].train.items() if name != "y"}
    exact = whole(pieces)["logits"]
    np.testing.assert_allclose(keras_model(apart, weights)(pieces)["logits"], exact, rtol=0, atol=1e-5)
    expected = trained(examples_of(apart))["logits"]
    np.testing.assert_allclose(expected, exact, rtol=0, atol=2e-2)  # float16 lies between
    np.testing.assert_allclose(adapted(examples_of(apart))["logits"], expected, rtol=0, atol=1e-6)
    for merged in (False, True):
        whole_model = sentence_encoder.whole_form(options, inputs, trained, merged)
        np.testing.assert_allclose(whole_model(pieces)["logits"], expected, rtol=0, atol=1e-4)
        assert any(isinstance(layer, LowRankDense) for layer in whole_model._flatten_layers()) == (
            kind != "bitfit" and not merged
        )


@pytest.mark.slow
def test_gradients_of_single_examples_above_frozen_layers(above):
    """Side by side they are those of one example after the other."""
    model, examples = above.model.keras_model(above.weights), examples_of(above)
    labels = tf.constant(above.prepared.examples.clients[0].train["y"])

    def loss(unit):
        single = {name: array[unit : unit + 1] for name, array in examples.items()}
        return above.model.losses(labels[unit : unit + 1], model(single, training=True))[0]

    units, variables = tf.range(4), model.trainable_variables
    together, alone = (
        tf.function(lambda how=how: how(loss, variables, units, 0.5))() for how in (sum_side_by_side, sum_one_by_one)
    )
    assert len(together[0]) == 5 and all(np.abs(gradient).max() > 0 for gradient in together[0])
    for left, right in zip(together[0], alone[0], strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)


@pytest.mark.slow  # what is trained is among the quick tests
def test_a_private_run_sends_the_adapter_and_the_classifier(upper):
    start, end = upper.experiment.model.initial_weights(0), upper.result.weights
    sent = sum(array.nbytes for array in start.trainable)
    assert sent == 4 * (4 * 4 * WIDTH + 2 * WIDTH * upper.experiment.model.num_classes)
    assert sent <= upper.experiment.traffic.up < sent + 1000
    assert all(not np.array_equal(a, b) for a, b in zip(start.trainable, end.trainable, strict=True))
    assert any("every layer above the frozen ones" in note for note in upper.experiment.notes)


def test_the_file_of_an_adapter_above_frozen_layers(corpus, above, tmp_path):
    """Has PEFT's numbers of layers and the new pieces' vectors, and another seed starts from all of it."""
    options, inputs = above.recipe.model.options, above.prepared.inputs
    written = sentence_encoder.adapted(options, inputs, above.model.keras_model(above.weights))
    for name, content in contents(written, inputs, options.adapter, "an-encoder", LABELS).items():
        (tmp_path / name).write_bytes(content)
    folder = tmp_path
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    assert config["layers_to_transform"] == [1] and config["target_modules"] == ["query", "value"]
    stored = load_file(folder / WEIGHTS_FILE)
    assert {name for name in stored if "lora" in name} == {
        f"base_model.model.encoder.layer.1.attention.self.{target}.lora_{which}.weight"
        for target in ("query", "value")
        for which in "AB"
    }
    adapter = {**ADAPTERS["lora"], "path": str(folder)}
    again = built(recipe(corpus, adapter, seed=5, layers=LAYERS, frozen_layers=1))
    inputs, weights = again.prepared.inputs, again.model.initial_weights(5)
    trained = again.model.keras_model(weights)
    started = weights_of(sentence_encoder.adapted(again.recipe.model.options, inputs, trained), inputs)
    assert stored.keys() == started.keys()
    for name, value in stored.items():
        np.testing.assert_array_equal(started[name], value)
    pieces = ExperimentBuilder(DataPaths()).prepare(again.recipe).examples.clients[0].train
    pieces = {name: tf.constant(array) for name, array in pieces.items() if name != "y"}
    models = (keras_model(again, weights), keras_model(above, above.weights))
    np.testing.assert_allclose(*(model(pieces)["logits"] for model in models), rtol=0, atol=1e-6)
    refused(lambda: built(recipe(corpus, adapter, layers=LAYERS)), "layers [1] (counted from 0)", "adapts all layers")


@pytest.mark.slow
def test_an_export_of_an_adapter_above_frozen_layers(upper, tmp_path):
    export_run(upper.folder, tmp_path / "export", False, DataPaths(), "in-process")
    forms = json.loads((tmp_path / "export" / "export.json").read_text("utf-8"))["forms"]
    assert forms["saved_model"]["difference"] <= HALF_TOLERANCE
    saved = tf.saved_model.load(str(tmp_path / "export" / "saved_model"))
    names = [getattr(variable, "name", "") for variable in saved.resources]
    assert any("kernel" in name for name in names) and not [name for name in names if "lora" in name]
    alone = export_adapter(upper.folder, tmp_path / "adapter", False, DataPaths(), "in-process")
    config = json.loads((alone / CONFIG_FILE).read_text("utf-8"))
    assert config["layers_to_transform"] == [1]
    assert config["base_model_name_or_path"] == encoder(layers=LAYERS).name


# Files


@pytest.fixture(scope="module")
def written(run):
    return export_adapter(run.folder, None, False, DataPaths(), "in-process")


def test_an_adapter_has_the_names_and_the_form_of_peft(written):
    weights = load_file(written / WEIGHTS_FILE)
    attention = "base_model.model.encoder.layer.{}.attention.self.{}.lora_{}.weight"
    low_rank = {
        attention.format(layer, target, which): (4, WIDTH) if which == "A" else (WIDTH, 4)
        for layer in range(1)
        for target in ("query", "value")
        for which in "AB"
    }
    rest = {
        "base_model.model.classifier.weight": (5, 2 * WIDTH),
        "base_model.model.embeddings.word_embeddings.new_rows": (4, WIDTH),
    }
    assert {name: value.shape for name, value in weights.items()} == {**low_rank, **rest}
    config = json.loads((written / CONFIG_FILE).read_text("utf-8"))
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 16.0)
    assert config["target_modules"] == ["query", "value"] and config["modules_to_save"] == ["classifier"]
    assert config["base_model_name_or_path"] == encoder(layers=1).name  # no path of the machine
    assert json.loads((written / "labels.json").read_text("utf-8")) == config["tff_re"]["labels"]


def test_a_recipe_starts_from_an_adapter(corpus, written):
    adapter = {**ADAPTERS["lora"], "path": str(written)}
    experiment = built(recipe(corpus, adapter, seed=5))
    weights = experiment.model.initial_weights(5)
    inputs, options = experiment.prepared.inputs, experiment.recipe.model.options
    whole = sentence_encoder.adapted(options, inputs, experiment.model.keras_model(weights))
    stored = load_file(written / WEIGHTS_FILE)
    started = weights_of(whole, inputs)
    assert stored.keys() == started.keys()
    for name, value in stored.items():
        np.testing.assert_array_equal(started[name], value)


@pytest.mark.slow
def test_ffa_lora_starts_from_the_a_of_its_file(corpus, in_process, builder, tmp_path):
    train_run(recipe(corpus, "ffa_lora", rounds=1), tmp_path / "run", runtime=in_process, builder=builder)
    folder = export_adapter(tmp_path / "run", tmp_path / "adapter", False, DataPaths(), "in-process")
    first = builder.build(recipe(corpus, "ffa_lora"))
    again = builder.build(recipe(corpus, {**ADAPTERS["ffa_lora"], "path": str(folder)}, seed=9))
    assert again.prepared.inputs.fixed.digest == first.prepared.inputs.fixed.digest


# Bad input


def refused(build, *parts):
    with pytest.raises(UserError) as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message, message
    for part in parts:
        assert part in message, (part, message)


@pytest.mark.parametrize(
    ("adapter", "parts"),
    [
        ({"kind": "lora", "rank": 0}, ("'model.adapter.rank' must be at least 1, got 0",)),
        ({"kind": "lora", "rank": WIDTH + 1}, ("has width 16", "rank is 17", "model.adapter.rank")),
        ({"kind": "lora", "targets": ["qeury"]}, ("no dense layer 'qeury'", "can be: dense, key, query, value")),
        ({"kind": "bitfit", "rank": 3}, ("'model.adapter.rank' needs kind = 'lora' or 'ffa_lora'",)),
        ({"kind": "adalora"}, ("must be one of 'lora', 'ffa_lora', 'bitfit'",)),
        ({"kind": "lora", "alhpa": 2}, ("unknown key 'model.adapter.alhpa'", "alpha")),
        ({"kind": "lora", "path": "nowhere"}, ("nowhere", CONFIG_FILE)),
    ],
)
def test_adapters_that_cannot_be(adapter, parts, corpus):
    refused(lambda: built(recipe(corpus, adapter)), *parts)


def test_frozen_layers_that_leave_none_for_the_adapter(corpus):
    parts = ("has 1 layers", "no layer is left for the adapter", "at most 0")
    refused(lambda: built(recipe(corpus, frozen_layers=1)), *parts)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"rank": 2}, ("lora_A.weight has shape (16, 4)", "by the recipe it has (16, 2)")),
        ({"alpha": 8.0}, ("lora with alpha 16", "lora with alpha 8")),
        ({"targets": ["key"]}, ("has no weight", "key.lora_A.weight", "another adapter")),
    ],
)
def test_a_file_of_another_adapter(change, parts, corpus, written):
    adapter = {**ADAPTERS["lora"], "path": str(written), **change}
    refused(lambda: built(recipe(corpus, adapter)), *parts)


def test_damaged_files_of_an_adapter(corpus, written, tmp_path):
    def start():
        built(recipe(corpus, {**ADAPTERS["lora"], "path": str(tmp_path)}))

    (tmp_path / CONFIG_FILE).write_bytes((written / CONFIG_FILE).read_bytes())
    (tmp_path / WEIGHTS_FILE).write_bytes((written / WEIGHTS_FILE).read_bytes()[:-9])
    refused(start, WEIGHTS_FILE, "cannot be read")
    weights = load_file(written / WEIGHTS_FILE)
    save_file({name: value * np.nan for name, value in weights.items()}, tmp_path / WEIGHTS_FILE)
    refused(start, "NaN")
    (tmp_path / CONFIG_FILE).write_text("{}")
    refused(start, CONFIG_FILE, "does not belong to an adapter")


@pytest.mark.slow  # that a folder of another recipe is refused is tested in tests/runs/test_resume.py
def test_a_checkpoint_of_another_adapter(corpus, run, in_process, builder):
    options = {"runtime": in_process, "builder": builder, "resume": True}
    refused(lambda: train_run(recipe(corpus, "ffa_lora"), run.folder, **options), "recipe")


@pytest.mark.slow
def test_a_run_without_an_adapter_has_none_to_write(corpus, in_process, builder, tmp_path):
    train_run(recipe(corpus, None, rounds=1), tmp_path / "run", runtime=in_process, builder=builder)
    refused(lambda: export_adapter(tmp_path / "run", None, False, DataPaths(), "in-process"), "has no adapter")


def test_a_full_disk_for_fixed_weights(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tff_re.models.fixed_weights._folder", full)
    refused(lambda: FixedWeights.write([np.zeros(3)], []), "No space left on device", "TMPDIR")
