"""Local training: one builder for every method, with an objective and an optimizer plugged in.

Weights and moments are kept in variables and updated by fused kernels, and the batch step is a function of its own;
both matter for speed (see docs/performance.md). Batches and random layers are drawn from the client's seed alone, so
that methods compared on one seed see the same batches and a resumed run sees those that it would have seen.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from attrs.validators import in_, optional

from computations.client_work.client_updates import NormalisedDifference, Predictions
from computations.client_work.objectives import Batch, Client, Objective
from computations.client_work.optimizers import ClientOptimizer
from computations.client_work.selection import NOT_PRIVATE as SELECTION_NOT_PRIVATE
from computations.client_work.units import units_of
from computations.errors import CompositionError
from computations.local_model import GROUP, TRIPLE, LocalModel, assign_weights, split_label, zero_initialisers, zeros
from computations.privacy.example_gradients import (
    ExamplePrivacy,
    fits_side_by_side,
    noised_mean,
    sum_one_by_one,
    sum_side_by_side,
)
from computations.randomness import step_seed
from computations.ranges import NOT_NEGATIVE, POSITIVE, STEPS

SEED_TYPE = tff.TensorType(np.int32, [2])

NOTHING_TYPE = tff.TensorType(np.int32)
"""Sent in place of the weights where clients have models of their own: TFF cannot send an empty structure."""


@attrs.frozen
class LocalTraining:
    """How long and how a client trains.

    Attributes:
      local_epochs: passes over the client's examples.
      local_steps: if given, exactly this many batches instead (a new pass is shuffled anew).
      batch_size: examples per step, or bags for an objective `of_bags`; the last batch of a pass may be smaller.
      weighting: `examples`: a client counts by the number of examples that it trains on; `uniform`: every client counts
        one.
      max_gradient_norm: clips the gradient's global norm; None: no clipping.
      weight_decay: lambda of the term lambda/2 * ||w||^2 over all trained weights, whose gradient lambda * w is added
        behind clipping and noise.
      schedule: round (int32 scalar) -> factor on the learning rate; None: constant.
      example_privacy: differentially private SGD. A batch is then a Poisson sample: each of the client's n units is in
        it with probability min(batch_size / n, 1), drawn anew in every step from the client's seed; there are as many
        steps as without. None: none.
    """

    local_epochs: int = attrs.field(default=1, validator=STEPS)
    local_steps: int | None = attrs.field(default=None, validator=optional(STEPS))
    batch_size: int = attrs.field(default=10, validator=STEPS)
    weighting: Literal["examples", "uniform"] = attrs.field(default="examples", validator=in_(("examples", "uniform")))
    max_gradient_norm: float | None = attrs.field(default=None, validator=optional(POSITIVE))
    weight_decay: float = attrs.field(default=0.0, validator=NOT_NEGATIVE)
    schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
    example_privacy: ExamplePrivacy | None = None


@dataclass(frozen=True)
class ClientWork:
    """What the clients do in a round, as federated computations.

    Attributes:
      initialize: (weights@SERVER -> state@SERVER).
      next: (<state=@SERVER, weights=@CLIENTS, clients=@CLIENTS[, client_state=@CLIENTS][, server=@SERVER]> ->
        <state=@SERVER, update=@CLIENTS, weight=float32@CLIENTS, not_finite=float32@CLIENTS[, client_state=@CLIENTS],
        metrics=@SERVER>), one struct of inputs; `clients` and `server` are <examples=E, seed=int32[2]>. A client of
        weight zero does not count; `not_finite` is 1 where that is because of a value that is not finite. An input
        `server_weights`, if there is one, gets the global weights at the server. Clients that never get the global
        weights have no input `weights`. Metrics are an empty tuple where no statistics of the training leave clients.
      client_state_type: type of what a client keeps between rounds, or None.
      initial_client_state: (a client's examples, the run's seed) -> NumPy value of `client_state_type` for a client
        that was not trained yet.
      shown: entries of the client state that a simulation may record for every client, see `Objective`; in a
        deployment they stay at the client.
      server_type: type of `server`, or None where the work does not need the server's examples.
      beside: what leaves the clients beside the update, its weight and the metrics (the class of an objective with a
        side channel, `selection`, `examples`) -> why a private sum of the updates does not cover it.
      example_privacy: what local training protects the client's examples with, or None.
      optimizer, training: of the clients, for a server that trains as they do; None where the work is no such training.
    """

    initialize: tff.Computation
    next: tff.Computation
    client_state_type: tff.Type | None = None
    initial_client_state: Callable[..., object] | None = None
    shown: tuple[str, ...] = ()
    server_type: tff.Type | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    example_privacy: ExamplePrivacy | None = None
    optimizer: ClientOptimizer | None = None
    training: LocalTraining | None = None

    def __post_init__(self):
        needed = {"state", "update", "weight", "not_finite", "metrics"}
        needed |= set() if self.client_state_type is None else {"client_state"}
        if missing := sorted(needed - set(self.outputs)):
            raise CompositionError(f"client work: `next` has no output {', '.join(map(repr, missing))}")

    def wrapped(self, around: Callable, inputs: Mapping[str, tff.Type] | None = None, **fields) -> ClientWork:
        """The work with something before and after its `next`, whose outputs stay unless `around` replaces them.

        Args:
          around: (inputs, run) -> {name: new output}, in the context of a federated computation. `run(name=value, ...)`
            calls the work's own `next`, once, with these inputs in place of those of the same name.
          inputs: types of the fields that the new `next` takes; the work's own if not given.
          **fields: other fields of the new work.

        Raises:
          CompositionError: the new work lacks an output that its fields promise.
        """
        takes = collections.OrderedDict(self.inputs if inputs is None else inputs)

        @tff.federated_computation(tff.types.to_type(takes))
        def next_round(given):
            outputs = collections.OrderedDict()

            def run(**values):
                output = self.next(**{name: values[name] if name in values else given[name] for name in self.inputs})
                outputs.update((name, output[name]) for name in self.outputs)
                return output

            changed = around(given, run)
            return collections.OrderedDict(outputs, **changed)

        return dataclasses.replace(self, next=next_round, **fields)

    @property
    def inputs(self) -> collections.OrderedDict[str, tff.Type]:
        """Types of the fields of the struct that `next` takes."""
        return collections.OrderedDict(tff.structure.to_elements(self.next.type_signature.parameter))

    @property
    def outputs(self) -> list[str]:
        """Names of the fields of the struct that `next` gives."""
        return tff.structure.name_list(self.next.type_signature.result)

    @property
    def has_metrics(self) -> bool:
        """Whether statistics of the training leave the clients."""
        return bool(tff.structure.flatten(self.next.type_signature.result.metrics.member))

    @property
    def clients_type(self) -> tff.Type:
        """Member type of the field `clients`."""
        return self.inputs["clients"].member

    @property
    def update_type(self) -> tff.Type:
        """Member type of a client's update."""
        return self.next.type_signature.result.update.member


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
    """Clients start from the global weights, take steps on their own examples and send the difference.

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
      CompositionError: examples cannot be protected in this training; says why.
    """
    if training.example_privacy is not None:
        _require_protected(model, objective, training.example_privacy, selection)
    measured = training.example_privacy is None or training.example_privacy.training_metrics
    channel = objective.side_channel
    client_state_type = objective.client_state_type(model)
    if own_models:
        if client_state_type is not None or channel is not None:
            raise ValueError(
                f"{type(objective).__name__} keeps client state or values at the server, own models do not"
            )
        client_state_type = model.weights_type
    weights_type = NOTHING_TYPE if own_models else model.weights_type
    clients_type = tff.types.to_type(collections.OrderedDict(examples=model.examples_type, seed=SEED_TYPE))
    server_type = None if client_update is None else client_update.server_type(model)

    def first_state(*weights):
        shared = {} if channel is None else {"shared": channel.initial(*weights)}
        return collections.OrderedDict(round=tf.constant(0, tf.int32), **shared)

    if own_models:
        initial_state = tff.tensorflow.computation(lambda: first_state())
    else:
        initial_state = tff.tensorflow.computation(lambda weights: first_state(weights), weights_type)

    state_type = initial_state.type_signature.result
    client_arguments = collections.OrderedDict(weights=weights_type, server=state_type, client=clients_type)
    if client_state_type is not None:
        client_arguments["client_state"] = client_state_type
    if server_type is not None:

        @tff.tensorflow.computation(server_type)
        def give_out(server):
            return client_update.given(server["examples"])

        client_arguments["given"] = give_out.type_signature.result
    if selection is not None:
        client_arguments["chosen"] = selection.type_signature.result.chosen.member

    @tff.tensorflow.computation(tff.types.to_type(client_arguments))
    def train(arguments):
        if own_models:
            arguments = collections.OrderedDict(arguments, weights=arguments["client_state"])
        return train_client(model, objective, optimizer, training, arguments, client_update, own_models)

    @tff.tensorflow.computation(train.type_signature.result["statistics"])
    def to_metrics(total):
        return collections.OrderedDict(
            [
                ("local/loss", tf.math.divide_no_nan(total["loss"], total["seen"])),
                ("local/steps", total["steps"]),
                ("clients/counted", total["counted"]),
                ("clients/non_finite", total["non_finite"]),
            ]
        )

    side = channel and channel.aggregator.create(train.type_signature.result["upload"])

    def begin(own):
        return own if side is None else _join(own, side.initialize())

    if own_models:
        initialize = tff.federated_computation(lambda: begin(tff.federated_eval(initial_state, tff.SERVER)))
    else:
        initialize = tff.federated_computation(
            lambda weights: begin(tff.federated_map(initial_state, weights)),
            tff.FederatedType(weights_type, tff.SERVER),
        )

    inputs_type = collections.OrderedDict(
        state=initialize.type_signature.result,
        weights=tff.FederatedType(weights_type, tff.CLIENTS),
        clients=tff.FederatedType(clients_type, tff.CLIENTS),
    )
    if client_state_type is not None:
        inputs_type["client_state"] = tff.FederatedType(client_state_type, tff.CLIENTS)
    if server_type is not None:
        inputs_type["server"] = tff.FederatedType(server_type, tff.SERVER)

    @tff.tensorflow.computation(state_type)
    def next_round(state):
        return collections.OrderedDict(state, round=state["round"] + 1)

    @tff.federated_computation(tff.types.to_type(inputs_type))
    def work(inputs):
        state, weights, clients = inputs["state"], inputs["weights"], inputs["clients"]
        own = state
        if side is not None:
            own = tff.federated_zip(collections.OrderedDict(round=state["round"], shared=state["shared"]))
        at_clients = collections.OrderedDict(weights=weights, server=tff.federated_broadcast(own), client=clients)
        if client_state_type is not None:
            at_clients["client_state"] = inputs["client_state"]
        if server_type is not None:
            at_clients["given"] = tff.federated_broadcast(tff.federated_map(give_out, inputs["server"]))
        if selection is not None:
            selected = selection(weights, clients["examples"])
            at_clients["chosen"] = selected["chosen"]
        trained = tff.federated_map(train, tff.federated_zip(at_clients))
        totals = tff.federated_sum(trained["statistics"]) if measured else None
        new_state = tff.federated_map(next_round, own)
        if side is not None:
            sent = side.next(state["side"], trained["upload"])

            @tff.tensorflow.computation(state_type, sent.result.type_signature.member, totals.type_signature.member)
            def update_shared(state, aggregated, total):
                shared = channel.update(state["shared"], aggregated, total["counted"])
                return collections.OrderedDict(state, shared=shared)

            new_state = _join(tff.federated_map(update_shared, (new_state, sent.result, totals)), sent.state)
        result = collections.OrderedDict(state=new_state, update=trained["update"], weight=trained["weight"])
        result["not_finite"] = trained["statistics"]["non_finite"]
        if client_state_type is not None:
            result["client_state"] = trained["client_state"]
        result["metrics"] = tff.federated_map(to_metrics, totals) if measured else tff.federated_value((), tff.SERVER)
        if selection is not None:
            both = result["metrics"], selected["metrics"]
            types = [metrics.type_signature.member for metrics in both]
            join = tff.tensorflow.computation(lambda one, other: collections.OrderedDict(one, **other), *types)
            result["metrics"] = tff.federated_map(join, both)
        return result

    blank = functools.lru_cache(maxsize=1)(model.initial_weights)

    def initial_client_state(examples, seed=0):
        return blank(seed) if own_models else objective.initial_client_state(model, examples)

    return ClientWork(
        initialize=initialize,
        next=work,
        client_state_type=client_state_type,
        initial_client_state=None if client_state_type is None else initial_client_state,
        beside=_beside(objective, selection),
        shown=objective.shown,
        server_type=server_type,
        example_privacy=training.example_privacy,
        optimizer=optimizer,
        training=training,
    )


