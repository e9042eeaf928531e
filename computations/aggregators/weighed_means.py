"""Means with one sum more beside them: FedNova's normalised mean, and a mean with the weight behind it."""

from __future__ import annotations

import collections

import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators.mean import mean
from computations.errors import CompositionError


class NormalisedMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """FedNova's aggregation (Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization", NeurIPS, Section 4): tau_eff * sum_k p_k d_k with tau_eff = sum_k p_k ||a_k||_1.

    Takes of every client <direction=U, size=float32>, d_k = (w - w_k) / ||a_k||_1 and ||a_k||_1, and a weight; p_k are
    the weights over their sum. Gives U. One weighted mean of both is all that the server gets.
    """

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over such updates; CompositionError for others."""
        value_type = tff.types.to_type(value_type)
        if not isinstance(value_type, tff.StructType) or tff.structure.name_list(value_type) != ["direction", "size"]:
            raise CompositionError(f"normalised mean: expected <direction=U,size=float32>, got {value_type}")
        inner = mean().create(value_type, tff.types.to_type(weight_type))

        @tff.tensorflow.computation(value_type)
        def scale(means):
            return tf.nest.map_structure(lambda d: means["size"] * d, means["direction"])

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state, value, weight):
            output = inner.next(state, value, weight)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(scale, output.result), output.measurements
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


class WeighedMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """<update=U, weight=float32>: the weighted mean, and the sum of the weights behind it."""

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over a structure of float tensors and a scalar weight."""
        inner = mean().create(tff.types.to_type(value_type), tff.types.to_type(weight_type))

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state, value, weight):
            output = inner.next(state, value, weight)
            both = collections.OrderedDict(update=output.result, weight=tff.federated_sum(weight))
            return tff.templates.MeasuredProcessOutput(output.state, tff.federated_zip(both), output.measurements)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
