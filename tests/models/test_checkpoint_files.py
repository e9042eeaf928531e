"""Checkpoints of encoders in all formats: the values are those that transformers' own loader gives, to the bit."""

from __future__ import annotations

import functools
import json
import tracemalloc

import h5py
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from transformers import CONFIG_MAPPING, TF_MODEL_MAPPING
from transformers.modeling_tf_pytorch_utils import (
    apply_transpose,
    convert_tf_weight_name_to_pt_weight_name,
    load_pytorch_state_dict_in_tf2_model,
)

from tests.models.encoders_for_tests import checkpoint, copy_encoder, save_checkpoint
from tff_re.errors import UserError
from tff_re.models import checkpoint_files, pretrained
from tff_re.models.pretrained import PLAIN, PieceEncoder, assign_pretrained, load_config, policy, quiet

ROWS = {"input_ids": tf.constant([[2, 5, 6, 3]]), "attention_mask": tf.ones([1, 4], tf.int32)}
NEW_PIECES = 3

SIZES = {"vocab_size": 60, "max_position_embeddings": 40, "hidden_size": 16, "intermediate_size": 32}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 2}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
OTHER_SIZES = {
    "albert": {"embedding_size": 8},
    "convbert": {"embedding_size": 16},
    "deberta": {**RELATIVE, "max_relative_positions": 8},
    "deberta-v2": {**RELATIVE, "position_buckets": 8, "conv_kernel_size": 3, "conv_act": "gelu"},
    "electra": {"embedding_size": 8},
    "longformer": {"attention_window": [8, 8]},
    "mobilebert": {"hidden_size": 32, "embedding_size": 16, "intra_bottleneck_size": 16},
    "rembert": {"input_embedding_size": 8},
    "roformer": {"embedding_size": 8},
}
"""What makes a type have all of its kinds of weights."""

TYPES = (*PLAIN, "convbert", "gpt2", "longformer")
every_type = pytest.mark.parametrize("model_type", TYPES)


@functools.cache
def drawn(model_type):
    """A tiny model of `transformers` with random weights."""
    config = CONFIG_MAPPING[model_type](**{**SIZES, **OTHER_SIZES.get(model_type, {})})
    generator = np.random.default_rng(0)
    with policy("float32"), quiet():
        model = TF_MODEL_MAPPING[type(config)](config)
        model.build_in_name_scope()
    model.set_weights([generator.normal(size=weight.shape).astype(np.float32) for weight in model.weights])
    return model


def pytorchs(model):
    """Name -> array of a model's weights as PyTorch has them, by the functions of `transformers`."""
    arrays = {}
    for weight in model.weights:
        name, transpose = convert_tf_weight_name_to_pt_weight_name(weight.name, tf_weight_shape=weight.shape)
        value = apply_transpose(transpose, weight.numpy(), pt_to_tf=False)
        if name.endswith("depthwise.weight"):
            value = value.swapaxes(0, 1)
        elif name.endswith(("c_attn.bias", "c_fc.bias", "c_proj.bias")):
            value = value[0]
        arrays[name] = np.ascontiguousarray(value)
    return {**arrays, "embeddings.position_ids": np.arange(4)}


def old_names(arrays):
    """The names of the first checkpoints of BERT."""
    leaves = {"weight": "gamma", "bias": "beta"}
    return {
        name.rpartition(".")[0] + "." + leaves[name.rpartition(".")[2]] if "LayerNorm" in name else name: value
        for name, value in arrays.items()
    }


def of_kind(kind):
    return lambda arrays: {n: v.astype(kind) if v.dtype == np.float32 else v for n, v in arrays.items()}


PYTORCHS = {
    "PyTorch": dict,
    "PyTorch, the encoder only": lambda arrays: {name.partition(".")[2]: value for name, value in arrays.items()},
    "PyTorch, gamma and beta": old_names,
    **{f"PyTorch, {kind}": of_kind(kind) for kind in ("float16", "float64")},
    "PyTorch, bfloat16": of_kind(ml_dtypes.bfloat16),
}
KERAS = {"Keras, safetensors": True, "Keras, HDF5": False}
SHARDED = "10KB"


