"""Multinomial logistic regression (FLCMC, Sections 5.1 and 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tff_re.models.inputs import DenseInput, TokenInput
from tff_re.models.text_layers import MeanOfWords, TrimPadding, embedding


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    embedding_width: width of learned word vectors; given vectors bring their own.
    train_vectors: whether given word vectors are trained further.
    """

    embedding_width: int = 100
    train_vectors: bool = False

    def __post_init__(self):
        if self.embedding_width < 1:
            raise ValueError(f"embedding_width must be at least 1, got {self.embedding_width}")


def build(options: Options, inputs: DenseInput | TokenInput, num_classes: int) -> tf.keras.Model:
    """softmax(W x + b); the x of a sentence is the mean of its word vectors."""
    if isinstance(inputs, DenseInput):
        source = features = tf.keras.Input([inputs.width], name="x")
        name = "x"
    else:
        source = tf.keras.Input([inputs.max_length], dtype=tf.int32, name="tokens")
        name = "tokens"
        tokens = TrimPadding(name="trim")(source)
        vectors = embedding(inputs, options.embedding_width, options.train_vectors)(tokens)
        features = MeanOfWords(name="mean")([vectors, tokens])
    logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
    return tf.keras.Model({name: source}, {"logits": logits, "features": features}, name="logistic_regression")


def build_plain(options: Options, inputs: DenseInput | TokenInput, num_classes: int) -> tf.keras.Model:
    """The same function from stock Keras layers alone, for people without this project's code; same weights."""
    if isinstance(inputs, DenseInput):
        return build(options, inputs, num_classes)
    source = tf.keras.Input([inputs.max_length], dtype=tf.int32, name="tokens")
    vectors = embedding(inputs, options.embedding_width, options.train_vectors, mask_zero=True)(source)
    features = tf.keras.layers.GlobalAveragePooling1D(name="mean")(vectors)
    logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
    return tf.keras.Model({"tokens": source}, {"logits": logits, "features": features}, name="logistic_regression")
