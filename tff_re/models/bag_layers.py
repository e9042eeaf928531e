"""From the logits of sentences to the scores of their bags, as a layer of an exported model."""

from __future__ import annotations

import tensorflow as tf

from computations.bag_evaluation import POOLINGS


@tf.keras.utils.register_keras_serializable("tff_re")
class BagPooling(tf.keras.layers.Layer):
    """{`logits` [n, C], `bag` [n]} -> float32 [B, C], p(relation | bag).

    See `build_bag_scores` for the poolings.

    B is one more than the largest number in `bag`, and each number below it has a sentence.
    """

    def __init__(self, pooling: str, **kwargs):
        """Raises:
        ValueError: there is no such pooling.
        """
        super().__init__(**kwargs)
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}, got {pooling!r}")
        self.pooling = pooling

    def call(self, inputs):
        logits, bag = tf.cast(inputs["logits"], tf.float32), inputs["bag"]
        count = tf.reduce_max(tf.concat([[-1], bag], axis=0)) + 1
        return tf.ensure_shape(POOLINGS[self.pooling](logits, bag, count), [None, logits.shape[1]])

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling}
