"""FedDyn's server (Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", ICLR, Algorithm 1)."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel, zeros


def dynamic_step(model: LocalModel, *, alpha: float, num_clients: int) -> tff.learning.templates.FinalizerProcess:
    """h <- h + alpha / N * sum_k (w - w_k), w <- mean_k w_k - h / alpha, with the new h.

    That is Algorithm 1 with updates w - w_k: h is the mean over all N clients of what they keep. The update is
    <update=U, weight=float32>: the plain mean over the clients that count, and their number; without any client
    nothing changes.

    Args:
      model: the server's.
      alpha: of the clients' penalty, above zero.
      num_clients: N, all clients, sampled or not.
    """
    trainable = model.weights_type.trainable
    state_type = tff.types.to_type(list(trainable.children()))

    @tff.tensorflow.computation
    def zero() -> list[tf.Tensor]:
        return [zeros(t.shape, t.dtype) for t in state_type]

    update_type = tff.types.to_type(collections.OrderedDict(update=trainable, weight=np.float32))

    @tff.tensorflow.computation(state_type, model.weights_type, update_type)
    def step(state: Structure, weights: Weights, update: Structure) -> tuple[list[tf.Tensor], Weights]:
        count = update["weight"]
        state = [h + alpha * count / num_clients * u for h, u in zip(state, update["update"], strict=True)]
        moved = [
            w - tf.where(count > 0, u + h / alpha, tf.zeros_like(u))
            for w, u, h in zip(weights.trainable, update["update"], state, strict=True)
        ]
        return state, tff.learning.models.ModelWeights(moved, list(weights.non_trainable))

    initialize = tff.federated_computation(lambda: tff.federated_eval(zero, tff.SERVER))
    parameters = step.type_signature.parameter

    @tff.federated_computation(*(tff.FederatedType(t, tff.SERVER) for t in parameters))
    def next_fn(state: Value, weights: Value, update: Value) -> tff.templates.MeasuredProcessOutput:
        output = tff.federated_map(step, (state, weights, update))
        return tff.templates.MeasuredProcessOutput(output[0], output[1], tff.federated_value((), tff.SERVER))

    return tff.learning.templates.FinalizerProcess(initialize, next_fn)
