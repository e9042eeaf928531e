"""Stochastic gradient descent (FLCMC, Eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import tensorflow as tf

from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class SGD:
    """w <- w - rate * gradient; only the looked-up rows of an embedding are touched."""

    learning_rate: float = attrs.field(default=0.01, validator=NOT_NEGATIVE)

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
