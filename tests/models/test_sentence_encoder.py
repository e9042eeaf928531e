"""sentence_encoder: the transformer and its checkpoint, the two mentions' representation, dropout, precision."""

import functools
import re

import h5py
import numpy as np
import pytest
import tensorflow as tf
import transformers

from computations import algorithms
from computations.local_model import LocalModel
from computations.randomness import SeededDropout, step_seed
from datasets.text.relation_encoding import with_markers
from tests.models.encoders_for_tests import (
    KINDS,
    LAYERS,
    PIECES,
    POSITIONS,
    WIDTH,
    checkpoint,
    copy_encoder,
    save_checkpoint,
)
from tests.models.encoders_for_tests import encoder as saved
from tests.models.trained_models import assert_two_rounds_train_and_repeat
from tff_re.errors import UserError
from tff_re.models.inputs import RelationInput
from tff_re.models.pretrained import assign_pretrained, policy
from tff_re.models.sentence_encoder import MODEL, Options
from tff_re.models.text_layers import TrimRelations
from tff_re.tasks.relation_text import load_tokenizer

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
OLD, NEW, LENGTH, CLASSES = len(PIECES), len(PIECES) + 4, 24, 3
EMBEDDINGS = "bert/embeddings/word_embeddings/weight"
every_kind = pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])


def texts(count, seed=0, longest=15):
    """Arrays of texts with ids at random, markers among them, and mentions of one to three pieces."""
    generator = np.random.default_rng(seed)
    arrays = {name: np.zeros([count, LENGTH], np.int32) for name in ("input_ids", "attention_mask")}
    arrays |= {f"{which}_mask": np.zeros([count, LENGTH], np.int32) for which in ("head", "tail")}
    arrays |= {f"{which}_start": np.zeros([count], np.int32) for which in ("head", "tail")}
    for row, length in enumerate(generator.integers(11, longest + 1, count)):
        arrays["input_ids"][row, :length] = generator.integers(5, NEW, length)
        arrays["attention_mask"][row, :length] = 1
        for which, start in zip(("head", "tail"), generator.permutation([1, 6]), strict=True):
            arrays[f"{which}_start"][row] = start
            arrays[f"{which}_mask"][row, start + 1 : start + generator.integers(2, 5)] = 1
    return arrays


def tensors(arrays):
    return {name: tf.constant(array) for name, array in arrays.items()}


def outputs(model, arrays, training=False):
    return {name: value.numpy() for name, value in model(tensors(arrays), training=training).items()}


def inputs(max_length=LENGTH, size=NEW, tokenizer=None):
    return RelationInput(size, max_length, tokenizer)


def made(folder=None, **options):
    """A Keras model with its initial weights."""
    options = Options(encoder=str(folder or saved()), **options)
    model = MODEL.build(options, inputs(), CLASSES)
    finish = MODEL.initialise(options, inputs())
    if finish is not None:
        finish(model)
    return model


shared = functools.cache(made)
"""The same, for tests that leave it as it is."""


def local_model(**options):
    options = Options(**{"encoder": str(saved()), **options})
    return LocalModel(
        lambda: MODEL.build(options, inputs(), CLASSES),
        {**inputs().specs, "y": tf.TensorSpec([None], tf.int32)},
        CLASSES,
        "classifier",
        initialise=MODEL.initialise(options, inputs()),
    )


def by_name(model):
    """Weight name as the checkpoint has it -> value, the classifier's aside."""
    return {
        weight.name.removeprefix("encoder/"): weight.numpy()
        for weight in model.weights
        if weight.name.startswith("encoder/")
    }


def unreadable(folder):
    """Reads a folder's weights into an encoder that is built; the test wants it to fail before it assigns any."""
    assign_pretrained(shared().get_layer("encoder"), str(folder))


def refused(*parts, make=made, **options):
    """The one line with which a model is refused."""
    with pytest.raises(UserError) as caught:
        make(**options)
    message = str(caught.value)
    assert message.count("\n") == 0 and len(message) < 500, message
    for part in parts:
        assert str(part) in message, (part, message)
    return message


# What the model computes.