def _beside(objective: Objective, selection: tff.Computation | None) -> dict[str, str]:
    """`ClientWork.beside` of a local training."""
    beside = {}
    if objective.side_channel is not None:
        name = type(objective).__name__
        beside[name] = objective.not_private or f"{name} sends values beside the updates, to which no noise is added"
    if selection is not None:
        beside["selection"] = SELECTION_NOT_PRIVATE
    return beside


def _require_protected(
    model: LocalModel, objective: Objective, privacy: ExamplePrivacy, selection: tff.Computation | None
) -> None:
    """CompositionError where a unit has an influence that clipping its gradient does not bound."""
    name, unit = type(objective).__name__, privacy.unit
    reason = None
    if selection is not None:
        reason = "clients' scores choose the examples to train on, and no noise is added to them"
    elif objective.side_channel is not None:
        reason = f"{name} sends values beside the weights, which the guarantee is not stated for"
    elif objective.remembers:
        reason = f"{name} keeps what steps computed of their batches, which here are single units"
    elif objective.beyond_batch is not None:
        reason = f"{name} reads {objective.beyond_batch}, so that every gradient depends on every example"
    elif objective.of_bags and unit == "example":
        reason = f"{name} has one loss for all sentences of a bag; protect bags, with the unit 'group'"
    elif unit == "group" and (wanted := _unit_of(objective, privacy)) not in model.input_spec:
        reason = f"the examples have no array '{wanted}' that says which of them are one group"
    if reason is not None:
        raise CompositionError(f"local training: cannot hide the presence of one {unit}: {reason}")


