"""The rule `fltrust` (Cao et al. 2021, "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping")."""

from __future__ import annotations

import collections
from collections.abc import Callable

import attrs
import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregation_rules.registry import NOBODY_SEES, rule
from computations.aggregators import mean
from computations.aggregators.defence import sound
from computations.aggregators.weighed_means import NormalisedMeanFactory
from computations.client_work import ClientWork
from computations.client_work.client_training import train_client
from computations.client_work.objectives import CrossEntropy
from computations.errors import CompositionError
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel


def trusted(work: ClientWork, model: LocalModel) -> ClientWork:
    """Return client work that scales updates by comparison with the server's own, for a plain weighted mean.

    In every round the server trains from the global weights on its own examples (the last argument of `next`, with a
    seed), as a client does but on the plain cross-entropy, to the update D_0, and broadcasts it. A client's update D_k
    is scaled to the length of D_0, and its weight becomes the trust score ReLU(cos(D_k, D_0)) (Cao et al. 2021, Section
    4.2, Algorithm 2). The mean is then their rule: sum_k TS_k D_k' / sum_k TS_k.

    Weights say only whether a client counts; examples do not enter. A client whose update points away from D_0, or is
    not finite, has weight zero. Where the server's own training led to a value that is not finite, or nobody is
    trusted, all weights are zero and the mean is zero. Only what the server's examples represent is learned: a class
    that they lack looks like an attack.

    Metrics in addition to the work's: `robust/trusted`, how many clients have a trust score above zero; `robust/trust`,
    the mean score of the clients that count; `robust/server_norm`, ||D_0||; `robust/server_loss`, the loss of its
    training.

    Args:
      work: local training of `model`; its updates are differences of the trainable weights.
      model: what the clients and the server train.

    Raises:
      CompositionError: the clients send something else than updates of `model`.
    """
    update_type, weights_type = work.update_type, model.weights_type
    trainable_type = weights_type.trainable
    if [*tff.structure.flatten(tff.types.to_type([update_type]))] != [*tff.structure.flatten(trainable_type)]:
        raise CompositionError(
            f"trust: clients must send updates of the model, {trainable_type}, but these send {update_type}"
        )
    server_type = tff.types.to_type(
        collections.OrderedDict(examples=model.examples_type, seed=work.clients_type["seed"])
    )
    learn = _server_training(work, model, server_type)
    compare = _comparison(work, learn.type_signature.result[0])

    @tff.tensorflow.computation(
        work.next.type_signature.result.metrics.member, compare.type_signature.result[2], learn.type_signature.result
    )
    def join(metrics: Structure, total: Structure, learned: Structure) -> collections.OrderedDict[str, tf.Tensor]:
        update, loss = learned
        trust = [
            ("robust/trusted", total["trusted"]),
            ("robust/trust", tf.math.divide_no_nan(total["score"], total["counted"])),
            ("robust/server_norm", tf.linalg.global_norm(list(update))),
            ("robust/server_loss", loss),
        ]
        return collections.OrderedDict(metrics, **dict(trust))

    inputs_type = collections.OrderedDict(
        work.inputs,
        server_weights=tff.FederatedType(weights_type, tff.SERVER),
        server=tff.FederatedType(server_type, tff.SERVER),
    )

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        output = run()
        learned = tff.federated_map(learn, (inputs["server_weights"], inputs["server"], inputs["state"]["round"]))
        reference = tff.federated_broadcast(learned[0])
        compared = tff.federated_map(compare, (output["update"], output["weight"], reference))
        total = tff.federated_sum(compared[2])
        metrics = tff.federated_map(join, (output["metrics"], total, learned))
        return {"update": compared[0], "weight": compared[1], "metrics": metrics}

    return work.wrapped(change, inputs_type, server_type=server_type)


@rule(
    "fltrust",
    title="FLTrust",
    notes=("the server's own examples decide which updates count",),
    server_examples=True,
    not_secure=NOBODY_SEES,
    excludes={
        NormalisedMeanFactory: "scales every update to one length, which undoes FedNova's division by numbers of "
        "steps; set algorithm.name = 'fedavg'"
    },
    change_work=trusted,
)
def fltrust(options: object) -> tff.aggregators.WeightedAggregationFactory:
    """the mean weighted by the likeness to an update that the server trains on examples of its own"""
    del options
    return mean()


def _server_training(work: ClientWork, model: LocalModel, server_type: tff.Type) -> tff.Computation:
    """Return (weights, the server's examples and seed, round) -> (update, loss)."""
    optimizer = work.optimizer
    if work.training is None or optimizer is None:
        raise CompositionError("trust: the server trains as the clients do, but these clients do no local training")
    # The server's examples are its own: DP-SGD protects those of the clients.
    training = attrs.evolve(work.training, example_privacy=None)

    @tff.tensorflow.computation(model.weights_type, server_type, np.int32)
    def learn(weights: Weights, data: Structure, round_num: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        arguments = collections.OrderedDict(
            weights=weights, server=collections.OrderedDict(round=round_num), client=data
        )
        trained = train_client(model, CrossEntropy(), optimizer, training, arguments)
        loss = tf.math.divide_no_nan(trained["statistics"]["loss"], trained["statistics"]["seen"])
        return trained["update"], loss

    return learn


def _comparison(work: ClientWork, reference_type: tff.Type) -> tff.Computation:
    """Return (update, weight, the server's update) -> (scaled update, trust score, statistics)."""

    @tff.tensorflow.computation(work.update_type, work.next.type_signature.result.weight.member, reference_type)
    def compare(update: Structure, weight: tf.Tensor, reference: Structure) -> tuple[Structure, tf.Tensor, Structure]:
        counts = sound(update, weight) & (weight > 0)
        flat, flat_reference = tf.nest.flatten(update), tf.nest.flatten(reference)
        product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(flat, flat_reference, strict=True)])
        norm, reference_norm = tf.linalg.global_norm(flat), tf.linalg.global_norm(flat_reference)
        score = tf.nn.relu(tf.math.divide_no_nan(product / tf.maximum(norm, 1e-30), reference_norm))
        score = tf.where(counts, score, 0.0)
        factor = tf.math.divide_no_nan(reference_norm, norm)
        scaled = [tf.where(score > 0, t * factor, tf.zeros_like(t)) for t in flat]
        statistics = collections.OrderedDict(
            trusted=tf.cast(score > 0, tf.float32), score=score, counted=tf.cast(counts, tf.float32)
        )
        return tf.nest.pack_sequence_as(update, scaled), tf.cast(score, weight.dtype), statistics

    return compare
