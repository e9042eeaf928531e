"""The ensemble of the clients' predictions (FedED, Sui et al. 2020, Eq. 5); no client's predictions are collected."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError


class PredictionsFactory(tff.aggregators.WeightedAggregationFactory):
    """The weighted mean of logits, or of votes.

    Takes of every client its logits on the server's N examples, float32 or float16 [N, C], or its labels for them, an
    integer [N], and a weight. Gives <logits=float32[N,C], weight=float32>: the mean of the logits, or the logarithm of
    each class's share of the votes (a class without a vote has the share `NO_VOTES`); and the sum of the weights, zero
    where no client counts.

    float32 logits go through an inner sum, so that private and secure sums compose with them. Smaller forms travel as
    they are and are converted to float32 in the sum.
    """

    NO_VOTES = 1e-6

    def __init__(
        self,
        num_classes: int,
        inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    ):
        """`num_classes`: C; `inner_sum`: makes the sum of float32 logits; tff.aggregators.SumFactory() by default;
        `weight_sum`: beside it, the sum of the weights, and keeps nothing from round to round."""
        self._num_classes, self._inner_sum, self._weight_sum = num_classes, inner_sum, weight_sum

    def with_sums(self, value_sum, weight_sum=None) -> PredictionsFactory:
        """The same with these factories for its sums."""
        return PredictionsFactory(self._num_classes, value_sum, weight_sum)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over such predictions.

        Raises:
          CompositionError: for values of another type, or an inner sum for a form that does not go through it.
        """
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        votes = self._check(value_type)
        num_examples = value_type.shape[0]
        sums_type = tff.TensorType(np.float32, [num_examples, self._num_classes])
        weighed_type = tff.types.to_type(collections.OrderedDict(value=value_type, weight=weight_type))

        def weigh(value, weight):
            wide = tf.one_hot(value, self._num_classes) if votes else tf.cast(value, tf.float32)
            return weight * wide

        def shares(total, weight):
            logits = tf.math.divide_no_nan(total, weight)
            if votes:
                logits = tf.math.log(tf.maximum(logits, self.NO_VOTES))
            return collections.OrderedDict(logits=logits, weight=weight)

        if value_type.dtype.type == np.float32:
            inner = (self._inner_sum or tff.aggregators.SumFactory()).create(sums_type)
            weights = (self._weight_sum or tff.aggregators.SumFactory()).create(weight_type)
            weighed = tff.tensorflow.computation(weigh, value_type, weight_type)
            report = tff.tensorflow.computation(shares, sums_type, np.float32)

            @tff.federated_computation(
                inner.initialize.type_signature.result,
                tff.FederatedType(value_type, tff.CLIENTS),
                tff.FederatedType(weight_type, tff.CLIENTS),
            )
            def through_sum(state, value, weight):
                total = inner.next(state, tff.federated_map(weighed, (value, weight)))
                total_weight = weights.next(weights.initialize(), weight).result
                result = tff.federated_map(report, (total.result, total_weight))
                return tff.templates.MeasuredProcessOutput(total.state, result, total.measurements)

            return tff.templates.AggregationProcess(inner.initialize, through_sum)

        if self._inner_sum is not None:
            raise CompositionError(
                f"predictions: an inner sum takes float32 logits, got {value_type}; set algorithm.uploads = 'float32'"
            )
        sums = collections.OrderedDict(total=sums_type, weight=tff.TensorType(np.float32))

        @tff.tensorflow.computation
        def zero():
            return collections.OrderedDict(total=tf.zeros(sums_type.shape), weight=tf.constant(0.0))

        @tff.tensorflow.computation(tff.types.to_type(sums), weighed_type)
        def accumulate(so_far, one):
            return collections.OrderedDict(
                total=so_far["total"] + weigh(one["value"], one["weight"]), weight=so_far["weight"] + one["weight"]
            )

        @tff.tensorflow.computation(tff.types.to_type(sums), tff.types.to_type(sums))
        def merge(one, other):
            return tf.nest.map_structure(tf.add, one, other)

        @tff.tensorflow.computation(tff.types.to_type(sums))
        def report_both(both):
            return shares(both["total"], both["weight"])

        nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(
            nothing.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def widened(state, value, weight):
            both = tff.federated_zip(collections.OrderedDict(value=value, weight=weight))
            result = tff.federated_aggregate(both, zero(), accumulate, merge, report_both)
            return tff.templates.MeasuredProcessOutput(state, result, tff.federated_value((), tff.SERVER))

        return tff.templates.AggregationProcess(nothing, widened)

    def _check(self, value_type) -> bool:
        """Whether the values are votes."""
        if isinstance(value_type, tff.TensorType) and value_type.shape is not None and None not in value_type.shape:
            kind, shape = np.dtype(value_type.dtype).kind, list(value_type.shape)
            if kind == "f" and len(shape) == 2 and shape[1] == self._num_classes:
                return False
            if kind in "iu" and len(shape) == 1:
                return True
        raise CompositionError(
            f"predictions: expected a float type [N,{self._num_classes}] or an integer type [N], got {value_type}"
        )
