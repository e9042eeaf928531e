"""A pretrained transformer over the word pieces of a text, and a linear classifier on the whole text."""

from __future__ import annotations

from typing import Literal

import attrs
import tensorflow as tf

from tff_re.models.encoders import EncoderModel, EncoderOptions, classifier_of
from tff_re.models.inputs import HiddenInput, PieceInput


@attrs.frozen(kw_only=True)
class Options(EncoderOptions):
    """Attributes:
    pooling: what the classifier sees. `cls`: the output at [CLS]; `mean`: the mean of the outputs at all pieces.
    """

    pooling: Literal["cls", "mean"] = "cls"


class TextEncoder(EncoderModel):
    Options = Options
    takes = (PieceInput,)

    def build(self, options: Options, inputs: PieceInput | HiddenInput, num_classes: int) -> tf.keras.Model:
        """The transformer's outputs, the text's representation h, logits W h + b.

        For a HiddenInput only what lies above the frozen layers.

        Raises:
          UserError: there is no such encoder, or the options do not fit it.
        """
        representation = TextFeatures(options.pooling, dtype="float32", name="text")
        return classifier_of(options, inputs, num_classes, representation, bias=True, name="text_encoder")


MODEL = TextEncoder()


@tf.keras.utils.register_keras_serializable("tff_re")
class TextFeatures(tf.keras.layers.Layer):
    """The representation h [B, d] of a text, by name (see `Options.pooling`).

    Takes `outputs` [B, l, d] and `attention_mask` [B, l].
    """

    def __init__(self, pooling: str, **kwargs):
        super().__init__(**kwargs)
        self.pooling = pooling

    def call(self, inputs):
        outputs = inputs["outputs"]
        if self.pooling == "cls":
            return outputs[:, 0]
        mask = tf.cast(inputs["attention_mask"], outputs.dtype)[..., tf.newaxis]
        return tf.math.divide_no_nan(tf.reduce_sum(outputs * mask, axis=1), tf.reduce_sum(mask, axis=1))

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling}
