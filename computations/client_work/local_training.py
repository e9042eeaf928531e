"""Local training: one builder for every method, with an objective and an optimizer plugged in."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.client_training import LocalTraining, train_client, unit_array
from computations.client_work.client_updates import NormalisedDifference, Predictions
from computations.client_work.objectives import Objective, SideChannel
from computations.client_work.optimizers import ClientOptimizer
from computations.client_work.selection import NOT_PRIVATE as SELECTION_NOT_PRIVATE
from computations.client_work.work import ClientWork
from computations.errors import CompositionError
from computations.federated.values import Structure, Value, Weights
from computations.local_model import LocalModel
from computations.privacy.example_gradients import ExamplePrivacy

SEED_TYPE = tff.TensorType(np.int32, [2])

NOTHING_TYPE = tff.TensorType(np.int32)
"""Sent in place of the weights where clients have models of their own: TFF cannot send an empty structure."""


def build_local_training(
    model: LocalModel,
    *,
    objective: Objective,
    optimizer: ClientOptimizer,
    training: LocalTraining,
    client_update: Predictions | NormalisedDifference | None = None,
    own_models: bool = False,
    selection: tff.Computation | None = None,
) -> ClientWork:
    """Build work of clients that start from the global weights, train on their examples and send the difference.

    The update is the pseudo-gradient, global minus local, of the trainable weights: TFF's own sign, and that of FLCMC,
    Eq. 13; or what `client_update` makes of the trained model. With `own_models` a client keeps its model from round to
    round and starts from that: `weights` are nothing then, and `model` may differ from the server's. A client without
    examples, or whose update has a value that is not finite, does not count: its weight and its update are zero and its
    client state stays as it was. The metric `clients/non_finite` is the number of clients with such values.

    With a `selection` (see `build_cross_platform_selection`) clients train on the examples that it selects in the round
    and on no others; a client without any does not count. Its metrics are added to the training's, and
    `clients/non_finite` includes clients where the selection found a value that is not finite.

    With `training.example_privacy` the trained weights, and so the update, are differentially private; a proximal term
    and `Objective.adjust_gradients` come behind the noise. So are what `client_update` makes of them and models that
    clients keep. Nothing else leaves a client but its weight: the metrics are an empty tuple, unless
    `example_privacy.training_metrics`, and a client counts if its noised update is finite, whatever its losses were.

    Raises:
      ValueError: own models and an objective that keeps client state or values at the server.
      CompositionError: examples cannot be protected in this training; says why.
    """
    if training.example_privacy is not None:
        _require_protected(model, objective, training.example_privacy, selection)
    objective_state_type = objective.client_state_type(model)
    if own_models and (objective_state_type is not None or objective.side_channel is not None):
        raise ValueError(
            f"{type(objective).__name__} keeps client state or values at the server, but clients' own models cannot"
        )
    client_state_type = model.weights_type if own_models else objective_state_type
    work = _LocalWork(model, objective, optimizer, training, client_update, own_models, selection, client_state_type)
    blank = functools.lru_cache(maxsize=1)(model.initial_weights)

    def initial_client_state(examples: Mapping[str, np.ndarray], seed: Any = 0) -> Structure:
        return blank(seed) if own_models else objective.initial_client_state(model, examples)

    return ClientWork(
        initialize=work.initialize,
        next=work.next_round(),
        client_state_type=client_state_type,
        initial_client_state=None if client_state_type is None else initial_client_state,
        side_outputs=_side_outputs(objective, selection),
        recorded_state=objective.recorded_state,
        server_type=work.server_type,
        example_privacy=training.example_privacy,
        optimizer=optimizer,
        training=training,
    )


@dataclass(frozen=True, eq=False)
class _LocalWork:
    """The computations of `ClientWork` (see `build_local_training`)."""

    model: LocalModel
    objective: Objective
    optimizer: ClientOptimizer
    training: LocalTraining
    client_update: Predictions | NormalisedDifference | None
    own_models: bool
    selection: tff.Computation | None
    client_state_type: tff.Type | None

    @property
    def measured(self) -> bool:
        """Return whether statistics of the training leave the clients."""
        privacy = self.training.example_privacy
        return privacy is None or privacy.training_metrics

    @property
    def weights_type(self) -> tff.Type:
        return NOTHING_TYPE if self.own_models else self.model.weights_type

    @cached_property
    def clients_type(self) -> tff.Type:
        return tff.types.to_type(collections.OrderedDict(examples=self.model.examples_type, seed=SEED_TYPE))

    @cached_property
    def server_type(self) -> tff.Type | None:
        return None if self.client_update is None else self.client_update.server_type(self.model)

    @cached_property
    def initial_state(self) -> tff.Computation:
        """Return the round, and the side channel's initial state, which clients get from the server's state."""
        channel = self.objective.side_channel

        def first_state(*weights: Weights) -> Structure:
            shared = {} if channel is None else {"shared": channel.initial(*weights)}
            return collections.OrderedDict(round=tf.constant(0, tf.int32), **shared)

        if self.own_models:
            return tff.tensorflow.computation(lambda: first_state())
        return tff.tensorflow.computation(lambda weights: first_state(weights), self.weights_type)

    @property
    def state_type(self) -> tff.Type:
        return self.initial_state.type_signature.result

    @cached_property
    def pick_for_clients(self) -> tff.Computation | None:
        """Return the part of the server's data that is broadcast to the clients."""
        update = self.client_update
        if self.server_type is None or not isinstance(update, Predictions):
            return None
        return tff.tensorflow.computation(lambda server: update.for_clients(server["examples"]), self.server_type)

    @cached_property
    def train(self) -> tff.Computation:
        """Return a client's training."""
        arguments_type = collections.OrderedDict(
            weights=self.weights_type, server=self.state_type, client=self.clients_type
        )
        if self.client_state_type is not None:
            arguments_type["client_state"] = self.client_state_type
        if self.pick_for_clients is not None:
            arguments_type["server_examples"] = self.pick_for_clients.type_signature.result
        if self.selection is not None:
            arguments_type["chosen"] = self.selection.type_signature.result.chosen.member

        @tff.tensorflow.computation(tff.types.to_type(arguments_type))
        def train(arguments: Structure) -> collections.OrderedDict[str, Structure]:
            if self.own_models:
                arguments = collections.OrderedDict(arguments, weights=arguments["client_state"])
            return train_client(
                self.model,
                self.objective,
                self.optimizer,
                self.training,
                arguments,
                client_update=self.client_update,
                own_models=self.own_models,
            )

        return train

    @cached_property
    def side(self) -> tff.templates.AggregationProcess | None:
        """Return the aggregation of the objective's side channel."""
        channel = self.objective.side_channel
        return channel and channel.aggregator.create(self.train.type_signature.result["upload"])

    @cached_property
    def initialize(self) -> tff.Computation:
        def begin(state: Value) -> Value:
            return state if self.side is None else _join(state, self.side.initialize())

        if self.own_models:
            return tff.federated_computation(lambda: begin(tff.federated_eval(self.initial_state, tff.SERVER)))
        return tff.federated_computation(
            lambda weights: begin(tff.federated_map(self.initial_state, weights)),
            tff.FederatedType(self.weights_type, tff.SERVER),
        )

    def next_round(self) -> tff.Computation:
        """Return `ClientWork.next`."""
        inputs_type = collections.OrderedDict(
            state=self.initialize.type_signature.result,
            weights=tff.FederatedType(self.weights_type, tff.CLIENTS),
            clients=tff.FederatedType(self.clients_type, tff.CLIENTS),
        )
        if self.client_state_type is not None:
            inputs_type["client_state"] = tff.FederatedType(self.client_state_type, tff.CLIENTS)
        if self.server_type is not None:
            inputs_type["server"] = tff.FederatedType(self.server_type, tff.SERVER)
        channel = self.objective.side_channel
        next_state = tff.tensorflow.computation(
            lambda state: collections.OrderedDict(state, round=state["round"] + 1), self.state_type
        )

        @tff.federated_computation(tff.types.to_type(inputs_type))
        def next_round(inputs: Value) -> Value:
            state = inputs["state"]
            if self.side is not None:
                state = tff.federated_zip(collections.OrderedDict(round=state["round"], shared=state["shared"]))
            arguments = collections.OrderedDict(
                weights=inputs["weights"], server=tff.federated_broadcast(state), client=inputs["clients"]
            )
            if self.client_state_type is not None:
                arguments["client_state"] = inputs["client_state"]
            if self.pick_for_clients is not None:
                examples = tff.federated_map(self.pick_for_clients, inputs["server"])
                arguments["server_examples"] = tff.federated_broadcast(examples)
            selected = None
            if self.selection is not None:
                selected = self.selection(inputs["weights"], inputs["clients"]["examples"])
                arguments["chosen"] = selected["chosen"]
            trained = tff.federated_map(self.train, tff.federated_zip(arguments))
            totals = tff.federated_sum(trained["statistics"]) if self.measured else None
            new_state = tff.federated_map(next_state, state)
            if self.side is not None and channel is not None:
                sent = self.side.next(inputs["state"]["side"], trained["upload"])
                new_state = self._next_shared(channel, new_state, sent, totals)
            result = collections.OrderedDict(state=new_state, update=trained["update"], weight=trained["weight"])
            result["not_finite"] = trained["statistics"]["non_finite"]
            if self.client_state_type is not None:
                result["client_state"] = trained["client_state"]
            result["metrics"] = self._metrics(totals, selected)
            return result

        return next_round

    def _next_shared(self, channel: SideChannel, state: Value, sent: Value, totals: Value) -> Value:
        """Return the server's next state with what the side channel makes of the aggregated uploads."""

        @tff.tensorflow.computation(self.state_type, sent.result.type_signature.member, totals.type_signature.member)
        def update_shared(state: Structure, aggregated: Structure, total: Structure) -> Structure:
            shared = channel.update(state["shared"], aggregated, total["counted"])
            return collections.OrderedDict(state, shared=shared)

        return _join(tff.federated_map(update_shared, (state, sent.result, totals)), sent.state)

    def _metrics(self, totals: Value, selected: Value) -> Value:
        """Return the metrics of the training and of the selection, at the server."""
        if totals is None:
            return tff.federated_value((), tff.SERVER)

        @tff.tensorflow.computation(totals.type_signature.member)
        def to_metrics(total: Structure) -> Structure:
            return collections.OrderedDict(
                [
                    ("local/loss", tf.math.divide_no_nan(total["loss"], total["seen"])),
                    ("local/steps", total["steps"]),
                    ("clients/counted", total["counted"]),
                    ("clients/non_finite", total["non_finite"]),
                ]
            )

        metrics = tff.federated_map(to_metrics, totals)
        if selected is None:
            return metrics
        both = metrics, selected["metrics"]
        types = [part.type_signature.member for part in both]
        join = tff.tensorflow.computation(lambda left, right: collections.OrderedDict(left, **right), *types)
        return tff.federated_map(join, both)


