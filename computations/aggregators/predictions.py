"""The ensemble of the clients' predictions (FedED, Sui et al. 2020, Eq. 5).

Only the median collects them.
"""

from __future__ import annotations

import collections
from typing import Literal

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregators.collected import collected_median
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.named import named_sum


class PredictionsFactory(tff.aggregators.WeightedAggregationFactory):
    """The weighted mean of logits or of votes.

    Takes of every client its logits on the server's N examples, float32 or float16 [N, C], or its labels for them, an
    integer [N], and a weight. Gives <logits=float32[N,C], weight=float32>: the mean of the logits, or the logarithm of
    each class's share of the votes (a class without a vote has the share `NO_VOTES`); and the sum of the weights, zero
    where no client counts.

    float32 logits go through an inner sum, so that private and secure sums compose with them. Smaller forms travel as
    they are and are converted to float32 in the sum.

    With `combine="median"` the logits are the median over the clients of every coordinate, of float32 or float16 logits
    alike: less than half of the clients cannot move one out of the range of the others' values. The server collects
    the predictions for it (K x N x C numbers), and a weight says only whether a client counts. Its limit: inside of
    that range bad clients move it as they like, and the range is wide where clients disagree. Votes need none, because
    a client has one vote.
    """

    NO_VOTES = 1e-6
    not_private = (
        "FedED's clients send predictions on the server's examples, and their mean has no noise; to protect them, a "
        "client's predictions need a common bound and their sum needs noise"
    )

    def __init__(
        self,
        num_classes: int,
        inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        combine: Literal["mean", "median"] = "mean",
    ):
        """Args:
          num_classes: C.
          inner_sum: makes the sum of float32 logits; tff.aggregators.SumFactory() by default.
          weight_sum: beside it, makes the sum of the weights, and keeps nothing from round to round.
          combine: of the clients' logits, see above; `median` is without an inner sum.

        Raises:
          ValueError: for another `combine`, or an inner sum with a median.
        """
        if combine not in ("mean", "median"):
            raise ValueError(f"combine must be 'mean' or 'median', got {combine!r}")
        if combine == "median" and inner_sum is not None:
            raise ValueError("inner_sum cannot be used with a median")
        self._num_classes, self._inner_sum, self._weight_sum = num_classes, inner_sum, weight_sum
        self._combine = combine

    def with_sums(
        self,
        value_sum: tff.aggregators.UnweightedAggregationFactory,
        weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    ) -> PredictionsFactory:
        """Return the same factory with these sums.

        Raises CompositionError for a median, which has no sums.
        """
        if self._combine == "median":
            raise CompositionError("the median of predictions does not use sums; set algorithm.ensemble to 'mean'")
        return PredictionsFactory(self._num_classes, value_sum, weight_sum)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over such predictions.

        Raises:
          CompositionError: for values of another type, an inner sum for a form that does not go through it, or a median
            of votes.
        """
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        votes = self._are_votes(value_type)
        num_examples = value_type.shape[0]
        sums_type = tff.TensorType(np.float32, [num_examples, self._num_classes])
        if self._combine == "median":
            if votes:
                raise CompositionError("predictions: a median needs logits, but the clients send labels")
            return _median(value_type, weight_type, sums_type)
        if value_type.dtype.type == np.float32:
            return self._through_sum(value_type, weight_type, sums_type)
        if self._inner_sum is not None:
            raise CompositionError(
                f"predictions: an inner sum takes float32 logits, got {value_type}; set algorithm.uploads = 'float32'"
            )
        return self._widened(value_type, weight_type, sums_type, votes)

    def _through_sum(
        self, value_type: tff.TensorType, weight_type: tff.Type, sums_type: tff.TensorType
    ) -> tff.templates.AggregationProcess:
        """Return the sum of float32 logits, weighted at the clients and added by the inner sum."""
        inner = (self._inner_sum or tff.aggregators.SumFactory()).create(sums_type)
        named_type = tff.types.to_type(collections.OrderedDict(weight=weight_type))
        weights = (self._weight_sum or tff.aggregators.SumFactory()).create(named_type)
        weighted = tff.tensorflow.computation(
            lambda value, weight: weight * tf.cast(value, tf.float32), value_type, weight_type
        )
        report = tff.tensorflow.computation(
            lambda total, weight: self._mean(total, weight, votes=False), sums_type, np.float32
        )

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            total = inner.next(state, tff.federated_map(weighted, (value, weight)))
            named = tff.federated_zip(collections.OrderedDict(weight=weight))
            total_weight = weights.next(weights.initialize(), named).result["weight"]
            result = tff.federated_map(report, (total.result, total_weight))
            return tff.templates.MeasuredProcessOutput(total.state, result, total.measurements)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)

    def _widened(
        self, value_type: tff.TensorType, weight_type: tff.Type, sums_type: tff.TensorType, votes: bool
    ) -> tff.templates.AggregationProcess:
        """Return the sum of votes or float16 logits, which are sent unchanged and weighted in the sum."""
        client_type = tff.types.to_type(collections.OrderedDict(value=value_type, weight=weight_type))
        total_type = tff.types.to_type(collections.OrderedDict(sums=sums_type, weight=np.float32))

        @tff.tensorflow.computation
        def zero() -> Structure:
            return collections.OrderedDict(sums=tf.zeros(sums_type.shape), weight=tf.constant(0.0))

        @tff.tensorflow.computation(total_type, client_type)
        def accumulate(total: Structure, client: Structure) -> Structure:
            value, weight = client["value"], client["weight"]
            wide = tf.one_hot(value, self._num_classes) if votes else tf.cast(value, tf.float32)
            return collections.OrderedDict(sums=total["sums"] + weight * wide, weight=total["weight"] + weight)

        @tff.tensorflow.computation(total_type, total_type)
        def merge(left: Structure, right: Structure) -> Structure:
            return tf.nest.map_structure(tf.add, left, right)

        @tff.tensorflow.computation(total_type)
        def report(total: Structure) -> Structure:
            return self._mean(total["sums"], total["weight"], votes)

        nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(
            nothing.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            both = tff.federated_zip(collections.OrderedDict(value=value, weight=weight))
            result = tff.federated_aggregate(both, zero(), accumulate, merge, report)
            return tff.templates.MeasuredProcessOutput(state, result, tff.federated_value((), tff.SERVER))

        return tff.templates.AggregationProcess(nothing, next_fn)

    def _mean(self, total: tf.Tensor, weight: tf.Tensor, votes: bool) -> collections.OrderedDict[str, tf.Tensor]:
        """Return the sum of the weights, and the mean logits or the logarithms of the shares of the votes."""
        logits = tf.math.divide_no_nan(total, weight)
        if votes:
            logits = tf.math.log(tf.maximum(logits, self.NO_VOTES))
        return collections.OrderedDict(logits=logits, weight=weight)

    def _are_votes(self, value_type: tff.Type) -> bool:
        """Return whether the values are votes."""
        if isinstance(value_type, tff.TensorType) and value_type.shape is not None and None not in value_type.shape:
            kind, shape = np.dtype(value_type.dtype).kind, list(value_type.shape)
            if kind == "f" and len(shape) == 2 and shape[1] == self._num_classes:
                return False
            if kind in "iu" and len(shape) == 1:
                return True
        raise CompositionError(
            f"predictions: expected a float type [N,{self._num_classes}] or an integer type [N], got {value_type}"
        )


def _median(
    value_type: tff.TensorType, weight_type: tff.Type, logits_type: tff.TensorType
) -> tff.templates.AggregationProcess:
    process = collected_median().create(logits_type, weight_type)
    widen = tff.tensorflow.computation(lambda value: tf.cast(value, tf.float32), value_type)

    @tff.tensorflow.computation(logits_type, weight_type)
    def report(logits: tf.Tensor, weight: tf.Tensor) -> Structure:
        return collections.OrderedDict(logits=logits, weight=weight)

    @tff.federated_computation(
        process.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
        output = process.next(state, tff.federated_map(widen, value), weight)
        result = tff.federated_map(report, (output.result, named_sum("weight", weight)))
        return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

    return tff.templates.AggregationProcess(process.initialize, next_fn)
