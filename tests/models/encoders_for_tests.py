"""Tiny encoders with random weights, as folders that `transformers` reads: for tests that need a pretrained one."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import attrs
import numpy as np
import tensorflow as tf
import transformers
from safetensors.numpy import load_file, save_file

from computations.local_model import LocalModel
from tests.built_once import temporary_folder
from tff_re import models
from tff_re.models.pretrained import policy

LAYERS, WIDTH, POSITIONS = 2, 16, 64

WORDS = ("drug", "gene", "inhibits", "binds", "the", ".")
PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *WORDS,
    *string.ascii_lowercase,
    *(f"##{letter}" for letter in string.ascii_lowercase),
)
"""The vocabulary: a few words, and letters for the rest."""

COMMON = bytes(byte for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF) for byte in (high, low)).decode("gb2312")
"""The 3,666 first common Chinese characters of GB 2312."""
CHINESE = (*PIECES, *string.digits, *"，。？！、：；,:!?[]", *COMMON)
"""A vocabulary of Chinese characters, as the Chinese BERTs have it, and letters."""

_BERT = {"num_attention_heads": 2, "hidden_size": WIDTH, "intermediate_size": 32}
_DISTILBERT = {"n_heads": 2, "dim": WIDTH, "hidden_dim": 32}
_KINDS = {"bert": ("Bert", "num_hidden_layers", _BERT), "distilbert": ("DistilBert", "n_layers", _DISTILBERT)}
KINDS = tuple(_KINDS)


def encoder(kind: str = "bert", layers: int = LAYERS) -> Path:
    """A folder with `config.json`, `model.safetensors` (TensorFlow's form, the pooler too) and the tokenizer's files.

    Written once in a session; a test that changes a file takes `copy_encoder`.
    """
    return _written(kind, layers, PIECES)


def chinese_encoder(kind: str = "bert", layers: int = LAYERS) -> Path:
    """The same with a vocabulary of Chinese characters."""
    return _written(kind, layers, CHINESE)


def _written(kind: str, layers: int, pieces: tuple[str, ...]) -> Path:
    folder = temporary_folder("encoders") / f"{kind}-{layers}{'-chinese' * (pieces is CHINESE)}"
    if folder.exists():
        return folder
    folder.mkdir()
    name, depth, sizes = _KINDS[kind]
    sizes = {**sizes, depth: layers}
    config = getattr(transformers, f"{name}Config")(vocab_size=len(pieces), max_position_embeddings=POSITIONS, **sizes)
    with policy("float32"):
        model = getattr(transformers, f"TF{name}Model")(config)
        model.build_in_name_scope()
    generator = np.random.default_rng(len(kind))
    model.set_weights([generator.normal("gamma" in w.name, 0.2, w.shape).astype(np.float32) for w in model.weights])
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    tokenizer = getattr(transformers, f"{name}TokenizerFast")(vocab_file=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    return folder


def full_adapted_model(recipe, plain, inputs, trained):
    """The whole model with an adapter in all layers, the lowest ones' without effect: pieces in, no frozen layers.

    Args:
      recipe: of a run with an adapter above frozen layers.
      plain: the task's Prepared, before the frozen layers ran.
      inputs: after the frozen layers.
      trained: the result of the model's `adapted`.
    """
    module, options = models.MODELS[recipe.model.name], attrs.evolve(recipe.model.options, frozen_layers=0)
    full_model = LocalModel(
        build=lambda: module.build(options, plain.inputs, trained.output["logits"].shape[-1]),
        input_spec={**plain.inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        num_classes=2,
        initialise=module.initialise(options, plain.inputs),
    ).initial_model(recipe.seed)
    target, source = full_model.get_layer("encoder"), trained.get_layer("encoder")
    values = {source.tail(variable): variable for variable in source.stack.weights}
    variables = {target.tail(variable): variable for variable in target.main.weights}
    assert len(values) == len(source.stack.weights) and values.keys() < variables.keys()
    for name, value in values.items():
        variables[name].assign(value)
    if inputs.pieces.new_pieces:
        target.main.embeddings.weight.new_rows.assign(inputs.new_rows)
    for layer in full_model.layers:
        if layer.name != "encoder" and layer.weights:
            layer.set_weights(trained.get_layer(layer.name).get_weights())
    return full_model


def copy_encoder(to: Path, kind: str = "bert", layers: int = LAYERS, **config) -> Path:
    """A copy of `encoder(kind, layers)` at `to`, with other values in its config.json."""
    shutil.copytree(encoder(kind, layers), to)
    path = to / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **config}), "utf-8")
    return to


def checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """Name -> value of a folder's weights."""
    return load_file(folder / "model.safetensors")


def save_checkpoint(folder: Path, weights: dict[str, np.ndarray], framework: str = "tf") -> None:
    """Replaces a folder's weights; `framework` is the one that wrote them, `tf` or `pt`."""
    save_file(weights, folder / "model.safetensors", metadata={"format": framework})
