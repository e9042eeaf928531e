"""The proximal term mu/2 * ||w - w_global||^2 (FedProx, Li et al. 2020, Eq. 2; FLCMC, Eq. 21)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from computations.client_work.objectives.base import Client, CrossEntropy
from computations.ranges import NOT_NEGATIVE


def add_proximal_gradients(
    gradients: Sequence, variables: Sequence, global_weights: Sequence, mu: float
) -> list[tf.Tensor]:
    """Return gradient + mu * (w - w_global) for every weight (FLCMC, Eq. 22)."""
    return [
        tf.convert_to_tensor(gradient) + mu * (variable - start)
        for gradient, variable, start in zip(gradients, variables, global_weights, strict=True)
    ]


@attrs.frozen
class Proximal(CrossEntropy):
    """Cross-entropy plus the proximal term, whose gradient is added in closed form.

    With SGD this is FLCMC's PGD.

    `loss` is without the term, so that reported losses compare over methods.
    """

    mu: float = attrs.field(validator=NOT_NEGATIVE)

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence[Any]) -> list[tf.Tensor]:
        return add_proximal_gradients(gradients, client.model.trainable_variables, client.global_weights, self.mu)