def loaded(model_type, format_, folder):
    """(a folder with a checkpoint, Keras name -> the value that `transformers` reads from it)."""
    model = drawn(model_type)
    if (safe := KERAS.get(format_.removesuffix(", in parts"))) is not None:
        shards = {"max_shard_size": SHARDED} if format_.endswith("in parts") else {}
        model.save_pretrained(folder, safe_serialization=safe, **shards)
        with quiet():
            return {w.name: w.numpy() for w in type(model).from_pretrained(folder).weights}
    arrays = PYTORCHS[format_](pytorchs(model))
    model.config.save_pretrained(folder)
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    # Not from_pretrained: that of 4.57 fails at a file of PyTorch with the newest safetensors.
    with policy("float32"), quiet():
        again = type(model)(model.config)
        again.build_in_name_scope()
        given = {name: tf.constant(value) for name, value in arrays.items()}
        load_pytorch_state_dict_in_tf2_model(again, given, tf_inputs=False)
    return {weight.name: weight.numpy() for weight in again.weights}


def built(folder, pieces=NEW_PIECES):
    """An encoder with rows for new pieces, before weights are assigned."""
    config = load_config(str(folder))
    layer = PieceEncoder(config.to_dict(), config.vocab_size + pieces, None, 0, name="encoder")
    with quiet():
        layer(ROWS)
    return layer


def values(layer):
    return {layer.tail(variable): variable.numpy() for variable in layer.main.weights}


def assert_equal_to_the_bit(model_type, format_, folder):
    expected = loaded(model_type, format_, folder)
    layer = built(folder)
    before = values(layer)
    assign_pretrained(layer, str(folder))
    expected = {name.removesuffix(":0").split(f"{layer.main.name}/", 1)[1]: v for name, v in expected.items()}
    longer = []
    for tail, value in values(layer).items():
        count = len(expected[tail])
        np.testing.assert_array_equal(value[:count], expected[tail], tail, strict=True)
        np.testing.assert_array_equal(value[count:], before[tail][count:], tail)
        longer += [tail] * (len(value) == count + NEW_PIECES)
    assert len(longer) == 1, "the embedding matrix"


@every_type
def test_every_type_in_pytorchs_names(model_type, tmp_path):
    assert_equal_to_the_bit(model_type, "PyTorch", tmp_path)


@every_type
@pytest.mark.parametrize("format_", KERAS)
def test_every_type_in_keras_names(model_type, format_, tmp_path):
    assert_equal_to_the_bit(model_type, format_, tmp_path)


PARTS = [f"{format_}, in parts" for format_ in KERAS]


@pytest.mark.parametrize("format_", [*list(PYTORCHS)[1:], *KERAS, *PARTS])
def test_every_format(format_, tmp_path):
    assert_equal_to_the_bit("bert", format_, tmp_path)
    files = [path.name for path in tmp_path.iterdir()]
    assert any(name.endswith("index.json") for name in files) == format_.endswith("in parts")


def in_parts(folder):
    """Exchanges PyTorch's checkpoint for two files and their index."""
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-{n % 2}.safetensors" for n, name in enumerate(arrays)}
    for place in set(places.values()):
        save_file({n: arrays[n] for n in arrays if places[n] == place}, folder / place, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_parts_in_pytorchs_names(tmp_path):
    loaded("bert", "PyTorch", tmp_path)
    expected, layer = built(tmp_path), built(tmp_path)
    expected.set_weights(layer.get_weights())
    assign_pretrained(expected, str(tmp_path))
    in_parts(tmp_path)
    assign_pretrained(layer, str(tmp_path))
    for name, value in values(layer).items():
        np.testing.assert_array_equal(value, values(expected)[name], name)


# Files that do not fit or cannot be read.


def refused(folder, wanted, layer=None):
    """The checkpoint is refused in one line, and the encoder keeps its weights."""
    layer = layer or built(folder)
    before = layer.get_weights()
    with pytest.raises(UserError) as caught:
        assign_pretrained(layer, str(folder))
    message = str(caught.value)
    assert message.startswith(f"encoder {folder}: {wanted}") and "\n" not in message, message
    for value, old in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)


