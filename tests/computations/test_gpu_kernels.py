"""Whether TensorFlow has a GPU kernel for every operation of a round. That needs no GPU: its packages register them."""

import pytest
from tensorflow.python.framework import kernels

from computations import algorithms
from computations import federated as tff
from computations.native_form import native_form
from tests.computations.built import NAMES, build, options_of
from tests.computations.cases import case
from tests.computations.test_example_privacy import built as model_with_examples
from tests.computations.test_local_training import graphs

pytestmark = pytest.mark.xdist_group("algorithms")

FROZEN_WEIGHTS = {"ImmutableConst"}
"""Reads the frozen weights of an encoder in host memory, from where TensorFlow copies them to the GPU."""
ROWS_OF_BAGS = {"RaggedRange"}
"""Numbers the sentences of a step's bags: a few integers."""


def operations(computation):
    """The names of all TensorFlow operations in a compiled computation, those of functions included."""
    names, functions = set(), set()
    for graph in graphs(tff.proto_of(native_form(computation))):
        functions |= {function.signature.name for function in graph.library.function}
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            names |= {node.op for node in nodes}
    return names - functions


def only_on_cpu(names):
    def devices(name):
        return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(name).kernel}

    return {name for name in names if not devices(name) & {"GPU", "DEFAULT"}}


def test_an_operation_without_a_gpu_kernel_is_told_from_others():
    assert only_on_cpu({"MatMul", "StringJoin", "ReadFile"}) == {"StringJoin", "ReadFile"}


@pytest.mark.parametrize("name", NAMES)
def test_a_round_of_every_algorithm_has_gpu_kernels(name):
    names = operations(build(name).next)
    assert len(names) > 10 and only_on_cpu(names) <= (ROWS_OF_BAGS if case(name).bags else set())


@pytest.mark.parametrize("name", ["lstm", pytest.param("pcnn", marks=pytest.mark.slow), "text_encoder"])
def test_the_training_of_every_kind_of_model_has_gpu_kernels(name):
    model, _, _ = model_with_examples(name)
    names = operations(algorithms.find("fedpap").build(model, options_of("fedpap")).next)
    assert len(names) > 10 and only_on_cpu(names) <= FROZEN_WEIGHTS
