"""Clients that have their own models, or heads, in an algorithm's local training."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from computations import federated as tff
from computations.client_work import ClientWork
from computations.errors import CompositionError
from computations.federated.values import Structure, Value, Weights
from computations.federated_algorithm import FederatedAlgorithm, OwnModels, compose
from computations.local_model import LocalModel

ModelWeights = tff.learning.models.ModelWeights


def trained_alone(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """Return an algorithm in which every client trains its own model, and nothing is sent or aggregated.

    A client's model is its client state, and a round is one local training that starts from it: what a federation of
    this client alone would do, with the mean and a server step of 1. The server's weights stay the initial ones.

    Raises:
      CompositionError: the clients keep something already, or send more than updates.
    """
    model, work = algorithm.model, algorithm.client_work
    require_plain(work, "training alone")
    weights_type = model.weights_type

    @tff.tensorflow.computation(weights_type, work.update_type)
    def step(weights: Weights, update: Structure) -> Weights:
        trained = [weight - change for weight, change in zip(weights.trainable, update, strict=True)]
        return ModelWeights(trained, list(weights.non_trainable))

    @tff.federated_computation(tff.FederatedType(weights_type, tff.SERVER))
    def initialize(weights: Value) -> Value:
        return tff.federated_zip(collections.OrderedDict(weights=weights, client_work=work.initialize(weights)))

    inputs_type = collections.OrderedDict(
        state=initialize.type_signature.result,
        clients=work.inputs["clients"],
        client_state=tff.FederatedType(weights_type, tff.CLIENTS),
    )

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        weights = inputs["client_state"]
        return {"client_state": tff.federated_map(step, (weights, run(weights=weights)["update"]))}

    blank = functools.lru_cache(maxsize=1)(model.initial_weights)
    local_work = work.wrapped(
        change,
        collections.OrderedDict(inputs_type, state=work.inputs["state"]),
        client_state_type=weights_type,
        initial_client_state=lambda examples, seed=0: blank(seed),
    )

    @tff.federated_computation(tff.types.to_type(inputs_type))
    def one_round(inputs: Value) -> Value:
        state = inputs["state"]
        output = local_work.next(
            state=state["client_work"], clients=inputs["clients"], client_state=inputs["client_state"]
        )
        parts = collections.OrderedDict(weights=state["weights"], client_work=output["state"])
        return collections.OrderedDict(
            state=tff.federated_zip(parts),
            client_state=output["client_state"],
            metrics=tff.federated_zip(collections.OrderedDict(work=output["metrics"])),
        )

    parts = dataclasses.replace(algorithm.parts, client_work=local_work)
    own_models = OwnModels(sent=lambda weights: weights, of_client=lambda weights, state: state)
    return dataclasses.replace(algorithm, initialize=initialize, next=one_round, parts=parts, own_models=own_models)


def with_local_heads(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """Return the algorithm whose clients keep the classifier as their client state and never send it.

    FedPer (Arivazhagan et al. 2019, "Federated Learning with Personalization Layers", Algorithms 1 and 2, with a base
    of all layers but the classifier). The server holds, sends and aggregates the weights below; a client puts its own
    head on top, trains both with the algorithm's local training, and sends the update of the lower part. A client that
    never took part has the initial head.

    Raises:
      CompositionError: the clients keep something already or send more than updates, or the model is its head alone.
    """
    model = algorithm.model
    require_plain(algorithm.client_work, "a head of the client's own")
    split = _Split.from_model(model)
    if not split.body:
        raise CompositionError(
            "a head of the client's own: the model consists only of its classifier, so nothing would be shared"
        )
    sizes = model.sizes
    trained, others = sizes.weights
    body_sizes = sizes._replace(weights=[_at(trained, split.body), others], names=_at(sizes.names, split.body))
    composed = compose(
        model.with_sizes(body_sizes),
        client_work=_with_heads(algorithm.client_work, model, split),
        aggregator=algorithm.parts.aggregator,
        finalizer=_of_body(algorithm.parts.finalizer, split),
    )
    own_models = OwnModels(sent=split.below, of_client=split.join)
    return dataclasses.replace(composed, bag_pooling=algorithm.bag_pooling, own_models=own_models)


@dataclass(frozen=True)
class _Split:
    """The head and the body of a model.

    Attributes:
      head, body: indices of their weights among the trainable ones.
      head_type, body_type: types of the head's weights, and of the ModelWeights below it.
    """

    head: list[int]
    body: list[int]
    head_type: tff.Type
    body_type: tff.Type

    @classmethod
    def from_model(cls, model: LocalModel) -> _Split:
        head, whole = head_indices(model), model.weights_type
        body = [index for index in range(len(model.weight_names)) if index not in head]
        body_type = ModelWeights(_at(list(whole.trainable), body), list(whole.non_trainable))
        return cls(head, body, tff.types.to_type(_at(list(whole.trainable), head)), tff.types.to_type(body_type))

    def join(self, lower: Weights, head: Sequence) -> Weights:
        """Return the whole weights."""
        both = dict(zip([*self.body, *self.head], [*lower.trainable, *head], strict=True))
        return ModelWeights([both[index] for index in sorted(both)], list(lower.non_trainable))

    def below(self, weights: Weights) -> Weights:
        """Return the weights without the head."""
        return ModelWeights(_at(weights.trainable, self.body), list(weights.non_trainable))

    def padded(self, lower: Weights) -> Weights:
        """Return the whole weights with a head of zeros."""
        return self.join(lower, [tf.zeros(tensor.shape, tensor.dtype) for tensor in self.head_type])

    @functools.cached_property
    def pad(self) -> tff.Computation:
        """Return the computation of `padded`."""
        return tff.tensorflow.computation(self.padded, self.body_type)


def _with_heads(work: ClientWork, model: LocalModel, split: _Split) -> ClientWork:
    """Return the work of clients that put their own heads on top of the body's weights."""
    on_top = tff.tensorflow.computation(split.join, split.body_type, split.head_type)

    @tff.tensorflow.computation(split.head_type, work.update_type)
    def take_apart(head: Structure, update: Structure) -> Structure:
        trained = [weight - change for weight, change in zip(head, _at(update, split.head), strict=True)]
        return collections.OrderedDict(update=_at(update, split.body), head=trained)

    @tff.federated_computation(tff.FederatedType(split.body_type, tff.SERVER))
    def begin(weights: Value) -> Value:
        return work.initialize(tff.federated_map(split.pad, weights))

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        head = inputs["client_state"]
        output = run(weights=tff.federated_map(on_top, (inputs["weights"], head)))
        parts = tff.federated_map(take_apart, (head, output["update"]))
        return {"update": parts["update"], "client_state": parts["head"]}

    blank = functools.lru_cache(maxsize=1)(model.initial_weights)
    return work.wrapped(
        change,
        collections.OrderedDict(
            state=work.inputs["state"],
            weights=tff.FederatedType(split.body_type, tff.CLIENTS),
            clients=work.inputs["clients"],
            client_state=tff.FederatedType(split.head_type, tff.CLIENTS),
        ),
        initialize=begin,
        client_state_type=split.head_type,
        initial_client_state=lambda examples, seed=0: _at(blank(seed).trainable, split.head),
    )


