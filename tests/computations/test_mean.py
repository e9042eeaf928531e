import sys

import numpy as np
import pytest

from computations import federated as tff
from computations.aggregators import mean
from computations.traffic import round_traffic
from tests.computations import toolbox

VALUE = tff.types.to_type([tff.TensorType(np.float32, [2]), tff.TensorType(np.float32)])
UPDATES = [[[1.0, 2.0], 3.0], [[5.0, -6.0], 7.0], [[-10.0, 0.0], 1.0]]


def aggregate(factory, weights, updates=UPDATES):
    process = factory.create(VALUE, tff.TensorType(np.float32))
    values = [[np.asarray(t, np.float32) for t in u] for u in updates]
    return list(process.next(process.initialize(), values, [np.float32(w) for w in weights]).result)


@pytest.mark.parametrize(
    "weights, expected",
    [
        # (1*1 + 3*5 - 6*10)/10 = -4.4, (1*2 - 3*6)/10 = -1.6, (1*3 + 3*7 + 6*1)/10 = 3
        ([1, 3, 6], [[-4.4, -1.6], 3.0]),
        ([1, 1, 1], [[-4 / 3, -4 / 3], 11 / 3]),
        ([1, 1, 0], [[3.0, -2.0], 5.0]),
        ([0, 0, 0], [[0.0, 0.0], 0.0]),
    ],
    ids=str,
)
def test_clients_count_by_their_weights(weights, expected):
    toolbox.assert_close(aggregate(mean(), weights), expected, 1e-6)


def test_the_inner_sum_is_used():
    clipped = tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory())
    # Weighted values (0, 0, 4) and (6, 0, 8), clipped to length 1: (0, 0, 1) and (0.6, 0, 0.8); their sum over 2 + 1
    result = aggregate(mean(clipped), [2, 1], [[[0.0, 0.0], 2.0], [[6.0, 0.0], 8.0]])
    toolbox.assert_close(result, [[0.2, 0.0], 0.6], 1e-6)


def test_groups_of_tensors_give_the_bits_of_tff(monkeypatch):
    shapes = [[2, 3], [40], [], [5, 1], [7]]
    types = [tff.TensorType(np.float32, shape) for shape in shapes]
    value_type = tff.types.to_type(tff.learning.models.ModelWeights(types[:3], types[3:]))
    rng = np.random.default_rng(0)
    arrays = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(5)]
    values = [tff.learning.models.ModelWeights(a[:3], a[3:]) for a in arrays]
    weights = [np.float32(w) for w in (3, 0.1, 0, 7, 2)]

    def result(factory):
        process = factory.create(value_type, tff.TensorType(np.float32))
        output = process.next(process.initialize(), values, weights)
        return process, toolbox.bits(output.result), output.state, output.measurements

    theirs, *expected = result(tff.aggregators.MeanFactory(no_nan_division=True))
    for max_bytes, count in ((2**20, 1), (28, 4), (1, 5)):  # 24 | 160 | 4, 20 | 28 bytes
        monkeypatch.setattr(sys.modules[mean.__module__], "MOST_GROUP_BYTES", max_bytes)
        ours, *got = result(mean())
        assert got == expected
        assert ours.next.type_signature.is_equivalent_to(theirs.next.type_signature)
        assert round_traffic(ours.next).up == 4 * (6 + 40 + 1 + 5 + 7) + 4 * count
