# ruff: noqa: F401  (the names are in __all__)
"""Sums and means over clients, and clipping and zeroing of large values before them."""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from computations.federated import core as tff
from computations.federated.library.quantile import PrivateQuantileEstimationProcess
from computations.federated.library.templates import AggregationProcess, EstimationProcess, MeasuredProcessOutput
from computations.federated.values import Structure, Value

__all__ = [
    *("MeanFactory", "PrivateQuantileEstimationProcess", "SumFactory", "UnweightedAggregationFactory"),
    *("WeightedAggregationFactory", "clipping_factory", "zeroing_factory"),
]


class UnweightedAggregationFactory(abc.ABC):
    """Makes aggregation processes of values."""

    @abc.abstractmethod
    def create(self, value_type: tff.Type) -> AggregationProcess:
        """Return the process for values of a type."""


class WeightedAggregationFactory(abc.ABC):
    """Makes aggregation processes of values with weights."""

    @abc.abstractmethod
    def create(self, value_type: tff.Type, weight_type: tff.Type) -> AggregationProcess:
        """Return the process for values and weights of two types."""


Factory: TypeAlias = UnweightedAggregationFactory | WeightedAggregationFactory


def _at_clients(type_spec: tff.Type) -> tff.FederatedType:
    return tff.FederatedType(type_spec, tff.CLIENTS)


def _check_floats(value_type: tff.Type) -> None:
    def floats(part: tff.Type) -> bool:
        return isinstance(part, tff.StructType) or (
            isinstance(part, tff.TensorType) and np.issubdtype(part.dtype, np.floating)
        )

    if not tff.types.contains_only(value_type, floats):
        raise TypeError(f"all values are floating-point numbers, not {value_type}")


class SumFactory(UnweightedAggregationFactory):
    """The sum over clients."""

    def create(self, value_type: tff.Type) -> AggregationProcess:
        initialize = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(initialize.type_signature.result, _at_clients(value_type))
        def next_fn(state: Value, value: Value) -> MeasuredProcessOutput:
            return MeasuredProcessOutput(state, tff.federated_sum(value), tff.federated_value((), tff.SERVER))

        return AggregationProcess(initialize, next_fn)


class MeanFactory(WeightedAggregationFactory):
    """The weighted mean over clients.

    Args:
      value_sum_factory, weight_sum_factory: make the two sums; `SumFactory()` by default.
      no_nan_division: whether the mean is zero where the weights add up to zero.
    """

    def __init__(
        self,
        value_sum_factory: UnweightedAggregationFactory | None = None,
        weight_sum_factory: UnweightedAggregationFactory | None = None,
        no_nan_division: bool = False,
    ):
        self._value_sum = value_sum_factory or SumFactory()
        self._weight_sum = weight_sum_factory or SumFactory()
        self._divide = tf.math.divide_no_nan if no_nan_division else tf.math.divide

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> AggregationProcess:
        _check_floats(value_type)
        value_sum, weight_sum = self._value_sum.create(value_type), self._weight_sum.create(weight_type)

        @tff.federated_computation
        def initialize() -> Value:
            state = collections.OrderedDict(
                value_sum_process=value_sum.initialize(), weight_sum_process=weight_sum.initialize()
            )
            return tff.federated_zip(state)

        @tff.tensorflow.computation
        def multiply(value: Structure, weight: tf.Tensor) -> Structure:
            return tf.nest.map_structure(lambda x: x * tf.cast(weight, x.dtype), value)

        @tff.tensorflow.computation
        def divide(value: Structure, weight: tf.Tensor) -> Structure:
            return tf.nest.map_structure(lambda x: self._divide(x, tf.cast(weight, x.dtype)), value)

        @tff.federated_computation(initialize.type_signature.result, _at_clients(value_type), _at_clients(weight_type))
        def next_fn(state: Value, value: Value, weight: Value) -> MeasuredProcessOutput:
            weighted = tff.federated_map(multiply, (value, weight))
            values = value_sum.next(state["value_sum_process"], weighted)
            weights = weight_sum.next(state["weight_sum_process"], weight)
            state = collections.OrderedDict(value_sum_process=values.state, weight_sum_process=weights.state)
            measured = collections.OrderedDict(mean_value=values.measurements, mean_weight=weights.measurements)
            mean = tff.federated_map(divide, (values.result, weights.result))
            return MeasuredProcessOutput(tff.federated_zip(state), mean, tff.federated_zip(measured))

        return AggregationProcess(initialize, next_fn)


def clipping_factory(clipping_norm: float | EstimationProcess, inner_agg_factory: Factory) -> Factory:
    """Return the factory with each client's value scaled to an L2 norm of at most `clipping_norm`."""

    def clip(value: Structure, bound: tf.Tensor) -> tuple[Structure, tf.Tensor, tf.Tensor]:
        clipped, norm = _clip_by_global_norm(value, bound)
        return clipped, norm, tf.cast(norm > bound, tf.int32)

    return _bounded(clipping_norm, inner_agg_factory, clip, ("clipping", "clipping_norm", "clipped_count"))


