"""What local training asks of a client optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from computations.local_model import zeros


class BoundOptimizer(Protocol):
    """An optimizer with its moments, made for one client's variables in one round."""

    def apply(self, gradients: Sequence[tf.Tensor], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        """Updates the variables in place.

        Args:
          gradients: one per variable, of its shape (IndexedSlices for looked-up rows).
          global_weights: the global weights that the client started from, one per variable.
          rate: float32 scalar, the learning rate of this round.
        """


class ClientOptimizer(Protocol):
    """A client optimizer; its moments start anew with every local training."""

    learning_rate: float

    def bind(self, variables: Sequence[tf.Variable]) -> BoundOptimizer:
        """Makes the moments; called once per local training, outside of the step."""


def moments_like(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """One zero variable per variable."""
    return [tf.Variable(zeros(v.shape, v.dtype), trainable=False) for v in variables]