def _unit_of(objective: Objective, privacy: ExamplePrivacy | None) -> str | None:
    """Name of the array whose numbers make examples a unit; None: an example is one."""
    if objective.of_bags:
        return TRIPLE
    return GROUP if privacy is not None and privacy.unit == "group" else None


def _join(own, side):
    """The server's state with that of the side channel's aggregator, which stays there: clients get the rest."""
    return tff.federated_zip(collections.OrderedDict(round=own["round"], shared=own["shared"], side=side))


def train_client(
    local_model: LocalModel,
    objective: Objective,
    optimizer: ClientOptimizer,
    training: LocalTraining,
    arguments,
    client_update: Predictions | NormalisedDifference | None = None,
    own_models: bool = False,
):
    """One client's local training as TensorFlow; see build_local_training.

    Args:
      arguments: `weights` (ModelWeights), `server` (`round`, and `shared` for the objective), `client` (`examples`,
        `seed`), and `client_state`, `given` and `chosen` where the work has them; the rest as there.

    Returns:
      OrderedDict of `update`, `weight`, `statistics`, and `upload` and `client_state` where the objective has them.
    """
    weights, server, data = arguments["weights"], arguments["server"], arguments["client"]
    with zero_initialisers():
        model = local_model.build()
        apply = optimizer.bind(model.trainable_variables)
    rate = tf.constant(optimizer.learning_rate, tf.float32)
    if training.schedule is not None:
        rate = rate * training.schedule(server["round"])
    client = Client(
        model=model,
        local_model=local_model,
        examples=data["examples"],
        global_weights=list(weights.trainable),
        rate=rate,
        seed=data["seed"],
        shared=server.get("shared", ()),
        client_state=arguments.get("client_state", ()),
    )
    chosen = arguments.get("chosen")
    privacy = training.example_privacy
    unit, selected = _unit_of(objective, privacy), None if chosen is None else chosen["selected"]
    units = units_of(client.examples, by=unit, selected=selected)
    num_units = units.number

    def loss_of(rows, bags, seed, prepared):
        features, labels = split_label({name: tf.gather(v, rows) for name, v in client.examples.items()})
        with step_seed(seed):
            batch = Batch(features, labels, model(features, training=True), rows, bags)
            return objective.loss(client, prepared, batch), batch

    def descend(gradients, prepared):
        gradients = objective.adjust_gradients(client, prepared, gradients)
        if training.max_gradient_norm is not None:
            # Dense, because the rows of a word that occurs twice have to be added up before their norm is taken.
            dense = [tf.convert_to_tensor(g) for g in gradients]
            gradients, _ = tf.clip_by_global_norm(dense, training.max_gradient_norm)
        if training.weight_decay:
            decay, variables = training.weight_decay, model.trainable_variables
            gradients = [tf.convert_to_tensor(g) + decay * v for g, v in zip(gradients, variables, strict=True)]
        apply(gradients, client.global_weights, rate)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(rows, bags, seed, prepared, remembered):
        with tf.GradientTape() as tape:
            loss, batch = loss_of(rows, bags, seed, prepared)
        gradients = tape.gradient(loss, model.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        descend(gradients, prepared)
        return loss, objective.remember(client, remembered, batch) if objective.remembers else remembered

    @tf.function(reduce_retracing=True, autograph=False)
    def private_step(drawn, seed, noise_seed, expected, prepared):
        """(sum of the units' losses, their number); units int32 [b], b may be 0."""

        def loss(unit):
            rows, bags = units.batch(unit[tf.newaxis])
            own_seed = tf.random.experimental.stateless_fold_in(seed, unit)
            return loss_of(rows, bags if objective.of_bags else None, own_seed, prepared)[0]

        variables = model.trainable_variables
        one_shape = privacy.unit == "example" and local_model.rows is None
        side_by_side = one_shape and fits_side_by_side(variables, training.batch_size)
        add_up = sum_side_by_side if side_by_side else sum_one_by_one
        sums, loss_sum, number = add_up(loss, variables, drawn, privacy.clip)
        descend(noised_mean(sums, privacy, noise_seed, expected), prepared)
        return loss_sum, number

    @tf.function(autograph=False)
    def run():
        assign_weights(model, weights)
        prepared = objective.prepare(client)
        batch = training.batch_size
        steps_per_epoch = tf.maximum((num_units + batch - 1) // batch, 1)
        steps = training.local_steps or training.local_epochs * steps_per_epoch
        steps = tf.where(num_units > 0, steps, 0)
        if privacy is None:
            epochs = (steps + steps_per_epoch - 1) // steps_per_epoch
            keys = tf.random.stateless_uniform([epochs, num_units], data["seed"], None, None, tf.int32)
            order = tf.argsort(keys, axis=-1, stable=True)

            def one(index, loss_sum, seen, remembered):
                start = (index % steps_per_epoch) * batch
                drawn = order[index // steps_per_epoch, start : start + batch]
                rows, bags = units.batch(drawn)
                seed = tf.random.experimental.stateless_fold_in(data["seed"], index + 1)
                loss, remembered = step(rows, bags, seed, prepared, remembered)
                size = tf.cast(tf.size(drawn), tf.float32)
                return index + 1, loss_sum + loss * size, seen + size, remembered
        else:
            # Of 64 bits each, so that no two steps of a long run have the same noise; `stateless_fold_in` has 32.
            of_samples, of_noise = private_seeds(data["seed"], steps)
            expected = tf.cast(tf.minimum(num_units, batch), tf.float32)
            share = expected / tf.cast(num_units, tf.float32)

            def one(index, loss_sum, seen, remembered):
                drawn = tf.where(tf.random.stateless_uniform([num_units], of_samples[index]) < share)[:, 0]
                seed = tf.random.experimental.stateless_fold_in(data["seed"], index + 1)
                loss, number = private_step(tf.cast(drawn, tf.int32), seed, of_noise[index], expected, prepared)
                return index + 1, loss_sum + loss, seen + number, remembered

        first = objective.remembered(client) if objective.remembers else ()
        start = tf.constant(0), tf.constant(0.0), tf.constant(0.0), first
        ended = tf.while_loop(lambda index, *_: index < steps, one, start, maximum_iterations=steps)
        _, loss_sum, seen, remembered = ended
        result = collections.OrderedDict()
        if objective.side_channel is not None:
            result["upload"] = objective.upload(client, prepared, steps)
        if "client_state" in arguments and not own_models:
            kept = [remembered] if objective.remembers else []
            result["client_state"] = objective.next_client_state(client, prepared, steps, *kept)
        if client_update is not None:
            result["update"], result["factor"] = client_update.of(client, arguments.get("given", ()), steps)
        return result, steps, loss_sum, seen

    extra, steps, loss_sum, seen = run()
    # Read after the training: in a graph its function call adds no control dependency by itself.
    with tf.control_dependencies([steps, loss_sum]):
        if client_update is None:
            extra["update"] = [
                a - v.read_value() for v, a in zip(model.trainable_variables, client.global_weights, strict=True)
            ]
        if own_models:
            local = (
                [v.read_value() for v in group] for group in (model.trainable_variables, model.non_trainable_variables)
            )
            extra["client_state"] = tff.learning.models.ModelWeights(*local)
    checked = [loss_sum, *tf.nest.flatten(extra)]
    if privacy is not None:
        # The loss and what stays at the client are made of its examples without noise, and one of them alone must not
        # decide whether the client counts; a sum of finite losses may overflow.
        checked = tf.nest.flatten([value for name, value in extra.items() if own_models or name != "client_state"])
    results = [t for t in checked if t.dtype.is_floating]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(t)) for t in results])
    counts = finite & (num_units > 0)
    flag = tf.cast(counts, tf.float32)

    def keep(new, old):
        """Chosen as a whole, by tf.cond: tf.where would copy what may be as large as the model."""
        chosen = tf.cond(counts, lambda: _identities(new), lambda: _identities(old()))
        return tf.nest.pack_sequence_as(new, chosen)

    def keep_or_zero(new):
        return keep(new, lambda: tf.nest.map_structure(lambda t: zeros(tf.shape(t), t.dtype), new))

    size = tf.cast(tf.size(units.rows), tf.float32) if training.weighting == "examples" else tf.constant(1.0)
    if chosen is not None:
        finite &= chosen["finite"]
    result = collections.OrderedDict(
        update=keep_or_zero(extra["update"]),
        weight=tf.where(counts, size * extra.get("factor", 1.0), 0.0),
        statistics=collections.OrderedDict(
            loss=tf.where(counts, loss_sum, 0.0),
            seen=tf.where(counts, seen, 0.0),
            steps=tf.cast(steps, tf.float32),
            counted=flag,
            non_finite=1.0 - tf.cast(finite, tf.float32),
        ),
    )
    if "upload" in extra:
        result["upload"] = keep_or_zero(extra["upload"])
    if "client_state" in extra:
        result["client_state"] = keep(extra["client_state"], lambda: client.client_state)
    return result


def private_seeds(seed: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A client's seed int32 [2] -> seeds of its steps' Poisson samples and of their noise, int32 [steps, 2] each."""
    # The first of three has numbers in common with what `stateless_fold_in` makes of the seed.
    _, *roots = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    samples, noise = (tf.random.experimental.stateless_split(root, steps) for root in roots)
    return samples, noise


def _identities(structure) -> list[tf.Tensor]:
    """Its tensors as results of a branch."""
    return [tf.identity(t) for t in tf.nest.flatten(structure)]
