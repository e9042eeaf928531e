"""SCAFFOLD's control variates (Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.objectives.base import Client, Objective, SideChannel
from computations.local_model import LocalModel


class ControlVariates(Objective):
    """Cross-entropy whose gradient is corrected by c - c_i, for a local optimizer that is plain SGD.

    The client keeps c_i (one model's size) and the server c, both zero at first. After K steps from x to y_i at rate r
    (line 12, option II): c_i+ = c_i - c + (x - y_i) / (K r); the client uploads c_i+ - c_i, and the server adds
    |S|/N times the mean over the sampled clients S (line 17), that is 1/N times the sum. A client that does not count
    keeps its c_i and adds nothing, so that c stays the mean of all c_i. At a rate of zero (x - y_i) / (K r) is taken as
    zero.
    """

    not_private = (
        "SCAFFOLD's clients send control variates in addition to the updates; to protect them, their norm needs a "
        "bound and both vectors need one noisy sum"
    )

    def __init__(self, num_clients: int | None):
        """Create the objective.

        `num_clients` is N, the number of all clients, sampled or not. Raises ValueError without it.
        """
        if num_clients is None:
            raise ValueError("num_clients must be given, the number of all clients with training examples")
        self.side_channel = SideChannel(
            initial=lambda weights: [tf.zeros_like(w) for w in weights.trainable],
            aggregator=tff.aggregators.SumFactory(),
            update=lambda shared, summed, counted: [c + d / num_clients for c, d in zip(shared, summed, strict=True)],
        )

    def client_state_type(self, local_model: LocalModel) -> tff.Type:
        """c_i: a list of float32 tensors like the trainable weights."""
        return tff.types.to_type(list(local_model.weights_type.trainable.children()))

    def initial_client_state(self, local_model: LocalModel, examples: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.zeros(t.shape, t.dtype) for t in local_model.weights_type.trainable.children()]

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence) -> list[tf.Tensor]:
        """g - c_i + c (line 10)."""
        return [
            tf.convert_to_tensor(g) + (c - c_i)
            for g, c, c_i in zip(gradients, client.shared, client.client_state, strict=True)
        ]

    def upload(self, client: Client, prepared: Any, steps: tf.Tensor) -> list[tf.Tensor]:
        return [
            new - old
            for new, old in zip(self.next_client_state(client, prepared, steps), client.client_state, strict=True)
        ]

    def next_client_state(self, client: Client, prepared: Any, steps: tf.Tensor) -> list[tf.Tensor]:
        travelled = tf.cast(steps, tf.float32) * client.rate
        return [
            c_i - c + tf.math.divide_no_nan(x - y, travelled)
            for c_i, c, x, y in zip(
                client.client_state, client.shared, client.global_weights, client.model.trainable_variables, strict=True
            )
        ]
