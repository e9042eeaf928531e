# ruff: noqa: F401  (the names are in core.py)
"""The language of TensorFlow Federated 0.87, and the private parts of TFF that this project needs."""

from __future__ import annotations

from typing import Any

from tensorflow_federated import (
    CLIENTS,
    SERVER,
    Computation,
    FederatedType,
    FunctionType,
    SequenceType,
    StructType,
    StructWithPythonType,
    TensorType,
    Type,
    federated_aggregate,
    federated_broadcast,
    federated_computation,
    federated_eval,
    federated_map,
    federated_max,
    federated_min,
    federated_secure_sum,
    federated_secure_sum_bitwidth,
    federated_sum,
    federated_value,
    federated_zip,
    framework,
    sequence_sum,
    structure,
    tensorflow,
    types,
)
from tensorflow_federated import framework as fw
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    compiled_computation_transformations as graphs,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import tensorflow_tree_transformations as trees
from tensorflow_federated.python.core.impl.compiler import array
from tensorflow_federated.python.core.impl.compiler.tree_transformations import (
    uniquify_reference_names as _uniquify_reference_names,
)
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import infer_cardinalities
from tensorflow_federated.python.core.impl.utils.tensorflow_utils import (
    extract_tensor_names_from_binding,
    make_data_set_from_elements,
)

tensor_names = extract_tensor_names_from_binding
type_to_tf_structure = types.type_conversions.type_to_tf_structure


def proto_of(block: fw.ComputationBuildingBlock | Computation) -> Any:
    """Return the serialized form of a building block or a computation."""
    return fw.ConcreteComputation.get_proto(block) if isinstance(block, Computation) else block.proto


def flat_block(computation: Computation) -> fw.ComputationBuildingBlock:
    """Return a computation as calls (TFF's call-dominant form), with sums, minima and maxima as aggregations."""
    block, _ = trees.replace_intrinsics_with_bodies(computation.to_building_block())
    return fw.to_call_dominant(block)


def optimized_leaf(leaf: fw.CompiledComputation, config: Any) -> fw.CompiledComputation:
    """Return a TensorFlow computation optimized by Grappler, with the id by which TFF's worker knows it."""
    leaf, _ = graphs.optimize_tensorflow_graphs(leaf, config)
    leaf, _ = graphs.transform_tf_call_ops_to_disable_grappler(leaf)
    return graphs.transform_tf_add_ids(leaf)[0]


def unique_names(block: fw.ComputationBuildingBlock) -> fw.ComputationBuildingBlock:
    """Return the block renamed so that no inner name hides an outer one."""
    return _uniquify_reference_names(block)[0]


def sequence_from_elements(elements: list, element_type: Type) -> Any:
    """Return a `tf.data.Dataset` of a list of elements."""
    return make_data_set_from_elements(None, elements, element_type)
