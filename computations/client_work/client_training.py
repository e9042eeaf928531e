"""One client's local training as TensorFlow: shuffled batches or private samples, an objective and an optimizer.

Weights and moments are kept in variables and updated by fused kernels, and the batch step is a function of its own;
both matter for speed (see docs/performance.md). Batches and random layers are drawn only from the client's seed, so
that methods compared on one seed see the same batches and a resumed run sees those that it would have seen.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import attrs
import tensorflow as tf
from attrs.validators import in_, optional

from computations import federated as tff
from computations.client_work.client_updates import NormalisedDifference, Predictions
from computations.client_work.global_outputs import GlobalOutputs, global_outputs, of_batch
from computations.client_work.objectives import Batch, Client, Objective
from computations.client_work.optimizers import Apply, ClientOptimizer
from computations.client_work.units import Units, units_of
from computations.federated.values import Structure
from computations.local_model import GROUP, TRIPLE, LocalModel, assign_weights, features_of, zero_initialisers, zeros
from computations.privacy.example_gradients import (
    ExamplePrivacy,
    fits_side_by_side,
    noised_mean,
    sum_one_by_one,
    sum_side_by_side,
)
from computations.randomness import step_seed
from computations.ranges import NOT_NEGATIVE, POSITIVE, STEPS

Weighting = Literal["examples", "uniform"]
"""How a client counts, see `LocalTraining`."""

Body = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Structure], tuple[tf.Tensor, tf.Tensor, tf.Tensor, Structure]]
"""Of the loop over steps: (index, sum of the losses, units seen, what the objective remembers) -> the next ones."""


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
        after clipping and noise.
      schedule: round (int32 scalar) -> factor on the learning rate; None: constant.
      example_privacy: differentially private SGD. A batch is then a Poisson sample: each of the client's n units is in
        it with probability min(batch_size / n, 1), drawn anew in every step from the client's seed; there are as many
        steps as without. None: none.
    """

    local_epochs: int = attrs.field(default=1, validator=STEPS)
    local_steps: int | None = attrs.field(default=None, validator=optional(STEPS))
    batch_size: int = attrs.field(default=10, validator=STEPS)
    weighting: Weighting = attrs.field(default="examples", validator=in_(("examples", "uniform")))
    max_gradient_norm: float | None = attrs.field(default=None, validator=optional(POSITIVE))
    weight_decay: float = attrs.field(default=0.0, validator=NOT_NEGATIVE)
    schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
    example_privacy: ExamplePrivacy | None = None


