"""A bidirectional LSTM over word or character vectors that gives each token a tag, optionally with a CRF.

Huang, Xu and Yu 2015, "Bidirectional LSTM-CRF Models for Sequence Tagging".
"""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf
from attrs.validators import ge

from computations.randomness import SeededDropout
from computations.ranges import BELOW_ONE
from tff_re.models.crf import LinearChain
from tff_re.models.inputs import TaggedTokenInput
from tff_re.models.lstm_kernel import SequenceLSTM
from tff_re.models.model import Model
from tff_re.models.tagging import TokenRows, TrimTagged, local_parts
from tff_re.models.text_layers import embedding, keras_inputs

INFERENCE_BATCH = 64
"""Texts at once where no gradients are taken: the kernel keeps seven arrays of a batch's states in each direction."""


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    units: width of the LSTM in each direction.
    dropout: rate on the states.
    embedding_width: width of learned word vectors; given vectors bring their own.
    train_vectors: whether given word vectors are trained further.
    crf: whether a linear-chain CRF decides on the tags of a text together; else each token's tag is decided by itself.
    """

    units: int = attrs.field(default=128, validator=ge(1))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    embedding_width: int = attrs.field(default=100, validator=ge(1))
    train_vectors: bool = False
    crf: bool = False


class Tagger(Model):
    Options = Options
    takes = (TaggedTokenInput,)

    def reads_vectors(self, options: Options) -> bool:
        return True

    def build(self, options: Options, inputs: TaggedTokenInput, num_classes: int) -> tf.keras.Model:
        """Word vectors, an LSTM in each direction and a linear classifier of each token, with the outputs of `tagging`.

        The number of classes is that of the task's labels; the tags are the inputs'.
        """
        del num_classes
        arrays = keras_inputs(inputs)
        trimmed = TrimTagged(name="trim")(arrays)
        vectors = embedding(inputs, options.embedding_width, options.train_vectors)(trimmed["tokens"])
        states = BidirectionalLSTM(options.units, name="lstm")([vectors, trimmed["tokens"]])
        rows = TokenRows(name="rows")({"outputs": states, "tags": trimmed["tags"]})
        features = SeededDropout(options.dropout, name="dropout")(rows["rows"])
        return _classified(options, inputs, arrays, features, rows["lengths"], trimmed)

    def build_plain(self, options: Options, inputs: TaggedTokenInput, num_classes: int) -> tf.keras.Model:
        """Stock layers, but for the CRF."""
        del num_classes
        arrays = keras_inputs(inputs)
        vectors = embedding(inputs, options.embedding_width, options.train_vectors, mask_zero=True)(arrays["tokens"])
        lstm = tf.keras.layers.LSTM(options.units, return_sequences=True, name="states")
        states = tf.keras.layers.Bidirectional(lstm, name="lstm")(vectors)
        tokens = tf.greater_equal(arrays["tags"], 0)
        lengths = tf.reduce_sum(tf.cast(tokens, tf.int32), axis=-1)
        more = {name: tf.identity(arrays[name]) for name in ("unrepresented", "annotated")}
        return _classified(options, inputs, arrays, tf.gather_nd(states, tf.where(tokens)), lengths, more)

    def local_parts(self, options: Options, inputs: Any) -> dict[str, Any]:
        return {**local_parts(inputs, options.crf), "inference_batch": INFERENCE_BATCH}


MODEL = Tagger()


def _classified(options: Options, inputs: TaggedTokenInput, arrays, features, lengths, more) -> tf.keras.Model:
    """The model of the inputs whose classifier sees these features of the rows."""
    logits = tf.keras.layers.Dense(inputs.num_tags, name="classifier")(features)
    outputs = {"logits": logits, "features": features, "lengths": lengths}
    outputs |= {name: more[name] for name in ("unrepresented", "annotated")}
    if options.crf:
        outputs |= LinearChain(inputs.num_tags, name="chain")(lengths)
    return tf.keras.Model(arrays, outputs, name="tagger")


@tf.keras.utils.register_keras_serializable("tff_re")
class BidirectionalLSTM(tf.keras.layers.Layer):
    """(vectors [B, l, d], tokens [B, l]) -> the states of both directions at all tokens, [B, l, 2 units].

    The second LSTM reads each text from its last token to its first, so that padding, which stands on the right and is
    0 in `tokens`, does not reach it. Weights and their order are those of tf.keras.layers.Bidirectional.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.forward, self.backward = (SequenceLSTM(units, name=name) for name in ("forward", "backward"))

    def build(self, shape):
        for layer in (self.forward, self.backward):
            with tf.name_scope(layer.name):
                layer.build(shape[0])
        super().build(shape)

    def call(self, inputs):
        vectors, tokens = inputs
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(tokens, 0), tf.int32), axis=-1)
        left = self.forward(vectors)
        right = self.backward(tf.reverse_sequence(vectors, lengths, seq_axis=1))
        right = tf.reverse_sequence(right, lengths, seq_axis=0, batch_axis=1)
        return tf.transpose(tf.concat([left, right], axis=-1), [1, 0, 2])

    def get_config(self):
        return {**super().get_config(), "units": self.forward.units}
