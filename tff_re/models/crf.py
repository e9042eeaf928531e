"""Linear-chain conditional random fields in the graph (Lafferty, McCallum and Pereira 2001).

A tagging y of a text of n tokens has the score start[y_1] + sum_i emissions[i, y_i] + sum_i transitions[y_i, y_(i+1)] +
end[y_n]; its probability is exp(score) over the sum of that over all taggings.

Numbers: B texts, L tokens in the longest of them (at least 1), T tags. `emissions` are float32 [B, L, T], a text's
tokens are the first `lengths` int32 [B] of its row, and what follows them never counts. A text without tokens has
one tagging, of score 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

LEFT_OUT = -1e9
"""The score of a tag that is to have no part; infinity times zero would be no number."""

UNROLLED = 8
"""Steps in one turn of a loop: what the loop itself costs is paid once for them."""


class Chain(NamedTuple):
    """What a CRF has in addition to its emissions, all float32.

    Attributes:
      transitions: [T, T], of a tag (row) and the one after it (column).
      start: [T], of the first token's tag.
      end: [T], of the last token's.
    """

    transitions: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor


@tf.keras.utils.register_keras_serializable("tff_re")
class LinearChain(tf.keras.layers.Layer):
    """The trained scores of a CRF, by the names of `Chain`. Its input only makes it a part of the model.

    They start at zero: a CRF is then the softmax of each token.
    """

    def __init__(self, num_tags: int, **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.num_tags = num_tags

    def build(self, shape):
        shapes = Chain([self.num_tags, self.num_tags], [self.num_tags], [self.num_tags])
        for name, weight_shape in shapes._asdict().items():
            setattr(self, name, self.add_weight(name, weight_shape, initializer="zeros"))
        super().build(shape)

    def call(self, inputs):
        del inputs
        return {name: tf.identity(getattr(self, name)) for name in Chain._fields}

    def get_config(self):
        return {**super().get_config(), "num_tags": self.num_tags}


def with_allowed(emissions: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """Emissions of which a text has only the tags bool [B, T]: all else here is then over taggings of these."""
    return tf.where(allowed[:, tf.newaxis], emissions, LEFT_OUT)


def scores(tags: tf.Tensor, emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain) -> tf.Tensor:
    """The score of a tagging of each text, float32 [B].

    Args:
      tags: int32 [B, L]; any tag on the padding.
      emissions, lengths, chain: see above.
    """
    count = tf.shape(emissions)[1]
    present = tf.sequence_mask(lengths, count, tf.float32)
    of_tokens = tf.reduce_sum(tf.one_hot(tags, emissions.shape[-1]) * emissions, axis=-1)
    steps = tf.gather_nd(chain.transitions, tf.stack([tags[:, :-1], tags[:, 1:]], axis=-1))
    last = tf.gather(tags, tf.maximum(lengths - 1, 0), batch_dims=1)
    ends = tf.gather(chain.start, tags[:, 0]) + tf.gather(chain.end, last)
    total = tf.reduce_sum(of_tokens * present, axis=1) + tf.reduce_sum(steps * present[:, 1:], axis=1)
    return total + ends * tf.cast(lengths > 0, tf.float32)


def log_likelihood(tags: tf.Tensor, emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain) -> tf.Tensor:
    """The logarithm of the probability of each text's tagging, float32 [B].

    The arguments are those of `scores`.
    """
    return scores(tags, emissions, lengths, chain) - log_partition(emissions, lengths, chain)


def log_partition(emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain) -> tf.Tensor:
    """log of the sum of exp(score) over all taggings of each text, float32 [B].

    Its gradient is written out: the probabilities of tags and of pairs of them, which need no second loop.
    """
    present = tf.sequence_mask(lengths, tf.shape(emissions)[1])

    @tf.custom_gradient
    def of_texts(emissions, transitions, start, end):
        left, right, totals = _messages(emissions, lengths, Chain(transitions, start, end))

        def gradient(upstream):
            upstream = upstream[:, tf.newaxis, tf.newaxis]
            of_tags = _tag_probabilities(left, right, emissions, present) * upstream
            of_pairs = _pair_probabilities(left, right, transitions, present) * upstream[..., tf.newaxis]
            last = tf.one_hot(lengths - 1, tf.shape(emissions)[1])[..., tf.newaxis]
            return (
                of_tags,
                tf.reduce_sum(of_pairs, axis=[0, 1]),
                tf.reduce_sum(of_tags[:, 0], axis=0),
                tf.reduce_sum(of_tags * last, axis=[0, 1]),
            )

        return totals, gradient

    return of_texts(emissions, *chain)


def expected_scores(
    emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain, reference_emissions: tf.Tensor, reference: Chain
) -> tf.Tensor:
    """The score of a tagging drawn from another CRF, in the mean over its taggings, float32 [B].

    Less `log_partition`, it is minus the cross-entropy of the two CRFs. No gradient goes to the other one.

    Args:
      emissions, lengths, chain: see above.
      reference_emissions, reference: those of the other CRF.
    """
    present = tf.sequence_mask(lengths, tf.shape(emissions)[1])
    left, right, _ = _messages(reference_emissions, lengths, reference)
    of_tags = tf.stop_gradient(_tag_probabilities(left, right, reference_emissions, present))
    of_pairs = tf.stop_gradient(_pair_probabilities(left, right, reference.transitions, present))
    of_last = tf.gather(of_tags, tf.maximum(lengths - 1, 0), batch_dims=1)
    of_tokens = tf.reduce_sum(of_tags * emissions, axis=[1, 2])
    ends = tf.reduce_sum(of_tags[:, 0] * chain.start + of_last * chain.end, axis=1)
    return of_tokens + tf.reduce_sum(of_pairs * chain.transitions, axis=[1, 2, 3]) + ends


def marginals(emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain) -> tf.Tensor:
    """The probability of each tag at each token, float32 [B, L, T], and zero on the padding."""
    left, right, _ = _messages(emissions, lengths, chain)
    return _tag_probabilities(left, right, emissions, tf.sequence_mask(lengths, tf.shape(emissions)[1]))


def viterbi(emissions: tf.Tensor, lengths: tf.Tensor, chain: Chain) -> tf.Tensor:
    """The tagging of the highest score, int32 [B, L], and 0 on the padding.

    On a tie it is one of them.
    """
    steps = tf.transpose(emissions, [1, 0, 2])
    best, _ = _recursion(steps, tf.transpose(chain.transitions), chain.start, _maximum)
    count, columns = tf.shape(steps)[0], tf.transpose(chain.transitions)

    def back(step, after, tags):
        """`after`: the tags of the next token, int32 [B], or any if this is the last token or padding."""
        onward = tf.where(tf.equal(lengths, step + 1)[:, tf.newaxis], chain.end, tf.gather(columns, after))
        now = tf.argmax(tf.gather(best, step) + onward, axis=-1, output_type=tf.int32)
        now = tf.ensure_shape(now, lengths.shape)
        return step - 1, now, tags.write(step, tf.where(step < lengths, now, 0))

    tags = tf.TensorArray(tf.int32, size=count, element_shape=[None])
    start = count - 1, tf.zeros_like(lengths), tags
    *_, tags = tf.while_loop(lambda step, *_: step >= 0, back, start, maximum_iterations=count)
    return tf.transpose(tags.stack())


def _tag_probabilities(left, right, emissions, present):
    """[B, L, T] of the messages of both sides, each of which has the emission of its token."""
    # Scaled at each token, so that shifts of the messages do not matter.
    return tf.nn.softmax(left + right - emissions) * tf.cast(present, tf.float32)[..., tf.newaxis]


def _pair_probabilities(left, right, transitions, present):
    """[B, L - 1, T, T]: of the tags of a token and the one after it, zero where that is padding."""
    pairs = left[:, :-1, :, tf.newaxis] + transitions + right[:, 1:, tf.newaxis]
    probabilities = tf.reshape(tf.nn.softmax(tf.reshape(pairs, [-1, pairs.shape[-1] ** 2])), tf.shape(pairs))
    return probabilities * tf.cast(present[:, 1:, tf.newaxis, tf.newaxis], tf.float32)


def _messages(emissions, lengths, chain: Chain) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(sums over what is left and right of a token, log partition [B]).

    The sums are [B, L, T] each and include the token's emission.

    At each token the sums are shifted by a number of its own. Both sides are one loop: the right one is the left one of
    the reversed texts.
    """
    count, tags = tf.shape(emissions)[1], emissions.shape[-1]
    both = tf.stack([emissions, tf.reverse_sequence(emissions, lengths, seq_axis=1)])
    steps = tf.transpose(both, [2, 0, 1, 3])
    matrices = tf.stack([tf.transpose(chain.transitions), chain.transitions])[:, tf.newaxis]
    starts = tf.stack([chain.start, chain.end])[:, tf.newaxis]
    sums, shifts = _recursion(steps, matrices, starts, _log_sum)
    left, right = tf.unstack(tf.ensure_shape(tf.transpose(sums, [1, 2, 0, 3]), [2, None, None, tags]))
    last = tf.gather(left, tf.maximum(lengths - 1, 0), batch_dims=1) + chain.end
    before = tf.where(tf.sequence_mask(lengths, count), tf.transpose(shifts[:, 0, :, 0]), 0.0)
    totals = tf.where(lengths > 0, tf.reduce_sum(before, axis=1) + _log_sum(last), 0.0)
    return left, tf.reverse_sequence(right, lengths, seq_axis=1), totals