@functools.cache
def transformers_outputs(kind):
    """The last layer's outputs [B, LENGTH, WIDTH] of transformers' own model, on texts that are not trimmed."""
    reference = getattr(transformers, {"bert": "TFBertModel", "distilbert": "TFDistilBertModel"}[kind])
    reference = reference.from_pretrained(saved(kind))
    reference.resize_token_embeddings(NEW)
    ours = shared(saved(kind)).get_layer("encoder").main.embeddings.weight
    reference.get_input_embeddings().weight.assign(ours)
    arrays = tensors(texts(9))
    return reference(input_ids=arrays["input_ids"], attention_mask=arrays["attention_mask"]).last_hidden_state.numpy()


def represented(representation, values, arrays):
    """h of every text, one mention at a time."""
    rows = []
    for row, value in enumerate(values):
        parts = [value[0]] if representation.startswith("cls") else []
        for which in ("head", "tail"):
            pieces = value[arrays[f"{which}_mask"][row] == 1]
            assert len(pieces)
            start = value[arrays[f"{which}_start"][row]]
            parts.append({"max": pieces.max(axis=0), "start": start}.get(representation[7:], pieces.sum(axis=0)))
        rows.append(np.concatenate(parts))
    return np.stack(rows)


@pytest.mark.parametrize(
    ("kind", "representation"),
    [
        ("bert", "entities_sum"),
        ("bert", "cls_entities_sum"),
        ("bert", "entity_max"),
        ("bert", "entity_start"),
        ("distilbert", "entities_sum"),
    ],
)
def test_the_representation_is_that_of_the_encoders_own_outputs(kind, representation):
    arrays = texts(9)
    model = shared(saved(kind)) if representation == "entities_sum" else made(representation=representation)
    if representation != "entities_sum":
        model.get_layer("encoder").set_weights(shared(saved(kind)).get_layer("encoder").get_weights())
    computed = outputs(model, arrays)
    expected = represented(representation, transformers_outputs(kind), arrays)
    assert expected.shape == (9, (3 if representation == "cls_entities_sum" else 2) * WIDTH)
    np.testing.assert_allclose(computed["features"], expected, rtol=1e-4, atol=1e-5)
    (kernel,) = model.get_layer("classifier").get_weights()
    np.testing.assert_allclose(computed["logits"], expected @ kernel, rtol=1e-4, atol=1e-5)


def test_the_classifier_has_a_bias_on_demand():
    model, arrays = made(bias=True, pretrained=False), texts(3)
    kernel, bias = model.get_layer("classifier").get_weights()
    assert bias.shape == (CLASSES,) and len(shared().get_layer("classifier").get_weights()) == 1
    model.get_layer("classifier").set_weights([kernel, bias + np.arange(CLASSES)])
    computed = outputs(model, arrays)
    np.testing.assert_allclose(computed["logits"], computed["features"] @ kernel + np.arange(CLASSES), atol=1e-5)


def test_padding_is_trimmed_and_changes_nothing():
    arrays = texts(6)
    trimmed = TrimRelations()(tensors(arrays))
    longest = arrays["attention_mask"].sum(axis=1).max()
    assert longest < LENGTH
    for name, array in arrays.items():
        np.testing.assert_array_equal(trimmed[name], array if array.ndim == 1 else array[:, :longest])
    empty = TrimRelations()(tensors({name: 0 * array for name, array in arrays.items()}))
    assert empty["input_ids"].shape == (6, 1)
    together = outputs(shared(), arrays)["logits"]
    arrays["input_ids"][arrays["attention_mask"] == 0] = 7  # what stands there is not read
    np.testing.assert_array_equal(outputs(shared(), arrays)["logits"], together)
    for row in range(6):
        alone = outputs(shared(), {name: array[row : row + 1] for name, array in arrays.items()})["logits"]
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)


# Weights.


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_checkpoints(kind):
    weights = by_name(shared(saved(kind)))
    stored = {n.removesuffix(":0"): v for n, v in checkpoint(saved(kind)).items() if not n.startswith("bert/pooler")}
    assert {name.removesuffix(":0") for name in weights} == set(stored)
    for name, value in weights.items():
        name = name.removesuffix(":0")
        if name.endswith("word_embeddings/weight"):
            assert value.shape == (NEW, WIDTH)
            value = value[:OLD]
        np.testing.assert_array_equal(value, stored[name], name)


