"""The proximal term mu/2 * ||w - w_global||^2 (FedProx, Li et al. 2020, Eq. 2; FLCMC, Eq. 21)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.client_work.objectives.cross_entropy import CrossEntropy
from computations.ranges import NOT_NEGATIVE, require


def add_proximal_gradients(
    gradients: Sequence, variables: Sequence, global_weights: Sequence, mu: float
) -> list[tf.Tensor]:
    """gradient + mu * (w - w_global) for every weight (FLCMC, Eq. 22)."""
    return [
        tf.convert_to_tensor(gradient) + mu * (variable - start)
        for gradient, variable, start in zip(gradients, variables, global_weights, strict=True)
    ]


class Proximal(Objective):
    """Another objective plus the proximal term, whose gradient is added in closed form.

    With SGD this is FLCMC's PGD. `loss` is the inner objective's, so that reported losses compare over methods.
    """

    def __init__(self, mu: float, inner: Objective | None = None):
        require(NOT_NEGATIVE, mu=mu)
        self.mu = mu
        self.inner = inner or CrossEntropy()
        self.side_channel, self.shown = self.inner.side_channel, self.inner.shown
        self.of_bags = self.inner.of_bags

    def client_state_type(self, local_model):
        return self.inner.client_state_type(local_model)

    def initial_client_state(self, local_model, examples):
        return self.inner.initial_client_state(local_model, examples)

    def prepare(self, client: Client):
        return self.inner.prepare(client)

    def loss(self, client: Client, prepared, batch: Batch):
        return self.inner.loss(client, prepared, batch)

    def adjust_gradients(self, client: Client, prepared, gradients):
        gradients = self.inner.adjust_gradients(client, prepared, gradients)
        return add_proximal_gradients(gradients, client.model.trainable_variables, client.global_weights, self.mu)

    def upload(self, client: Client, prepared, steps):
        return self.inner.upload(client, prepared, steps)

    def next_client_state(self, client: Client, prepared, steps):
        return self.inner.next_client_state(client, prepared, steps)
