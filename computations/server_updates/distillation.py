"""The server trains its model on its own labelled examples and the ensemble's predictions (FedED, Sui et al. 2020)."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.client_training import LocalTraining, train_client
from computations.client_work.objectives import Distillation
from computations.client_work.optimizers import ClientOptimizer
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel

SMALLEST = float(np.finfo(np.float32).tiny)
"""A probability that a float16 rounded to zero counts as this, so that its logarithm is finite."""


def distillation(
    model: LocalModel,
    server_type: tff.Type,
    *,
    objective: Distillation,
    optimizer: ClientOptimizer,
    training: LocalTraining,
    logarithms: bool = False,
    num_rows: int | None = None,
) -> tff.learning.templates.FinalizerProcess:
    """Return passes over the server's examples with cross-entropy and divergence from the teacher (Alg. 1, Eq. 6).

    The update is <update=<logits=float32[N,C], weight=float32>, server=<examples=E, seed=int32[2]>>: the teacher's
    logits on the N rows of outputs that the server's examples make, the sum of the clients' weights, the examples and
    the seed of the passes. Where the weight is zero there is no teacher, and the model stays as it is; so it does where
    training it led to a value that is not finite. Measurements: `loss` of the passes, `teacher_accuracy` and `trained`
    (1 or 0).

    Args:
      model: the server's.
      server_type: type of `server`.
      objective: with the temperature and the divergence's weight.
      optimizer, training: of the passes.
      num_rows: N; the number of examples if not given.
      logarithms: whether the update's `logits` are probabilities, whose logarithms are the teacher's logits.
    """
    teacher_type = collections.OrderedDict(
        logits=tff.TensorType(np.float32, [num_rows or server_type.examples["y"].shape[0], model.num_classes]),
        weight=tff.TensorType(np.float32),
    )
    update_type = tff.types.to_type(collections.OrderedDict(update=teacher_type, server=server_type))

    @tff.tensorflow.computation(model.weights_type, update_type, np.int32)
    def distil(weights: Weights, update: Structure, round_num: tf.Tensor) -> tuple[Weights, Structure]:
        teacher, server = update["update"], update["server"]
        logits = teacher["logits"]
        if logarithms:
            logits = tf.math.log(tf.maximum(logits, SMALLEST))
        arguments = collections.OrderedDict(
            weights=weights,
            server=collections.OrderedDict(round=round_num, shared=logits),
            client=server,
        )
        trained = train_client(model, objective, optimizer, training, arguments)
        taught = teacher["weight"] > 0
        trainable = [tf.where(taught, w - u, w) for w, u in zip(weights.trainable, trained["update"], strict=True)]
        labels = tf.cast(model.labels_of(server["examples"]), tf.int64)
        right = tf.equal(tf.argmax(logits, axis=-1), labels)
        statistics = trained["statistics"]
        measurements = collections.OrderedDict(
            loss=tf.math.divide_no_nan(statistics["loss"], statistics["seen"]),
            teacher_accuracy=tf.reduce_mean(tf.cast(right, tf.float32)),
            trained=statistics["counted"] * tf.cast(taught, tf.float32),
        )
        return tff.learning.models.ModelWeights(trainable, list(weights.non_trainable)), measurements

    next_count = tff.tensorflow.computation(lambda number: number + 1, np.int32)
    zero = tff.tensorflow.computation(lambda: tf.constant(0, tf.int32))
    initialize = tff.federated_computation(lambda: tff.federated_eval(zero, tff.SERVER))

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(model.weights_type, tff.SERVER),
        tff.FederatedType(update_type, tff.SERVER),
    )
    def next_fn(state: Value, weights: Value, update: Value) -> tff.templates.MeasuredProcessOutput:
        output = tff.federated_map(distil, (weights, update, state))
        return tff.templates.MeasuredProcessOutput(
            state=tff.federated_map(next_count, state), result=output[0], measurements=output[1]
        )

    return tff.learning.templates.FinalizerProcess(initialize, next_fn)
