"""Stochastic gradient descent (FLCMC, Eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from computations.client_work.optimizers.base import check_learning_rate


@dataclass(frozen=True)
class SGD:
    """w <- w - rate * gradient; only the looked-up rows of an embedding are touched."""

    learning_rate: float = 0.01

    def __post_init__(self):
        check_learning_rate(self.learning_rate)

    def bind(self, variables: Sequence[tf.Variable]):
        return _BoundSGD(variables)


class _BoundSGD:
    def __init__(self, variables):
        self._variables = variables

    def apply(self, gradients, global_weights, rate):
        del global_weights
        for variable, gradient in zip(self._variables, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
            else:
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
