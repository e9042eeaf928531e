"""The extractor of FedDS (Lazy MIL), Section 3.2: a piecewise convolutional network (PCNN, Zeng et al., EMNLP 2015)."""

from __future__ import annotations

import attrs
import tensorflow as tf
from attrs.validators import ge

from computations.randomness import SeededDropout
from computations.ranges import BELOW_ONE
from tff_re.models.inputs import RelationInput
from tff_re.models.model import Model
from tff_re.models.text_layers import TrimRelations, embedding, keras_inputs


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    embedding_width: width of learned word vectors; given vectors bring their own.
    position_width: width of each of a token's two position vectors.
    position_limit: positions relative to a mention are clipped to [-limit, limit].
    filters: number of filters; the features are three times as many.
    window: tokens that a filter sees.
    dropout: rate on the features.
    train_vectors: whether given word vectors are trained further.
    bias: whether the classifier has a bias.
    """

    embedding_width: int = attrs.field(default=50, validator=ge(1))
    position_width: int = attrs.field(default=5, validator=ge(1))
    position_limit: int = attrs.field(default=100, validator=ge(1))
    filters: int = attrs.field(default=230, validator=ge(1))
    window: int = attrs.field(default=3, validator=ge(1))
    dropout: float = attrs.field(default=0.5, validator=BELOW_ONE)
    train_vectors: bool = True
    bias: bool = True


class Pcnn(Model):
    Options = Options
    takes = (RelationInput,)

    def reads_vectors(self, options: Options) -> bool:
        return True

    def build(self, options: Options, inputs: RelationInput, num_classes: int) -> tf.keras.Model:
        """Word and position vectors, one convolution, the maximum of each segment, tanh, dropout, a linear classifier.

        The convolution has a bias and as many outputs as tokens (the paper's has none, and `window` - 1 outputs more),
        so that an output belongs to the segment of the token in its middle. Beyond a text's ends the filters see zeros.
        """
        return _build(options, inputs, num_classes, plain=False)

    def build_plain(self, options: Options, inputs: RelationInput, num_classes: int) -> tf.keras.Model:
        return _build(options, inputs, num_classes, plain=True)


MODEL = Pcnn()


def _build(options, inputs, num_classes: int, *, plain: bool) -> tf.keras.Model:
    sources = keras_inputs(inputs)
    arrays = sources if plain else TrimRelations(name="trim")(sources)
    mask, starts = arrays["attention_mask"], (arrays["head_start"], arrays["tail_start"])
    vectors = [embedding(inputs, options.embedding_width, options.train_vectors)(arrays["input_ids"])]
    for name, start in zip(("head", "tail"), starts, strict=True):
        table = tf.keras.layers.Embedding(
            2 * options.position_limit + 1, options.position_width, name=f"{name}_position_vectors"
        )
        vectors.append(table(relative_positions(mask, start, options.position_limit)))
    # A window at a text's end sees zeros behind it, whether the batch has padding there or not.
    seen = tf.concat(vectors, -1) * tf.expand_dims(tf.cast(mask, tf.float32), -1)
    convolution = tf.keras.layers.Conv1D(options.filters, options.window, padding="same", name="convolution")
    features = tf.tanh(piecewise_max(convolution(seen), mask, *starts))
    if not plain:
        features = SeededDropout(options.dropout, name="dropout")(features)
    logits = tf.keras.layers.Dense(num_classes, use_bias=options.bias, name="classifier")(features)
    return tf.keras.Model(sources, {"logits": logits, "features": features}, name="pcnn")


def relative_positions(mask, start, limit: int):
    """Rows of a table of position vectors: how far a token is after a mention's opening marker, clipped.

    Args:
      mask: int32 [B, l], for its shape.
      start: int32 [B], index of the opening marker.
      limit: farthest distance that is told apart.

    Returns:
      int32 [B, l] in [0, 2 * limit]; `limit` is the marker itself.
    """
    return tf.clip_by_value(_indices(mask) - tf.expand_dims(start, -1), -limit, limit) + limit


def piecewise_max(values, mask, start, other_start):
    """The maximum of each segment (Zeng et al. 2015), the three side by side.

    The mention that starts first ends the first segment and the other one ends the second, whichever of them is the
    head; a start belongs to the segment that it ends. Padding is in no segment. A segment without tokens (the second
    if both start at one place, the third if a text ends with a start) gives zeros.

    Args:
      values: float32 [B, l, d].
      mask: int32 [B, l], 1 on tokens, 0 on padding.
      start, other_start: int32 [B], the mentions' opening markers in any order.

    Returns:
      float32 [B, 3 * d].
    """
    width = values.shape[-1]
    segment = sum(tf.cast(_indices(mask) > tf.expand_dims(s, -1), tf.int32) for s in (start, other_start))
    segment = tf.where(tf.equal(mask, 0), 3, segment)  # a fourth one, which is left out
    count = 4 * tf.shape(mask)[0]
    segment += tf.expand_dims(tf.range(0, count, 4), -1)
    maxima = tf.math.unsorted_segment_max(tf.reshape(values, [-1, width]), tf.reshape(segment, [-1]), count)
    maxima = tf.where(tf.equal(maxima, maxima.dtype.min), 0.0, maxima)  # the least number stands for nothing found
    return tf.reshape(maxima, [-1, 4 * width])[:, : 3 * width]


def _indices(mask):
    """0, 1, 2, ... in each row, int32 [B, l]."""
    return tf.cumsum(tf.ones_like(mask), axis=-1, exclusive=True)