def test_rows_of_markers_are_new_and_come_from_the_seed():
    model = local_model()
    first, again, other = (model.initial_weights(seed).trainable for seed in (1, 1, 2))
    drawn = [f"encoder/{EMBEDDINGS}", "classifier/kernel"]
    assert set(drawn) < set(model.weight_names)
    for name, value, same, new in zip(model.weight_names, first, again, other, strict=True):
        np.testing.assert_array_equal(value, same)
        if name == drawn[0]:
            np.testing.assert_array_equal(value[:OLD], new[:OLD])
            assert (value[OLD:] != new[OLD:]).all() and 0 < np.abs(value[OLD:]).max() < 0.1
        elif name == drawn[1]:
            assert (value != new).all()
        else:
            np.testing.assert_array_equal(value, new)


def test_without_pretraining_weights_are_random_ones():
    model = local_model(pretrained=False)
    assert model.initialise is None
    first, other = (model.initial_weights(seed).trainable for seed in (1, 2))
    stored = checkpoint(saved())
    for name, value, new in zip(model.weight_names, first, other, strict=True):
        if name.endswith(("kernel", "embeddings", "weight")):
            assert (value != new).mean() > 0.99, name
            if name.startswith("encoder/") and not name.endswith(EMBEDDINGS):
                assert (value != stored[name.removeprefix("encoder/") + ":0"]).mean() > 0.99, name


def pytorch_form(weights):
    """The names and the layout that PyTorch gives BERT's weights."""
    result = {}
    for name, value in weights.items():
        named = name.removesuffix(":0").replace("layer_._", "layer.").replace("/", ".")
        named = re.sub(r"(gamma|embeddings|kernel)$", "weight", re.sub("beta$", "bias", named))
        result[named] = np.ascontiguousarray(value.T if name.endswith("kernel:0") else value)
    return result


