"""Frozen lower layers, which run once and whose outputs training starts from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re.models.adapters import Adaptable, trained_by
from tff_re.models.fixed_weights import FixedWeights, sort_weights
from tff_re.models.keras_private import precision_of, rename
from tff_re.models.pretrained import (
    PieceEncoder,
    main_layer,
    policy,
    quiet,
    seed_dropout,
    stack_of,
    unconverted,
)
from tff_re.models.transformers_version import CONFIG_MAPPING

INFERENCE_BATCH = 64
"""Texts at once where frozen layers run."""


@tf.keras.utils.register_keras_serializable("tff_re")
class UpperLayers(Adaptable):
    """{`hidden` [B, l, d], `attention_mask` int32 [B, l]} -> the last layer's outputs [B, l, d].

    The layers of a PieceEncoder above its frozen ones.
    """

    def __init__(
        self,
        config: dict[str, Any],
        dropout: float | None,
        frozen_layers: int,
        adapter: dict[str, Any] | None = None,
        fixed: FixedWeights | None = None,
        **kwargs,
    ):
        """Args: as PieceEncoder's, with only these layers' weights in `fixed`.

        Raises:
          ValueError: there are fewer layers, or the encoder is not built like BERT or DistilBERT.
        """
        super().__init__(**kwargs)
        self._settings = {
            "config": {**config, "_name_or_path": ""},
            "dropout": dropout,
            "frozen_layers": frozen_layers,
            "adapter": adapter,
        }
        made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
        if frozen_layers > made.num_hidden_layers:
            raise ValueError(f"frozen_layers is {frozen_layers}, but the encoder has {made.num_hidden_layers} layers")
        made.num_hidden_layers -= frozen_layers
        with policy(precision_of(self).name), quiet():
            main = main_layer(made)
            self.stack = stack_of(main)
            seed_dropout(self.stack, dropout)
            self._adapt(main, adapter, fixed)
        if adapter is not None:
            for number, layer in zip(self.adapted_layers, self.stack.layer, strict=True):
                rename(layer, re.sub(r"\d+$", str(number), layer.name))  # as in the whole encoder
        parameters = inspect.signature(self.stack.call).parameters
        self._is_distilbert = "attn_mask" in parameters
        if not self._is_distilbert and "encoder_hidden_states" not in parameters:
            raise ValueError("its layers cannot be run separately, so none can be frozen; set frozen_layers to 0")

    def part(self):
        return self.stack

    @property
    def adapted_layers(self):
        first = self._settings["frozen_layers"]
        return list(range(first, first + len(self.stack.layer)))

    def build(self, shape):
        super().build(shape)
        if self.adapter is None:
            return  # the layers are built as they are called
        with self._maker.active(), tf.name_scope(self._main_name), tf.name_scope(self.stack.name), quiet():
            self.stack.build(None)
        sort_weights(self.stack, trained_by(self.adapter.kind))

    def call(self, inputs, training=None):
        return self.run(inputs["hidden"], inputs["attention_mask"], training).last_hidden_state

    def run(self, hidden, mask, training, **more):
        """What `transformers` gives for hidden states [B, l, d] and a mask int32 [B, l]."""
        mask = tf.cast(mask, self.compute_dtype)
        none = [None] * len(self.stack.layer)
        common = {"head_mask": none, "output_attentions": False, "output_hidden_states": False, "return_dict": True}
        common |= more
        stack = unconverted(self.stack, self._settings["config"]["model_type"])
        if self._is_distilbert:
            return stack(hidden, mask, training=training, **common)
        return stack(
            hidden,
            attention_mask=(1.0 - mask[:, tf.newaxis, tf.newaxis, :]) * -10000.0,
            encoder_hidden_states=None,
            encoder_attention_mask=None,
            past_key_values=none,
            use_cache=False,
            training=training,
            **common,
        )

    def get_config(self):
        return {**super().get_config(), **self._settings}


def assign_upper(upper: UpperLayers, encoder: PieceEncoder) -> None:
    """Gives the layers above the frozen ones, which have no adapter, an encoder's weights."""
    layers = stack_of(encoder.main).layer
    for target, layer in zip(upper.stack.layer, layers[len(layers) - len(upper.stack.layer) :], strict=True):
        for variable, value in zip(target.weights, layer.weights, strict=True):
            variable.assign(value)


def assign_lower(lower: PieceEncoder, encoder: PieceEncoder) -> None:
    """Gives an encoder of fewer layers the embeddings and the lowest layers of another encoder."""
    layers = stack_of(lower.main).layer
    theirs = stack_of(encoder.main).layer[: len(layers)]
    for target, layer in zip((lower.main.embeddings, *layers), (encoder.main.embeddings, *theirs), strict=True):
        for variable, value in zip(target.weights, layer.weights, strict=True):
            variable.assign(value)


def hidden_states(encoder: PieceEncoder, arrays: Mapping[str, np.ndarray], layer: int) -> np.ndarray:
    """The outputs of the `layer`-th layer (0: of the embeddings) without dropout, float16 [n, L, d].

    Padding is zero.

    Args:
      encoder: with its weights.
      arrays: `input_ids`, `attention_mask` int32 [n, L].
      layer: counted from 1.
    """
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    lengths = mask.sum(axis=1)
    result = np.zeros((*ids.shape, encoder.main.config.hidden_size), np.float16)

    @tf.function(reduce_retracing=True)
    def outputs(ids, mask):
        states = encoder.main(
            input_ids=ids, attention_mask=mask, output_hidden_states=True, return_dict=True, training=False
        ).hidden_states
        return tf.cast(states[layer], tf.float16)

    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), INFERENCE_BATCH):
        rows = order[start : start + INFERENCE_BATCH]
        longest = max(1, lengths[rows[-1]])
        values = outputs(tf.constant(ids[rows, :longest]), tf.constant(mask[rows, :longest])).numpy()
        result[rows, :longest] = values * mask[rows, :longest, np.newaxis].astype(np.float16)
    return result
