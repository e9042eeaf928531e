"""A pretrained transformer over word pieces with entity markers, and a linear classifier on the two mentions."""

from __future__ import annotations

from typing import Literal

import attrs
import tensorflow as tf
from attrs.validators import ge, optional

from tff_re.models.encoders import EncoderModel, EncoderOptions, classifier_of
from tff_re.models.inputs import HiddenInput, RelationInput


@attrs.frozen(kw_only=True)
class Options(EncoderOptions):
    """Attributes:
    representation: what the classifier sees. `entities_sum`: the sum of each mention's outputs (FedCMC);
      `cls_entities_sum`: the output at [CLS] before them (FedED); `entity_max`: the maximum over each mention's outputs
      (FedDS); `entity_start`: the outputs at the two opening markers (Baldini Soares et al. 2019).
    bias: whether the classifier has one; FedCMC's has none (Eq. 2).
    projection: units of a dense layer (tanh) between the mentions and the classifier, which then sees its outputs; not
      set: there is none. With all layers of the encoder frozen, only it and the classifier are trained.
    """

    representation: Literal["entities_sum", "cls_entities_sum", "entity_max", "entity_start"] = "entities_sum"
    bias: bool = False
    projection: int | None = attrs.field(default=None, validator=optional(ge(1)))


class SentenceEncoder(EncoderModel):
    Options = Options
    takes = (RelationInput,)

    def build(self, options: Options, inputs: RelationInput | HiddenInput, num_classes: int) -> tf.keras.Model:
        """The transformer's outputs, the two mentions' representation h, logits W h (FedCMC, Eqs. 1 and 2).

        For a HiddenInput only what lies above the frozen layers.

        Raises:
          UserError: there is no such encoder, or the options do not fit it.
        """
        features = mentions = MentionFeatures(options.representation, dtype="float32", name="mentions")
        if options.projection is not None:
            dense = tf.keras.layers.Dense(options.projection, activation="tanh", dtype="float32", name="projection")

            def features(arrays):
                return dense(mentions(arrays))

        return classifier_of(options, inputs, num_classes, features, bias=options.bias, name="sentence_encoder")


MODEL = SentenceEncoder()


@tf.keras.utils.register_keras_serializable("tff_re")
class MentionFeatures(tf.keras.layers.Layer):
    """The representation h of two mentions in a text, by name (see `Options.representation`).

    Takes `outputs` [B, l, d], `head_mask` and `tail_mask` [B, l], `head_start` and `tail_start` [B]; gives [B, 2d],
    with [CLS] [B, 3d].
    """

    def __init__(self, representation: str, **kwargs):
        super().__init__(**kwargs)
        self.representation = representation

    def call(self, inputs):
        outputs = inputs["outputs"]
        parts = [outputs[:, 0]] if self.representation == "cls_entities_sum" else []
        for which in ("head", "tail"):
            if self.representation == "entity_start":
                parts.append(tf.gather(outputs, inputs[f"{which}_start"], batch_dims=1))
                continue
            mask = tf.cast(inputs[f"{which}_mask"], outputs.dtype)[..., tf.newaxis]
            if self.representation == "entity_max":
                parts.append(tf.reduce_max(tf.where(mask > 0, outputs, outputs.dtype.min), axis=1))
            else:
                parts.append(tf.reduce_sum(outputs * mask, axis=1))
        return tf.concat(parts, axis=-1)

    def get_config(self):
        return {**super().get_config(), "representation": self.representation}