def test_a_checkpoint_that_pytorch_wrote(tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    save_checkpoint(folder, pytorch_form(checkpoint(folder)), "pt")
    expected = by_name(shared())
    for name, value in by_name(made(folder)).items():
        rows = OLD if name.startswith(EMBEDDINGS) else None
        np.testing.assert_array_equal(value[:rows], expected[name][:rows], name)


def test_the_encoder_is_the_tasks_tokenizer_unless_it_is_named():
    options = Options(pretrained=False)
    model = MODEL.build(options, inputs(tokenizer=str(saved("distilbert")), size=5), CLASSES)
    assert "encoder/distilbert/embeddings/word_embeddings/weight:0" in [w.name for w in model.weights]
    assert model.get_layer("encoder").main.embeddings.weight.shape == (OLD, WIDTH), "no row of the checkpoint is lost"
    with pytest.raises(UserError, match=r"needs an encoder: set task\.tokenizer \(or model\.encoder\) to its folder"):
        MODEL.build(options, inputs(), CLASSES)


# Checkpoints that do not fit.


def without(folder, *names):
    for name in names:
        (folder / name).unlink()


def test_a_folder_that_is_none_or_lacks_files(tmp_path):
    missing = tmp_path / "missing"
    refused(f"encoder {missing}: there is no such folder", folder=missing)
    folder = copy_encoder(tmp_path / "no_config")
    without(folder, "config.json")
    refused(f"encoder {folder}: holds no config.json; give the folder", folder=folder)
    folder = copy_encoder(tmp_path / "no_weights")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(
        f"encoder {folder}: has neither model.safetensors nor tf_model.h5; save the weights as safet", folder=folder
    )


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"model_type": "nonsense"}, "its configuration cannot be read (The checkpoint you are trying to load has"),
        *(
            ('{"model_type": "bert", "x": ' + "[" * n + "]" * n + "}", "its configuration cannot be read (nested too")
            for n in (300, 100_000)
        ),
        ("[]", "its configuration cannot be read ("),
        ({"model_type": "bloom"}, "a model of type 'bloom' has no TensorFlow version"),
        ({"hidden_size": 17}, "The hidden size (17) is not a multiple of the number of attention heads (2)"),
        ({"hidden_size": "wide"}, "its config.json has an invalid value"),
        ({"hidden_act": "nothing"}, "its config.json has an invalid value"),
        (
            {"intermediate_size": 48},
            "layer_._0/intermediate/dense/kernel:0 has shape (16, 32), but by config.json it has (16, 48)",
        ),
        ({"vocab_size": 10}, f"weight {EMBEDDINGS}:0 has shape ({OLD}, 16), but by config.json it has (10, 16)"),
        ({"num_hidden_layers": 3}, "no weight bert/encoder/layer_._2/attention/output/LayerNorm/beta:0 and 15 others"),
        *(
            ({name: value}, f"an invalid value ({name} must be a positive integer); use")
            for name, value in zip(SIZES, (0, -16, 2.5, True), strict=True)
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_that_does_not_fit(config, wanted, tmp_path):
    folder = copy_encoder(tmp_path / "encoder", **(config if isinstance(config, dict) else {}))
    if isinstance(config, str):
        (folder / "config.json").write_text(config)
    refused(f"encoder {folder}: ", wanted, folder=folder)


BIAS, BIAS_OF_PYTORCH = "bert/encoder/layer_._1/output/dense/bias:0", "bert.encoder.layer.1.output.dense.bias"
ONE_LAYER = (
    f"the checkpoint has {LAYERS} layers, but config.json has 1; use the config.json that the weights were saved with"
)


def lacking(name):
    return lambda weights: {key: value for key, value in weights.items() if key != name}


@pytest.mark.parametrize(
    ("form", "layers", "change", "wanted"),
    [
        ("tf", 2, lacking(BIAS), f"the checkpoint has no weight {BIAS}; does it belong to another model?"),
        (
            "pt",
            2,
            lacking(BIAS_OF_PYTORCH),
            f"the checkpoint has no weight {BIAS_OF_PYTORCH}; does it belong to another model?",
        ),
        ("tf", 1, dict, ONE_LAYER),
        ("pt", 1, dict, ONE_LAYER),
        (
            "tf",
            2,
            lambda w: {**w, BIAS: w[BIAS] * np.inf},
            f"weight {BIAS} contains NaN or infinity",
        ),
    ],
)
def test_weights_that_do_not_fit(form, layers, change, wanted, tmp_path):
    folder = copy_encoder(tmp_path / "encoder", num_hidden_layers=layers)
    weights = checkpoint(folder)
    save_checkpoint(folder, change(pytorch_form(weights) if form == "pt" else weights), form)
    refused(f"encoder {folder}: {wanted}", make=unreadable if layers == LAYERS else made, folder=folder)


@pytest.mark.parametrize("size", [0, -1])
def test_a_damaged_file_of_weights(size, tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    refused(f"encoder {folder}: its weights cannot be read (", make=unreadable, folder=folder)


def test_texts_longer_than_the_encoder_reads(tmp_path):
    folder = str(saved())
    assert MODEL.build(Options(encoder=folder), inputs(POSITIONS), CLASSES).input_shape["input_ids"] == (
        None,
        POSITIONS,
    )
    limits = f"reads at most {POSITIONS} word pieces, but the task gives {POSITIONS + 1}; lower task.max_length"
    with pytest.raises(UserError, match=re.escape(f"encoder {folder}: {limits}")):
        MODEL.build(Options(encoder=folder), inputs(POSITIONS + 1), CLASSES)
    # RoBERTa's first two positions are for the padding.
    sizes = {"hidden_size": WIDTH, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32}
    transformers.RobertaConfig(vocab_size=OLD, max_position_embeddings=LENGTH + 1, **sizes).save_pretrained(tmp_path)
    refused(f"reads at most {LENGTH - 1} word pieces, but the task gives {LENGTH}", folder=tmp_path, pretrained=False)


# Frozen layers.


def test_embeddings_and_the_lowest_layers_are_frozen():
    model = local_model(frozen_layers=1, pretrained=False)
    keras_model = model.build()
    frozen = {weight.name for weight in keras_model.non_trainable_weights}
    lowest = [w.name for w in keras_model.weights if "/embeddings/" in w.name or "layer_._0/" in w.name]
    assert len(lowest) == 5 + 16 and frozen == set(lowest)
    assert len(model.weight_names) == 16 * (LAYERS - 1) + 1
    everything = made(frozen_layers=LAYERS, pretrained=False)
    assert [w.name for w in everything.trainable_weights] == ["classifier/kernel:0"]
    assert not shared().non_trainable_weights


# Dropout.


@every_kind
def test_all_dropout_draws_from_the_steps_seed(kind):
    model = made(saved(kind), encoder_dropout=0.3, dropout=0.5)
    layers = list(model._flatten_layers()) + list(model.submodules)
    assert not [layer for layer in layers if isinstance(layer, tf.keras.layers.Dropout)]
    inside = {id(x): x.rate for x in model.get_layer("encoder")._flatten_layers() if isinstance(x, SeededDropout)}
    assert set(inside.values()) == {0.3} and len(inside) == 1 + 3 * LAYERS
    built_layers = shared(saved(kind)).get_layer("encoder")._flatten_layers()
    assert {layer.rate for layer in built_layers if isinstance(layer, SeededDropout)} == {0.1}, (
        "the configuration's own"
    )

    arrays = texts(4)

    def trained(model, seed):
        with step_seed(tf.constant(seed, tf.int32)):
            return outputs(model, arrays, training=True)["features"]

    first = trained(model, [3, 4])
    np.testing.assert_array_equal(first, trained(model, [3, 4]))
    assert (first != trained(model, [3, 5])).mean() > 0.4
    assert 0.2 < (first == 0).mean() < 0.8
    with step_seed(tf.constant([3, 4], tf.int32)):
        np.testing.assert_array_equal(
            outputs(model, arrays)["features"], outputs(model, arrays, training=False)["features"]
        )
    whole = outputs(model, arrays)["features"]
    model.get_layer("dropout").rate = 0.0
    assert (trained(model, [3, 4]) != whole).all(), "dropout inside of the encoder alone"
    for layer in model.get_layer("encoder")._flatten_layers():
        if isinstance(layer, SeededDropout):
            layer.rate = 0.0
    np.testing.assert_array_equal(trained(model, [3, 4]), whole)


# Precision.


def test_the_global_policy_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), policy("mixed_bfloat16"):
        assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        _ = 1 / 0
    assert tf.keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.bfloat16
@every_kind
def test_bfloat16_is_for_the_encoders_arithmetic_alone(kind):
    model, exact, arrays = made(saved(kind), precision="mixed_bfloat16"), shared(saved(kind)), texts(9)
    assert tf.keras.mixed_precision.global_policy().name == "float32"
    assert {layer.compute_dtype for layer in model.get_layer("encoder")._flatten_layers()} == {"bfloat16"}
    assert {weight.dtype for weight in model.weights} == {tf.float32}
    model.set_weights(exact.get_weights())
    with tf.GradientTape() as tape:
        computed = model(tensors(arrays), training=False)
        loss = tf.reduce_sum(computed["logits"] ** 2)
    assert {value.dtype for value in computed.values()} == {tf.float32}
    expected = outputs(exact, arrays)
    for name, value in computed.items():
        scale = np.abs(expected[name]).max()
        difference = np.abs(value.numpy() - expected[name]).max() / scale
        assert 0 < difference < 0.03, (name, difference)
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True):
        gradient = tf.convert_to_tensor(gradient)
        assert gradient.dtype == tf.float32 and np.isfinite(gradient).all(), weight.name


