"""Composes client work, an aggregator and a finalizer into a federated algorithm.

TFF's own `compose_learning_process` takes client data that are sequences, and has no client state. This one takes a
client's examples as tensors with a seed beside them, and the client state as a CLIENTS-placed value in and out.
Distributors, aggregators and finalizers are TFF's own templates.

A toy: two clients, each with the points of one half-plane, train a linear classifier by federated averaging.

>>> import numpy as np, tensorflow as tf
>>> from computations.aggregators import mean
>>> from computations.client_work import LocalTraining, build_local_training
>>> from computations.client_work.objectives import CrossEntropy
>>> from computations.client_work.optimizers import SGD
>>> from computations.server_updates import gradient_step

A model says how it is built and what its examples look like.

>>> def build():
...     x = tf.keras.Input([2], name="x")
...     return tf.keras.Model({"x": x}, {"logits": tf.keras.layers.Dense(2)(x), "features": x})
>>> spec = {"x": tf.TensorSpec([None, 2], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
>>> model = LocalModel(build, spec, num_classes=2)

An algorithm is composed of its parts. The type of a client's value is known from then on.

>>> training = LocalTraining(local_epochs=2, batch_size=4)
>>> work = build_local_training(model, objective=CrossEntropy(), optimizer=SGD(0.5), training=training)
>>> algorithm = compose(model, client_work=work, aggregator=mean(), finalizer=gradient_step(model))
>>> str(algorithm.client_work.clients_type)
'<examples=<x=float32[?,2],y=int32[?]>,seed=int32[2]>'

Ten rounds; a client's seed orders its batches, so that the same seeds give the same numbers.

>>> points = np.random.default_rng(0).normal(size=[40, 2])
>>> labels = (points[:, 0] + points[:, 1] > 0).astype(int)
>>> halves = [points[:, 0] < 0, points[:, 0] >= 0]
>>> data = [model.arrange({"x": points[half], "y": labels[half]}) for half in halves]
>>> state = algorithm.initialize(model.initial_weights(seed=1))
>>> for number in range(10):
...     clients = [{"examples": own, "seed": np.array([number, k], np.int32)} for k, own in enumerate(data)]
...     state, metrics = algorithm.next(state, clients).values()
>>> bool(metrics["work"]["local/loss"] < 0.3), int(metrics["work"]["clients/counted"])
(True, 2)

The trained model is a Keras model.

>>> trained = model.keras_model(algorithm.get_model_weights(state))
>>> predicted = tf.argmax(trained({"x": tf.constant(points, tf.float32)})["logits"], axis=1).numpy()
>>> bool((predicted == labels).mean() > 0.9)
True
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow_federated as tff

from computations.client_work import ClientWork
from computations.errors import CompositionError
from computations.local_model import LocalModel


@dataclass(frozen=True)
class FixedWeights:
    """Trainable weights that a method sets before the first round and no round changes, such as a classifier.

    Attributes:
      start: (ModelWeights of tensors) -> the same with the fixed ones set.
      places: of the fixed ones among the trainable weights.
    """

    start: Callable
    places: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """What `compose` made an algorithm of; see its arguments."""

    client_work: ClientWork
    aggregator: tff.aggregators.WeightedAggregationFactory
    finalizer: tff.learning.templates.FinalizerProcess
    distributor: tff.learning.templates.DistributionProcess | None = None
    fixed: FixedWeights | None = None


@dataclass(frozen=True)
class OwnModels:
    """How a client's model is made of what the server holds and of its client state, ModelWeights of arrays.

    Attributes:
      sent: whole weights -> those that the server holds.
      of_client: (the server's weights, a client state) -> the client's whole weights.
    """

    sent: Callable[[Any], Any]
    of_client: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class FederatedAlgorithm:
    """An algorithm as computations.

    Attributes:
      model: what the clients train.
      initialize: (weights@SERVER -> state@SERVER); `state.weights` are the global weights.
      next: (<state=@SERVER, clients=@CLIENTS[, client_state=@CLIENTS][, server=@SERVER]> -> <state=@SERVER[,
        client_state=@CLIENTS], metrics=@SERVER>), called as next(state, clients, ...).
      parts: what it is composed of, for `recompose`.
      server_type: type of `server`, <examples=E, seed=int32[2]>, the labelled examples that the server itself holds and
        the seed of its training; None: it needs none.
      bag_pooling: how the model scores a bag of sentences, see `bag_evaluation.build_bag_scores`; not used where
        sentences are scored one by one.
      own_models: where each client has a model of its own, how it is made; None: the global weights are all clients'.
    """

    model: LocalModel
    initialize: tff.Computation
    next: tff.Computation
    parts: Parts
    server_type: tff.Type | None = None
    bag_pooling: str = "max"
    own_models: OwnModels | None = None

    @property
    def client_work(self) -> ClientWork:
        """What the clients do in a round; its `client_state_type` is the type of the client state, or None."""
        return self.parts.client_work

    @cached_property
    def get_model_weights(self) -> tff.Computation:
        """(S -> W): the global weights of a state, as in `tff.learning.templates.LearningProcess`."""
        return tff.tensorflow.computation(lambda state: state["weights"], self.initialize.type_signature.result.member)

    @cached_property
    def set_model_weights(self) -> tff.Computation:
        """(<S, W> -> S): the state with other global weights and all else as it was, as in `LearningProcess`.

        What the parts keep (round number, momentum, control variates) stays; a state from new weights is
        `initialize`'s.
        """
        state_type = self.initialize.type_signature.result.member
        return tff.tensorflow.computation(
            lambda state, weights: collections.OrderedDict(state, weights=weights), state_type, state_type.weights
        )

    @cached_property
    def not_finite(self) -> tff.Computation:
        """(what `next` takes -> float32@CLIENTS): 1 for a client whose update in the round is not finite, else 0."""

        @tff.federated_computation(self.next.type_signature.parameter)
        def of_round(inputs):
            state, work = inputs["state"], self.client_work
            computed = {"state": state["client_work"], "server_weights": state["weights"]}
            if "weights" in work.inputs:
                sent = self.parts.distributor.next(state["distributor"], state["weights"])
                computed["weights"] = sent.result
            given = {name: computed[name] if name in computed else inputs[name] for name in work.inputs}
            return work.next(**given)["not_finite"]

        return of_round


def compose(
    model: LocalModel,
    *,
    client_work: ClientWork,
    aggregator: tff.aggregators.WeightedAggregationFactory,
    finalizer: tff.learning.templates.FinalizerProcess,
    distributor: tff.learning.templates.DistributionProcess | None = None,
    fixed: FixedWeights | None = None,
) -> FederatedAlgorithm:
    """One round: distribute the weights, work at the clients, aggregate their updates, finalize.

    A finalizer that does not take the aggregated update U alone gets the server's examples beside it, as <update=U,
    server=S>; S is the client work's (`ClientWork.server_type`) or, where that takes none, the finalizer's own.
    `fixed` weights are as they were after every round, whatever the finalizer made of them.

    Raises:
      CompositionError: where one part does not take what the part before it gives; names the part and both types.
    """
    weights_type = model.weights_type
    distributor = distributor or tff.learning.templates.build_broadcast_process(weights_type)
    update_type = client_work.update_type
    weight_type = client_work.next.type_signature.result.weight.member
    aggregation = aggregator.create(update_type, weight_type)
    work_takes = client_work.inputs
    own_models = client_work.initialize.type_signature.parameter is None
    finalizer_takes = finalizer.next.type_signature.parameter[2]
    server_type, only_finalizer = client_work.server_type, False
    if server_type is None and _names(finalizer_takes.member) == ["update", "server"]:
        server_type, only_finalizer = finalizer_takes.member.server, True
    to_finalizer = aggregation.next.type_signature.result.result
    with_examples = server_type is not None and not finalizer_takes.is_assignable_from(to_finalizer)
    if with_examples:
        both = collections.OrderedDict(update=to_finalizer.member, server=server_type)
        to_finalizer = tff.FederatedType(tff.types.to_type(both), tff.SERVER)

    at_server, sent_type = tff.FederatedType(weights_type, tff.SERVER), distributor.next.type_signature.result.result
    for part, expected, actual in (
        ("distributor", distributor.next.type_signature.parameter[1], at_server),
        ("client work (weights)", work_takes["weights"], sent_type),
        ("client work (server weights)", work_takes.get("server_weights", at_server), at_server),
        ("finalizer (weights)", finalizer.next.type_signature.parameter[1], at_server),
        ("finalizer (aggregated update)", finalizer_takes, to_finalizer),
        ("finalizer (new weights)", at_server, finalizer.next.type_signature.result.result),
    ):
        if not expected.is_assignable_from(actual):
            raise CompositionError(f"{part}: expected the type {expected}, got {actual}")

    if fixed is not None:
        begin = tff.tensorflow.computation(fixed.start, weights_type)

        @tff.tensorflow.computation(weights_type, weights_type)
        def keep_fixed(old, new):
            pairs = enumerate(zip(old.trainable, new.trainable, strict=True))
            trainable = [a if place in fixed.places else b for place, (a, b) in pairs]
            return tff.learning.models.ModelWeights(trainable, list(new.non_trainable))

    @tff.federated_computation(at_server)
    def initialize(weights):
        if fixed is not None:
            weights = tff.federated_map(begin, weights)
        return tff.federated_zip(
            collections.OrderedDict(
                weights=weights,
                distributor=distributor.initialize(),
                client_work=client_work.initialize(*([] if own_models else [weights])),
                aggregator=aggregation.initialize(),
                finalizer=finalizer.initialize(),
            )
        )

    keeps_state = client_work.client_state_type is not None
    from_caller = [name for name in work_takes if name not in ("state", "weights", "server_weights")]
    inputs_type = collections.OrderedDict(
        state=initialize.type_signature.result, **{name: work_takes[name] for name in from_caller}
    )
    if only_finalizer:
        inputs_type["server"] = tff.FederatedType(server_type, tff.SERVER)

    @tff.federated_computation(tff.types.to_type(inputs_type))
    def one_round(inputs):
        state = inputs["state"]
        sent = distributor.next(state["distributor"], state["weights"])
        given = {name: inputs[name] for name in from_caller}
        if "server_weights" in work_takes:
            given["server_weights"] = state["weights"]
        work = client_work.next(state=state["client_work"], weights=sent.result, **given)
        aggregated = aggregation.next(state["aggregator"], work["update"], work["weight"])
        update = aggregated.result
        if with_examples:
            update = tff.federated_zip(collections.OrderedDict(update=update, server=inputs["server"]))
        final = finalizer.next(state["finalizer"], state["weights"], update)
        weights = final.result
        if fixed is not None:
            weights = tff.federated_map(keep_fixed, (state["weights"], weights))
        new_state = tff.federated_zip(
            collections.OrderedDict(
                weights=weights,
                distributor=sent.state,
                client_work=work["state"],
                aggregator=aggregated.state,
                finalizer=final.state,
            )
        )
        metrics = tff.federated_zip(
            collections.OrderedDict(
                work=work["metrics"],
                aggregator=aggregated.measurements,
                finalizer=final.measurements,
                distributor=sent.measurements,
            )
        )
        result = collections.OrderedDict(state=new_state)
        if keeps_state:
            result["client_state"] = work["client_state"]
        result["metrics"] = metrics
        return result

    parts = Parts(client_work, aggregator, finalizer, distributor, fixed)
    return FederatedAlgorithm(model=model, initialize=initialize, next=one_round, parts=parts, server_type=server_type)


def _names(type_spec: tff.Type) -> list[str]:
    return tff.structure.name_list(type_spec) if isinstance(type_spec, tff.StructType) else []


def recompose(algorithm: FederatedAlgorithm, **parts) -> FederatedAlgorithm:
    """The algorithm with other parts, named as in `Parts`, e.g. its aggregator behind clipping.

    Raises:
      CompositionError: as `compose`.
    """
    changed = dataclasses.replace(algorithm.parts, **parts)
    composed = compose(algorithm.model, **vars(changed))
    return dataclasses.replace(composed, bag_pooling=algorithm.bag_pooling, own_models=algorithm.own_models)