def train_client(
    local_model: LocalModel,
    objective: Objective,
    optimizer: ClientOptimizer,
    training: LocalTraining,
    arguments: Mapping[str, Structure],
    client_update: Predictions | NormalisedDifference | None = None,
    own_models: bool = False,
) -> collections.OrderedDict[str, Structure]:
    """Return the result of one client's local training (see `build_local_training`).

    Args:
      arguments: `weights` (ModelWeights), `server` (`round`, and `shared` for the objective), `client` (`examples`,
        `seed`), and `client_state`, `server_examples` and `chosen` where the work has them; the rest as there.

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
    selected = None if chosen is None else chosen["selected"]
    units = units_of(client.examples, by=unit_array(objective, training.example_privacy), selected=selected)
    steps_of_client = _Steps(client, objective, training, units, apply)

    @tf.function(autograph=False)
    def run() -> tuple[Structure, tf.Tensor, tf.Tensor, tf.Tensor]:
        assign_weights(model, weights)
        prepared = objective.prepare(client)
        steps, loss_sum, seen, remembered = steps_of_client.take(prepared, global_outputs(client))
        result = collections.OrderedDict()
        if objective.side_channel is not None:
            result["upload"] = objective.upload(client, prepared, steps)
        if "client_state" in arguments and not own_models:
            extra = [remembered] if objective.remembers else []
            result["client_state"] = objective.next_client_state(client, prepared, steps, *extra)
        if client_update is not None:
            examples = arguments.get("server_examples", ())
            result["update"], result["factor"] = client_update.compute(client, examples, steps)
        return result, steps, loss_sum, seen

    outcome, steps, loss_sum, seen = run()
    # Read after the training: in a graph its function call adds no control dependency by itself.
    with tf.control_dependencies([steps, loss_sum]):
        if client_update is None:
            pairs = zip(model.trainable_variables, client.global_weights, strict=True)
            outcome["update"] = [start - variable.read_value() for variable, start in pairs]
        if own_models:
            groups = (model.trainable_variables, model.non_trainable_variables)
            local = ([variable.read_value() for variable in group] for group in groups)
            outcome["client_state"] = tff.learning.models.ModelWeights(*local)
    checked = [loss_sum, *tf.nest.flatten(outcome)]
    if training.example_privacy is not None:
        # The loss and what stays at the client are made of its examples without noise, and one of them alone must not
        # decide whether the client counts; a sum of finite losses may overflow.
        checked = tf.nest.flatten([v for name, v in outcome.items() if own_models or name != "client_state"])
    size = tf.cast(tf.size(units.rows), tf.float32) if training.weighting == "examples" else tf.constant(1.0)
    totals = collections.OrderedDict(loss=loss_sum, seen=seen, steps=tf.cast(steps, tf.float32))
    return _result(outcome, checked, totals, size, units, chosen, client.client_state)


def _result(
    outcome: Mapping[str, Structure],
    checked: Sequence[tf.Tensor],
    totals: Mapping[str, tf.Tensor],
    size: tf.Tensor,
    units: Units,
    chosen: Structure,
    old_state: Structure,
) -> collections.OrderedDict[str, Structure]:
    """Return the output of `train_client`.

    A client that does not count gets zeros and its old state.
    """
    results = [t for t in checked if t.dtype.is_floating]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(t)) for t in results])
    counts = finite & (units.number > 0)

    def keep(new: Structure, old: Callable[[], Structure]) -> Structure:
        """Choose between whole structures with tf.cond.

        tf.where would copy values that may be as large as the model.
        """
        selected = tf.cond(counts, lambda: _identities(new), lambda: _identities(old()))
        return tf.nest.pack_sequence_as(new, selected)

    def keep_or_zero(new: Structure) -> Structure:
        return keep(new, lambda: tf.nest.map_structure(lambda t: zeros(tf.shape(t), t.dtype), new))

    if chosen is not None:
        finite &= chosen["finite"]
    result = collections.OrderedDict(
        update=keep_or_zero(outcome["update"]),
        weight=tf.where(counts, size * outcome.get("factor", 1.0), 0.0),
        statistics=collections.OrderedDict(
            loss=tf.where(counts, totals["loss"], 0.0),
            seen=tf.where(counts, totals["seen"], 0.0),
            steps=totals["steps"],
            counted=tf.cast(counts, tf.float32),
            non_finite=1.0 - tf.cast(finite, tf.float32),
        ),
    )
    if "upload" in outcome:
        result["upload"] = keep_or_zero(outcome["upload"])
    if "client_state" in outcome:
        result["client_state"] = keep(outcome["client_state"], lambda: old_state)
    return result


def _identities(structure: Structure) -> list[tf.Tensor]:
    """Return identities of the tensors, as results of a branch."""
    return [tf.identity(t) for t in tf.nest.flatten(structure)]


@dataclass(frozen=True, eq=False)
class _Steps:
    """The steps of one client.

    Attributes:
      client, objective, training: see `train_client`.
      units: what batches consist of.
      apply: the optimizer's update of the model's variables in place.
    """

    client: Client
    objective: Objective
    training: LocalTraining
    units: Units
    apply: Apply

    def take(self, prepared: Any, of_global: GlobalOutputs) -> tuple[tf.Tensor, ...]:
        """Return the loop's body over Poisson samples of units, with noise on the sum of clipped gradients."""
        batch_size, num_units = self.training.batch_size, self.units.number
        steps_per_epoch = tf.maximum((num_units + batch_size - 1) // batch_size, 1)
        steps = self.training.local_steps or self.training.local_epochs * steps_per_epoch
        steps = tf.where(num_units > 0, steps, 0)
        privacy = self.training.example_privacy
        if privacy is None:
            body = self._shuffled(steps, steps_per_epoch, prepared, of_global)
        else:
            body = self._sampled(privacy, steps, prepared, of_global)
        remembered = self.objective.remembered(self.client) if self.objective.remembers else ()
        start = tf.constant(0), tf.constant(0.0), tf.constant(0.0), remembered
        ended = tf.while_loop(lambda index, *_: index < steps, body, start, maximum_iterations=steps)
        return steps, *ended[1:]

    def _shuffled(self, steps: tf.Tensor, steps_per_epoch: tf.Tensor, prepared: Any, of_global: GlobalOutputs) -> Body:
        """Return the loop's body over batches of shuffled units.

        Every pass shuffles them again.
        """
        seed, batch_size = self.client.seed, self.training.batch_size
        epochs = (steps + steps_per_epoch - 1) // steps_per_epoch
        keys = tf.random.stateless_uniform([epochs, self.units.number], seed, None, None, tf.int32)
        order = tf.argsort(keys, axis=-1, stable=True)

        @tf.function(reduce_retracing=True, autograph=False)
        def step(
            rows: tf.Tensor,
            bags: tf.Tensor | None,
            seed: tf.Tensor,
            prepared: Any,
            of_global: GlobalOutputs,
            remembered: Any,
        ) -> tuple[tf.Tensor, Structure]:
            variables = self.client.model.trainable_variables
            with tf.GradientTape() as tape:
                loss, batch = self._loss(rows, bags, seed, prepared, of_global)
            gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            self._descend(gradients, prepared)
            if self.objective.remembers:
                remembered = self.objective.remember(self.client, remembered, batch)
            return loss, remembered

        def body(
            index: tf.Tensor, loss_sum: tf.Tensor, seen: tf.Tensor, remembered: Any
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Structure]:
            start = (index % steps_per_epoch) * batch_size
            drawn = order[index // steps_per_epoch, start : start + batch_size]
            rows, bags = self.units.batch(drawn)
            step_seed = tf.random.experimental.stateless_fold_in(seed, index + 1)
            loss, remembered = step(rows, bags, step_seed, prepared, of_global, remembered)
            size = tf.cast(tf.size(drawn), tf.float32)
            return index + 1, loss_sum + loss * size, seen + size, remembered

        return body

    def _sampled(self, privacy: ExamplePrivacy, steps: tf.Tensor, prepared: Any, of_global: GlobalOutputs) -> Body:
        """Return the loop's body over Poisson samples of units, with noise on the sum of clipped gradients."""
        batch_size, num_units = self.training.batch_size, self.units.number
        # Of 64 bits each, so that no two steps of a long run have the same noise; `stateless_fold_in` has 32.
        of_samples, of_noise = private_seeds(self.client.seed, steps)
        expected = tf.cast(tf.minimum(num_units, batch_size), tf.float32)
        share = expected / tf.cast(num_units, tf.float32)

        @tf.function(reduce_retracing=True, autograph=False)
        def step(
            drawn: tf.Tensor,
            seed: tf.Tensor,
            noise_seed: tf.Tensor,
            expected: tf.Tensor,
            prepared: Any,
            of_global: GlobalOutputs,
        ) -> tuple[tf.Tensor, tf.Tensor]:
            """Return (sum of the units' losses, their number) of one step.

            `units` is int32 [b], and b may be 0.
            """

            def loss(unit: tf.Tensor) -> tf.Tensor:
                rows, bags = self.units.batch(unit[tf.newaxis])
                unit_seed = tf.random.experimental.stateless_fold_in(seed, unit)
                return self._loss(rows, bags if self.objective.of_bags else None, unit_seed, prepared, of_global)[0]

            variables = self.client.model.trainable_variables
            one_shape = privacy.unit == "example" and self.client.local_model.rows is None
            side_by_side = one_shape and fits_side_by_side(variables, batch_size)
            add_up = sum_side_by_side if side_by_side else sum_one_by_one
            sums, loss_sum, number = add_up(loss, variables, drawn, privacy.clip)
            self._descend(noised_mean(sums, privacy, noise_seed, expected), prepared)
            return loss_sum, number

        def body(
            index: tf.Tensor, loss_sum: tf.Tensor, seen: tf.Tensor, remembered: Any
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Structure]:
            drawn = tf.where(tf.random.stateless_uniform([num_units], of_samples[index]) < share)[:, 0]
            seed = tf.random.experimental.stateless_fold_in(self.client.seed, index + 1)
            loss, number = step(tf.cast(drawn, tf.int32), seed, of_noise[index], expected, prepared, of_global)
            return index + 1, loss_sum + loss, seen + number, remembered

        return body

    def _loss(
        self, rows: tf.Tensor, bags: tf.Tensor | None, seed: tf.Tensor, prepared: Any, of_global: GlobalOutputs
    ) -> tuple[tf.Tensor, Batch]:
        examples = {name: tf.gather(array, rows) for name, array in self.client.examples.items()}
        features, labels = features_of(examples), self.client.local_model.labels_of(examples)
        with step_seed(seed):
            outputs = self.client.model(features, training=True)
            outputs = {**outputs, **of_batch(self.client, of_global, rows)} if of_global else outputs
            batch = Batch(features, labels, outputs, rows, bags)
            return self.objective.loss(self.client, prepared, batch), batch

    def _descend(self, gradients: Sequence[Any], prepared: Any) -> None:
        """Take one step of the optimizer."""
        gradients = self.objective.adjust_gradients(self.client, prepared, gradients)
        if self.training.max_gradient_norm is not None:
            # Dense, because the rows of a word that occurs twice have to be added up before their norm is taken.
            dense = [tf.convert_to_tensor(g) for g in gradients]
            gradients, _ = tf.clip_by_global_norm(dense, self.training.max_gradient_norm)
        if self.training.weight_decay:
            decay, variables = self.training.weight_decay, self.client.model.trainable_variables
            gradients = [tf.convert_to_tensor(g) + decay * v for g, v in zip(gradients, variables, strict=True)]
        self.apply(gradients, self.client.global_weights, self.client.rate)


def unit_array(objective: Objective, privacy: ExamplePrivacy | None) -> str | None:
    """Return the name of the array whose numbers group examples into units, or None if each example is a unit."""
    if objective.of_bags:
        return TRIPLE
    return GROUP if privacy is not None and privacy.unit == "group" else None


def private_seeds(seed: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (a client's seed int32 [2]) -> seeds of its steps' Poisson samples and noise, int32 [steps, 2] each."""
    # The first of three has numbers in common with what `stateless_fold_in` makes of the seed.
    _, *roots = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    samples, noise = (tf.random.experimental.stateless_split(root, steps) for root in roots)
    return samples, noise