# Files.


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(
            "bert",
            {"precision": "mixed_bfloat16", "representation": "cls_entities_sum", "frozen_layers": 1},
            marks=pytest.mark.bfloat16,
        ),
        pytest.param("distilbert", {"encoder_dropout": 0.2, "bias": True}, marks=pytest.mark.slow),
    ],
)
def test_a_saved_model_gives_the_same_logits(kind, options, tmp_path):
    options, arrays = Options(encoder=str(saved(kind)), pretrained=False, **options), texts(5)
    model = MODEL.build_plain(options, inputs(), CLASSES)
    generator = np.random.default_rng(3)
    model.set_weights([w + generator.normal(0, 0.1, w.shape).astype(np.float32) for w in model.get_weights()])
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    for name, value in outputs(model, arrays).items():
        np.testing.assert_array_equal(outputs(loaded, arrays)[name], value)
    assert [w.name for w in loaded.trainable_weights] == [w.name for w in model.trainable_weights]
    precisions = [
        [weight.dtype for weight in m.weights] + [m.get_layer("encoder").compute_dtype] for m in (model, loaded)
    ]
    assert precisions[0] == precisions[1]


# Training.


@pytest.mark.slow  # a run by recipe is among the quick tests
def test_two_federated_rounds(runtime):
    model = local_model(frozen_layers=1, encoder_dropout=0.1, dropout=0.1)
    entry = algorithms.find("fedcmc")
    algorithm = entry.build(model, entry.options(learning_rate=0.01, batch_size=4, local_epochs=2))
    data = []
    for seed, count in enumerate([9, 6]):
        arrays = texts(count, seed)
        data.append(model.arrange({**arrays, "y": (arrays["head_start"] > arrays["tail_start"]).astype(np.int32)}))
    start, weights = assert_two_rounds_train_and_repeat(algorithm, model, data)
    assert len(start.non_trainable) == 21
    for before, after in zip(start.non_trainable, weights.non_trainable, strict=True):
        np.testing.assert_array_equal(before, after)


