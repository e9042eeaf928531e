import collections

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.traffic import round_traffic, type_bytes, uploads


def test_sizes_of_types():
    struct = tff.types.to_type(
        collections.OrderedDict(a=tff.TensorType(np.float32, [3, 5]), b=[np.int64, tff.TensorType(np.bool_, [7])])
    )
    assert type_bytes(struct) == 60 + 8 + 7
    assert type_bytes(tff.FederatedType(struct, tff.CLIENTS)) == 75
    assert type_bytes(tff.types.to_type(())) == 0


@pytest.mark.parametrize(
    "unsized",
    [tff.TensorType(np.float32, [None, 2]), tff.SequenceType(np.float32), tff.TensorType(np.str_)],
    ids=str,
)
def test_types_without_a_size_are_refused(unsized):
    with pytest.raises(ValueError):
        type_bytes(unsized)


def test_broadcasts_count_down_and_aggregations_up():
    vector = tff.TensorType(np.float32, [10])
    add = tff.tensorflow.computation(lambda a, b: a + b, vector, vector)
    size = tff.tensorflow.computation(lambda a: tf.cast(tf.size(a), tf.int64), vector)

    @tff.federated_computation(tff.FederatedType(vector, tff.SERVER), tff.FederatedType(vector, tff.CLIENTS))
    def exchange(server, clients):
        added = tff.federated_map(add, (tff.federated_broadcast(server), clients))
        sizes = tff.federated_map(size, added)
        total, largest = tff.federated_sum(added), tff.federated_max(sizes)
        return total, largest, tff.federated_broadcast(largest)

    traffic = round_traffic(exchange)
    assert (traffic.down, traffic.up) == (40 + 8, 40 + 8)


def test_what_stays_at_a_client_does_not_travel():
    client_state = tff.TensorType(np.float32, [1000])
    double = tff.tensorflow.computation(lambda m: 2 * m, client_state)

    @tff.federated_computation(tff.FederatedType(client_state, tff.CLIENTS))
    def keep(state):
        return tff.federated_map(double, state)

    traffic = round_traffic(keep)
    assert (traffic.down, traffic.up) == (0, 0)


def test_a_sum_that_nobody_reads_is_not_taken():
    """On either stack, or a statistic that privacy leaves out of the result would leave the clients all the same."""

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def total(values):
        tff.federated_max(values)
        sums = {"read": tff.federated_sum(values), "unread": tff.federated_sum((values, values))}
        return sums["read"]

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def nothing(values):
        tff.federated_sum(values)
        return tff.federated_value(1, tff.SERVER)

    assert [type_bytes(sent) for sent in uploads(total)] == [4] and uploads(nothing) == []
