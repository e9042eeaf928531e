"""Adapters as files: safetensors with the names of PEFT, and `adapter_config.json` next to them.

The weights of LoRA, FFA-LoRA and BitFit have PyTorch's names and layout. New pieces' vectors and the layers after the
encoder are stored with them, so that an adapter with its encoder is a whole model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tff_re.errors import UserError
from tff_re.models.adapters import LOW_RANK, NEW_ROWS, AdapterOptions, low_rank_layers
from tff_re.models.fixed_weights import leaf_name
from tff_re.models.inputs import HiddenInput, pieces_of
from tff_re.models.torch_names import encoder_name, head_names, transposed

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"

_PREFIX = "base_model.model."
_NEW_ROWS_NAME = f"{_PREFIX}embeddings.word_embeddings.{NEW_ROWS}"


def weights_of(model: tf.keras.Model, inputs) -> dict[str, np.ndarray]:
    """Name in the file -> float32 array: the adapter of the layer `encoder`, A included, and all other layers.

    Args:
      model: with the adapter in variables; whole, or what lies above frozen layers.
      inputs: its own, which after frozen layers have the vectors of the new pieces.
    """
    named = {**_encoder_names(model.get_layer("encoder")), **_rest_names(model)}
    arrays = {name: transposed(variable.read_value().numpy(), leaf) for name, (variable, leaf) in named.items()}
    if isinstance(inputs, HiddenInput) and inputs.pieces.new_pieces:
        arrays[_NEW_ROWS_NAME] = inputs.new_rows
    return arrays


def contents(
    model: tf.keras.Model, inputs, adapter: AdapterOptions, base: str, labels: Sequence[str]
) -> dict[str, bytes]:
    """File name -> content of an adapter.

    Args:
      model, inputs: as in `weights_of`.
      adapter: the recipe's.
      base: the encoder's hub id, or the last part of its folder.
      labels: the classes.
    """
    encoder, pieces = model.get_layer("encoder"), pieces_of(inputs)
    new_rows = [pieces.vocabulary_size - pieces.new_pieces, pieces.new_pieces]
    config: dict[str, Any] = {
        "peft_type": "LORA" if adapter.kind in LOW_RANK else "BITFIT",
        "task_type": None,
        "base_model_name_or_path": base,
        "bias": "none" if adapter.kind in LOW_RANK else "all",
        "inference_mode": True,
        "modules_to_save": sorted({name.removeprefix(_PREFIX).split(".")[0] for name in _rest_names(model)}),
        "tff_re": {"kind": adapter.kind, "labels": list(labels), "new_rows": new_rows},
    }
    if encoder.adapted_layers is not None:
        config["layers_to_transform"] = encoder.adapted_layers
    if adapter.kind in LOW_RANK:
        targets = sorted({layer.name for layer in low_rank_layers(encoder.part())})
        config |= {"r": adapter.rank, "lora_alpha": adapter.alpha, "lora_dropout": adapter.dropout}
        config |= {"target_modules": targets, "fan_in_fan_out": False, "init_lora_weights": True}
    text = json.dumps(config, ensure_ascii=False, indent=1)
    return {WEIGHTS_FILE: save(weights_of(model, inputs)), CONFIG_FILE: text.encode()}


def assign_encoder(folder: str, encoder: tf.keras.layers.Layer) -> None:
    """Gives an encoder in variables the adapter of a folder.

    Raises:
      UserError: the files cannot be read, or are another adapter's.
    """
    _require_same_kind(folder, encoder.adapter, encoder.adapted_layers)
    _assign(folder, _encoder_names(encoder))


def read_new_rows(folder: str, shape: Sequence[int]) -> np.ndarray:
    """The vectors of the new pieces in a folder, float32. Raises UserError as `assign_encoder` does."""
    rows = tf.Variable(tf.zeros(shape))
    _assign(folder, {_NEW_ROWS_NAME: (rows, NEW_ROWS)})
    return rows.numpy()


def assign_rest(folder: str, model: tf.keras.Model) -> None:
    """Gives the layers after the encoder the weights of a folder. Raises UserError like `assign_encoder`."""
    _assign(folder, _rest_names(model))


def _assign(folder: str, named: Mapping[str, tuple[tf.Variable, str]]) -> None:
    values = _read(folder)
    for name, (variable, leaf) in named.items():
        if name not in values:
            raise UserError(f"adapter {folder}: has no weight {name}; it belongs to another adapter, encoder or task")
        value = transposed(values[name], leaf)
        if value.shape != tuple(variable.shape):
            raise UserError(
                f"adapter {folder}: weight {name} has shape {value.shape}, but by the recipe it has "
                f"{tuple(variable.shape)}; use the model.adapter, encoder and labels that it was trained with"
            )
        if not np.isfinite(value).all():
            raise UserError(f"adapter {folder}: weight {name} contains NaN or infinity; write the adapter again")
        variable.assign(value)


def _read(folder: str) -> dict[str, np.ndarray]:
    path = Path(folder) / WEIGHTS_FILE
    if not path.is_file():
        raise UserError(f"adapter {folder}: holds no {WEIGHTS_FILE}; give the folder that --adapter-only wrote")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); write the adapter again") from None


def _require_same_kind(folder: str, adapter: AdapterOptions, layers: list[int] | None) -> None:
    path = Path(folder) / CONFIG_FILE
    try:
        config = json.loads(path.read_text("utf-8"))
        kind, alpha = config["tff_re"]["kind"], config.get("lora_alpha", adapter.alpha)
        stored = config.get("layers_to_transform")
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: cannot be read, or does not belong to an adapter of tff-re; write the adapter again"
        ) from None
    if (kind, alpha) != (adapter.kind, adapter.alpha):
        raise UserError(
            f"adapter {folder}: is {kind} with alpha {alpha:g}, but the recipe has {adapter.kind} with alpha "
            f"{adapter.alpha:g}; set model.adapter.kind and model.adapter.alpha to the adapter's values"
        )
    if stored != layers:
        in_file, in_recipe = (
            "all layers" if indices is None else f"the layers {indices}" for indices in (stored, layers)
        )
        raise UserError(
            f"adapter {folder}: adapts {in_file} (counted from 0), but the recipe adapts {in_recipe}; set "
            "model.frozen_layers to the value it was trained with"
        )


def _encoder_names(encoder: tf.keras.layers.Layer) -> dict[str, tuple[tf.Variable, str]]:
    """Name in the file -> (variable, the last part of its name), of an encoder's adapter."""
    variables = list(encoder.trainable_variables)
    known = {id(variable) for variable in variables}
    variables += [layer.lora_a for layer in low_rank_layers(encoder.part()) if id(layer.lora_a) not in known]
    named = {}
    for variable in variables:
        tail, leaf = encoder.tail(variable), leaf_name(variable)
        named[_NEW_ROWS_NAME if leaf == NEW_ROWS else _PREFIX + encoder_name(tail)] = (variable, leaf)
    return named


def _rest_names(model: tf.keras.Model) -> dict[str, tuple[tf.Variable, str]]:
    """PyTorch's name -> (variable, what `transposed` takes) of the layers after the encoder."""
    return {_PREFIX + name: about for name, about in head_names(model).items()}
