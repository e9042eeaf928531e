"""A model's outputs for all examples, without dropout, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from computations.local_model import LocalModel, features_of

BATCH = 64
"""Examples at once; bounds the memory for activations."""

OF_LIKE_LENGTH = 16
"""Examples at once where they come in the order of their lengths: in larger batches more of the work is padding."""


def over_batches(
    examples: Mapping[str, tf.Tensor], batch_size: int, step: Callable, start: Any, order: tf.Tensor | None = None
) -> Any:
    """Call `step(batch number, its examples, result so far)` for one batch after the other, from `start`.

    Args:
      examples: name -> [n, ...].
      batch_size: examples at once; the last batch may be smaller.
      step: gives the structure of `start`.
      order: int32 [n], the places of the examples in the order of the batches; None: as they stand.
    """
    count = tf.shape(next(iter(examples.values())))[0]

    def body(number: tf.Tensor, done: Any) -> tuple[tf.Tensor, Any]:
        rows = tf.range(number * batch_size, tf.minimum((number + 1) * batch_size, count))
        rows = rows if order is None else tf.gather(order, rows)
        return number + 1, step(number, {name: tf.gather(value, rows) for name, value in examples.items()}, done)

    # One batch's activations at a time.
    running = tf.while_loop(lambda i, _: i * batch_size < count, body, (tf.constant(0), start), parallel_iterations=1)
    return running[1]


def joined(
    examples: Mapping[str, tf.Tensor],
    batch_size: int,
    outputs: Callable,
    shape: list[int],
    order: tf.Tensor | None = None,
) -> tf.Tensor:
    """Return float32 [m, *shape], what `outputs` computes from each batch's examples, [b, *shape], stacked in order.

    The batches are those of `over_batches`.
    """
    # A function of its own: the kernels for LSTMs are chosen per function.
    function = tf.function(outputs, reduce_retracing=True, autograph=False)
    batches = -(-tf.shape(next(iter(examples.values())))[0] // batch_size)
    parts = tf.TensorArray(tf.float32, size=batches, element_shape=[None, *shape], infer_shape=False)
    parts = over_batches(examples, batch_size, lambda i, batch, done: done.write(i, function(batch)), parts, order)
    return tf.ensure_shape(parts.concat(), [None, *shape])


def forward(
    model: tf.keras.Model,
    examples: Mapping[str, tf.Tensor],
    output: str,
    width: int,
    batch_size: int = BATCH,
    order: tf.Tensor | None = None,
) -> tf.Tensor:
    """Return the output of that name (`logits`, `features`) under the current model, float32 [m, width].

    m is n, or the number of rows that the examples make (`LocalModel.rows`).

    Args:
      model: of `LocalModel.build`; to be called inside a tf.function where weights were assigned to it before.
      examples: name -> [n, ...]; what is no feature is left aside.
      order: of the examples and so of the output's rows, as `over_batches` has it.
    """

    def outputs(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.ensure_shape(tf.cast(model(batch, training=False)[output], tf.float32), [None, width])

    return joined(features_of(examples), batch_size, outputs, [width], order)


def outputs_of_all(
    local_model: LocalModel, model: tf.keras.Model, examples: Mapping[str, tf.Tensor], output: str, width: int
) -> tf.Tensor:
    """Return `forward` with the sizes of a LocalModel, in the order of the examples, float32 [m, width].

    Where the model has a mask, examples of like length are read together: a short one next to a long one would take as
    long as that.

    Args:
      local_model, model: the second is built by the first.
      examples: of the local model; the labels may be missing.
      output, width: the name of an output and its last dimension.
    """
    mask = local_model.mask
    if mask is None:
        return forward(model, examples, output, width, local_model.inference_batch or BATCH)
    order = tf.argsort(tf.reduce_sum(examples[mask], axis=-1), stable=True)
    outputs = forward(model, examples, output, width, local_model.inference_batch or OF_LIKE_LENGTH, order)
    return tf.gather(outputs, tf.math.invert_permutation(local_model.output_rows(examples, order)))