def with_index(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("{", "its weights cannot be read (Expecting"),
        ("[]", "its weights cannot be read (model.safetensors.index.json does not list files .safetensors in the"),
        ('{"weight_map": {}}', "its weights cannot be read (model.safetensors.index.json does not list"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "its weights cannot be read (model.safetensors.index"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "its weights cannot be read (model.safetensors.index"),
        ('{"weight_map": {"a": "m.safetensors"}}', "lacks m.safetensors, which model.safetensors.index.json lists; c"),
    ],
)
def test_an_index_that_names_no_files_of_weights(content, wanted, tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    layer = built(folder)
    with_index(folder, content)
    refused(folder, wanted, layer)


def test_a_damaged_hdf5_file(tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    layer = built(folder)
    (folder / "model.safetensors").unlink()
    drawn("bert").save_pretrained(tmp_path / "whole", safe_serialization=False)
    content = (tmp_path / "whole" / "tf_model.h5").read_bytes()
    for size in (0, 1000, len(content) - 1):
        (folder / "tf_model.h5").write_bytes(content[:size])
        refused(folder, "its weights cannot be read (", layer)


def test_weights_outside_of_the_hdf5_file_are_not_read(tmp_path):
    """HDF5 can name any other file as an array's content."""
    folder = copy_encoder(tmp_path / "encoder")
    layer = built(folder)
    (folder / "model.safetensors").unlink()
    (tmp_path / "secret").write_bytes(bytes(64))
    with h5py.File(folder / "tf_model.h5", "w") as file:
        name = "bert/tf_bert_model/bert/encoder/bias:0"
        file.create_dataset(name, (16,), np.float32, external=[(str(tmp_path / "secret"), 0, 64)])
    refused(folder, "its weights cannot be read (weight bert/encoder/bias:0 is in another file)", layer)


def test_a_matrix_of_the_same_size_and_another_shape(tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    name = "bert/encoder/layer_._0/intermediate/dense/kernel:0"
    weights = checkpoint(folder)
    save_checkpoint(folder, {**weights, name: weights[name].reshape(32, 16)})
    refused(folder, f"weight {name} has shape (32, 16), but by config.json it has (16, 32)")


def test_shapes_of_pytorch_are_named_in_its_layout(tmp_path):
    loaded("bert", "PyTorch", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "intermediate_size": 48}))
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    refused(tmp_path, f"weight {name} has shape (32, 16), but by config.json it has (48, 16)")


def test_a_pooler_is_not_needed(tmp_path):
    """Nothing reads it; RoBERTa's checkpoints have none."""
    loaded("roberta", "PyTorch", tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    without = {name: value for name, value in arrays.items() if ".pooler." not in name}
    assert len(without) == len(arrays) - 2
    save_file(without, tmp_path / "model.safetensors", {"format": "pt"})
    layer = built(tmp_path)
    before = values(layer)
    assign_pretrained(layer, str(tmp_path))
    unchanged = [name for name, value in values(layer).items() if np.array_equal(value, before[name])]
    assert sorted(unchanged) == ["pooler/dense/bias", "pooler/dense/kernel"]


def test_a_checkpoint_without_metadata_is_pytorchs(tmp_path):
    loaded("bert", "PyTorch", tmp_path)
    save_file(load_file(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")
    layer = built(tmp_path)
    assign_pretrained(layer, str(tmp_path))
    matrix = drawn("bert").bert.embeddings.weight.numpy()
    np.testing.assert_array_equal(values(layer)["embeddings/word_embeddings/weight"][: len(matrix)], matrix)


def test_a_hub_id_is_read_from_the_local_copy(tmp_path, monkeypatch):
    """Parts, too, of the revision that the configuration is of."""
    loaded("bert", "PyTorch", tmp_path)
    in_parts(tmp_path)
    layer, asked = built(tmp_path), []

    def cached_file(source, name, **options):
        assert source == "an/encoder" and options["local_files_only"] and options["_commit_hash"] == "abc"
        asked.append(name)
        return str(tmp_path / name) if (tmp_path / name).exists() else None

    config = load_config(str(tmp_path))
    monkeypatch.setattr(config, "_commit_hash", "abc")
    monkeypatch.setattr(pretrained, "load_config", lambda source: config)
    monkeypatch.setattr(pretrained, "how_to_read", lambda *_: {"local_files_only": True})
    monkeypatch.setattr(checkpoint_files, "cached_file", cached_file)
    assign_pretrained(layer, "an/encoder")
    parts = ["model-0.safetensors", "model-1.safetensors"]
    assert asked == ["model.safetensors", "model.safetensors.index.json", *parts]
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(UserError, match="encoder an/encoder: has neither model"):
        assign_pretrained(layer, "an/encoder")


def test_weights_are_read_one_at_a_time(tmp_path):
    """What is in memory beside the encoder's variables is a fraction of the file."""
    config = CONFIG_MAPPING["bert"](**{**SIZES, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4})
    config.save_pretrained(tmp_path)
    layer = built(tmp_path, 0)
    save_checkpoint(tmp_path, {f"bert/{name}:0": value for name, value in values(layer).items()})
    tracemalloc.start()
    try:
        assign_pretrained(layer, str(tmp_path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    largest = max(value.nbytes for value in values(layer).values())
    size = (tmp_path / "model.safetensors").stat().st_size
    assert largest < peak < 5 * largest < size / 2
