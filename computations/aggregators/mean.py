"""The weighted mean (FedAvg, McMahan et al. 2017), also for values that are large for the machine's memory."""

from __future__ import annotations

import collections
import functools

import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value
from computations.local_model import zeros
from computations.traffic import type_bytes

MOST_GROUP_BYTES = 64 * 2**20
"""A mean over larger values is taken in groups of tensors, of so many bytes or of one tensor each."""


def mean(
    inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.WeightedAggregationFactory:
    """Return the factory of sum_k w_k x_k / sum_k w_k, which is zero if all weights are zero.

    Whether clients count by their examples or all alike is the client work's choice (`LocalTraining.weighting`); a
    client that does not count has weight zero in both. With an `inner_sum` that makes the sum of the weighted values
    this is TFF's own factory, and `weight_sum` makes its sum of the weights; without them a factory that gives the same
    numbers with less memory.
    """
    if inner_sum is None and weight_sum is None:
        return LeanMeanFactory()
    return tff.aggregators.MeanFactory(inner_sum, weight_sum, no_nan_division=True)


class LeanMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """`tff.aggregators.MeanFactory` with plain sums, without its copies of every client's value.

    Until a round's end TFF's worker holds what is mapped at the clients, and until an aggregation's end the partial
    sum after every client. Here no weighted values are mapped, a client's is made as it is added, and tensors are
    aggregated group by group, one group after the other: beside the values themselves only a group's partial sums
    exist at a time. Values of up to `MOST_GROUP_BYTES` are one group, their mean one aggregation.
    """

    def with_sums(
        self,
        value_sum: tff.aggregators.UnweightedAggregationFactory,
        weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    ) -> tff.aggregators.WeightedAggregationFactory:
        """Return the mean with these factories for its sums."""
        return mean(value_sum, weight_sum)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors and a scalar weight.

        Its state is that of TFF's factory.
        """
        return _lean_mean(value_type, weight_type, MOST_GROUP_BYTES)


@functools.lru_cache(maxsize=64)  # most algorithms of a comparison have the same one
def _lean_mean(value_type: tff.Type, weight_type: tff.Type, max_bytes: int) -> tff.templates.AggregationProcess:
    plain = tff.aggregators.MeanFactory(no_nan_division=True).create(value_type, weight_type)
    skeletons: list[Structure] = []

    @tff.tensorflow.computation(value_type)
    def flatten(value: Structure) -> list[tf.Tensor]:
        skeletons.append(tf.nest.map_structure(lambda _: 0, value))
        return tf.nest.flatten(value)

    groups = _groups(list(flatten.type_signature.result), max_bytes)

    def picked(value: Value, group: list[int]) -> Value:
        """Return the tensors of a group at the clients, or all tensors unchanged."""
        if len(groups) == 1:
            return value
        pick = tff.tensorflow.computation(lambda v: [tf.nest.flatten(v)[i] for i in group], value_type)
        return tff.federated_map(pick, value)

    @tff.federated_computation(
        plain.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
        means = [_mean_of_group(picked(value, group), weight) for group in groups]
        means_type = tff.types.to_type([m.type_signature.member for m in means])

        @tff.tensorflow.computation(means_type)
        def join(means: Structure) -> Structure:
            return tf.nest.pack_sequence_as(skeletons[0], tf.nest.flatten(means))

        return tff.templates.MeasuredProcessOutput(
            state,
            tff.federated_map(join, tff.federated_zip(means)),
            tff.federated_value(collections.OrderedDict(mean_value=(), mean_weight=()), tff.SERVER),
        )

    return tff.templates.AggregationProcess(plain.initialize, next_fn)


def _groups(types: list[tff.TensorType], max_bytes: int) -> list[list[int]]:
    """Return groups of tensor indices, with neighbours together while their bytes are at most `max_bytes`."""
    groups: list[list[int]] = []
    filled = max_bytes
    for index, type_spec in enumerate(types):
        size = type_bytes(type_spec)
        if filled + size > max_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(index)
        filled += size
    return groups


def _mean_of_group(value: Value, weight: Value) -> Value:
    """Return the weighted mean of tensors at the clients, as a list at the server."""
    client_type = tff.types.to_type(
        collections.OrderedDict(value=value.type_signature.member, weight=weight.type_signature.member)
    )

    @tff.tensorflow.computation(client_type)
    def like(client: Structure) -> Structure:
        return collections.OrderedDict(sums=tf.nest.flatten(client["value"]), weight=client["weight"])

    sums_type = like.type_signature.result

    @tff.tensorflow.computation
    def zero() -> Structure:
        sums = [zeros(t.shape, t.dtype) for t in sums_type["sums"]]
        return collections.OrderedDict(sums=sums, weight=zeros((), sums_type["weight"].dtype))

    @tff.tensorflow.computation(sums_type, client_type)
    def accumulate(total: Structure, client: Structure) -> Structure:
        weight = client["weight"]
        tensors = zip(total["sums"], tf.nest.flatten(client["value"]), strict=True)
        sums = [t + x * tf.cast(weight, x.dtype) for t, x in tensors]
        return collections.OrderedDict(sums=sums, weight=total["weight"] + weight)

    @tff.tensorflow.computation(sums_type, sums_type)
    def merge(left: Structure, right: Structure) -> Structure:
        return tf.nest.map_structure(tf.add, left, right)

    @tff.tensorflow.computation(sums_type)
    def report(total: Structure) -> list[tf.Tensor]:
        return [tf.math.divide_no_nan(t, tf.cast(total["weight"], t.dtype)) for t in total["sums"]]

    clients = tff.federated_zip(collections.OrderedDict(value=value, weight=weight))
    return tff.federated_aggregate(clients, zero(), accumulate, merge, report)
