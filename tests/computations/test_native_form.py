"""Our native form is TFF's, whose leaves it optimizes once."""

import re

import numpy as np
import pytest
import tensorflow_federated as tff

from computations import native_form as ours
from tests.computations import built


@pytest.mark.parametrize("name", ["scaffold", "lazy_mil"])
def test_it_is_the_one_that_tff_makes(name):
    for computation in (built.build(name).next, built.build(name).initialize):
        theirs = tff.backends.native.desugar_and_transform_to_native(computation)
        assert without_prefix(ours.native_block(computation)) == without_prefix(theirs.to_building_block())


def without_prefix(block):
    """What a computation is, but for the three letters that TFF draws for the names of each form."""
    return re.sub(r'"_[a-z]{3}(?=[0-9]+")', '"', str(block.proto))


def test_a_leaf_is_optimized_once(monkeypatch):
    optimized = []
    optimize = ours.tff.optimized_leaf
    monkeypatch.setattr(ours, "_cache", type(ours._cache)())
    monkeypatch.setattr(ours.tff, "optimized_leaf", lambda *arguments: optimized.append(1) or optimize(*arguments))
    double = tff.tensorflow.computation(lambda x: x + x, np.float32)

    def times(number):
        def function(x):
            for _ in range(number):
                x = double(x)
            return x

        return tff.federated_computation(function, np.float32)

    runs = [ours.native_form(times(number)) for number in (2, 3)]
    assert len(optimized) == 1
    assert [str(run.type_signature) for run in runs] == ["(float32 -> float32)"] * 2
    monkeypatch.setattr(ours, "_MAX_LEAVES", 1)
    ours.native_form(tff.tensorflow.computation(lambda x: x - 1, np.float32))
    assert len(optimized) == 2 == len(ours._cache) + 1
