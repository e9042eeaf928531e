"""Clients with models, or heads, of their own around an algorithm's local training."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from computations.client_work import ClientWork
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, OwnModels, compose
from computations.local_model import LocalModel

ModelWeights = tff.learning.models.ModelWeights


def trained_alone(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """Every client trains a model of its own with the algorithm's local training; nothing is sent or aggregated.

    A client's model is its client state, and a round is one local training that starts from it: what a federation of
    this client alone would do, with the mean and a server step of 1. The server's weights stay the initial ones.

    Raises:
      CompositionError: the clients keep something already, or send more than updates.
    """
    model, work = algorithm.model, algorithm.client_work
    require_plain(work, "training alone")
    weights_type = model.weights_type

    @tff.tensorflow.computation(weights_type, work.update_type)
    def step(weights, update):
        trained = [weight - change for weight, change in zip(weights.trainable, update, strict=True)]
        return ModelWeights(trained, list(weights.non_trainable))

    @tff.federated_computation(tff.FederatedType(weights_type, tff.SERVER))
    def initialize(weights):
        return tff.federated_zip(collections.OrderedDict(weights=weights, client_work=work.initialize(weights)))

    inputs_type = collections.OrderedDict(
        state=initialize.type_signature.result,
        clients=work.inputs["clients"],
        client_state=tff.FederatedType(weights_type, tff.CLIENTS),
    )

    def around(inputs, run):
        own = inputs["client_state"]
        return {"client_state": tff.federated_map(step, (own, run(weights=own)["update"]))}

    blank = functools.lru_cache(maxsize=1)(model.initial_weights)
    kept = work.wrapped(
        around,
        collections.OrderedDict(inputs_type, state=work.inputs["state"]),
        client_state_type=weights_type,
        initial_client_state=lambda examples, seed=0: blank(seed),
    )

    @tff.federated_computation(tff.types.to_type(inputs_type))
    def one_round(inputs):
        state = inputs["state"]
        output = kept.next(state=state["client_work"], clients=inputs["clients"], client_state=inputs["client_state"])
        parts = collections.OrderedDict(weights=state["weights"], client_work=output["state"])
        return collections.OrderedDict(
            state=tff.federated_zip(parts),
            client_state=output["client_state"],
            metrics=tff.federated_zip(collections.OrderedDict(work=output["metrics"])),
        )

    parts = dataclasses.replace(algorithm.parts, client_work=kept)
    own = OwnModels(sent=lambda weights: weights, of_client=lambda weights, state: state)
    return dataclasses.replace(algorithm, initialize=initialize, next=one_round, parts=parts, own_models=own)


def with_local_heads(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """The algorithm whose clients keep the classifier as their client state and never send it.

    FedPer (Arivazhagan et al. 2019, "Federated Learning with Personalization Layers", Algorithms 1 and 2, with a base
    of all layers but the classifier). The server holds, sends and aggregates the weights below; a client puts its own
    head on top, trains both with the algorithm's local training, and sends the update of the lower part. A client that
    never took part has the initial head.

    Raises:
      CompositionError: the clients keep something already or send more than updates, or the model is its head alone.
    """
    model, work, finalizer = algorithm.model, algorithm.client_work, algorithm.parts.finalizer
    require_plain(work, "a head of the client's own")
    head = head_places(model)
    body = [place for place in range(len(model.weight_names)) if place not in head]
    if not body:
        raise CompositionError("a head of the client's own: the model is its classifier alone, so nothing is shared")

    def join(lower: Any, own: Sequence) -> ModelWeights:
        both = dict(zip([*body, *head], [*lower.trainable, *own], strict=True))
        return ModelWeights([both[place] for place in sorted(both)], list(lower.non_trainable))

    def below(weights: Any) -> ModelWeights:
        return ModelWeights(_at(weights.trainable, body), list(weights.non_trainable))

    whole_type = model.weights_type
    trainable = list(whole_type.trainable)
    head_type = tff.types.to_type(_at(trainable, head))
    body_type = tff.types.to_type(ModelWeights(_at(trainable, body), list(whole_type.non_trainable)))
    update_type = tff.types.to_type(_at(list(work.update_type), body))

    def blank_head():
        return [tf.zeros(own.shape, own.dtype) for own in head_type]

    pad = tff.tensorflow.computation(lambda lower: join(lower, blank_head()), body_type)
    cut = tff.tensorflow.computation(below, whole_type)
    on_top = tff.tensorflow.computation(join, body_type, head_type)

    @tff.tensorflow.computation(update_type)
    def pad_update(update):
        return join(ModelWeights(list(update), []), blank_head()).trainable

    @tff.tensorflow.computation(head_type, work.update_type)
    def apart(own, update):
        trained = [weight - change for weight, change in zip(own, _at(update, head), strict=True)]
        return collections.OrderedDict(update=_at(update, body), head=trained)

    @tff.federated_computation(tff.FederatedType(body_type, tff.SERVER))
    def begin(weights):
        return work.initialize(tff.federated_map(pad, weights))

    def around(inputs, run):
        own = inputs["client_state"]
        output = run(weights=tff.federated_map(on_top, (inputs["weights"], own)))
        parts = tff.federated_map(apart, (own, output["update"]))
        return {"update": parts["update"], "client_state": parts["head"]}

    state_type = finalizer.next.type_signature.parameter[0]

    @tff.federated_computation(
        state_type, tff.FederatedType(body_type, tff.SERVER), tff.FederatedType(update_type, tff.SERVER)
    )
    def step(state, weights, update):
        output = finalizer.next(state, tff.federated_map(pad, weights), tff.federated_map(pad_update, update))
        result = tff.federated_map(cut, output.result)
        return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

    blank = functools.lru_cache(maxsize=1)(model.initial_weights)
    kept = work.wrapped(
        around,
        collections.OrderedDict(
            state=work.inputs["state"],
            weights=tff.FederatedType(body_type, tff.CLIENTS),
            clients=work.inputs["clients"],
            client_state=tff.FederatedType(head_type, tff.CLIENTS),
        ),
        initialize=begin,
        client_state_type=head_type,
        initial_client_state=lambda examples, seed=0: _at(blank(seed).trainable, head),
    )
    sizes = model.sizes
    trained, others = sizes.weights
    lower = model.with_sizes(sizes._replace(weights=[_at(trained, body), others], names=_at(sizes.names, body)))
    composed = compose(
        lower,
        client_work=kept,
        aggregator=algorithm.parts.aggregator,
        finalizer=tff.learning.templates.FinalizerProcess(finalizer.initialize, step),
    )
    own = OwnModels(sent=below, of_client=join)
    return dataclasses.replace(composed, bag_pooling=algorithm.bag_pooling, own_models=own)


def head_places(model: LocalModel) -> list[int]:
    """Places of the classifier's weights among the trainable ones.

    Raises:
      CompositionError: the model has no layer that is its classifier.
    """
    places = [i for i, name in enumerate(model.weight_names) if model.classifier in name.split("/")[:-1]]
    if not places:
        raise CompositionError("the model has no layer of its own that makes the logits, so it has no head")
    return places


def _at(values: Sequence, places: Sequence[int]) -> list:
    return [values[place] for place in places]


def require_plain(work: ClientWork, what: str) -> None:
    """CompositionError unless clients keep nothing and send their updates alone; `what` asks for that."""
    reason = None
    if work.client_state_type is not None:
        reason = "its clients keep a state of their own"
    elif work.server_type is not None:
        reason = "it needs the server's examples"
    elif work.beside:
        reason = f"its clients send more than their updates ({', '.join(work.beside)})"
    if reason is not None:
        raise CompositionError(f"{what} does not go with this algorithm: {reason}; choose e.g. fedavg or fedavgs")