def _log_sum(values: tf.Tensor) -> tf.Tensor:
    """log of the sum of exp over the last axis, for finite numbers."""
    greatest = tf.reduce_max(values, axis=-1, keepdims=True)
    return tf.math.log(tf.reduce_sum(tf.exp(values - greatest), axis=-1)) + greatest[..., 0]


def _maximum(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(values, axis=-1)


def _recursion(
    steps: tf.Tensor, into: tf.Tensor, start: tf.Tensor, combine: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """s_1 = steps_1 + start, and s_i[j] = steps_i[j] + combine over k of (s_(i-1)[k] + into[j, k]).

    Each s_i is then shifted.

    Args:
      steps: [L, ..., T].
      into: [..., T, T], of a tag (row) and the one before it (column).
      start: [..., T].
      combine: over the last axis.

    Returns:
      (s, [L, ..., T], shifted so that the greatest of each is 0, so that numbers do not grow with the texts; how far
      each was shifted, [L, ..., 1]).
    """
    count, shape = tf.shape(steps)[0], steps.shape[1:]
    turns = tf.maximum(-(-(count - 1) // UNROLLED), 1)
    padding = [[0, turns * UNROLLED - (count - 1)], *[[0, 0]] * len(shape)]
    later = tf.reshape(tf.pad(steps[1:], padding), tf.concat([[turns, UNROLLED], tf.shape(steps)[1:]], 0))

    def shifted(sums):
        greatest = tf.reduce_max(sums, axis=-1, keepdims=True)
        return sums - greatest, greatest

    def turn(index, sums, all_sums, all_shifts):
        done = []
        for step in tf.unstack(tf.gather(later, index), UNROLLED):
            sums, shift = shifted(tf.ensure_shape(step, shape) + combine(sums[..., tf.newaxis, :] + into))
            done.append((sums, shift))
        ours, shifts = map(tf.stack, zip(*done, strict=True))
        return index + 1, sums, all_sums.write(index, ours), all_shifts.write(index, shifts)

    first, first_shift = shifted(steps[0] + start)
    arrays = [
        tf.TensorArray(steps.dtype, size=turns, element_shape=[UNROLLED, *shape[:-1], width])
        for width in (shape[-1], 1)
    ]
    *_, sums, shifts = tf.while_loop(
        lambda index, *_: index < turns, turn, (0, first, *arrays), maximum_iterations=turns, parallel_iterations=1
    )

    def joined(first, rest, width):
        flat = tf.reshape(rest.stack(), tf.concat([[-1], tf.shape(steps)[1:-1], [width]], 0))
        return tf.concat([first[tf.newaxis], flat[: count - 1]], 0)

    return joined(first, sums, shape[-1]), joined(first_shift, shifts, 1)
