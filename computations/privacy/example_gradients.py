"""DP-SGD at the client: gradients of single units are clipped and summed, and noise is added to the sum.

Abadi et al. 2016, "Deep Learning with Differential Privacy", CCS, Algorithm 1. A unit is an example or a group of them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import tensorflow as tf
from attrs.validators import in_
from tensorflow.python.ops.parallel_for import control_flow_ops

from computations.ranges import NOT_NEGATIVE, POSITIVE

MOST_SIDE_BY_SIDE = 2**27
"""How many numbers the gradients of a batch's examples may have to be held all at once (512 MB)."""

Gradient = Any
"""A dense tensor, or (values, ids) of an embedding's looked-up rows."""

_parallel: contextvars.ContextVar = contextvars.ContextVar("parallel", default=None)


@attrs.frozen
class ExamplePrivacy:
    """Differentially private SGD in local training.

    Neighbours differ in one unit, whose gradients are there or are zero; the client's number of examples and of units
    is taken as public. It sets the number of steps, the share that a step samples and, with weighting `examples`, the
    client's weight. A step of a client with n units is `PoissonSampled(min(B / n, 1), Gaussian(noise_multiplier))`,
    and a round is as many of them as it has steps. How many units a step drew and the training's loss stay at the
    client: `ClientWork.metrics` are an empty tuple. Whether a client counts is decided by its noised update only.

    Samples and noise come from the client's seed of the round: who knows that can take the noise off again. Noise is
    drawn for every trained weight, an embedding's rows that nobody looked up included: they do not tell which words
    were there, and a large table of them takes most of a step's time. It is float32's, so that its last bits may tell
    more than real numbers would (Mironov 2012, "On significance of the least significant bits", CCS).

    Attributes:
      clip: largest L2 norm of a unit's gradient, over all trainable weights together.
      noise_multiplier: z; the noise on a step's sum of clipped gradients has the standard deviation z * clip.
      unit: `example`; `group`: the examples with one id (`group`; of an objective of bags, a bag), whose gradient is
        that of the mean of their losses.
      training_metrics: whether the training's loss, steps and counts leave the clients all the same, without noise;
        only for simulations.
    """

    clip: float = attrs.field(validator=POSITIVE)
    noise_multiplier: float = attrs.field(validator=NOT_NEGATIVE)
    unit: Literal["example", "group"] = attrs.field(default="example", validator=in_(("example", "group")))
    training_metrics: bool = False


def batch_maximum(value: tf.Tensor) -> tf.Tensor:
    """Return the maximum over all examples of a number made from a batch, even if a graph computes them side by side.

    Layers that cut a batch to its longest text need it: side by side, all examples have one shape.
    """
    config = _parallel.get()
    return value if config is None else config.reduce(tf.reduce_max, value)


