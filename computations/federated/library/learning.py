"""The weights of a model, how they are sent to clients, and how the server updates them."""

from __future__ import annotations

import collections
import typing
from collections.abc import Callable
from types import SimpleNamespace

import tensorflow as tf

from computations.federated import core as tff
from computations.federated.library import optimizers
from computations.federated.library.optimizers import Optimizer
from computations.federated.library.templates import (
    MeasuredProcess,
    MeasuredProcessOutput,
    TemplateError,
    check_placements,
)
from computations.federated.values import Structure, Value


class ModelWeights(typing.NamedTuple):
    """The values of a model's variables."""

    trainable: typing.Any
    non_trainable: typing.Any

    @classmethod
    def from_model(cls, model: tf.keras.Model) -> ModelWeights:
        """Return the variables of a Keras model."""
        return cls(model.trainable_variables, model.non_trainable_variables)

    def assign_weights_to(self, model: tf.keras.Model) -> None:
        """Set the variables of a Keras model."""
        variables = [*model.trainable_weights, *model.non_trainable_weights]
        for variable, value in zip(variables, [*self.trainable, *self.non_trainable], strict=True):
            variable.assign(value)


class DistributionProcess(MeasuredProcess):
    """`next: <S@SERVER, V@SERVER>`, whose result is at the clients."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation):
        super().__init__(initialize_fn, next_fn)
        check_placements(next_fn, (tff.SERVER, tff.SERVER), tff.CLIENTS)


class FinalizerProcess(MeasuredProcess):
    """A process `next: <S@SERVER, W@SERVER, U@SERVER>`, whose result is the next weights, of type W."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation):
        super().__init__(initialize_fn, next_fn)
        check_placements(next_fn, (tff.SERVER, tff.SERVER, tff.SERVER), tff.SERVER)
        weights, result = next_fn.type_signature.parameter[1], next_fn.type_signature.result.result
        if not weights.member.is_assignable_from(result.member):
            raise TemplateError(f"`next_fn` takes weights {weights.member}, but gives {result.member}")


def build_broadcast_process(value_type: tff.Type) -> DistributionProcess:
    """Return the distribution that sends the value unchanged."""
    initialize = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

    @tff.federated_computation(initialize.type_signature.result, tff.FederatedType(value_type, tff.SERVER))
    def next_fn(state: Value, value: Value) -> MeasuredProcessOutput:
        return MeasuredProcessOutput(state, tff.federated_broadcast(value), tff.federated_value((), tff.SERVER))

    return DistributionProcess(initialize, next_fn)


def reject_non_finite_update(state: Structure, update: Structure) -> tuple[tf.Tensor, collections.OrderedDict]:
    """Return whether a number of the update is not finite, and the same as a measurement of 0 or 1."""
    finite = [tf.reduce_all(tf.math.is_finite(part)) for part in tf.nest.flatten(update)]
    rejected = tf.logical_not(tf.reduce_all(finite)) if finite else tf.constant(False)
    return rejected, collections.OrderedDict(update_non_finite=tf.cast(rejected, tf.int32))


def build_apply_optimizer_finalizer(
    optimizer: Optimizer, model_weights_type: tff.StructType, should_reject_update: Callable = reject_non_finite_update
) -> FinalizerProcess:
    """Return the finalizer in which the optimizer uses the aggregated update as a gradient.

    A rejected update leaves weights and optimizer as they were.
    """
    if (
        not isinstance(model_weights_type, tff.StructWithPythonType)
        or model_weights_type.python_container is not ModelWeights
    ):
        raise TypeError(f"the weights of a model are of a type of ModelWeights, not {model_weights_type}")
    trainable_type = model_weights_type.trainable
    initial_state = tff.tensorflow.computation(lambda: optimizer.initialize(tff.type_to_tf_structure(trainable_type)))
    state_type = initial_state.type_signature.result

    @tff.tensorflow.computation(state_type, trainable_type, trainable_type)
    @tf.function
    def step(
        optimizer_state: Structure, weights: Structure, update: Structure
    ) -> tuple[Structure, Structure, Structure]:
        new_state, new_weights = optimizer.next(optimizer_state, weights, update)
        rejected, measurements = should_reject_update(new_state, update)
        if rejected:
            return optimizer_state, weights, measurements
        return new_state, new_weights, measurements

    initialize = tff.federated_computation(lambda: tff.federated_eval(initial_state, tff.SERVER))

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(model_weights_type, tff.SERVER),
        tff.FederatedType(trainable_type, tff.SERVER),
    )
    def next_fn(state: Value, weights: Value, update: Value) -> MeasuredProcessOutput:
        new_state, trainable, measurements = tff.federated_map(step, (state, weights.trainable, update))
        new_weights = tff.federated_zip(ModelWeights(trainable, weights.non_trainable))
        return MeasuredProcessOutput(new_state, new_weights, measurements)

    return FinalizerProcess(initialize, next_fn)


models = SimpleNamespace(ModelWeights=ModelWeights)
templates = SimpleNamespace(
    DistributionProcess=DistributionProcess,
    FinalizerProcess=FinalizerProcess,
    build_apply_optimizer_finalizer=build_apply_optimizer_finalizer,
    build_broadcast_process=build_broadcast_process,
    reject_non_finite_update=reject_non_finite_update,
)
__all__ = ["models", "optimizers", "templates"]
