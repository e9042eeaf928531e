"""PyTorch's names and layout of weights that Keras layers hold, for files that are read and for files that are written.

The layers of `transformers` have the same names in both libraries; the last part of a weight's name differs.
"""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

_LEAVES = {
    **dict.fromkeys(("kernel", "gamma", "embeddings", "weight"), "weight"),
    **dict.fromkeys(("beta", "bias"), "bias"),
    "depthwise_kernel": "depthwise.weight",
    "pointwise_kernel": "pointwise.weight",
    "lora_a": "lora_A.weight",
    "lora_b": "lora_B.weight",
}
"""The last part of a weight's name in Keras -> in PyTorch; others are the same, such as DeBERTa's `q_bias`."""

_TRANSPOSED = ("lora_a", "lora_b", "kernel", "depthwise_kernel", "pointwise_kernel")
"""What PyTorch holds with its axes in the reverse order."""

_NUMBER = re.compile(r"_[.]_[.]?")
"""Around the number of a layer in a list, in Keras."""

_FORMER = {"gamma": "weight", "beta": "bias"}
"""What checkpoints of the first years call the weights of a layer normalisation -> PyTorch's names."""


def encoder_name(tail: str) -> str:
    """PyTorch's name of an encoder's weight, such as `encoder.layer.0.output.dense.weight`.

    Args:
      tail: the name in Keras after that of the encoder's main layer (`Adaptable.tail`).
    """
    path, _, leaf = tail.rpartition("/")
    name = _LEAVES.get(leaf, leaf)
    return f"{_NUMBER.sub('.', path.replace('/', '.'))}.{name}" if path else name


def renamed(name: str) -> str:
    """The name in PyTorch today of a weight in a checkpoint."""
    path, dot, leaf = name.rpartition(".")
    return path + dot + _FORMER.get(leaf, leaf)


def head_names(model: tf.keras.Model) -> dict[str, tuple[tf.Variable, str]]:
    """PyTorch's name -> (variable, what `transposed` takes) of all layers but `encoder`.

    A dense layer has PyTorch's name and layout, other layers keep theirs.
    """
    named = {}
    for layer in model.layers:
        if layer.name == "encoder":
            continue
        for variable in layer.weights:
            path, _, leaf = variable.name.removesuffix(":0").rpartition("/")
            dense = leaf == "kernel" and len(variable.shape) == 2
            named[f"{path.replace('/', '.')}.{'weight' if dense else leaf}"] = (variable, leaf if dense else "")
    return named


def transposed(value: np.ndarray, leaf: str) -> np.ndarray:
    """The array in the other library's layout.

    The same function converts in both directions.

    Args:
      leaf: the last part of the weight's name in Keras.
    """
    return np.ascontiguousarray(value.T if is_transposed(leaf) else value)


def is_transposed(leaf: str) -> bool:
    """Whether PyTorch holds a weight with its axes in the reverse order."""
    return leaf in _TRANSPOSED
