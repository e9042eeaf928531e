"""FedDyn's local objective (Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.objectives.base import Client, Objective
from computations.local_model import LocalModel
from computations.ranges import POSITIVE


@attrs.frozen
class DynamicRegularizer(Objective):
    """L_k(w) - <g_k, w> + alpha/2 * ||w - w_t||^2, whose last two terms are added to the gradient in closed form.

    The client keeps g_k, one model's size, zero at first; after training g_k <- g_k - alpha * (w_k - w_t), which is the
    gradient of L_k at w_k where the training came to an optimum. `loss` is L_k alone, so that reported losses compare
    over methods.
    """

    alpha: float = attrs.field(validator=POSITIVE)

    def client_state_type(self, local_model: LocalModel) -> tff.Type:
        """g_k: a list of float32 tensors like the trainable weights."""
        return tff.types.to_type(list(local_model.weights_type.trainable.children()))

    def initial_client_state(self, local_model: LocalModel, examples: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.zeros(t.shape, t.dtype) for t in local_model.weights_type.trainable.children()]

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence) -> list[tf.Tensor]:
        variables = client.model.trainable_variables
        return [
            tf.convert_to_tensor(g) - state + self.alpha * (w - start)
            for g, state, w, start in zip(gradients, client.client_state, variables, client.global_weights, strict=True)
        ]

    def next_client_state(self, client: Client, prepared: Any, steps: tf.Tensor) -> list[tf.Tensor]:
        return [
            state - self.alpha * (w - start)
            for state, w, start in zip(
                client.client_state, client.model.trainable_variables, client.global_weights, strict=True
            )
        ]
