"""The server's step followed by passes over its own labelled examples, the control of FedED without an ensemble."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.client_training import LocalTraining, train_client
from computations.client_work.objectives import CrossEntropy
from computations.client_work.optimizers import ClientOptimizer
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel


def training_pass(
    model: LocalModel,
    server_type: tff.Type,
    *,
    step: tff.learning.templates.FinalizerProcess,
    optimizer: ClientOptimizer,
    training: LocalTraining,
) -> tff.learning.templates.FinalizerProcess:
    """Return `step` followed by passes over the server's examples with only cross-entropy.

    The update is <update=<update=U, weight=float32>, server=<examples=E, seed=int32[2]>>: what `step` takes, the weight
    behind it, the examples and the seed of the passes. Where the weight is zero, or training led to a value that is not
    finite, there is no pass. Measurements: `loss` of the passes and `trained` (1 or 0).

    Args:
      model: the server's.
      server_type: type of `server`, see `Predictions.server_type`.
      step: from the aggregated update to weights.
      optimizer, training: of the passes, as FedED's (`distillation`).
    """
    taken = collections.OrderedDict(update=model.weights_type.trainable, weight=np.float32)
    update_type = tff.types.to_type(collections.OrderedDict(update=taken, server=server_type))

    @tff.tensorflow.computation(model.weights_type, update_type, np.int32)
    def train(weights: Weights, update: Structure, round_num: tf.Tensor) -> tuple[Weights, Structure]:
        server = collections.OrderedDict(round=round_num)
        arguments = collections.OrderedDict(weights=weights, server=server, client=update["server"])
        trained = train_client(model, CrossEntropy(), optimizer, training, arguments)
        counts = update["update"]["weight"] > 0
        trainable = [tf.where(counts, w - u, w) for w, u in zip(weights.trainable, trained["update"], strict=True)]
        statistics = trained["statistics"]
        measurements = collections.OrderedDict(
            loss=tf.math.divide_no_nan(statistics["loss"], statistics["seen"]),
            trained=statistics["counted"] * tf.cast(counts, tf.float32),
        )
        return tff.learning.models.ModelWeights(trainable, list(weights.non_trainable)), measurements

    plain = tff.tensorflow.computation(lambda update: update["update"]["update"], update_type)
    next_count = tff.tensorflow.computation(lambda number: number + 1, np.int32)
    zero = tff.tensorflow.computation(lambda: tf.constant(0, tf.int32))

    @tff.federated_computation
    def initialize() -> Value:
        return tff.federated_zip(
            collections.OrderedDict(step=step.initialize(), round=tff.federated_eval(zero, tff.SERVER))
        )

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(model.weights_type, tff.SERVER),
        tff.FederatedType(update_type, tff.SERVER),
    )
    def next_fn(state: Value, weights: Value, update: Value) -> tff.templates.MeasuredProcessOutput:
        stepped = step.next(state["step"], weights, tff.federated_map(plain, update))
        output = tff.federated_map(train, (stepped.result, update, state["round"]))
        new_state = collections.OrderedDict(step=stepped.state, round=tff.federated_map(next_count, state["round"]))
        return tff.templates.MeasuredProcessOutput(tff.federated_zip(new_state), output[0], output[1])

    return tff.learning.templates.FinalizerProcess(initialize, next_fn)
