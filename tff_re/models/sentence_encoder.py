"""A pretrained transformer over word pieces with entity markers, and a linear classifier on the two mentions."""

from __future__ import annotations

import copy
from typing import Literal

import attrs
import tensorflow as tf
from attrs.validators import ge, optional

from computations.local_model import LABEL, LocalModel
from computations.randomness import SeededDropout
from datasets.text.relation_layout import MARKERS
from tff_re.errors import UserError
from tff_re.models.frozen_layers import UpperLayers, assign_lower, assign_upper, hidden_states
from tff_re.models.inputs import HiddenRelationInput, RelationInput
from tff_re.models.pretrained import (
    PieceEncoder,
    assign_pretrained,
    load_config,
    positions,
    require_vocabulary,
    source_of,
)
from tff_re.models.text_layers import TrimRelations, keras_inputs
from tff_re.settings import BELOW_ONE

TAKES = (RelationInput, HiddenRelationInput)


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    encoder: folder or hub id of a BERT, DistilBERT or another encoder that `transformers` has for TensorFlow; the
      task's tokenizer if not set.
    pretrained: whether training starts from its weights; else from random ones of the same form.
    representation: what the classifier sees. `entities_sum`: the sum of each mention's outputs (FedCMC);
      `cls_entities_sum`: the output at [CLS] before them (FedED); `entity_max`: the maximum over each mention's outputs
      (FedDS); `entity_start`: the outputs at the two opening markers (Baldini Soares et al. 2019).
    bias: whether the classifier has one; FedCMC's has none (Eq. 2).
    encoder_dropout: rate inside of the encoder; its own configuration's if not set.
    dropout: rate on what the classifier sees.
    frozen_layers: if at least 1, the embeddings and so many of the lowest layers stay as they are; they run once per
      text, without dropout, and local training starts from their outputs.
    precision: of the encoder's arithmetic; weights, moments and the classifier are float32 in both.
    """

    encoder: str | None = None
    pretrained: bool = True
    representation: Literal["entities_sum", "cls_entities_sum", "entity_max", "entity_start"] = "entities_sum"
    bias: bool = False
    encoder_dropout: float | None = attrs.field(default=None, validator=optional(BELOW_ONE))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    frozen_layers: int = attrs.field(default=0, validator=ge(0))
    precision: Literal["float32", "mixed_bfloat16"] = "float32"


def build(options: Options, inputs: RelationInput | HiddenRelationInput, num_classes: int) -> tf.keras.Model:
    """The transformer's outputs, the two mentions' representation h, logits W h (FedCMC, Eqs. 1 and 2).

    For a HiddenRelationInput only what lies above the frozen layers.

    Raises:
      UserError: there is no such encoder, or the options do not fit it.
    """
    relation = inputs.relation if isinstance(inputs, HiddenRelationInput) else inputs
    source = source_of(options, relation)
    config = load_config(source)
    arrays = keras_inputs(inputs)
    trimmed = TrimRelations(name="trim")(arrays)
    if relation is inputs:
        encoder = _piece_encoder(options, relation, source, config)
        outputs = encoder({name: trimmed[name] for name in ("input_ids", "attention_mask")})
    else:
        encoder = _upper_layers(options, source, config)
        outputs = encoder({name: trimmed[name] for name in ("hidden", "attention_mask")})
    features = MentionFeatures(options.representation, dtype="float32", name="mentions")(
        {**trimmed, "outputs": outputs}
    )
    features = SeededDropout(options.dropout, dtype="float32", name="dropout")(features)
    logits = tf.keras.layers.Dense(
        num_classes,
        use_bias=options.bias,
        kernel_initializer=tf.keras.initializers.TruncatedNormal(stddev=getattr(config, "initializer_range", 0.02)),
        dtype="float32",
        name="classifier",
    )(features)
    return tf.keras.Model(arrays, {"logits": logits, "features": features}, name="sentence_encoder")


def _piece_encoder(options: Options, inputs: RelationInput, source: str, config) -> PieceEncoder:
    if options.pretrained and inputs.tokenizer is not None:
        require_vocabulary(config, source, inputs.vocabulary_size, len(MARKERS))
    try:
        encoder = PieceEncoder(
            config.to_dict(),
            max(inputs.vocabulary_size, config.vocab_size),
            options.encoder_dropout,
            options.frozen_layers,
            dtype=options.precision,
            name="encoder",
        )
    except ValueError as error:
        raise UserError(f"encoder {source}: {error}") from None
    readable = positions(encoder.main, config)
    if readable is not None and inputs.max_length > readable:
        raise UserError(
            f"encoder {source}: reads {readable} pieces, the task gives {inputs.max_length}; lower task.max_length"
        )
    return encoder


def _upper_layers(options: Options, source: str, config) -> UpperLayers:
    try:
        return UpperLayers(
            config.to_dict(), options.encoder_dropout, options.frozen_layers, dtype=options.precision, name="encoder"
        )
    except ValueError as error:
        raise UserError(f"encoder {source}: {error}") from None


def build_plain(options: Options, inputs: RelationInput | HiddenRelationInput, num_classes: int) -> tf.keras.Model:
    """The same model: a transformer has no form of stock Keras layers. Loading it takes this project's code."""
    return build(options, inputs, num_classes)


