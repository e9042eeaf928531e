"""Multinomial logistic regression (FLCMC, Sections 5.1 and 5.2.2)."""

from __future__ import annotations

from typing import Literal

import attrs
import tensorflow as tf
from attrs.validators import ge

from tff_re.models.inputs import DenseInput, TokenInput
from tff_re.models.model import Model
from tff_re.models.text_layers import MeanOfWords, TrimPadding, embedding


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    features: what x is for a sentence: the mean of its word vectors (`mean_vectors`), or which words of the
      vocabulary it has (`word_presence`, 0 or 1 each), for which no word vectors are needed.
    embedding_width: width of learned word vectors; given vectors bring their own.
    train_vectors: whether given word vectors are trained further.
    """

    features: Literal["mean_vectors", "word_presence"] = "mean_vectors"
    embedding_width: int = attrs.field(default=100, validator=ge(1))
    train_vectors: bool = False


class LogisticRegression(Model):
    Options = Options
    takes = (DenseInput, TokenInput)

    def reads_vectors(self, options: Options) -> bool:
        return options.features == "mean_vectors"

    def build(self, options: Options, inputs: DenseInput | TokenInput, num_classes: int) -> tf.keras.Model:
        """softmax(W x + b), where `options.features` says what the x of a sentence is."""
        return _build(options, inputs, num_classes, plain=False)

    def build_plain(self, options: Options, inputs: DenseInput | TokenInput, num_classes: int) -> tf.keras.Model:
        return _build(options, inputs, num_classes, plain=True)


MODEL = LogisticRegression()


def _build(options, inputs, num_classes: int, *, plain: bool) -> tf.keras.Model:
    if isinstance(inputs, DenseInput):
        source = features = tf.keras.Input([inputs.width], name="x")
    else:
        source = tf.keras.Input([inputs.max_length], dtype=tf.int32, name="tokens")
        features = (
            _presence(inputs, source) if options.features == "word_presence" else _mean(options, inputs, source, plain)
        )
    logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
    return tf.keras.Model(
        {"x" if isinstance(inputs, DenseInput) else "tokens": source},
        {"logits": logits, "features": features},
        name="logistic_regression",
    )


def _presence(inputs: TokenInput, source):
    encoded = tf.keras.layers.CategoryEncoding(inputs.vocabulary_size, output_mode="multi_hot", name="presence")(source)
    return encoded[:, 1:]  # the first is padding


def _mean(options: Options, inputs: TokenInput, source, plain: bool):
    if plain:
        vectors = embedding(inputs, options.embedding_width, options.train_vectors)(source)
        weights = tf.expand_dims(tf.cast(tf.not_equal(source, 0), tf.float32), -1)  # "[...]" cannot be saved
        # Not Keras' masked average, which is NaN for a sentence without words.
        return tf.math.divide_no_nan(tf.reduce_sum(vectors * weights, 1), tf.reduce_sum(weights, 1))
    tokens = TrimPadding(name="trim")(source)
    vectors = embedding(inputs, options.embedding_width, options.train_vectors)(tokens)
    return MeanOfWords(name="mean")([vectors, tokens])
