"""The rule `rfa`: the geometric median by re-weighted means (RFA, Pillutla, Kakade and Harchaoui 2022)."""

from __future__ import annotations

import collections
from typing import Literal

import numpy as np
import tensorflow as tf
from attrs import field
from attrs.validators import and_, ge, le

from computations import federated as tff
from computations.aggregation_rules.registry import rule
from computations.aggregators.attention import AttentionFactory
from computations.aggregators.mean import mean
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.named import named_sum
from computations.ranges import POSITIVE, STEPS, options_class, require

NORMS = np.float32(2.0) ** np.arange(-40, 50.5, 0.5, dtype=np.float32)
"""From 10^-12 to 10^15, each 1.4 times the last: what the median of the norms is rounded up to."""


@options_class
class RfaOptions:
    """Attributes:
    rfa_steps: with `rfa`, how many re-weighted means follow the first.
    rfa_smoothing: with `rfa`, the least distance that is divided by, in units of an update's norm.
    rfa_start: with `rfa`, the first mean: of updates that count less the longer they are (`clipped`), or the paper's
      plain `mean`, which one far update moves by any amount.
    """

    rfa_steps: int = field(default=3, validator=and_(ge(1), le(100)))
    rfa_smoothing: float = field(default=1e-6, validator=POSITIVE)
    rfa_start: Literal["clipped", "mean"] = "clipped"


@rule(
    "rfa",
    title="the geometric median (RFA)",
    options=RfaOptions,
    not_secure="its weights can be as large as 1 / rfa_smoothing, but weights in secure sums must be between 0 and 1",
    largest_factor=lambda options: max(1.0, 1 / options.rfa_smoothing),
)
def rfa(options: RfaOptions) -> GeometricMedianFactory:
    """the geometric median by re-weighted means; clients count as `algorithm.weighting` says"""
    return GeometricMedianFactory(steps=options.rfa_steps, smoothing=options.rfa_smoothing, start=options.rfa_start)