def sum_side_by_side(
    loss: Callable[[tf.Tensor], tf.Tensor], variables: Sequence[tf.Variable], units: tf.Tensor, clip: float
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    """Return the sum of the units' clipped gradients, computed for all units in one vectorised pass.

    All units have one shape. Takes memory for a gradient per unit; of an embedding for its looked-up rows alone.
    A unit whose loss or gradient is not finite adds nothing, to no sum: else it alone would decide whether its client
    counts.

    Args:
      loss: a unit (int32 scalar) -> its loss, a scalar.
      variables: what to differentiate by.
      units: int32 [B]; B may be 0.
      clip: largest L2 norm of a unit's gradient over all variables.

    Returns:
      (sums, dense and like the variables; the sum of the losses; how many were added, float32).
    """
    # One unit at least, because operations on lists of none fail; it does not count.
    size = tf.size(units)
    padded = tf.cond(size > 0, lambda: units, lambda: tf.zeros([1], tf.int32))
    counted = tf.range(tf.size(padded)) < size

    def of_one(index: tf.Tensor, pfor_config: Any) -> tuple[tf.Tensor, list[Gradient]]:
        token = _parallel.set(pfor_config)
        try:
            value, gradients = _gradients(loss, tf.gather(padded, index), variables)
        finally:
            _parallel.reset(token)
        return value, [(g.values, g.indices) if isinstance(g, tf.IndexedSlices) else g for g in gradients]

    losses, gradients = control_flow_ops.pfor(of_one, tf.size(padded))
    flat = [
        g[0] if isinstance(g, tuple) else tf.reshape(g, [-1, v.shape.num_elements()])
        for g, v in zip(gradients, variables, strict=True)
    ]
    squares = tf.add_n([_squares(values, g) for values, g in zip(flat, gradients, strict=True)])
    factors, counted = _factors(squares, losses, clip, counted)
    everything = tf.reduce_all(counted)
    sums = []
    for values, gradient, variable in zip(flat, gradients, variables, strict=True):
        values = _zero_unless(counted, values, everything)
        if isinstance(gradient, tuple):
            width = variable.shape[1:].num_elements()
            scaled = tf.reshape(values * factors[:, tf.newaxis, tf.newaxis], [-1, width])
            total = tf.math.unsorted_segment_sum(scaled, tf.reshape(gradient[1], [-1]), variable.shape[0])
        else:
            total = tf.matmul(factors[tf.newaxis], values)
        sums.append(tf.reshape(total, variable.shape))
    number = tf.reduce_sum(tf.cast(counted, tf.float32))
    return sums, tf.reduce_sum(tf.where(counted, losses, 0.0)), number


def sum_one_by_one(
    loss: Callable[[tf.Tensor], tf.Tensor], variables: Sequence[tf.Variable], units: tf.Tensor, clip: float
) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    """Like `sum_side_by_side`, but one unit after the other.

    For units of different shapes and for large gradients.
    """

    def add(
        index: tf.Tensor, sums: list[tf.Tensor], total: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor, tf.Tensor]:
        value, gradients = _gradients(loss, units[index], variables)
        gradients = [_summed_rows(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        squares = tf.add_n(
            [tf.reduce_sum(tf.square(g.values if isinstance(g, tf.IndexedSlices) else g)) for g in gradients]
        )
        factor, counts = _factors(squares, value, clip, True)
        sums = tf.cond(
            counts, lambda: [_plus(s, g, factor) for s, g in zip(sums, gradients, strict=True)], lambda: sums
        )
        return index + 1, sums, total + tf.where(counts, value, 0.0), number + tf.cast(counts, tf.float32)

    nothing = [tf.zeros(v.shape) for v in variables]
    size = tf.size(units)
    _, sums, total, number = tf.while_loop(
        lambda index, *_: index < size, add, (0, nothing, 0.0, 0.0), parallel_iterations=1
    )
    return sums, total, number


def fits_side_by_side(variables: Sequence[tf.Variable], batch_size: int) -> bool:
    """Return whether the gradients of a batch's examples may all be held at once."""
    return batch_size * sum(v.shape.num_elements() for v in variables) <= MOST_SIDE_BY_SIDE


def noised_mean(
    sums: Sequence[tf.Tensor], privacy: ExamplePrivacy, seed: tf.Tensor, expected: tf.Tensor
) -> list[tf.Tensor]:
    """Return (sum + noise) / expected, with noise N(0, (z * clip)²) in every number.

    It depends only on the seed.

    Args:
      sums: of clipped gradients.
      privacy: its clip and noise multiplier.
      seed: int32 [2], used for nothing else.
      expected: float32 scalar, the expected number of units in a batch, whatever their number was.
    """
    deviation = privacy.noise_multiplier * privacy.clip
    if deviation:
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(sums)))
        sums = [
            s + deviation * tf.random.stateless_normal(s.shape, stream) for s, stream in zip(sums, seeds, strict=True)
        ]
    return [s / expected for s in sums]


def _gradients(
    loss: Callable[[tf.Tensor], tf.Tensor], unit: tf.Tensor, variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[Any]]:
    with tf.GradientTape() as tape:
        value = loss(unit)
    return value, tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _squares(values: tf.Tensor, gradient: Gradient) -> tf.Tensor:
    """Return the squared norm of every unit's gradient, float32 [B].

    Of looked-up rows [B, l, d] with their ids [B, l], where rows of one id have to be added up before: that is the sum
    of the products of all pairs of them.
    """
    if not isinstance(gradient, tuple):
        return tf.einsum("bi,bi->b", values, values)
    ids = gradient[1]
    same = tf.cast(tf.equal(ids[:, :, tf.newaxis], ids[:, tf.newaxis]), values.dtype)
    return tf.reduce_sum(same * tf.matmul(values, values, transpose_b=True), [1, 2])


def _factors(
    squares: tf.Tensor, losses: tf.Tensor, clip: float, counted: tf.Tensor | bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the factor of each unit's gradient (0 if it does not count), and which units count."""
    norms = tf.sqrt(tf.maximum(squares, 0.0))
    counted = counted & tf.math.is_finite(norms) & tf.math.is_finite(losses)
    return tf.where(counted, clip / tf.maximum(norms, clip), 0.0), counted


def _zero_unless(counted: tf.Tensor, values: tf.Tensor, everything: tf.Tensor) -> tf.Tensor:
    """Replace units that do not count by zeros, because zero times NaN is NaN.

    Usually there is nothing to replace.
    """
    shape = [-1] + [1] * (values.shape.rank - 1)
    return tf.cond(
        everything, lambda: values, lambda: tf.where(tf.reshape(counted, shape), values, tf.zeros_like(values))
    )


def _summed_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return the rows with each id once, summed."""
    ids, places = tf.unique(gradient.indices)
    return tf.IndexedSlices(tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids)), ids)


def _plus(total: tf.Tensor, gradient: tf.Tensor | tf.IndexedSlices, factor: tf.Tensor) -> tf.Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(total, gradient.indices[:, tf.newaxis], factor * gradient.values)
    return total + factor * gradient
