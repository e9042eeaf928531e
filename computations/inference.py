"""A model's outputs for all examples, without dropout, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from computations.local_model import features_of

BATCH = 64
"""Examples at once; bounds the memory for activations."""


def forward(
    model: tf.keras.Model, examples: Mapping[str, tf.Tensor], output: str, width: int, batch_size: int = BATCH
) -> tf.Tensor:
    """float32 [m, width]: the output of that name (`logits`, `features`) under the model as it is now; m is n, or the
    number of rows that the examples make (`LocalModel.rows`).

    Args:
      model: of `LocalModel.build`; to be called inside a tf.function where weights were assigned to it before.
      examples: name -> [n, ...]; what is no feature is left aside.
      output: its name.
      width: of the output.
      batch_size: examples at once.
    """
    inputs = features_of(examples)

    @tf.function(reduce_retracing=True)
    def run(rows):  # a function of its own: the kernels for LSTMs are chosen per function
        outputs = model({name: tf.gather(value, rows) for name, value in inputs.items()}, training=False)
        return tf.ensure_shape(tf.cast(outputs[output], tf.float32), [None, width])

    count = tf.shape(next(iter(inputs.values())))[0]
    batches = (count + batch_size - 1) // batch_size
    parts = tf.TensorArray(tf.float32, size=batches, element_shape=[None, width], infer_shape=False)
    _, parts = tf.while_loop(
        lambda i, _: i < batches,
        lambda i, done: (
            i + 1,
            done.write(i, run(tf.range(i * batch_size, tf.minimum((i + 1) * batch_size, count)))),
        ),
        (tf.constant(0), parts),
        parallel_iterations=1,  # one batch's activations at a time
    )
    return tf.ensure_shape(parts.concat(), [None, width])
