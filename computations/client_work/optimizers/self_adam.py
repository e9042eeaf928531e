"""Adam as FLCMC writes it ("Self-Adam", Hu and Fang 2024, Eqs. 15-20, after Kingma and Ba 2015, Algorithm 1)."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import attrs
import tensorflow as tf
import tensorflow_federated as tff

from computations.client_work.optimizers.base import moments_like
from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class SelfAdam(tff.learning.optimizers.Optimizer):
    """w <- w - rate * m_hat / (sqrt(v_hat) + epsilon), moments zero at the start of each local training.

    Eq. 20 as printed lacks the root over v_hat; the paper's prose and Adam have it.

    Local training of this project calls `bind`, whose fused kernel updates variables in place. `initialize` and `next`
    are the same rule on tensors, which makes this a client optimizer of `tff.learning.algorithms`, too.
    """

    learning_rate: float = attrs.field(default=0.001, validator=NOT_NEGATIVE)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def bind(self, variables: Sequence[tf.Variable]):
        return BoundAdam(self, variables)

    def initialize(self, specs):
        """State of `tff.learning.optimizers.Optimizer`: the hyperparameters, the step and moments of zero."""
        moments = {
            name: tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs) for name in ("first", "second")
        }
        return collections.OrderedDict(self._hparams(), step=0, **moments)

    def next(self, state, weights, gradients):
        """One step on tensors; a gradient of None is zero."""
        gradients = tf.nest.map_structure(
            lambda w, g: tf.zeros_like(w) if g is None else tf.convert_to_tensor(g), weights, gradients
        )
        return self._step(state, weights, gradients)

    def get_hparams(self, state):
        return collections.OrderedDict((name, state[name]) for name in self._hparams())

    def set_hparams(self, state, hparams):
        return collections.OrderedDict(state, **hparams)

    def _hparams(self):
        names = (tff.learning.optimizers.LEARNING_RATE_KEY, "beta_1", "beta_2", "epsilon")
        return collections.OrderedDict((name, getattr(self, name)) for name in names)

    def _step(self, state, weights, gradients):
        step, beta_1, beta_2 = state["step"] + 1, state["beta_1"], state["beta_2"]
        t = tf.cast(step, tf.float32)

        def mixed(moments, new, beta):
            return tf.nest.map_structure(lambda m, g: beta * m + (1.0 - beta) * g, moments, new)

        first = mixed(state["first"], gradients, beta_1)
        second = mixed(state["second"], tf.nest.map_structure(tf.square, gradients), beta_2)

        def moved(w, m, v):
            m_hat, v_hat = m / (1.0 - tf.pow(beta_1, t)), v / (1.0 - tf.pow(beta_2, t))
            return w - state["learning_rate"] * m_hat / (tf.sqrt(v_hat) + state["epsilon"])

        new_weights = tf.nest.map_structure(moved, weights, first, second)
        return collections.OrderedDict(state, step=step, first=first, second=second), new_weights


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
