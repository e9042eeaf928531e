"""Small arrays of a checkpoint as one: whatever state goes in comes out."""

from collections import OrderedDict

import hypothesis
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from computations import federated as tff
from tff_re.runs.packing import blank, packed, unpacked

arrays = of_numpy.arrays(
    st.sampled_from(["bool", "int8", "int32", "int64", "uint8", "uint16", "uint64", "float16", "float32", "float64"]),
    of_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
states = st.recursive(
    arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "a/b", "0", "医生"]), inner, max_size=3).map(OrderedDict),
        st.builds(tff.learning.models.ModelWeights, st.lists(inner, max_size=2), st.lists(inner, max_size=2)),
    ),
    max_leaves=12,
)


def assert_equal(actual, expected):
    tf.nest.assert_same_structure(actual, expected)
    for a, b in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


@hypothesis.given(state=states)
def test_a_state_comes_back(state):
    stored = packed(state)
    tf.nest.assert_same_structure(OrderedDict(stored, small=0), OrderedDict(blank(state), small=0))
    assert all(leaf is None for leaf in stored["large"])
    assert_equal(unpacked(stored, state), state)


def test_large_arrays_and_what_are_no_numbers_stay_as_they_are():
    large, half = np.ones(2**16 // 4 + 1, np.float32), np.ones(3, ml_dtypes.bfloat16)
    state = OrderedDict(large=large, text=b"ab", half=half, small=tf.constant([1.0, -0.0]), edge=large[:-1])
    stored = packed(state)
    assert [leaf is None for leaf in stored["large"]] == [True, False, False, True, False]  # the keys in order
    assert stored["large"][2] is large and stored["small"].nbytes < 2**16 + 400
    restored = unpacked(stored, state)
    assert restored["large"] is large and restored["half"] is half and restored["text"] == b"ab"
    assert restored["small"].tobytes() == np.array([1.0, -0.0], np.float32).tobytes()
    np.testing.assert_array_equal(restored["edge"], large[:-1])


@pytest.mark.parametrize(
    "other",
    [
        OrderedDict(a=1, c=[2, 3]),  # other names
        OrderedDict(a=1, b=[2]),  # fewer leaves
        OrderedDict(a=[1], b=[2, 3]),  # others' depth
    ],
)
def test_a_state_of_another_structure_is_found(other):
    state = OrderedDict(a=np.float32(1), b=[np.float32(2), np.float32(3)])
    with pytest.raises(ValueError):
        unpacked(packed(state), other)
