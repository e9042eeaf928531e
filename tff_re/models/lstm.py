"""LSTM over word vectors (FLCMC, Section 5.2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from computations.randomness import SeededDropout
from tff_re.models.inputs import TokenInput
from tff_re.models.recurrence import SequenceLSTM
from tff_re.models.text_layers import LastState, TrimPadding, embedding

TAKES = (TokenInput,)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Attributes:
    units: width of the LSTM.
    dropout: rate on the last state.
    embedding_width: width of learned word vectors; given vectors bring their own.
    train_vectors: whether given word vectors are trained further.
    """

    units: int = 128
    dropout: float = 0.0
    embedding_width: int = 100
    train_vectors: bool = False

    def __post_init__(self):
        for name in ("units", "embedding_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")


def build(options: Options, inputs: TokenInput, num_classes: int) -> tf.keras.Model:
    """Word vectors, one LSTM, its state at the last word, a linear classifier."""
    source = tf.keras.Input([inputs.max_length], dtype=tf.int32, name="tokens")
    tokens = TrimPadding(name="trim")(source)
    vectors = embedding(inputs, options.embedding_width, options.train_vectors)(tokens)
    states = SequenceLSTM(options.units, name="lstm")(vectors)
    features = SeededDropout(options.dropout, name="dropout")(LastState(name="last")([states, tokens]))
    logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
    return tf.keras.Model({"tokens": source}, {"logits": logits, "features": features}, name="lstm")


def build_plain(options: Options, inputs: TokenInput, num_classes: int) -> tf.keras.Model:
    """The same function from stock Keras layers alone, for people without this project's code; same weights."""
    source = tf.keras.Input([inputs.max_length], dtype=tf.int32, name="tokens")
    vectors = embedding(inputs, options.embedding_width, options.train_vectors, mask_zero=True)(source)
    features = tf.keras.layers.LSTM(options.units, name="lstm")(vectors)
    logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
    return tf.keras.Model({"tokens": source}, {"logits": logits, "features": features}, name="lstm")
