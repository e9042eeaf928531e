"""The library's own Adam ("Tf-Adam" in FLCMC): Keras' optimizer, unchanged, as a client optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import tensorflow as tf

from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class LibraryAdam:
    """`tf.keras.optimizers.legacy.Adam`, the form that FLCMC's TensorFlow 2.5 shipped.

    Its fused kernel adds epsilon beside the uncorrected root; Self-Adam adds it as Eq. 20 does. For gradients well
    above epsilon the two agree step for step.
    """

    learning_rate: float = attrs.field(default=0.001, validator=NOT_NEGATIVE)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def bind(self, variables: Sequence[tf.Variable]):
        return _BoundLibraryAdam(self, variables)


class _BoundLibraryAdam:
    def __init__(self, settings: LibraryAdam, variables: Sequence[tf.Variable]):
        self._variables = variables
        self._rate = tf.Variable(0.0, trainable=False)
        self._optimizer = tf.keras.optimizers.legacy.Adam(
            self._rate, beta_1=settings.beta_1, beta_2=settings.beta_2, epsilon=settings.epsilon
        )
        self._optimizer._create_all_weights(variables)  # a step may not make variables

    def apply(self, gradients, global_weights, rate):
        del global_weights
        self._rate.assign(rate)
        dense = [tf.convert_to_tensor(g) for g in gradients]
        self._optimizer.apply_gradients(zip(dense, self._variables, strict=True))
