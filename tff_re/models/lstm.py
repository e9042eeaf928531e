"""LSTM over word vectors (FLCMC, Section 5.2.3), with its kernel in `lstm_kernel.py`."""

from __future__ import annotations

import attrs
import tensorflow as tf
from attrs.validators import ge

from computations.randomness import SeededDropout
from computations.ranges import BELOW_ONE
from tff_re.models.inputs import RelationInput, TokenInput
from tff_re.models.lstm_kernel import SequenceLSTM
from tff_re.models.model import Model
from tff_re.models.text_layers import LastState, TrimPadding, TrimRelations, embedding, keras_inputs


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    units: width of the LSTM.
    dropout: rate on the last state.
    embedding_width: width of learned word vectors; given vectors bring their own.
    train_vectors: whether given word vectors are trained further.
    """

    units: int = attrs.field(default=128, validator=ge(1))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    embedding_width: int = attrs.field(default=100, validator=ge(1))
    train_vectors: bool = False


class Lstm(Model):
    Options = Options
    takes = (RelationInput, TokenInput)

    def reads_vectors(self, options: Options) -> bool:
        return True

    def build(self, options: Options, inputs: RelationInput | TokenInput, num_classes: int) -> tf.keras.Model:
        """Word vectors, one LSTM, its state at the last word, a linear classifier.

        Of a text with two mentions it reads the ids alone: the markers among them say where the mentions are.
        """
        sources = keras_inputs(inputs)
        if isinstance(inputs, RelationInput):
            arrays = TrimRelations(name="trim")(sources)
            tokens, present = arrays["input_ids"], arrays["attention_mask"]
        else:
            tokens = present = TrimPadding(name="trim")(sources["tokens"])
        vectors = embedding(inputs, options.embedding_width, options.train_vectors)(tokens)
        states = SequenceLSTM(options.units, name="lstm")(vectors)
        features = SeededDropout(options.dropout, name="dropout")(LastState(name="last")([states, present]))
        logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
        return tf.keras.Model(sources, {"logits": logits, "features": features}, name="lstm")

    def build_plain(self, options: Options, inputs: RelationInput | TokenInput, num_classes: int) -> tf.keras.Model:
        sources = keras_inputs(inputs)
        marked = isinstance(inputs, RelationInput)
        vectors = embedding(inputs, options.embedding_width, options.train_vectors, mask_zero=not marked)(
            sources["input_ids" if marked else "tokens"]
        )
        mask = {"mask": tf.cast(sources["attention_mask"], tf.bool)} if marked else {}
        features = tf.keras.layers.LSTM(options.units, name="lstm")(vectors, **mask)
        logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
        return tf.keras.Model(sources, {"logits": logits, "features": features}, name="lstm")


MODEL = Lstm()
