"""Random numbers in local training, derived only from run, round, client and step."""

from __future__ import annotations

import contextlib
import contextvars

import tensorflow as tf

_step_seed: contextvars.ContextVar[list | None] = contextvars.ContextVar("step_seed", default=None)


@contextlib.contextmanager
def step_seed(seed: tf.Tensor):
    """Make layers draw from `seed` (int32 [2]) while a training step is traced.

    Each layer has its own stream.
    """
    token = _step_seed.set([seed, 0])
    try:
        yield
    finally:
        _step_seed.reset(token)


def next_seed() -> tf.Tensor | None:
    """Return the seed (int32 [2]) for the next random layer of this step, or None outside of a training step."""
    current = _step_seed.get()
    if current is None:
        return None
    current[1] += 1
    return tf.random.experimental.stateless_fold_in(current[0], current[1])


@tf.keras.utils.register_keras_serializable("tff_re")
class SeededDropout(tf.keras.layers.Layer):
    """Dropout whose mask depends only on the step's seed, so that a resumed run draws the same masks.

    Keras' own Dropout draws from a state that lives in the process and would differ after a restart. Outside of local
    training (Keras' own `fit`) it falls back on TensorFlow's global generator.
    """

    def __init__(self, rate: float, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"the dropout rate must lie in [0, 1), got {rate}")
        self.rate = rate
        self.supports_masking = True

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return tf.identity(inputs)
        seed = next_seed()
        if seed is None:
            return tf.nn.dropout(inputs, self.rate)
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed=seed)

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}
