"""What is done to the clients' updates before any aggregator: screening, zeroing and clipping."""

from __future__ import annotations

import collections

import attrs
import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.named import named_sum
from computations.ranges import POSITIVE, SHARE, require

LARGEST = 1e15
"""The largest norm of an update and the largest weight that count. Squares, products with a weight, and their sums over
10^8 clients stay below the largest float32 then; no honest update comes near."""


@attrs.frozen(kw_only=True)
class AdaptiveNorm:
    """A norm that follows a quantile of the clients' norms over the rounds (Andrew et al. 2021, geometric updates).

    After every round it is multiplied by exp(-learning_rate * (share of norms at most as large - quantile)); f of K
    clients move that share by f/K. The estimate is state of the aggregator. Clients that send zeros count as small.

    Attributes:
      quantile: the share of the clients whose norm the estimate should reach.
      initial: the norm of the first round.
      learning_rate: of the updates.
      factor: the norm over the estimate.
    """

    quantile: float = attrs.field(default=0.8, validator=SHARE)
    initial: float = attrs.field(default=1.0, validator=POSITIVE)
    learning_rate: float = attrs.field(default=0.2, validator=POSITIVE)
    factor: float = attrs.field(default=1.0, validator=POSITIVE)

    def process(self) -> tff.templates.EstimationProcess:
        """Return TFF's process without noise, which gives no privacy."""
        estimation = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
            self.initial / self.factor, float(self.quantile), float(self.learning_rate)
        )
        factor = np.float32(self.factor)
        scale = tff.tensorflow.computation(lambda estimate: factor * estimate, np.float32)

        @tff.federated_computation(tff.FederatedType(np.float32, tff.SERVER))
        def scaled(estimate: Value) -> Value:
            return tff.federated_map(scale, estimate)

        return estimation.map(scaled)


def defended(
    inner: tff.aggregators.WeightedAggregationFactory,
    *,
    clip: float | AdaptiveNorm | None = None,
    zeroing: float | AdaptiveNorm | None = None,
    uniform: bool = False,
) -> tff.aggregators.WeightedAggregationFactory:
    """Return `inner` after screening, then zeroing, then clipping.

    It may be the mean, attention, a robust rule or any other aggregator.

    Screening: a client's update becomes zero and so does its weight where the update has a value that is not finite or
    a norm above `LARGEST`, or where the weight is not finite, negative or above `LARGEST`. The client work does so with
    honest clients; here it holds for whatever arrives.

    Measurements: those of `inner` where they have names, and `robust/screened`, how many clients were screened out;
    `robust/zeroed` and `robust/zeroing_norm`, `robust/clipped` and `robust/clipping_norm` where these are used.

    Args:
      inner: the aggregator.
      clip: updates with a larger L2 norm over the whole model are scaled to it (`tff.aggregators.clipping_factory`).
      zeroing: updates with a value above it in size become zero (`tff.aggregators.zeroing_factory`). Their weight
        stays, as in TFF: the mean moves towards zero.
      uniform: every client of a weight above zero counts one, so that a client cannot claim many examples.

    Raises:
      ValueError: for a norm that is not above zero.
      CompositionError: by `create`, for clipping or zeroing of integers.
    """
    return _DefendedFactory(inner, clip, zeroing, uniform)


class _DefendedFactory(tff.aggregators.WeightedAggregationFactory):
    def __init__(
        self,
        inner: tff.aggregators.WeightedAggregationFactory,
        clip: float | AdaptiveNorm | None,
        zeroing: float | AdaptiveNorm | None,
        uniform: bool,
    ):
        for name, norm in (("clip", clip), ("zeroing", zeroing)):
            if isinstance(norm, int | float):
                require(POSITIVE, **{name: norm})
        self._inner, self._clip, self._zeroing, self._uniform = inner, clip, zeroing, uniform

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        process = self._chain(value_type, weight_type)
        uniform = self._uniform

        @tff.tensorflow.computation(value_type, weight_type)
        def screen(value: Structure, weight: tf.Tensor) -> Structure:
            passes = sound(value, weight)
            safe = tf.nest.map_structure(lambda t: tf.where(passes, t, tf.zeros_like(t)), value)
            counted = tf.cast(weight > 0, weight.dtype) if uniform else weight
            return safe, tf.where(passes, counted, tf.zeros_like(weight)), 1.0 - tf.cast(passes, tf.float32)

        names = self._names()

        @tff.tensorflow.computation(process.next.type_signature.result.measurements.member, np.float32)
        def measure(measured: Structure, screened: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
            flat = collections.OrderedDict()
            for prefix in names:
                flat[f"robust/{prefix}ed"] = tf.cast(measured[f"{prefix}ed_count"], tf.float32)
                flat[f"robust/{prefix}ing_norm"] = measured[f"{prefix}ing_norm"]
                measured = measured[f"{prefix}ing"]
            named = measured if isinstance(measured, dict) else {}
            return collections.OrderedDict(named, **{"robust/screened": screened}, **flat)

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            screened = tff.federated_map(screen, (value, weight))
            output = process.next(state, screened[0], screened[1])
            measured = tff.federated_map(measure, (output.measurements, named_sum("screened", screened[2])))
            return tff.templates.MeasuredProcessOutput(output.state, output.result, measured)

        return tff.templates.AggregationProcess(process.initialize, next_fn)

    def _names(self) -> list[str]:
        """Return TFF's prefixes of measurements, from the outside in."""
        return [prefix for prefix, norm in (("zero", self._zeroing), ("clipp", self._clip)) if norm is not None]

    def _chain(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        tensors = value_type if isinstance(value_type, tff.StructType) else [value_type]
        kinds = {np.dtype(t.dtype).kind for t in tff.structure.flatten(tff.types.to_type(list(tensors)))}
        if self._names() and kinds != {"f"}:
            raise CompositionError(f"clip and zeroing need updates of floating-point numbers, got {value_type}")
        factory = self._inner
        if self._clip is not None:
            factory = tff.aggregators.clipping_factory(_norm(self._clip), factory)
        if self._zeroing is not None:
            factory = tff.aggregators.zeroing_factory(_norm(self._zeroing), factory)
        return factory.create(value_type, weight_type)


def _norm(norm: float | AdaptiveNorm) -> tff.templates.EstimationProcess | float:
    return norm.process() if isinstance(norm, AdaptiveNorm) else float(norm)


def sound(value: Structure, weight: tf.Tensor) -> tf.Tensor:
    """Return whether an update and its weight may count (see `defended`), a boolean scalar."""
    floats = [tf.cast(t, tf.float32) for t in tf.nest.flatten(value) if t.dtype.is_floating]
    squares = [tf.reduce_sum(tf.square(t / LARGEST)) for t in floats]
    # Comparisons with NaN are false.
    return tf.reduce_all([*(s <= 1 for s in [tf.add_n(squares)] if squares), weight >= 0, weight <= LARGEST])
