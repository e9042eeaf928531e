"""The types of TensorFlow's values and specs, and the TensorFlow form of values of a type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import federated_language as fl
import numpy as np
import tensorflow as tf
import tree
from federated_language.common_libs import py_typecheck, structure

from computations.federated.values import Structure


def elements_of(value: Any) -> tuple[list[tuple[str | None, object]], type | None] | None:
    """Return the named members of a Python structure and its container (None for `structure.Struct`).

    None for other values.
    """
    if isinstance(value, structure.Struct):
        return structure.to_elements(value), None
    if attrs.has(type(value)):
        return list(attrs.asdict(value, recurse=False).items()), type(value)
    if isinstance(value, py_typecheck.SupportsNamedTuple):
        return list(value._asdict().items()), type(value)
    if isinstance(value, Mapping):
        return list(value.items()), value.__class__  # TensorFlow wraps dictionaries that a module holds
    if isinstance(value, list | tuple):
        return [(None, member) for member in value], type(value)
    return None


def struct_type(members: Iterable[tuple[str | None, fl.Type]], container: type | None) -> fl.StructType:
    members = list(members)
    return fl.StructType(members) if container is None else fl.StructWithPythonType(members, container)


def tensor_type(dtype: tf.DType, shape: tf.TensorShape) -> fl.TensorType:
    number = np.str_ if dtype.base_dtype == tf.string else dtype.base_dtype.as_numpy_dtype
    return fl.TensorType(number, None if shape.rank is None else shape.as_list())


def tensorflow_to_type(spec: Any) -> fl.Type | None:
    """Return the type that a spec describes.

    TensorFlow's specs and dtypes may stand for types.
    """
    if spec is None or isinstance(spec, fl.Type):
        return spec
    if isinstance(spec, tf.DType):
        return tensor_type(spec, tf.TensorShape([]))
    if isinstance(spec, tf.TensorSpec):
        return tensor_type(spec.dtype, spec.shape)
    if isinstance(spec, tf.data.DatasetSpec):
        return fl.SequenceType(tensorflow_to_type(spec.element_spec))
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], tf.DType):
        return tensor_type(spec[0], tf.TensorShape(spec[1]))
    elements = elements_of(spec)
    if elements is not None and _holds_tensorflow(spec):
        return struct_type([(name, tensorflow_to_type(member)) for name, member in elements[0]], elements[1])
    return fl.to_type(spec)


def _holds_tensorflow(spec: Any) -> bool:
    elements = elements_of(spec)
    if elements is None:
        return isinstance(spec, tf.DType | tf.TensorSpec | tf.data.DatasetSpec)
    return any(_holds_tensorflow(member) for _, member in elements[0])


def infer_type(value: Any) -> fl.Type | None:
    """Return the type of a value of Python, NumPy, TensorFlow or the language."""
    if isinstance(value, fl.TypedObject):
        return value.type_signature
    if isinstance(value, tf.Tensor | tf.Variable):
        return tensor_type(value.dtype, value.shape)
    if isinstance(value, tf.data.Dataset):
        return fl.SequenceType(tensorflow_to_type(value.element_spec))
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        return fl.TensorType(np.str_, value.shape)
    elements = elements_of(value)
    if elements is None:
        return fl.framework.infer_type(value)
    return struct_type([(name, infer_type(member)) for name, member in elements[0]], elements[1])


def structure_from_tensor_type_tree(function: Callable[[fl.TensorType], object], type_spec: fl.Type) -> Any:
    """Return the Python structure of a type with `function` applied to each tensor type."""
    if not isinstance(type_spec, fl.StructType):
        return function(type_spec)
    members = [(name, structure_from_tensor_type_tree(function, member)) for name, member in type_spec.items()]
    return fl.framework.type_to_py_container(structure.Struct(members), type_spec)


def type_to_tf_structure(type_spec: fl.Type) -> Any:
    """Return TensorFlow's specs of the values of a type."""
    return structure_from_tensor_type_tree(_spec, type_spec)


def _spec(type_spec: fl.TensorType | fl.SequenceType) -> tf.TensorSpec | tf.data.DatasetSpec:
    if isinstance(type_spec, fl.SequenceType):
        return tf.data.DatasetSpec(type_to_tf_structure(type_spec.element))
    return tf.TensorSpec(type_spec.shape, tf.as_dtype(type_spec.dtype.type))


def sequence_from_elements(elements: list, element_type: fl.Type) -> tf.data.Dataset:
    """Return a `tf.data.Dataset` of a list of elements."""
    specs = type_to_tf_structure(element_type)

    def data_set(element: Structure) -> tf.data.Dataset:
        def tensor(spec: tf.TensorSpec, leaf: Any) -> tf.Tensor:
            return tf.convert_to_tensor(leaf, spec.dtype)

        return tf.data.Dataset.from_tensors(tree.map_structure_up_to(specs, tensor, specs, element, check_types=False))

    if not elements:
        empty = [tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in tf.nest.flatten(specs)]
        return data_set(tf.nest.pack_sequence_as(specs, empty)).take(0)
    result = data_set(elements[0])
    for element in elements[1:]:
        result = result.concatenate(data_set(element))
    made = tensorflow_to_type(result.element_spec)
    if not element_type.is_assignable_from(made):
        raise TypeError(f"elements of type {made} are not of type {element_type}")
    return result


def infer_cardinalities(value: Any, type_spec: fl.Type) -> dict:
    """Return the number of participants by placement, from the lists in an argument.

    Raises:
      TypeError: a value with one member for each client is not a list or a tuple.
      ValueError: two lists have different lengths.
    """
    if isinstance(type_spec, fl.FederatedType):
        if type_spec.all_equal:
            return {}
        if not isinstance(value, list | tuple):
            raise TypeError(f"a value of type {type_spec} is a list with one member per client, not {type(value)}")
        return {type_spec.placement: len(value)}
    numbers: dict = {}
    if isinstance(type_spec, fl.StructType) and value is not None:
        members = structure.to_elements(structure.from_container(value))
        for (_, member), member_type in zip(members, type_spec.children(), strict=True):
            for placement, number in infer_cardinalities(member, member_type).items():
                if numbers.setdefault(placement, number) != number:
                    raise ValueError(f"an argument has {numbers[placement]} members at {placement}, another {number}")
    return numbers


def tensor_names(binding: Any) -> list[str]:
    """Return the names of the tensors in a binding, depth first."""
    kind = binding.WhichOneof("binding")
    if kind == "tensor":
        return [binding.tensor.tensor_name]
    if kind == "sequence":
        return [binding.sequence.variant_tensor_name]
    return [name for element in binding.struct.element for name in tensor_names(element)]