def _of_body(
    finalizer: tff.learning.templates.FinalizerProcess, split: _Split
) -> tff.learning.templates.FinalizerProcess:
    """Return the finalizer of whole weights as one of the body's weights."""
    cut = tff.tensorflow.computation(split.below, finalizer.next.type_signature.result.result.member)

    @tff.tensorflow.computation(split.body_type.trainable)
    def pad_update(update: Structure) -> list[tf.Tensor]:
        return split.padded(ModelWeights(list(update), [])).trainable

    @tff.federated_computation(
        finalizer.next.type_signature.parameter[0],
        tff.FederatedType(split.body_type, tff.SERVER),
        tff.FederatedType(split.body_type.trainable, tff.SERVER),
    )
    def step(state: Value, weights: Value, update: Value) -> tff.templates.MeasuredProcessOutput:
        output = finalizer.next(state, tff.federated_map(split.pad, weights), tff.federated_map(pad_update, update))
        result = tff.federated_map(cut, output.result)
        return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

    return tff.learning.templates.FinalizerProcess(finalizer.initialize, step)


def head_indices(model: LocalModel) -> list[int]:
    """Return the indices of the classifier's weights among the trainable ones.

    Raises:
      CompositionError: the model has no layer that is its classifier.
    """
    indices = [i for i, name in enumerate(model.weight_names) if model.classifier in name.split("/")[:-1]]
    if not indices:
        raise CompositionError("the model has no separate layer for the logits, so it has no head")
    return indices


def _at(values: Sequence, indices: Sequence[int]) -> list:
    return [values[index] for index in indices]


def require_plain(work: ClientWork, what: str) -> None:
    """Raise CompositionError unless clients keep no state and send only their updates.

    `what` names the feature that requires it.
    """
    reason = None
    if work.client_state_type is not None:
        reason = "its clients keep their own state"
    elif work.server_type is not None:
        reason = "it needs the server's examples"
    elif work.side_outputs:
        reason = f"its clients send more than their updates ({', '.join(work.side_outputs)})"
    if reason is not None:
        raise CompositionError(
            f"{what} cannot be combined with this algorithm: {reason}; choose e.g. fedavg or fedavgs"
        )
