"""Personalisation by fine-tuning.

Every client trains the final model on its own examples, and is evaluated before and after.

The usual baseline of personalised methods (Wang et al. 2019, "Federated Evaluation of On-device Personalization").
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from computations import federated as tff
from computations.client_work import ClientWork, LocalTraining, build_local_training
from computations.client_work.objectives import Client, CrossEntropy
from computations.client_work.optimizers import ClientOptimizer
from computations.evaluation import client_evaluation
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel


class OfSomeWeights(CrossEntropy):
    """Cross-entropy that trains only some weights.

    The gradients of the others are zero, which leaves both SGD's and Adam's weights as they are.
    """

    def __init__(self, indices: frozenset[int]):
        """Args:
        indices: of the weights to train, among the trainable ones.
        """
        self._indices = indices

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence[Any]) -> list[tf.Tensor]:
        pairs = enumerate(zip(gradients, client.global_weights, strict=True))
        return [gradient if i in self._indices else tf.zeros_like(weight) for i, (gradient, weight) in pairs]


def build_fine_tuning(
    model: LocalModel, *, optimizer: ClientOptimizer, training: LocalTraining, indices: frozenset[int]
) -> tff.Computation:
    """Return (<weights@SERVER, clients@CLIENTS, held@CLIENTS> -> <before, after>@CLIENTS).

    Clients train from the weights and evaluate on examples that they hold out; no weights leave them. One without
    training examples, or whose update is not finite, has the same before and after.

    Args:
      model: of the weights.
      optimizer, training: of the clients.
      indices: of the weights to train, among the trainable ones.

    Returns:
      `clients` are <examples, seed>, `held` is <name=examples, ...> of `HELD`; `before` and `after` have the statistics
      of each, see `build_evaluation`.
    """
    work = _fine_tuned(model, optimizer, training, indices)
    evaluate = client_evaluation(model)
    held_type = tff.types.to_type(collections.OrderedDict((name, model.examples_type) for name in HELD))
    step = _step(model, work)

    def part(name: str) -> tff.Computation:
        return tff.tensorflow.computation(lambda held: held[name], held_type)

    parts = {name: part(name) for name in HELD}

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER),
        work.inputs["clients"],
        tff.FederatedType(held_type, tff.CLIENTS),
    )
    def fine_tuning(weights: Value, clients: Value, held: Value) -> Value:
        broadcast = tff.federated_broadcast(weights)
        output = work.next(state=work.initialize(weights), weights=broadcast, clients=clients)
        tuned = tff.federated_map(step, (broadcast, output["update"]))

        def counted(client_weights: Value) -> Value:
            counts = [
                (n, tff.federated_map(evaluate, (client_weights, tff.federated_map(parts[n], held)))) for n in HELD
            ]
            return tff.federated_zip(collections.OrderedDict(counts))

        return tff.federated_zip(collections.OrderedDict(before=counted(broadcast), after=counted(tuned)))

    return fine_tuning


def build_fine_tuned(
    model: LocalModel, *, optimizer: ClientOptimizer, training: LocalTraining, indices: frozenset[int]
) -> tff.Computation:
    """Return (<weights@SERVER, clients@CLIENTS> -> weights@CLIENTS), the fine-tuned weights of `build_fine_tuning`.

    For a party that keeps the weights of its own clients.
    """
    work = _fine_tuned(model, optimizer, training, indices)
    step = _step(model, work)

    @tff.federated_computation(tff.FederatedType(model.weights_type, tff.SERVER), work.inputs["clients"])
    def fine_tuned(weights: Value, clients: Value) -> Value:
        broadcast = tff.federated_broadcast(weights)
        output = work.next(state=work.initialize(weights), weights=broadcast, clients=clients)
        return tff.federated_map(step, (broadcast, output["update"]))

    return fine_tuned


def _fine_tuned(
    model: LocalModel, optimizer: ClientOptimizer, training: LocalTraining, indices: frozenset[int]
) -> ClientWork:
    return build_local_training(model, objective=OfSomeWeights(indices), optimizer=optimizer, training=training)


def _step(model: LocalModel, work: ClientWork) -> tff.Computation:
    """Return (weights, update -> the weights after it)."""

    @tff.tensorflow.computation(model.weights_type, work.update_type)
    def step(weights: Weights, update: Structure) -> Weights:
        trained = [weight - change for weight, change in zip(weights.trainable, update, strict=True)]
        return tff.learning.models.ModelWeights(trained, list(weights.non_trainable))

    return step


HELD = ("test", "dev")
"""Splits that clients hold out; of a split that a run does not have, the arrays are empty."""
