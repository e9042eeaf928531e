"""Means with an additional sum: FedNova's normalised mean, and a mean together with its total weight."""

from __future__ import annotations

import collections
from typing import TypeAlias

import tensorflow as tf

from computations import federated as tff
from computations.aggregators.collected import collected_median
from computations.aggregators.mean import mean
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.named import named_sum

Factory: TypeAlias = tff.aggregators.WeightedAggregationFactory


class NormalisedMeanFactory(Factory):
    """FedNova's aggregation, tau_eff * sum_k p_k d_k with tau_eff = sum_k p_k ||a_k||_1.

    See Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    NeurIPS, Section 4.

    Takes of every client <direction=U, size=float32>, d_k = (w - w_k) / ||a_k||_1 and ||a_k||_1, and a weight; p_k are
    the weights over their sum. Gives U. One weighted mean of both is all that the server gets.

    Args:
      directions: in place of the mean of the d_k, such as a robust rule. tau_eff is then the median of the clients'
        ||a_k||_1, because one client that tells a large one would lengthen any combination of directions.
    """

    not_private = (
        "FedNova's clients send their numbers of local steps in addition to the updates, which are divided by them; "
        "to protect them, the numbers need a bound and both need one noisy sum"
    )

    def __init__(self, directions: Factory | None = None):
        self._inner = mean() if directions is None else _Apart(directions)

    def with_secure_sums(
        self,
        value_sum: tff.aggregators.UnweightedAggregationFactory,
        weight_sum: tff.aggregators.UnweightedAggregationFactory,
        size_sum: tff.aggregators.UnweightedAggregationFactory,
    ) -> NormalisedMeanFactory:
        """Return the normalised mean with these factories for its sums of directions, weights and sizes."""
        changed = NormalisedMeanFactory()
        changed._inner = mean(_SumsApart(value_sum, size_sum), weight_sum)
        return changed

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over such updates.

        Raises CompositionError for others.
        """
        value_type = tff.types.to_type(value_type)
        if not isinstance(value_type, tff.StructType) or tff.structure.name_list(value_type) != ["direction", "size"]:
            raise CompositionError(f"normalised mean: expected <direction=U,size=float32>, got {value_type}")
        inner = self._inner.create(value_type, tff.types.to_type(weight_type))

        @tff.tensorflow.computation(value_type)
        def scale(means: Structure) -> Structure:
            return tf.nest.map_structure(lambda d: means["size"] * d, means["direction"])

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            output = inner.next(state, value, weight)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(scale, output.result), output.measurements
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


class _Apart(Factory):
    """Aggregates <direction, size>, with a factory for the directions and the median for the sizes."""

    def __init__(self, directions: Factory):
        self._directions = directions

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        directions = self._directions.create(value_type["direction"], weight_type)
        sizes = collected_median().create(value_type["size"], weight_type)

        @tff.federated_computation(
            directions.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            output = directions.next(state, value["direction"], weight)
            size = sizes.next(tff.federated_value((), tff.SERVER), value["size"], weight).result
            both = collections.OrderedDict(direction=output.result, size=size)
            return tff.templates.MeasuredProcessOutput(output.state, tff.federated_zip(both), output.measurements)

        return tff.templates.AggregationProcess(directions.initialize, next_fn)


class _SumsApart(tff.aggregators.UnweightedAggregationFactory):
    """Sums <direction, size>, with one factory for the directions and another, stateless one for the sizes."""

    def __init__(
        self,
        directions: tff.aggregators.UnweightedAggregationFactory,
        sizes: tff.aggregators.UnweightedAggregationFactory,
    ):
        self._directions, self._sizes = directions, sizes

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        directions, sizes = self._directions.create(value_type["direction"]), self._sizes.create(value_type["size"])

        @tff.federated_computation(
            directions.initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_fn(state: Value, value: Value) -> tff.templates.MeasuredProcessOutput:
            output = directions.next(state, value["direction"])
            size = sizes.next(sizes.initialize(), value["size"]).result
            both = collections.OrderedDict(direction=output.result, size=size)
            return tff.templates.MeasuredProcessOutput(output.state, tff.federated_zip(both), output.measurements)

        return tff.templates.AggregationProcess(directions.initialize, next_fn)


class WeighedMeanFactory(Factory):
    """Aggregates <update=U, weight=float32> to the weighted mean, or another factory's result, and the total weight."""

    not_private = (
        "its server divides by the number of clients that counted, or checks that there was one, without noise; to "
        "protect it, the number must be fixed, like in the noisy mean"
    )

    def __init__(self, inner: Factory | None = None):
        self.inner = inner or mean()

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors and a scalar weight."""
        inner = self.inner.create(tff.types.to_type(value_type), tff.types.to_type(weight_type))

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            output = inner.next(state, value, weight)
            both = collections.OrderedDict(update=output.result, weight=named_sum("weight", weight))
            return tff.templates.MeasuredProcessOutput(output.state, tff.federated_zip(both), output.measurements)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
