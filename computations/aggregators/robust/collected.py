"""Rules that need all updates side by side. The server collects them: as many models as there are clients, and no
secure sum can stand before them. Look at `require_room` first."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError
from computations.ranges import COUNT, NOT_NEGATIVE, require
from computations.traffic import type_bytes

Rule = Callable[[list[tf.Tensor], tf.Tensor], tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]]
"""([float [k, ...] of each tensor, one row a client], int32 k >= 1) -> ([float [...]], measurements by name)."""

COPIES = 3
"""Of the collected updates at a rule's end: as collected, with a place beside them, and sorted or subtracted."""


class CollectedFactory(tff.aggregators.WeightedAggregationFactory):
    """A rule over the list of the updates of all clients of a weight above zero.

    A weight says only whether a client counts: examples do not enter. Where no client counts the result is zero.
    Measurements: the rule's, and `robust/collected`, how many clients count.
    """

    def __init__(self, rule: Rule):
        """`rule` takes clients in any order and gives the same result."""
        self._rule = rule

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over a structure of float tensors, or one tensor, and a scalar weight."""
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        skeletons = []

        @tff.tensorflow.computation(value_type, weight_type)
        def flatten(value, weight):
            skeletons.append(tf.nest.map_structure(lambda _: 0, value))
            return collections.OrderedDict(tensors=tf.nest.flatten(value), counts=weight > 0)

        client_type = flatten.type_signature.result
        members = list(client_type["tensors"])
        many_type = tff.types.to_type([tff.TensorType(t.dtype, [None, *t.shape]) for t in members])

        @tff.tensorflow.computation
        def nobody():
            # Of an unknown number of rows, as the type says.
            return [
                tf.raw_ops.PlaceholderWithDefault(input=tf.zeros([0, *t.shape], t.dtype), shape=[None, *t.shape])
                for t in members
            ]

        @tff.tensorflow.computation(many_type, client_type)
        def append(rows, client):
            def longer():
                both = zip(rows, client["tensors"], strict=True)
                return [tf.concat([r, t[tf.newaxis]], axis=0) for r, t in both]

            return tf.cond(client["counts"], longer, lambda: [tf.identity(r) for r in rows])

        @tff.tensorflow.computation(many_type, many_type)
        def merge(one, other):
            return [tf.concat(pair, axis=0) for pair in zip(one, other, strict=True)]

        @tff.tensorflow.computation(many_type)
        def apply(rows):
            rows = list(rows)
            number = tf.shape(rows[0])[0]
            # A row of zeros where there is none: the rule gives zeros, too.
            least = [tf.zeros([1, *t.shape], t.dtype) for t in members]
            padded = tf.cond(number > 0, lambda: [tf.identity(r) for r in rows], lambda: least)
            tensors, measured = self._rule(padded, tf.maximum(number, 1))
            tensors = [tf.ensure_shape(t, r.shape[1:]) for t, r in zip(tensors, rows, strict=True)]
            measured = collections.OrderedDict(measured, **{"robust/collected": tf.cast(number, tf.float32)})
            return tf.nest.pack_sequence_as(skeletons[0], tensors), measured

        nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(
            nothing.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            flat = tff.federated_map(flatten, (value, weight))
            output = tff.federated_aggregate(flat, nobody(), append, merge, apply)
            return tff.templates.MeasuredProcessOutput(state, output[0], output[1])

        return tff.templates.AggregationProcess(nothing, next_fn)


def collected_median() -> CollectedFactory:
    """The median of every coordinate (Yin et al. 2018, "Byzantine-Robust Distributed Learning", Definition 1).

    Of an even number of clients the mean of the two in the middle.
    """

    def rule(rows, number):
        low, high = (number - 1) // 2, number // 2
        ordered = (tf.sort(r, axis=0) for r in rows)
        return [(r[low] + r[high]) / 2 for r in ordered], {}

    return CollectedFactory(rule)


def collected_trimmed_mean(share: float) -> CollectedFactory:
    """The mean of every coordinate without the lowest and the highest floor(share * k) of k clients (Yin et al. 2018,
    Definition 2).

    Args:
      share: at least 0 and below one half; of one side. Bad clients have to be fewer than that.

    Raises:
      ValueError: for another share.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share must be at least 0 and below 0.5, got {share}")

    def rule(rows, number):
        # So that 0.29 of 100 are 29, not 28.999999999999996.
        cut = tf.cast(tf.floor(share * tf.cast(number, tf.float64) + 1e-9), tf.int32)
        ordered = (tf.sort(r, axis=0) for r in rows)
        return [tf.reduce_mean(r[cut : number - cut], axis=0) for r in ordered], {}

    return CollectedFactory(rule)


def collected_krum(bad: int, chosen: int = 1) -> CollectedFactory:
    """Multi-Krum: the mean of the `chosen` updates with the least scores, a score being the sum of the squared
    distances to the k - bad - 2 nearest other updates (Blanchard et al. 2017, "Machine Learning with Adversaries",
    Section 4).

    It needs k >= 2 bad + 3 clients. In a round with fewer the result is zero, and the measurement `robust/too_few` 1.

    Args:
      bad: f, how many clients are bad at the most.
      chosen: m, 1 for Krum itself; in [1, k - bad - 2] for the guarantee, of which fewer than there are clients are
        taken as they are.

    Raises:
      ValueError: for a negative `bad` or a `chosen` below 1.
    """
    require(NOT_NEGATIVE, bad=bad)
    require(COUNT, chosen=chosen)

    def rule(rows, number):
        enough = number >= 2 * bad + 3
        squares = tf.add_n([_square_distances(r) for r in rows])
        # The least of a row is the distance 0 to itself.
        nearest = tf.sort(squares, axis=1)[:, 1 : tf.maximum(number - bad - 1, 2)]
        best = tf.argsort(tf.reduce_sum(nearest, axis=1), stable=True)[:chosen]
        means = [tf.reduce_mean(tf.gather(r, best), axis=0) for r in rows]
        kept = [tf.where(enough, m, tf.zeros_like(m)) for m in means]
        return kept, {"robust/too_few": 1.0 - tf.cast(enough, tf.float32)}

    return CollectedFactory(rule)


def _square_distances(rows: tf.Tensor) -> tf.Tensor:
    """float32 [k, k] of [k, ...]; not by a product of matrices, which cancels where updates are long and alike."""
    flat = tf.reshape(tf.cast(rows, tf.float32), [tf.shape(rows)[0], int(np.prod(rows.shape[1:]))])
    return tf.map_fn(lambda row: tf.reduce_sum(tf.square(flat - row), axis=1), flat)


def collected_bytes(value_type: tff.Type, num_clients: int) -> int:
    """Bytes of the updates that a collecting rule has at the server, one for each client."""
    return type_bytes(tff.types.to_type(value_type)) * num_clients


def require_room(value_type: tff.Type, num_clients: int, most_bytes: int, who: str) -> None:
    """CompositionError, `who` named, unless a round of so many clients fits into `most_bytes`.

    TFF's worker keeps every partial list until the aggregation's end: of 1, 2, ... K updates, K (K + 1) / 2 in all;
    `COPIES` K more are the rule's. In-process a list goes with the next one; the same is asked for.
    """
    partial = num_clients * (num_clients + 1) // 2
    needed = collected_bytes(value_type, 1) * (partial + COPIES * num_clients)
    if needed > most_bytes:
        raise CompositionError(
            f"{who} collects the updates of all clients: {num_clients} clients need some {needed / 1e6:.0f} MB, "
            f"{most_bytes / 1e6:.0f} MB are allowed; sample fewer clients a round or take the rule 'rfa'"
        )
