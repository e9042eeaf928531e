"""Loops without the variables that never change compute the same, to the bit."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.native_form import native_block
from tests.computations.built import NAMES, STATEFUL, begin, clients_of_round, model_of, options_of, play
from tests.computations.cases import case
from tff_re.runtime import open_runtime
from tff_re.runtime.in_process import leaves
from tff_re.runtime.in_process.loops import without_invariants

VECTOR = tff.TensorType(np.float32, [None])


def rounds(tmp_path, name):
    """Three rounds of an algorithm in a runtime of their own."""
    algorithm = algorithms.find(name).build(model_of(case(name).bags), options_of(name, **STATEFUL, num_clients=3))
    with open_runtime("in-process", log_path=tmp_path / "log", threads=2):
        return play(algorithm, begin(algorithm), range(3), clients_of_round)


QUICK = {"fedcmc", "moon"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_rounds_have_the_same_bits(monkeypatch, tmp_path, name):
    ours = rounds(tmp_path, name)
    monkeypatch.setattr(leaves, "without_invariants", lambda graph_def: graph_def)
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(rounds(tmp_path, name)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@tff.tensorflow.computation(VECTOR, np.int32)
def nested(x, times):
    """A loop in a loop, with a condition and a variable in it; `x` and `factor` never change, and are used after it."""
    total, factor = tf.Variable(0.0), tf.reduce_sum(x)

    def inner(j, y):
        return j + 1, tf.cond(y[0] > 3.0, lambda: y - x, lambda: y + x * factor)

    @tf.function(autograph=False)
    def run():
        total.assign(0.0)

        def outer(i, y):
            y = tf.while_loop(lambda j, _: j < i, inner, [tf.constant(0), y], shape_invariants=[[], [None]])[1]
            total.assign_add(factor)
            return i + 1, y

        ended = tf.while_loop(lambda i, _: i < times, outer, [tf.constant(0), x], shape_invariants=[[], [None]])
        return ended[1] + x, total + factor

    return run()


@pytest.mark.parametrize("times", [0, 1, 5])
def test_nested_loops(monkeypatch, tmp_path, times):
    results = []
    for function in (without_invariants, lambda graph_def: graph_def):
        monkeypatch.setattr(leaves, "without_invariants", function)
        with open_runtime("in-process", log_path=tmp_path / "log"):
            results.append(nested(np.array([0.5, -0.25], np.float32), times))
    ((ours, our_total), (others, total)) = results
    assert ours.tobytes() == others.tobytes()
    assert our_total == total == 0.25 * (times + 1)


def operations(graph_def):
    return collections.Counter(node.op for node in graph_def.node)


def test_variables_that_never_change_are_taken_out():
    graph_def = tf.compat.v1.GraphDef()
    block = native_block(nested)
    while not hasattr(block, "proto"):
        block = next(iter(block.children()))
    tff.proto_of(block).tensorflow.graph_def.Unpack(graph_def)
    before, after = operations(graph_def), operations(without_invariants(graph_def))
    assert before["LoopCond"] == after["LoopCond"] == 2
    assert after["NextIteration"] < before["NextIteration"] and after["NextIteration"] >= 4
    again = without_invariants(without_invariants(graph_def))
    assert operations(again)["NextIteration"] == after["NextIteration"]
