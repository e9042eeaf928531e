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

from computations import federated as tff
from computations.client_work import ClientWork
from computations.errors import CompositionError
from computations.local_model import LocalModel


@dataclass(frozen=True)
class FixedWeights:
    """Trainable weights, such as a classifier, that a method sets before the first round and no round changes.

    Attributes:
      start: (ModelWeights of tensors) -> the same with the fixed ones set.
      indices: of the fixed ones among the trainable weights.
    """

    start: Callable
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """The parts of which `compose` made an algorithm (see its arguments)."""

    client_work: ClientWork
    aggregator: tff.aggregators.WeightedAggregationFactory
    finalizer: tff.learning.templates.FinalizerProcess
    distributor: tff.learning.templates.DistributionProcess | None = None
    fixed: FixedWeights | None = None


@dataclass(frozen=True)
class OwnModels:
    """How a client's model is made from the server's weights and its client state, as ModelWeights of arrays.

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
        """Return what the clients do in a round.

        Its `client_state_type` is the type of the client state, or None.
        """
        return self.parts.client_work

    @cached_property
    def get_model_weights(self) -> tff.Computation:
        """Return (S -> W), the global weights of a state, as in `tff.learning.templates.LearningProcess`."""
        return tff.tensorflow.computation(lambda state: state["weights"], self.initialize.type_signature.result.member)

    @cached_property
    def set_model_weights(self) -> tff.Computation:
        """Return (<S, W> -> S), the state with other global weights and all else unchanged, as in `LearningProcess`.

        What the parts keep (round number, momentum, control variates) stays; a state from new weights is
        `initialize`'s.
        """
        state_type = self.initialize.type_signature.result.member
        return tff.tensorflow.computation(
            lambda state, weights: collections.OrderedDict(state, weights=weights), state_type, state_type.weights
        )

    @cached_property
    def not_finite(self) -> tff.Computation:
        """Return (what `next` takes -> float32@CLIENTS), 1 for a client whose update is not finite, else 0."""

        @tff.federated_computation(self.next.type_signature.parameter)
        def of_round(inputs):
            state, work = inputs["state"], self.client_work
            computed = {"state": state["client_work"], "server_weights": state["weights"]}
            if "weights" in work.inputs:
                sent = self.parts.distributor.next(state["distributor"], state["weights"])
                computed["weights"] = sent.result
            arguments = {name: computed[name] if name in computed else inputs[name] for name in work.inputs}
            return work.next(**arguments)["not_finite"]

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
    """Compose a round that distributes the weights, runs the client work, aggregates the updates and finalizes.

    A finalizer may take the server's examples, too: it then gets <update=U, server=S> in place of the aggregated update
    U. S is the type that the client work takes (`ClientWork.server_type`), or the finalizer's if the work takes none.
    `fixed` weights are as they were after every round, whatever the finalizer made of them.

    Raises:
      CompositionError: where one part does not take what the part before it gives; names the part and both types.
    """
    distributor = distributor or tff.learning.templates.build_broadcast_process(model.weights_type)
    parts = Parts(client_work, aggregator, finalizer, distributor, fixed)
    weight_type = client_work.next.type_signature.result.weight.member
    composition = _Composition(model.weights_type, parts, aggregator.create(client_work.update_type, weight_type))
    composition.require_fitting()
    return FederatedAlgorithm(
        model=model,
        initialize=composition.initialize,
        next=composition.next_round(),
        parts=parts,
        server_type=composition.server_type,
    )


@dataclass(frozen=True, eq=False)
class _Composition:
    """The computations of a `FederatedAlgorithm` (see `compose`)."""

    weights_type: tff.Type
    parts: Parts
    aggregation: tff.templates.AggregationProcess

    @property
    def finalizer_takes(self) -> tff.Type:
        """Return what the finalizer takes in addition to its state and the weights."""
        return self.parts.finalizer.next.type_signature.parameter[2]

    @property
    def only_finalizer(self) -> bool:
        """Return whether only the finalizer takes the server's examples."""
        takes = self.finalizer_takes.member
        return self.parts.client_work.server_type is None and _names(takes) == ["update", "server"]

    @property
    def server_type(self) -> tff.Type | None:
        """Return the type of the server's examples."""
        return self.finalizer_takes.member.server if self.only_finalizer else self.parts.client_work.server_type

    @property
    def with_examples(self) -> bool:
        """Return whether the finalizer gets the server's examples with the aggregated update."""
        aggregated = self.aggregation.next.type_signature.result.result
        return self.server_type is not None and not self.finalizer_takes.is_assignable_from(aggregated)

    def require_fitting(self) -> None:
        """Raise CompositionError if a part does not take what the part before it returns."""
        work, finalizer = self.parts.client_work, self.parts.finalizer.next.type_signature
        distributor = self.parts.distributor.next.type_signature
        at_server, work_takes = tff.FederatedType(self.weights_type, tff.SERVER), work.inputs
        to_finalizer = self.aggregation.next.type_signature.result.result
        if self.with_examples:
            both = collections.OrderedDict(update=to_finalizer.member, server=self.server_type)
            to_finalizer = tff.FederatedType(tff.types.to_type(both), tff.SERVER)
        for part, expected, actual in (
            ("distributor", distributor.parameter[1], at_server),
            ("client work (weights)", work_takes["weights"], distributor.result.result),
            ("client work (server weights)", work_takes.get("server_weights", at_server), at_server),
            ("finalizer (weights)", finalizer.parameter[1], at_server),
            ("finalizer (aggregated update)", self.finalizer_takes, to_finalizer),
            ("finalizer (new weights)", at_server, finalizer.result.result),
        ):
            if not expected.is_assignable_from(actual):
                raise CompositionError(f"{part}: expected the type {expected}, got {actual}")

    @cached_property
    def initialize(self) -> tff.Computation:
        parts = self.parts
        own_models = parts.client_work.initialize.type_signature.parameter is None
        begin = parts.fixed and tff.tensorflow.computation(parts.fixed.start, self.weights_type)

        @tff.federated_computation(tff.FederatedType(self.weights_type, tff.SERVER))
        def initialize(weights):
            if begin is not None:
                weights = tff.federated_map(begin, weights)
            return tff.federated_zip(
                collections.OrderedDict(
                    weights=weights,
                    distributor=parts.distributor.initialize(),
                    client_work=parts.client_work.initialize(*([] if own_models else [weights])),
                    aggregator=self.aggregation.initialize(),
                    finalizer=parts.finalizer.initialize(),
                )
            )

        return initialize

    def next_round(self) -> tff.Computation:
        """Return `FederatedAlgorithm.next`."""
        parts, work_takes = self.parts, self.parts.client_work.inputs
        from_caller = [name for name in work_takes if name not in ("state", "weights", "server_weights")]
        inputs_type = collections.OrderedDict(
            state=self.initialize.type_signature.result, **{name: work_takes[name] for name in from_caller}
        )
        if self.only_finalizer:
            inputs_type["server"] = tff.FederatedType(self.server_type, tff.SERVER)

        @tff.federated_computation(tff.types.to_type(inputs_type))
        def one_round(inputs):
            state = inputs["state"]
            sent = parts.distributor.next(state["distributor"], state["weights"])
            arguments = {name: inputs[name] for name in from_caller}
            if "server_weights" in work_takes:
                arguments["server_weights"] = state["weights"]
            work = parts.client_work.next(state=state["client_work"], weights=sent.result, **arguments)
            aggregated = self.aggregation.next(state["aggregator"], work["update"], work["weight"])
            update = aggregated.result
            if self.with_examples:
                update = tff.federated_zip(collections.OrderedDict(update=update, server=inputs["server"]))
            final = parts.finalizer.next(state["finalizer"], state["weights"], update)
            new_state = collections.OrderedDict(
                weights=self._with_fixed(state["weights"], final.result),
                distributor=sent.state,
                client_work=work["state"],
                aggregator=aggregated.state,
                finalizer=final.state,
            )
            metrics = collections.OrderedDict(
                work=work["metrics"],
                aggregator=aggregated.measurements,
                finalizer=final.measurements,
                distributor=sent.measurements,
            )
            result = collections.OrderedDict(state=tff.federated_zip(new_state))
            if parts.client_work.client_state_type is not None:
                result["client_state"] = work["client_state"]
            result["metrics"] = tff.federated_zip(metrics)
            return result

        return one_round

    def _with_fixed(self, old, new):
        """Return the new weights with the fixed ones unchanged."""
        fixed = self.parts.fixed
        if fixed is None:
            return new

        @tff.tensorflow.computation(self.weights_type, self.weights_type)
        def keep_fixed(old, new):
            pairs = enumerate(zip(old.trainable, new.trainable, strict=True))
            trainable = [a if index in fixed.indices else b for index, (a, b) in pairs]
            return tff.learning.models.ModelWeights(trainable, list(new.non_trainable))

        return tff.federated_map(keep_fixed, (old, new))


def _names(type_spec: tff.Type) -> list[str]:
    return tff.structure.name_list(type_spec) if isinstance(type_spec, tff.StructType) else []


def recompose(algorithm: FederatedAlgorithm, **parts) -> FederatedAlgorithm:
    """Return the algorithm with other parts, named as in `Parts`, for example its aggregator after clipping.

    Raises:
      CompositionError: as `compose`.
    """
    changed = dataclasses.replace(algorithm.parts, **parts)
    composed = compose(algorithm.model, **vars(changed))
    return dataclasses.replace(composed, bag_pooling=algorithm.bag_pooling, own_models=algorithm.own_models)