def initialise(options: Options, inputs: RelationInput | HiddenRelationInput):
    """What brings a new model to its initial weights beyond its own initialisers: the pretrained encoder; or None."""
    if isinstance(inputs, HiddenRelationInput):
        return lambda model: _assign_from_whole(options, inputs, model)
    if not options.pretrained:
        return None
    source = source_of(options, inputs)
    return lambda model: assign_pretrained(model.get_layer("encoder"), source)


def _assign_from_whole(options: Options, inputs: HiddenRelationInput, model: tf.keras.Model) -> None:
    """Initial weights as the whole model would have them, the classifier's too."""
    classifier = model.get_layer("classifier")
    whole = _whole(options, inputs, classifier.units)
    assign_upper(model.get_layer("encoder"), whole.get_layer("encoder"))
    classifier.set_weights(whole.get_layer("classifier").get_weights())


def precompute(options: Options, inputs: RelationInput, seed: int):
    """(inputs, function of arrays) that put the frozen layers' outputs in place of the pieces; None: none is frozen.

    Args:
      options: the model's.
      inputs: what the task gives.
      seed: of the run, which draws what the checkpoint does not have (the markers' vectors).
    """
    if not options.frozen_layers or not isinstance(inputs, RelationInput):
        return None
    encoder = _whole(options, HiddenRelationInput(inputs, 0, seed)).get_layer("encoder")

    def run(arrays):
        hidden = hidden_states(encoder, arrays, options.frozen_layers)
        return {"hidden": hidden, **{name: array for name, array in arrays.items() if name != "input_ids"}}

    return HiddenRelationInput(inputs, encoder.main.config.hidden_size, seed), run


def finished(options: Options, inputs: HiddenRelationInput, num_classes: int, weights) -> tf.keras.Model:
    """The whole model, which takes pieces, of what was trained behind frozen layers."""
    whole = _whole(options, inputs, num_classes)
    for variable, value in zip(whole.trainable_variables, weights.trainable, strict=True):
        variable.assign(value)
    return whole


def with_frozen_layers(options: Options, inputs: HiddenRelationInput, trained: tf.keras.Model) -> tf.keras.Model:
    """What was trained behind the frozen layers, with these before it; takes pieces.

    Their outputs are rounded to float16 as in training, so that the predictions are those of the training process but
    for values that lie between two of these numbers; `finished` computes the same in float32 throughout.
    """
    encoder = _whole(options, inputs).get_layer("encoder")
    config = copy.deepcopy(encoder.main.config)
    config.num_hidden_layers = options.frozen_layers
    lower = PieceEncoder(
        config.to_dict(),
        config.vocab_size,
        options.encoder_dropout,
        options.frozen_layers,
        dtype=options.precision,
        name="frozen_layers",
    )
    arrays = keras_inputs(inputs.relation)  # of full width, which what was trained takes; that trims them itself
    outputs = lower({name: arrays[name] for name in ("input_ids", "attention_mask")})
    assign_lower(lower, encoder)
    mask = tf.expand_dims(tf.cast(arrays["attention_mask"], tf.float16), -1)
    outputs = trained(
        {**{n: arrays[n] for n in inputs.specs if n != "hidden"}, "hidden": tf.cast(outputs, tf.float16) * mask}
    )
    return tf.keras.Model(arrays, outputs, name="sentence_encoder")


def _whole(options: Options, inputs: HiddenRelationInput, num_classes: int = 2) -> tf.keras.Model:
    """The whole model with the initial weights of the run's seed."""
    relation = inputs.relation
    local = LocalModel(
        build=lambda: build(options, relation, num_classes),
        input_spec={**relation.specs, LABEL: tf.TensorSpec([None], tf.int32)},
        num_classes=num_classes,
        initialise=initialise(options, relation),
    )
    return local.keras_model(local.initial_weights(inputs.seed))


@tf.keras.utils.register_keras_serializable("tff_re")
class MentionFeatures(tf.keras.layers.Layer):
    """The representation h of two mentions in a text, by name; see `Options.representation`.

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
