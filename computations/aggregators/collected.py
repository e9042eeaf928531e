"""Rules that need all updates side by side.

The server collects them. That takes as much memory as a model for each client, and no secure sum can be used. Call
`require_room` first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping

import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.traffic import type_bytes

Combine = Callable[[list[tf.Tensor], tf.Tensor], tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]]
"""([float [k, ...] of each tensor, one row a client], int32 k >= 1) -> ([float [...]], measurements by name)."""

COPIES = 3
"""Of the collected updates at a rule's end: as collected, as padded, and sorted or subtracted."""


class CollectedFactory(tff.aggregators.WeightedAggregationFactory):
    """A rule over the list of all clients' updates with a weight above zero.

    A weight says only whether a client counts: examples do not enter. Where no client counts the result is zero.
    Measurements: the rule's, and `robust/collected`, how many clients count.
    """

    def __init__(self, combine: Combine):
        """Create the factory.

        `combine` must give the same result for every order of the clients.
        """
        self._combine = combine

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor, and a scalar weight."""
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        skeletons: list[Structure] = []

        @tff.tensorflow.computation(value_type, weight_type)
        def flatten(value: Structure, weight: tf.Tensor) -> Structure:
            skeletons.append(tf.nest.map_structure(lambda _: 0, value))
            return collections.OrderedDict(tensors=tf.nest.flatten(value), counts=weight > 0)

        client_type = flatten.type_signature.result
        members = list(client_type["tensors"])
        many_type = tff.types.to_type([tff.TensorType(t.dtype, [None, *t.shape]) for t in members])

        @tff.tensorflow.computation
        def nobody() -> list[tf.Tensor]:
            # Of an unknown number of rows, as the type says.
            return [
                tf.raw_ops.PlaceholderWithDefault(input=tf.zeros([0, *t.shape], t.dtype), shape=[None, *t.shape])
                for t in members
            ]

        @tff.tensorflow.computation(many_type, client_type)
        def append(rows: Structure, client: Structure) -> list[tf.Tensor]:
            def longer() -> list[tf.Tensor]:
                both = zip(rows, client["tensors"], strict=True)
                return [tf.concat([r, t[tf.newaxis]], axis=0) for r, t in both]

            return tf.cond(client["counts"], longer, lambda: [tf.identity(r) for r in rows])

        @tff.tensorflow.computation(many_type, many_type)
        def merge(left: Structure, right: Structure) -> list[tf.Tensor]:
            return [tf.concat(pair, axis=0) for pair in zip(left, right, strict=True)]

        @tff.tensorflow.computation(many_type)
        def apply(rows: Structure) -> Structure:
            rows = list(rows)
            number = tf.shape(rows[0])[0]
            # A row of zeros where there is none: the rule gives zeros, too.
            least = [tf.zeros([1, *t.shape], t.dtype) for t in members]
            padded = tf.cond(number > 0, lambda: [tf.identity(r) for r in rows], lambda: least)
            tensors, measured = self._combine(padded, tf.maximum(number, 1))
            tensors = [tf.ensure_shape(t, r.shape[1:]) for t, r in zip(tensors, rows, strict=True)]
            measured = collections.OrderedDict(measured, **{"robust/collected": tf.cast(number, tf.float32)})
            return tf.nest.pack_sequence_as(skeletons[0], tensors), measured

        nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(
            nothing.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            flat = tff.federated_map(flatten, (value, weight))
            output = tff.federated_aggregate(flat, nobody(), append, merge, apply)
            return tff.templates.MeasuredProcessOutput(state, output[0], output[1])

        return tff.templates.AggregationProcess(nothing, next_fn)


def collected_median() -> CollectedFactory:
    """Return the median of every coordinate (Yin et al. 2018, "Byzantine-Robust Distributed Learning", Definition 1).

    Of an even number of clients the mean of the two in the middle.
    """

    def combine(rows: list[tf.Tensor], number: tf.Tensor) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        low, high = (number - 1) // 2, number // 2
        ordered = (tf.sort(r, axis=0) for r in rows)
        return [(r[low] + r[high]) / 2 for r in ordered], {}

    return CollectedFactory(combine)


def require_room(value_type: tff.Type, num_clients: int, max_bytes: float, who: str) -> None:
    """Raise CompositionError, which names `who`, unless a round of this number of clients fits into `max_bytes`.

    TFF's worker keeps every partial list until the aggregation's end: of 1, 2, ... K updates, K (K + 1) / 2 in all;
    `COPIES` K more are the rule's. In-process a list goes with the next one; the same is asked for.
    """
    partial = num_clients * (num_clients + 1) // 2
    needed = type_bytes(value_type) * (partial + COPIES * num_clients)
    if needed > max_bytes:
        raise CompositionError(
            f"{who} collects the updates of all clients: {num_clients} clients need about {needed / 1e6:.0f} MB, but "
            f"{max_bytes / 1e6:.0f} MB are allowed; sample fewer clients per round or use the rule 'rfa'"
        )