def _join(state: Value, side: Value) -> Value:
    """Return the server's state joined with that of the side channel's aggregator.

    The latter stays at the server, and clients get the rest.
    """
    return tff.federated_zip(collections.OrderedDict(round=state["round"], shared=state["shared"], side=side))


def _side_outputs(objective: Objective, selection: tff.Computation | None) -> dict[str, str]:
    """Return `ClientWork.side_outputs` of a local training."""
    outputs = {}
    if objective.side_channel is not None:
        name = type(objective).__name__
        outputs[name] = objective.not_private or (
            f"{name} sends values in addition to the updates, and no noise is added to these"
        )
    if selection is not None:
        outputs["selection"] = SELECTION_NOT_PRIVATE
    return outputs


def _require_protected(
    model: LocalModel, objective: Objective, privacy: ExamplePrivacy, selection: tff.Computation | None
) -> None:
    """Raise CompositionError if a unit has an influence that clipping its gradient does not bound."""
    name, unit = type(objective).__name__, privacy.unit
    reason = None
    if selection is not None:
        reason = "clients' scores choose the examples to train on, and no noise is added to them"
    elif objective.side_channel is not None:
        reason = f"{name} sends values in addition to the weights, which the guarantee does not cover"
    elif objective.remembers:
        reason = f"{name} keeps what steps computed from their batches, and here a batch is a single unit"
    elif objective.beyond_batch is not None:
        reason = f"{name} reads {objective.beyond_batch}, so that every gradient depends on every example"
    elif objective.of_bags and unit == "example":
        reason = f"{name} has one loss for all sentences of a bag; protect whole bags with the unit 'group'"
    elif unit == "group" and (wanted := unit_array(objective, privacy)) not in model.input_spec:
        reason = f"the examples have no array '{wanted}' that says which of them form a group"
    if reason is not None:
        raise CompositionError(f"local training: cannot hide the presence of one {unit}: {reason}")