class GeometricMedianFactory(tff.aggregators.WeightedAggregationFactory):
    """The geometric median by the smoothed Weiszfeld algorithm (RFA, Algorithm 2).

    Its result v makes sum_k w_k ||v - D_k|| smallest, D_k a client's update and w_k its weight: v_0, then v_{r+1} =
    sum_k b_k D_k / sum_k b_k with b_k = w_k / max(smoothing, ||v_r - D_k||), over the whole model.
    Each is a weighted mean, by `inner`, of weights that clients derive from the broadcast v_r: 1 + `steps` weighted
    means and `steps` broadcasts, no list of updates, memory that does not depend on the number of clients. The result
    does not depend on the clients' order, up to rounding. Where no client counts it is zero.

    Whether clients count by their examples or equally is the client work's choice (`weighting`), as with the mean: what
    has to stay below one half is the bad clients' share of the weights.

    Where v_0 comes from: the paper's implementations take the weighted mean (`start="mean"`). A client moves that by
    any amount, and a step shrinks the error that one bad client of ten makes only by 9 or so: after three steps an
    update scaled by a million still rules. `start="clipped"`, the default, takes b_k = w_k min(1, M / ||D_k||) with M
    the weighted median of the clients' norms, so that no client moves v_0 or any later v_r by more than some M, however
    large its update is. M comes from one sum of histograms (one norm of `NORMS` for each client) and goes out by one
    broadcast. v_0 = 0 would bound them as well, but Weiszfeld's steps do not leave a point where an update lies, and
    one client that sends zeros would stop the training.

    Measurements: those of `inner`'s last mean where they have names, and `robust/effective_clients`,
    (sum_k b_k)^2 / sum_k b_k^2 of the last step.
    """

    def __init__(
        self,
        inner: tff.aggregators.WeightedAggregationFactory | None = None,
        steps: int = 3,
        smoothing: float = 1e-6,
        start: Literal["clipped", "mean"] = "clipped",
    ):
        """Args:
          inner: the weighted mean; `mean()` by default. `AttentionFactory(weighted=True)`: w_k is a client's weight
            times exp(||D_k||), which needs clipped norms to be robust.
          steps: how many re-weighted means follow the first.
          smoothing: nu of the paper, above zero, in units of an update's norm.
          start: which mean is the first, see above.

        Raises:
          ValueError: for a value out of its range, or for attention that does not look at weights.
        """
        require(STEPS, steps=steps)
        require(POSITIVE, smoothing=smoothing)
        if start not in ("clipped", "mean"):
            raise ValueError(f"start must be 'clipped' or 'mean', got {start!r}")
        if isinstance(inner, AttentionFactory) and not inner.weighted:
            raise ValueError("the geometric median re-weights clients; use AttentionFactory(weighted=True)")
        self._inner, self._steps, self._smoothing, self._start = inner or mean(), steps, smoothing, start

    def with_sums(self, value_sum: tff.aggregators.UnweightedAggregationFactory) -> GeometricMedianFactory:
        """Return the same rule with this factory for the sums of its means.

        A client's distance from the median is sent in the clear.
        """
        return GeometricMedianFactory(self._inner.with_sums(value_sum), self._steps, self._smoothing, self._start)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor, and a scalar weight.

        Raises:
          CompositionError: the inner aggregator's result has not the updates' type.
        """
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        inner = self._inner.create(value_type, weight_type)
        middle_type = inner.next.type_signature.result.result.member
        if not middle_type.is_equivalent_to(value_type):
            raise CompositionError(
                f"geometric median: needs a weighted mean of the type {value_type} inside, got one of {middle_type}"
            )
        smoothing = self._smoothing

        @tff.tensorflow.computation(value_type, weight_type)
        def norm_histogram(value: Structure, weight: tf.Tensor) -> tf.Tensor:
            index = tf.searchsorted(NORMS, [_norm(value)])[0]
            return tf.cast(weight, tf.float32) * tf.one_hot(tf.minimum(index, len(NORMS) - 1), len(NORMS))

        @tff.tensorflow.computation(norm_histogram.type_signature.result)
        def median_norm(histogram: tf.Tensor) -> tf.Tensor:
            cumulative = tf.cumsum(histogram)
            return tf.gather(NORMS, tf.searchsorted(cumulative, cumulative[-1:] / 2)[0])

        @tff.tensorflow.computation(value_type, weight_type, np.float32)
        def clipped(value: Structure, weight: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
            factor = tf.minimum(1.0, tf.math.divide_no_nan(largest, _norm(value)))
            return weight * tf.cast(tf.where(_norm(value) > 0, factor, 1.0), weight.dtype)

        @tff.tensorflow.computation(value_type, weight_type, middle_type)
        def from_middle(value: Structure, weight: tf.Tensor, middle: Structure) -> tf.Tensor:
            distance = _norm(tf.nest.map_structure(tf.subtract, value, middle))
            return weight / tf.cast(tf.maximum(distance, smoothing), weight.dtype)

        @tff.tensorflow.computation(weight_type)
        def terms(weight: tf.Tensor) -> Structure:
            wide = tf.cast(weight, tf.float64)
            return collections.OrderedDict(weights=wide, squares_of_weights=tf.square(wide))

        @tff.tensorflow.computation(inner.next.type_signature.result.measurements.member, terms.type_signature.result)
        def measure(measured: Structure, sums: Structure) -> collections.OrderedDict[str, tf.Tensor]:
            effective = tf.math.divide_no_nan(tf.square(sums["weights"]), sums["squares_of_weights"])
            named = measured if isinstance(measured, dict) else {}
            return collections.OrderedDict(named, **{"robust/effective_clients": tf.cast(effective, np.float32)})

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            used = weight
            if self._start == "clipped":
                histogram = named_sum("histogram", tff.federated_map(norm_histogram, (value, weight)))
                largest = tff.federated_broadcast(tff.federated_map(median_norm, histogram))
                used = tff.federated_map(clipped, (value, weight, largest))
            output = inner.next(state, value, used)
            for _ in range(self._steps):
                used = tff.federated_map(from_middle, (value, weight, tff.federated_broadcast(output.result)))
                output = inner.next(output.state, value, used)
            sums = tff.federated_sum(tff.federated_map(terms, used))
            measured = tff.federated_map(measure, (output.measurements, sums))
            return tff.templates.MeasuredProcessOutput(output.state, output.result, measured)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


def _norm(value: Structure) -> tf.Tensor:
    """Return the norm over all tensors, a float32 scalar."""
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tf.cast(t, tf.float32))) for t in tf.nest.flatten(value)]))
