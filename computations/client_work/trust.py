"""FLTrust (Cao et al. 2021, "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping")."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators.robust.defence import sound
from computations.client_work.local_training import ClientWork, LocalTraining, train_client
from computations.client_work.objectives import CrossEntropy, Objective
from computations.client_work.optimizers import ClientOptimizer
from computations.errors import CompositionError
from computations.local_model import LocalModel


def trusted(
    work: ClientWork,
    model: LocalModel,
    *,
    optimizer: ClientOptimizer,
    training: LocalTraining,
    objective: Objective | None = None,
) -> ClientWork:
    """The client work with updates that are measured against the server's own, for a plain weighted mean around it.

    In every round the server trains from the global weights on its own examples (the last argument of `next`, with a
    seed), as a client does, to the update D_0, and broadcasts it. A client's update D_k is scaled to the length of D_0,
    and its weight becomes the trust score ReLU(cos(D_k, D_0)) (Cao et al. 2021, Section 4.2, Algorithm 2). So
    `recompose(algorithm, client_work=trusted(...), aggregator=mean())` is their rule: sum_k TS_k D_k' / sum_k TS_k.

    Weights say only whether a client counts; examples do not enter. A client whose update points away from D_0, or is
    not finite, has weight zero. Where the server's own training led to a value that is not finite, or nobody is
    trusted, all weights are zero and the mean is zero. Only what the server's examples represent is learned: a class
    that they lack looks like an attack.

    Metrics beside the work's: `robust/trusted`, how many clients have a trust score above zero; `robust/trust`, the
    mean score of the clients that count; `robust/server_norm`, ||D_0||; `robust/server_loss`, the loss of its training.

    Args:
      work: its updates are differences of `model`'s trainable weights.
      model: what the clients and the server train.
      optimizer, training: of the server; the clients' own, so that its update is comparable to theirs.
      objective: of the server; cross-entropy by default. One without client state and without values beside the model.

    Raises:
      CompositionError: the clients send something else than updates of `model`; or another part of the algorithm has
        examples at the server already.
    """
    objective = objective or CrossEntropy()
    update_type = work.update_type
    trainable_type = model.weights_type.trainable
    if [*tff.structure.flatten(tff.types.to_type([update_type]))] != [*tff.structure.flatten(trainable_type)]:
        raise CompositionError(
            f"trust: clients have to send updates of the model, {trainable_type}, these send {update_type}"
        )
    if work.server_type is not None:
        raise CompositionError("trust: the server's examples serve another purpose in this algorithm already")
    if objective.side_channel is not None or objective.client_state_type(model) is not None:
        raise CompositionError(f"trust: the server cannot train with {type(objective).__name__}, which keeps state")
    seed_type = work.clients_type["seed"]
    server_type = tff.types.to_type(collections.OrderedDict(examples=model.examples_type, seed=seed_type))

    @tff.tensorflow.computation(model.weights_type, server_type, np.int32)
    def learn(weights, own, round_num):
        arguments = collections.OrderedDict(
            weights=weights, server=collections.OrderedDict(round=round_num), client=own
        )
        trained = train_client(model, objective, optimizer, training, arguments)
        loss = tf.math.divide_no_nan(trained["statistics"]["loss"], trained["statistics"]["seen"])
        return trained["update"], loss

    reference_type = learn.type_signature.result[0]

    @tff.tensorflow.computation(update_type, work.next.type_signature.result.weight.member, reference_type)
    def compare(update, weight, reference):
        counts = sound(update, weight) & (weight > 0)
        flat, own = tf.nest.flatten(update), tf.nest.flatten(reference)
        product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(flat, own, strict=True)])
        norm, own_norm = tf.linalg.global_norm(flat), tf.linalg.global_norm(own)
        score = tf.nn.relu(tf.math.divide_no_nan(product / tf.maximum(norm, 1e-30), own_norm))
        score = tf.where(counts, score, 0.0)
        factor = tf.math.divide_no_nan(own_norm, norm)
        scaled = [tf.where(score > 0, t * factor, tf.zeros_like(t)) for t in flat]
        statistics = collections.OrderedDict(
            trusted=tf.cast(score > 0, tf.float32), score=score, counted=tf.cast(counts, tf.float32)
        )
        return tf.nest.pack_sequence_as(update, scaled), tf.cast(score, weight.dtype), statistics

    metrics_type = work.next.type_signature.result.metrics.member

    @tff.tensorflow.computation(metrics_type, compare.type_signature.result[2], learn.type_signature.result)
    def join(metrics, total, learned):
        update, loss = learned
        ours = [
            ("robust/trusted", total["trusted"]),
            ("robust/trust", tf.math.divide_no_nan(total["score"], total["counted"])),
            ("robust/server_norm", tf.linalg.global_norm(list(update))),
            ("robust/server_loss", loss),
        ]
        return collections.OrderedDict(metrics, **dict(ours))

    inputs_type = collections.OrderedDict(
        work.inputs,
        server_weights=tff.FederatedType(model.weights_type, tff.SERVER),
        server=tff.FederatedType(server_type, tff.SERVER),
    )

    def around(inputs, run):
        output = run()
        learned = tff.federated_map(learn, (inputs["server_weights"], inputs["server"], inputs["state"]["round"]))
        reference = tff.federated_broadcast(learned[0])
        compared = tff.federated_map(compare, (output["update"], output["weight"], reference))
        total = tff.federated_sum(compared[2])
        metrics = tff.federated_map(join, (output["metrics"], total, learned))
        return {"update": compared[0], "weight": compared[1], "metrics": metrics}

    return work.wrapped(around, inputs_type, server_type=server_type)
