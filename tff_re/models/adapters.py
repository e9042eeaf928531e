"""Adapters: few trained weights in an encoder whose others stay as they are.

LoRA (Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models"), FFA-LoRA (Sun et al. 2024, "Improving LoRA
in Privacy-preserving Federated Learning"), BitFit (Ben Zaken et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs
import numpy as np
import tensorflow as tf
from attrs.validators import ge, gt

from computations.randomness import SeededDropout
from computations.ranges import BELOW_ONE, refuse_unread
from tff_re.models.fixed_weights import FixedWeights, VariableMaker
from tff_re.models.keras_private import layers_in, precision_of

TARGETS = (("query", "value"), ("q_lin", "v_lin"))
"""The dense layers that are adapted by default: BERT's names, DistilBERT's."""

NEW_ROWS = "new_rows"

LOW_RANK = ("lora", "ffa_lora")


@attrs.frozen(kw_only=True)
class AdapterOptions:
    """Attributes:
    kind: `lora`: W + (alpha / rank) A B with A and B trained; `ffa_lora`: A is drawn by the run's seed and stays, so
      that the mean of the clients' products is the product of their mean; `bitfit`: the biases alone are trained.
    rank: columns of A and rows of B.
    alpha: scale of the product.
    dropout: rate on what A reads.
    targets: names of the encoder's dense layers that get one; query and value if none is given.
    path: folder of an adapter that was written with `--adapter-only`, to start from.
    """

    kind: Literal["lora", "ffa_lora", "bitfit"] = "lora"
    rank: int = attrs.field(default=8, validator=ge(1))
    alpha: float = attrs.field(default=16.0, validator=gt(0))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    targets: tuple[str, ...] = ()
    path: str | None = None

    def __attrs_post_init__(self):
        refuse_unread(self, dict.fromkeys(("rank", "alpha", "dropout", "targets"), ("kind", LOW_RANK)))


def trained_by(kind: str) -> Callable[[str], bool]:
    """Whether a kind of adapter trains a weight of the encoder, by the last part of its name."""
    names = {
        "lora": (NEW_ROWS, "lora_a", "lora_b"),
        "ffa_lora": (NEW_ROWS, "lora_b"),
        "bitfit": (NEW_ROWS, "bias", "beta"),
    }[kind]
    return lambda name: name in names


@tf.keras.utils.register_keras_serializable("tff_re")
class LowRankDense(tf.keras.layers.Dense):
    """x [..., n] -> x W + b + (alpha / rank) dropout(x) A B, with A [n, rank] and B [rank, m].

    B starts at zero.
    """

    def __init__(self, units: int, rank: int, alpha: float, low_rank_dropout: float, **kwargs):
        super().__init__(units, **kwargs)
        self.rank, self.alpha = rank, alpha
        self.low_rank_dropout = SeededDropout(low_rank_dropout)

    def build(self, shape):
        super().build(shape)
        # As in PEFT: uniform within 1 / sqrt(n).
        uniform = tf.keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        self.lora_a = self.add_weight("lora_a", [shape[-1], self.rank], initializer=uniform)
        self.lora_b = self.add_weight("lora_b", [self.rank, self.units], initializer="zeros")

    def call(self, inputs, training=None):
        # As one product of all rows: a product a text would be slower, and so would its gradient.
        rows = tf.reshape(self.low_rank_dropout(inputs, training=training), [-1, self.kernel.shape[0]])
        low = tf.matmul(self.alpha / self.rank * tf.matmul(rows, self.lora_a), self.lora_b)
        outputs = super().call(inputs)
        return outputs + tf.reshape(low, tf.shape(outputs))

    def product(self) -> tf.Tensor:
        """What is to be added to the kernel, [n, m]."""
        return self.alpha / self.rank * tf.matmul(self.lora_a.read_value(), self.lora_b.read_value())

    def get_config(self):
        options = {"rank": self.rank, "alpha": self.alpha, "low_rank_dropout": self.low_rank_dropout.rate}
        return {**super().get_config(), **options}


class WithNewRows:
    """An embedding matrix of which the rows of new pieces are a variable of their own, for `tf.gather`."""

    def __init__(self, matrix, new_rows, first: int):
        """Args:
        matrix: [V, d].
        new_rows: [k, d], in place of the rows from `first` on.
        """
        self.matrix, self.new_rows, self._first = matrix, new_rows, first

    def sparse_read(self, indices, name=None):
        """The rows of the indices."""
        inside = indices - self._first
        count = self.new_rows.shape[0]
        is_new = (inside >= 0) & (inside < count)
        new = self.new_rows.sparse_read(tf.where(is_new, inside, 0))
        return tf.where(is_new[..., tf.newaxis], new, self.matrix.sparse_read(indices))


def add_low_rank(part: tf.keras.layers.Layer, config, adapter: AdapterOptions) -> None:
    """Exchanges the targeted dense layers inside of an encoder's part, which is not built, for ones with A and B.

    Args:
      part: the main layer, or a stack of its layers.
      config: the encoder's.
      adapter: of a kind in LOW_RANK.

    Raises:
      ValueError: a target matches no dense layer, or the rank is above a layer's width.
    """
    adapted = set()
    layers = layers_in(part)
    names = {name for layer in layers for name, _ in _dense_layers(layer)}
    targets = adapter.targets or next((t for t in TARGETS if names.issuperset(t)), None)
    if targets is None:
        raise ValueError(
            f"has no layers 'query' and 'value' to adapt; set model.adapter.targets to some of: {_list(names)}"
        )
    widest = min(config.hidden_size, getattr(config, "intermediate_size", config.hidden_size))
    if adapter.rank > widest:
        raise ValueError(f"has width {widest}, but the adapter's rank is {adapter.rank}; lower model.adapter.rank")
    for layer in layers:
        for name, dense in _dense_layers(layer):
            if name in targets:
                adapted.add(name)
                dense_config = {**dense.get_config(), "dtype": precision_of(dense)}
                options = {"rank": adapter.rank, "alpha": adapter.alpha, "low_rank_dropout": adapter.dropout}
                setattr(layer, name, LowRankDense(**options, **dense_config))
    lacking = [target for target in targets if target not in adapted]
    if lacking:
        raise ValueError(f"has no dense layer '{lacking[0]}' to adapt; model.adapter.targets can be: {_list(names)}")


def _dense_layers(layer: tf.keras.layers.Layer) -> list[tuple[str, tf.keras.layers.Dense]]:
    return [(name, value) for name, value in vars(layer).items() if type(value) is tf.keras.layers.Dense]


def low_rank_layers(part: tf.keras.layers.Layer) -> list[LowRankDense]:
    """The dense layers with A and B inside of an encoder's part."""
    return [layer for layer in layers_in(part) if isinstance(layer, LowRankDense)]


