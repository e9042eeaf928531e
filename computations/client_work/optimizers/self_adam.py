"""Adam as FLCMC writes it ("Self-Adam", Hu and Fang 2024, Eqs. 15-20, after Kingma and Ba 2015, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import tensorflow as tf

from computations.client_work.optimizers.base import moments_like
from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class SelfAdam:
    """w <- w - rate * m_hat / (sqrt(v_hat) + epsilon), moments zero at the start of each local training.

    Eq. 20 as printed lost the root over v_hat; the root is Adam's and stands in the paper's prose.
    """

    learning_rate: float = attrs.field(default=0.001, validator=NOT_NEGATIVE)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def bind(self, variables: Sequence[tf.Variable]):
        return BoundAdam(self, variables)


class BoundAdam:
    """The moments of one local training, updated by TensorFlow's fused kernel."""

    def __init__(self, settings: SelfAdam, variables: Sequence[tf.Variable]):
        self._settings = settings
        self._variables = variables
        self._first, self._second = moments_like(variables), moments_like(variables)
        self._step = tf.Variable(0.0, trainable=False)

    def apply(self, gradients, global_weights, rate):
        del global_weights
        s = self._settings
        step = self._step.assign_add(1.0)
        power_1, power_2 = tf.pow(s.beta_1, step), tf.pow(s.beta_2, step)
        # The kernel divides by sqrt(v) + epsilon where Eq. 20 has sqrt(v_hat) + epsilon = (sqrt(v) + epsilon') / c with
        # c = sqrt(1 - beta_2^t); epsilon' = c * epsilon makes the two the same.
        epsilon = s.epsilon * tf.sqrt(1.0 - power_2)
        for variable, first, second, gradient in zip(
            self._variables, self._first, self._second, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=power_1,
                beta2_power=power_2,
                lr=rate,
                beta1=s.beta_1,
                beta2=s.beta_2,
                epsilon=epsilon,
                grad=tf.convert_to_tensor(gradient),
            )
