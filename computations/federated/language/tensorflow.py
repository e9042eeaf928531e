"""Computations from Python functions that build a TensorFlow graph.

A function is traced once: placeholders stand for its argument, its result is read off the graph, and the graph, with
the names of these tensors, is the computation's `TensorFlow` message. A computation that is called while another
is traced becomes a part of the other's graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import federated_language as fl
import tensorflow as tf
from federated_language import framework as fw
from federated_language.common_libs import structure
from federated_language.proto import computation_pb2 as pb
from google.protobuf import any_pb2

from computations.federated.language.conversions import (
    elements_of,
    infer_type,
    struct_type,
    tensor_type,
    tensorflow_to_type,
    type_to_tf_structure,
)
from computations.federated.values import Structure

__all__ = ["computation"]


class TensorFlowComputation(fw.ConcreteComputation):
    """A computation that keeps its Python function, so that other computations can call it while they are traced."""

    def __init__(self, function: Callable[..., Any], proto: pb.Computation, type_signature: fl.FunctionType):
        super().__init__(computation_proto=proto, context_stack=fw.get_context_stack(), annotated_type=type_signature)
        self.function = function


class _TracingContext(fw.SyncContext):
    """The meaning of a call of a computation while a TensorFlow computation is traced."""

    def invoke(self, comp: fl.Computation, arg: Any) -> Structure:
        if not isinstance(comp, TensorFlowComputation):
            raise TypeError(f"a TensorFlow computation calls only TensorFlow computations, not {comp.type_signature}")
        parameter, result_type = comp.type_signature.parameter, comp.type_signature.result
        if parameter is None:
            return _tensors(comp.function(), result_type)
        arg_type = infer_type(arg)
        if not parameter.is_assignable_from(arg_type):
            raise TypeError(f"an argument of type {arg_type} cannot be of type {parameter}")
        return _tensors(comp.function(_tensors(arg, parameter)), result_type)


def _tensors(value: Any, type_spec: fl.Type) -> Structure:
    """Return a value with tensors as its leaves, in the Python containers of its type."""
    if isinstance(type_spec, fl.TensorType):
        return tf.convert_to_tensor(value, tf.as_dtype(type_spec.dtype.type))
    if not isinstance(type_spec, fl.StructType):
        return value
    members = zip(structure.to_elements(structure.from_container(value)), type_spec.items(), strict=True)
    packed = [(name, _tensors(member, member_type)) for (_, member), (name, member_type) in members]
    return fw.type_to_py_container(structure.Struct(packed), type_spec)


def _placeholders(type_spec: fl.Type) -> tuple[object, pb.TensorFlow.Binding]:
    """Return a value of the type in the traced graph, and the names of its tensors."""
    if isinstance(type_spec, fl.TensorType):
        tensor = tf.compat.v1.placeholder(tf.as_dtype(type_spec.dtype.type), type_spec.shape)
        return tensor, _tensor_binding(tensor)
    if isinstance(type_spec, fl.SequenceType):
        with tf.device("/device:cpu:0"):  # data sets have no other kernels
            variant = tf.compat.v1.placeholder(tf.variant, [])
            data_set = tf.data.experimental.from_variant(variant, type_to_tf_structure(type_spec.element))
        return data_set, _sequence_binding(variant)
    if isinstance(type_spec, fl.StructType):
        members = [(name, *_placeholders(member)) for name, member in type_spec.items()]
        value = structure.Struct([(name, member) for name, member, _ in members])
        return value, _struct_binding(binding for *_, binding in members)
    raise TypeError(f"a TensorFlow computation takes tensors, sequences and structures of them, not {type_spec}")


def _read_off(result: Any) -> tuple[fl.Type, pb.TensorFlow.Binding]:
    """Return the type of a result in the traced graph, and the names of its tensors.

    Raises TypeError for what a computation cannot return.
    """
    if isinstance(result, tf.data.Dataset):
        try:
            element = tensorflow_to_type(result.element_spec)
        except TypeError as error:
            raise TypeError(f"a data set of {result.element_spec} cannot be a result: {error}") from None
        with tf.device("/device:cpu:0"):
            variant = tf.identity(tf.data.experimental.to_variant(result))
        return fl.SequenceType(element), _sequence_binding(variant)
    elements = elements_of(result)
    if elements is not None:
        for name, _ in elements[0]:
            if not isinstance(name, str | None):
                raise TypeError(f"a dictionary that is a result has strings as keys, not {name!r}")
        members = [(name, *_read_off(member)) for name, member in elements[0]]
        members_type = struct_type([(name, member) for name, member, _ in members], elements[1])
        return members_type, _struct_binding(binding for *_, binding in members)
    if isinstance(result, tf.RaggedTensor | tf.SparseTensor):
        raise TypeError(f"a {type(result).__name__} cannot be a result; return its dense tensors")
    try:
        tensor = tf.identity(result.read_value() if isinstance(result, tf.Variable) else tf.convert_to_tensor(result))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"a {type(result).__name__} cannot be the result of a TensorFlow computation: {error}"
        ) from None
    return tensor_type(tensor.dtype, tensor.shape), _tensor_binding(tensor)


def _tensor_binding(tensor: tf.Tensor) -> pb.TensorFlow.Binding:
    return pb.TensorFlow.Binding(tensor=pb.TensorFlow.TensorBinding(tensor_name=tensor.name))


def _sequence_binding(variant: tf.Tensor) -> pb.TensorFlow.Binding:
    return pb.TensorFlow.Binding(sequence=pb.TensorFlow.SequenceBinding(variant_tensor_name=variant.name))


def _struct_binding(members: Iterator[pb.TensorFlow.Binding]) -> pb.TensorFlow.Binding:
    return pb.TensorFlow.Binding(struct=pb.TensorFlow.StructBinding(element=list(members)))


@contextlib.contextmanager
def _recorded_variables() -> Iterator[list[tf.Variable]]:
    variables: list[tf.Variable] = []

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        variables.append(next_creator(**options))
        return variables[-1]

    with tf.variable_creator_scope(create):
        yield variables


def _trace(
    function: Callable[..., Any], parameter_type: fl.Type | None, unpack: bool | None, name: str | None = None, **_: Any
) -> TensorFlowComputation:
    """Return the computation of a Python function, in the form that `ComputationWrapper` requires."""
    called = fw.wrap_as_zero_or_one_arg_callable(function, parameter_type, unpack)
    with tf.Graph().as_default() as graph:
        value, binding = (None, None) if parameter_type is None else _placeholders(parameter_type)
        with fw.get_context_stack().install(_TracingContext()), _recorded_variables() as variables:
            result = called() if parameter_type is None else called(value)
        if result is None:
            raise fw.ComputationReturnedNoneError(function)
        initializers = [variable.initializer for variable in variables]
        initializers += tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
        initialize = tf.group(*initializers, name="initialize").name if initializers else None
        result_type, result_binding = _read_off(result)
        graph_def = any_pb2.Any()
        graph_def.Pack(graph.as_graph_def())
    type_signature = fl.FunctionType(parameter_type, result_type)
    message = pb.TensorFlow(graph_def=graph_def, parameter=binding, result=result_binding, initialize_op=initialize)
    proto = pb.Computation(type=type_signature.to_proto(), tensorflow=message)
    return TensorFlowComputation(called, proto, type_signature)


computation = fw.ComputationWrapper(_trace, tensorflow_to_type, infer_type)
"""Makes a computation of a Python function, as a decorator or a function, as `tff.tensorflow.computation` does."""