# Folders that are not what they seem.


def test_weights_that_are_whole_numbers(tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    name = "bert/encoder/layer_._0/output/dense/kernel:0"
    weights = checkpoint(folder)
    wrong = {**weights, name: weights[name].astype(np.int8)}
    wanted = f"encoder {folder}: weight {name} has numbers of"
    save_checkpoint(folder, wrong)
    refused(wanted, "type I8, not floats; use", make=unreadable, folder=folder)
    (folder / "model.safetensors").unlink()
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for weight_name, value in {**wrong, "bert/embeddings/position_ids:0": np.arange(4)}.items():
            file[f"bert/tf_bert_model/{weight_name}"] = value  # as Keras names them
    refused(wanted, "type int8, not floats; use", make=unreadable, folder=folder)
    # PyTorch's checkpoints hold the ids of positions, which are no weights; half precision is read.
    half = {key: value.astype(np.float16) for key, value in pytorch_form(weights).items()}
    save_checkpoint(folder, {**half, "embeddings.position_ids": np.arange(POSITIONS)[None]}, "pt")
    assert local_model(encoder=str(folder)).initial_weights(0)


def with_vocabulary(folder, pieces):
    """Another vocabulary in the folder's tokenizer."""
    without(folder, "tokenizer.json")
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    return str(folder)


@pytest.mark.parametrize("piece", ["[UNK]", "[CLS]", "[PAD]"])
def test_a_vocabulary_without_a_special_piece(piece, tmp_path):
    folder = with_vocabulary(copy_encoder(tmp_path / "encoder"), [p if p != piece else "x" * 9 for p in PIECES])
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    wanted = f"tokenizer {folder}: its vocabulary has no {piece}; give the tokenizer that the encoder was trained with"
    assert str(caught.value) == wanted


def test_a_folder_without_a_tokenizer(tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    without(folder, "tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")
    with pytest.raises(UserError) as caught:
        load_tokenizer(str(folder))
    wanted = "cannot be read (the folder holds neither tokenizer.json nor a vocabulary); give the folder"
    assert str(caught.value).startswith(f"tokenizer {folder}: {wanted}")


@pytest.mark.parametrize("pieces", [[*PIECES, *(f"w{n}" for n in range(5))], PIECES[:40]], ids=len)
def test_a_tokenizer_of_another_encoder(pieces, tmp_path):
    folder = with_vocabulary(copy_encoder(tmp_path / "encoder"), pieces)
    _, size = with_markers(load_tokenizer(folder))
    assert size == len(pieces) + 4
    model_inputs = RelationInput(size, LENGTH, folder, None)
    wanted = f"encoder {folder}: its embedding matrix has {OLD} rows, but the tokenizer has {size} word pieces; use"
    with pytest.raises(UserError, match=re.escape(wanted)):
        MODEL.build(Options(), model_inputs, CLASSES)
    assert MODEL.build(Options(pretrained=False), model_inputs, CLASSES), "random weights know no pieces"
