"""Adapters as files: safetensors with the names of PEFT, and `adapter_config.json` beside them.

The weights of LoRA, FFA-LoRA and BitFit have PyTorch's names and layout. New pieces' vectors and what is behind the
encoder stand beside them, so that an adapter with its encoder is a whole model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tff_re.errors import UserError
from tff_re.models.adapters import LOW_RANK, NEW_ROWS, AdapterOptions, LowRankDense

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"

_PREFIX = "base_model.model."
_LEAVES = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight", "beta": "bias", "bias": "bias", NEW_ROWS: NEW_ROWS}
_TURNED = ("lora_a", "lora_b", "kernel")
"""What PyTorch holds with its axes exchanged."""


def weights_of(model: tf.keras.Model) -> dict[str, np.ndarray]:
    """Name in the file -> float32 array: the adapter of the layer `encoder`, A included, and all other layers."""
    named = {**_encoder_names(model.get_layer("encoder")), **_rest_names(model)}
    return {name: _turned(variable.read_value().numpy(), leaf) for name, (variable, leaf) in named.items()}


def contents(model: tf.keras.Model, adapter: AdapterOptions, base: str, labels: Sequence[str]) -> dict[str, bytes]:
    """File name -> content of an adapter.

    Args:
      model: whole, with the adapter in variables.
      adapter: the recipe's.
      base: the encoder's hub id, or the last part of its folder.
      labels: the classes.
    """
    encoder = model.get_layer("encoder")
    config: dict[str, Any] = {
        "peft_type": "LORA" if adapter.kind in LOW_RANK else "BITFIT",
        "task_type": None,
        "base_model_name_or_path": base,
        "bias": "none" if adapter.kind in LOW_RANK else "all",
        "inference_mode": True,
        "modules_to_save": sorted({name.removeprefix(_PREFIX).split(".")[0] for name in _rest_names(model)}),
        "tff_re": {"kind": adapter.kind, "labels": list(labels), "new_rows": encoder.get_config()["new_rows"]},
    }
    if adapter.kind in LOW_RANK:
        targets = sorted({part.name for part in _low_rank(encoder)})
        config |= {"r": adapter.rank, "lora_alpha": adapter.alpha, "lora_dropout": adapter.dropout}
        config |= {"target_modules": targets, "fan_in_fan_out": False, "init_lora_weights": True}
    text = json.dumps(config, ensure_ascii=False, indent=1)
    return {WEIGHTS_FILE: save(weights_of(model)), CONFIG_FILE: text.encode()}


def assign_encoder(folder: str, encoder: tf.keras.layers.Layer) -> None:
    """Gives an encoder in variables the adapter of a folder.

    Raises:
      UserError: the files cannot be read, or are another adapter's.
    """
    _require_same_kind(folder, encoder.adapter)
    _assign(folder, _encoder_names(encoder))


def assign_rest(folder: str, model: tf.keras.Model) -> None:
    """Gives the layers behind the encoder the weights of a folder. Raises UserError as `assign_encoder` does."""
    _assign(folder, _rest_names(model))


def _assign(folder: str, named: Mapping[str, tuple[tf.Variable, str]]) -> None:
    values = _read(folder)
    for name, (variable, leaf) in named.items():
        if name not in values:
            raise UserError(f"adapter {folder}: has no weight {name}; it is of another adapter, encoder or task")
        value = _turned(values[name], leaf)
        if value.shape != tuple(variable.shape):
            raise UserError(
                f"adapter {folder}: weight {name} is {value.shape}, the recipe makes it {tuple(variable.shape)}; set "
                "model.adapter, the encoder and the labels as they were in its training"
            )
        if not np.isfinite(value).all():
            raise UserError(f"adapter {folder}: weight {name} holds NaN or infinity; write it again")
        variable.assign(value)


def _read(folder: str) -> dict[str, np.ndarray]:
    path = Path(folder) / WEIGHTS_FILE
    if not path.is_file():
        raise UserError(f"adapter {folder}: holds no {WEIGHTS_FILE}; give the folder that --adapter-only wrote")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); write it again") from None


def _require_same_kind(folder: str, adapter: AdapterOptions) -> None:
    path = Path(folder) / CONFIG_FILE
    try:
        config = json.loads(path.read_text("utf-8"))
        kind, alpha = config["tff_re"]["kind"], config.get("lora_alpha", adapter.alpha)
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path}: cannot be read, or is not of an adapter of tff-re; write it again") from None
    if (kind, alpha) != (adapter.kind, adapter.alpha):
        raise UserError(
            f"adapter {folder}: is {kind} with alpha {alpha:g}, the recipe says {adapter.kind} with {adapter.alpha:g}; "
            "set model.adapter.kind and model.adapter.alpha alike"
        )


def _encoder_names(encoder: tf.keras.layers.Layer) -> dict[str, tuple[tf.Variable, str]]:
    """Name in the file -> (variable, the last part of its name), of an encoder's adapter."""
    variables = list(encoder.trainable_variables)
    known = {id(variable) for variable in variables}
    variables += [part.lora_a for part in _low_rank(encoder) if id(part.lora_a) not in known]
    named = {}
    for variable in variables:
        path, _, leaf = variable.name.removesuffix(":0").rpartition("/")
        path = path.split(f"{encoder.main.name}/", 1)[-1].replace("/", ".")
        if leaf == NEW_ROWS:
            path = "embeddings.word_embeddings"
        named[f"{_PREFIX}{re.sub(r'_[.]_[.]?', '.', path)}.{_LEAVES[leaf]}"] = (variable, leaf)
    return named


def _low_rank(encoder: tf.keras.layers.Layer) -> list[LowRankDense]:
    return [part for part in encoder.main._flatten_layers() if isinstance(part, LowRankDense)]


def _rest_names(model: tf.keras.Model) -> dict[str, tuple[tf.Variable, str]]:
    """The same of the layers behind the encoder. A dense classifier has PyTorch's name and layout."""
    named = {}
    for layer in model.layers:
        if layer.name == "encoder":
            continue
        for variable in layer.weights:
            path, _, leaf = variable.name.removesuffix(":0").rpartition("/")
            dense = leaf == "kernel" and len(variable.shape) == 2
            name = f"{_PREFIX}{path.replace('/', '.')}.{'weight' if dense else leaf}"
            named[name] = (variable, leaf if dense else "")
    return named


def _turned(value: np.ndarray, leaf: str) -> np.ndarray:
    return np.ascontiguousarray(value.T if leaf in _TURNED else value)