def zeroing_factory(zeroing_norm: float | EstimationProcess, inner_agg_factory: Factory) -> Factory:
    """Return the factory that zeroes a client's value if one of its numbers is larger in size than `zeroing_norm`."""

    def zero(value: Structure, bound: tf.Tensor) -> tuple[Structure, tf.Tensor, tf.Tensor]:
        norms = [tf.cast(tf.norm(part, ord=np.inf), tf.float32) for part in tf.nest.flatten(value)]
        norm = tf.reduce_max(tf.stack(norms))
        too_large = norm > bound
        zeroed = tf.cond(too_large, lambda: tf.nest.map_structure(tf.zeros_like, value), lambda: value)
        return zeroed, norm, tf.cast(too_large, tf.int32)

    return _bounded(zeroing_norm, inner_agg_factory, zero, ("zeroing", "zeroing_norm", "zeroed_count"))


def _clip_by_global_norm(value: Structure, bound: tf.Tensor) -> tuple[Structure, tf.Tensor]:
    """Return the clipped value and its norm before.

    The division is TFF's, so that digits agree.
    """
    squares = [tf.cast(tf.norm(part, ord=2) ** 2, tf.float32) for part in tf.nest.flatten(value)]
    norm = tf.math.sqrt(tf.reduce_sum(tf.stack(squares)))

    def scaled() -> Structure:
        return tf.nest.map_structure(lambda x: x / tf.cast(norm / bound, x.dtype), value)

    return tf.cond(norm > bound, scaled, lambda: value), norm


def _constant(value: float) -> EstimationProcess:
    """Return the process whose estimate is always the same."""
    initialize = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))
    state_type = initialize.type_signature.result
    next_fn = tff.federated_computation(lambda state, norm: state, state_type, _at_clients(np.float32))
    report = tff.federated_computation(lambda state: tff.federated_value(value, tff.SERVER), state_type)
    return EstimationProcess(initialize, next_fn, report)


def _bounded(
    bound: float | EstimationProcess, inner_factory: Any, change: Callable, names: tuple[str, str, str]
) -> Factory:
    """Return the factory that changes each client's value if its norm exceeds a bound.

    Args:
      bound: a number, or a process that estimates it from the clients' norms.
      inner_factory: aggregates the changed values; a `Factory`.
      change: (value, bound) -> (changed value, norm, 1 if it was changed else 0).
      names: of the inner aggregator's measurements, of the bound, and of the number of values that were changed.
    """
    estimation = _constant(bound) if isinstance(bound, float) else bound
    counting = SumFactory().create(tff.types.to_type(np.int32))
    inner_name, bound_name, count_name = names

    def create(inner: AggregationProcess, *types: tff.Type) -> AggregationProcess:
        _check_floats(types[0])
        changed = tff.tensorflow.computation(change, types[0], np.float32)

        @tff.federated_computation
        def initialize() -> Value:
            state = {bound_name: estimation.initialize(), "inner_agg": inner.initialize()}
            state[f"{count_name}_agg"] = counting.initialize()
            return tff.federated_zip(collections.OrderedDict(state))

        def advance(state: Value, value: Value, *weight: Value) -> MeasuredProcessOutput:
            bound_state, inner_state, count_state = state
            reported = estimation.report(bound_state)
            result, norm, was_changed = tff.federated_map(changed, (value, tff.federated_broadcast(reported)))
            new_bound = estimation.next(bound_state, norm)
            inner_output, count = inner.next(inner_state, result, *weight), counting.next(count_state, was_changed)
            new_state = {bound_name: new_bound, "inner_agg": inner_output.state, f"{count_name}_agg": count.state}
            measured = {inner_name: inner_output.measurements, bound_name: reported, count_name: count.result}
            return MeasuredProcessOutput(
                tff.federated_zip(collections.OrderedDict(new_state)),
                inner_output.result,
                tff.federated_zip(collections.OrderedDict(measured)),
            )

        def weighted(state: Value, value: Value, weight: Value) -> MeasuredProcessOutput:
            return advance(state, value, weight)

        def unweighted(state: Value, value: Value) -> MeasuredProcessOutput:
            return advance(state, value)

        next_fn = tff.federated_computation(
            weighted if len(types) == 2 else unweighted, initialize.type_signature.result, *map(_at_clients, types)
        )
        return AggregationProcess(initialize, next_fn)

    class Weighted(WeightedAggregationFactory):
        def create(self, value_type: tff.Type, weight_type: tff.Type) -> AggregationProcess:
            return create(inner_factory.create(value_type, weight_type), value_type, weight_type)

    class Unweighted(UnweightedAggregationFactory):
        def create(self, value_type: tff.Type) -> AggregationProcess:
            return create(inner_factory.create(value_type), value_type)

    return Weighted() if isinstance(inner_factory, WeightedAggregationFactory) else Unweighted()
