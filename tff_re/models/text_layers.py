"""Layers that the text models share."""

from __future__ import annotations

import tensorflow as tf

from computations.privacy.example_gradients import batch_maximum
from tff_re.models.keras_private import is_of_keras, layers_in


@tf.keras.utils.register_keras_serializable("tff_re")
class TrimPadding(tf.keras.layers.Layer):
    """tokens [B, L] -> [B, l] with l the longest sentence of the batch (at least 1): no time is spent on padding."""

    def call(self, tokens):
        longest = batch_maximum(tf.reduce_max(tf.reduce_sum(tf.cast(tf.not_equal(tokens, 0), tf.int32), axis=-1)))
        return tokens[:, : tf.maximum(longest, 1)]


@tf.keras.utils.register_keras_serializable("tff_re")
class LastState(tf.keras.layers.Layer):
    """(states [l, B, d], tokens [B, l]) -> the state at each sentence's last token, [B, d].

    It is zero for an empty sentence.

    A recurrent layer reads left to right, so this is what a mask would give, without a mask's cost in every step.
    """

    def call(self, inputs):
        states, tokens = inputs
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(tokens, 0), tf.int32), axis=-1)
        places = tf.stack([tf.maximum(lengths - 1, 0), tf.range(tf.shape(tokens)[0])], axis=-1)
        last = tf.gather_nd(states, places)
        return last * tf.cast(lengths > 0, last.dtype)[:, tf.newaxis]


@tf.keras.utils.register_keras_serializable("tff_re")
class MeanOfWords(tf.keras.layers.Layer):
    """(vectors [B, l, d], tokens [B, l]) -> the mean vector of a sentence's tokens, [B, d].

    It is zero for an empty sentence.
    """

    def call(self, inputs):
        vectors, tokens = inputs
        weights = tf.cast(tf.not_equal(tokens, 0), vectors.dtype)[..., tf.newaxis]
        return tf.math.divide_no_nan(tf.reduce_sum(vectors * weights, 1), tf.reduce_sum(weights, 1))


def embedding(inputs, width: int, trainable: bool, **options) -> tf.keras.layers.Embedding:
    """The embedding of a TokenInput or RelationInput: its vectors, or `width` learned numbers a word."""
    if inputs.vectors is not None:
        width = inputs.vectors.shape[1]
        options["embeddings_initializer"] = lambda shape, dtype=None: tf.constant(inputs.vectors, dtype)
    return tf.keras.layers.Embedding(
        inputs.vocabulary_size, width, trainable=trainable or inputs.vectors is None, name="word_vectors", **options
    )


@tf.keras.utils.register_keras_serializable("tff_re")
class TrimRelations(tf.keras.layers.Layer):
    """The arrays of a PieceInput, a RelationInput or a HiddenInput of these, cut to the longest text of the batch."""

    def call(self, inputs):
        longest = batch_maximum(tf.reduce_max(tf.reduce_sum(inputs["attention_mask"], axis=-1)))
        return {n: v[:, : tf.maximum(longest, 1)] if v.shape.rank > 1 else tf.identity(v) for n, v in inputs.items()}


def keras_inputs(inputs) -> dict[str, tf.Tensor]:
    """The Keras inputs of an input form, by name.

    Unused inputs are included, because Keras warns of features without an input.
    """
    return {name: tf.keras.Input(s.shape[1:], dtype=s.dtype, name=name) for name, s in inputs.specs.items()}


def is_stock(model: tf.keras.Model) -> bool:
    """Whether all layers are Keras' own, so that Keras alone can load the model."""
    return all(map(is_of_keras, layers_in(model)))


def forget_initial_values(model: tf.keras.Model) -> None:
    """Replaces initialisers that are plain functions: they are of no more use, and only code of ours can load them."""
    for layer in layers_in(model, itself=False):
        for name, value in list(vars(layer).items()):
            stock = isinstance(value, tf.keras.initializers.Initializer)
            if name.endswith("_initializer") and callable(value) and not stock:
                setattr(layer, name, tf.keras.initializers.Zeros())