def _list(names) -> str:
    return ", ".join(sorted(names)) or "none"


class Adaptable(tf.keras.layers.Layer):
    """A layer around an encoder's main layer, or a part of it, that may have an adapter inside.

    Attributes:
      adapter: AdapterOptions; None: no adapter.
    """

    def part(self) -> tf.keras.layers.Layer:
        """What of the encoder is inside. (No property: Keras would save it once more by that name.)"""
        raise NotImplementedError

    @property
    def adapted_layers(self) -> list[int] | None:
        """The encoder's layers, counted from 0, that an adapter is in, or None for all layers."""
        return None

    def _adapt(self, main: tf.keras.layers.Layer, adapter: dict[str, Any] | None, fixed: FixedWeights | None) -> None:
        """Gives the part, which is not built, an adapter.

        Args:
          main: the main layer; the part is it or in it.
          adapter: fields of AdapterOptions.
          fixed: where the other weights are; None: in variables.
        """
        self._main_name = main.name
        self.adapter = None if adapter is None else AdapterOptions(**{**adapter, "targets": tuple(adapter["targets"])})
        # Not a list of this layer's own: Keras would track what is in it.
        self._maker = None if adapter is None else VariableMaker(trained_by(self.adapter.kind), fixed)
        if self.adapter is not None and self.adapter.kind in LOW_RANK:
            add_low_rank(self.part(), main.config, self.adapter)

    @property
    def fixed_variables(self) -> list[tf.Variable]:
        """With an adapter, the weights that are not trained, in the order in which `FixedWeights` has them."""
        return list(self._maker.fixed)

    def fixed_values(self) -> list[np.ndarray]:
        """Their values."""
        return [variable.numpy() for variable in self.fixed_variables]

    def tail(self, variable: tf.Variable) -> str:
        """A weight's name after that of the encoder's main layer."""
        return variable.name.removesuffix(":0").split(f"{self._main_name}/", 1)[1]
