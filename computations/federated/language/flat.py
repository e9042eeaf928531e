"""A computation as a list of calls with optimized TensorFlow graphs, the form that runtimes read.

The tree of a federated computation is a term of the lambda calculus. It is evaluated with names for values: functions
are applied and parts of structures selected, until only calls of TensorFlow computations and of intrinsics are left,
each with a name of its own. (TFF calls this form call-dominant.)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import federated_language as fl
import numpy as np
import tensorflow as tf
from federated_language import framework as fw
from federated_language.common_libs import structure
from federated_language.proto import computation_pb2 as pb
from tensorflow.python.grappler import tf_optimizer

from computations.federated.language.conversions import tensor_names
from computations.federated.language.tensorflow import computation
from computations.federated.values import Structure


def proto_of(block: fw.ComputationBuildingBlock | fl.Computation) -> pb.Computation:
    """Return the serialized form of a building block or a computation."""
    return block.to_proto()


def unique_names(block: fw.ComputationBuildingBlock) -> fw.ComputationBuildingBlock:
    """Return the block itself, because `flat_block` gives each call and each argument its own name."""
    return block


def flat_block(computation: fl.Computation) -> fw.ComputationBuildingBlock:
    """Return a computation as a list of calls, with sums, minima and maxima as aggregations."""
    block = computation.to_building_block()
    flattening = _Flattening()
    if isinstance(block, fw.Lambda):
        return flattening.function(_Function(block, {}))
    return flattening.body(block, {})


@dataclass(frozen=True)
class _Function:
    """A function that is not applied yet, with the values of the names around it."""

    block: fw.Lambda
    names: dict[str, Flat]


@dataclass(frozen=True)
class _Structure:
    """A structure of values."""

    members: list[tuple[str | None, Flat]]
    container: type | None


Flat: TypeAlias = fw.ComputationBuildingBlock | _Function | _Structure
"""A value: a building block without calls, a function that is not applied yet, or a structure of values."""


class _Flattening:
    """The flattening of one computation."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: list[tuple[str, fw.Call]] = []  # of the function that is flattened

    def body(self, block: fw.ComputationBuildingBlock, names: dict) -> fw.ComputationBuildingBlock:
        """Return a block with its own list of the calls that its result needs, so that nothing else leaves a client."""
        outer, self._calls = self._calls, []
        result = self._block(self._value(block, names))
        calls, self._calls = self._calls, outer
        needed = _names_in(result)
        used: list[tuple[str, fw.Call]] = []
        for name, call in reversed(calls):
            if name in needed:
                used.insert(0, (name, call))
                needed |= _names_in(call)
        return fw.Block(used, result) if used else result

    def function(self, function: _Function) -> fw.Lambda:
        """Return a function whose body is a list of calls."""
        block = function.block
        if block.parameter_name is None:
            return fw.Lambda(None, None, self.body(block.result, function.names))
        parameter = fw.Reference(f"argument_{next(self._numbers)}", block.parameter_type)
        names = {**function.names, block.parameter_name: parameter}
        return fw.Lambda(parameter.name, block.parameter_type, self.body(block.result, names))

    def _value(self, block: fw.ComputationBuildingBlock, names: dict) -> Flat:
        if isinstance(block, fw.Reference):
            return names[block.name]
        if isinstance(block, fw.Lambda):
            return _Function(block, names)
        if isinstance(block, fw.Struct):
            members = [(name, self._value(member, names)) for name, member in structure.iter_elements(block)]
            return _Structure(members, block.type_signature.python_container)
        if isinstance(block, fw.Selection):
            source, index = self._value(block.source, names), block.as_index()
            return source.members[index][1] if isinstance(source, _Structure) else fw.Selection(source, index=index)
        if isinstance(block, fw.Block):
            names = dict(names)
            for name, value in block.locals:
                names[name] = self._value(value, names)
            return self._value(block.result, names)
        if isinstance(block, fw.Call):
            argument = None if block.argument is None else self._value(block.argument, names)
            return self._call(self._value(block.function, names), argument)
        return block

    def _call(self, function: Flat, argument: Flat | None) -> Flat:
        if isinstance(function, _Function):
            name = function.block.parameter_name
            names = function.names if name is None else {**function.names, name: argument}
            return self._value(function.block.result, names)
        argument = None if argument is None else self._block(argument)
        if isinstance(function, fw.Intrinsic) and function.uri in _FOLDS:
            return self._fold(argument, *_FOLDS[function.uri])
        return self._named(fw.Call(function, argument))

    def _named(self, call: fw.Call) -> fw.Reference:
        name = f"call_{next(self._numbers)}"
        self._calls.append((name, call))
        return fw.Reference(name, call.type_signature)

    def _fold(
        self,
        value: fw.ComputationBuildingBlock,
        first: Callable[[np.dtype], Any],
        operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> fw.Reference:
        """Return a `federated_aggregate` that folds clients' values by an operation on their tensors."""
        member = fl.Type.from_proto(value.type_signature.member.to_proto())  # without Python's containers
        zero = self._named(fw.Call(_constants(member, first).to_compiled_building_block()))
        fold = _operation(member, operation).to_compiled_building_block()
        report = self.function(_Function(fw.create_identity(member), {}))
        return self._named(fw.create_federated_aggregate(value, zero, fold, fold, report))

    def _block(self, value: Flat) -> fw.ComputationBuildingBlock:
        if isinstance(value, _Function):
            return self.function(value)
        if isinstance(value, _Structure):
            return fw.Struct([(name, self._block(member)) for name, member in value.members], value.container)
        return value


def _names_in(block: fw.ComputationBuildingBlock) -> set[str]:
    """Return the names that a block refers to."""
    names: set[str] = set()

    def note(part: fw.ComputationBuildingBlock) -> tuple[fw.ComputationBuildingBlock, bool]:
        if isinstance(part, fw.Reference):
            names.add(part.name)
        return part, False

    fw.transform_postorder(block, note)
    return names


def _pack(type_spec: fl.Type, tensors: list) -> Structure:
    return structure.pack_sequence_as(type_spec, tensors) if isinstance(type_spec, fl.StructType) else tensors[0]


@functools.lru_cache(maxsize=256)
def _constants(type_spec: fl.Type, number: Callable[[np.dtype], Any]) -> fl.Computation:
    """Return the computation of tensors filled with `number(dtype)`."""

    def fill() -> Structure:
        types = structure.flatten(type_spec) if isinstance(type_spec, fl.StructType) else [type_spec]
        return _pack(type_spec, [tf.fill(t.shape, tf.constant(number(t.dtype), t.dtype)) for t in types])

    return computation(fill)


@functools.lru_cache(maxsize=256)
def _operation(type_spec: fl.Type, operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> fl.Computation:
    """Return the computation of an operation on the tensors of two values."""

    def combine(first: Structure, second: Structure) -> Structure:
        pairs = zip(structure.flatten(first), structure.flatten(second), strict=True)
        return _pack(type_spec, [operation(*pair) for pair in pairs])

    return computation(combine, type_spec, type_spec)


def _zero(dtype: np.dtype) -> Any:
    return dtype.type(0)


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else np.finfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.finfo(dtype).max


_FOLDS = {
    fw.FEDERATED_SUM.uri: (_zero, tf.add),
    fw.FEDERATED_MIN.uri: (_highest, tf.minimum),
    fw.FEDERATED_MAX.uri: (_lowest, tf.maximum),
}
"""Intrinsics that are a `federated_aggregate`: what it begins with and how it adds a value."""


def optimized_leaf(leaf: fw.CompiledComputation, config: tf.compat.v1.ConfigProto) -> fw.CompiledComputation:
    """Return a TensorFlow computation optimized by Grappler."""
    proto = pb.Computation()
    proto.CopyFrom(leaf.to_proto())
    message = proto.tensorflow
    meta = tf.compat.v1.MetaGraphDef()
    message.graph_def.Unpack(meta.graph_def)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(meta.graph_def, name="")
    if message.initialize_op:
        meta.collection_def[tf.compat.v1.GraphKeys.INIT_OP].node_list.value.append(message.initialize_op)
    signature = meta.signature_def["FunctionSpec"]
    arguments = tensor_names(message.parameter) if message.HasField("parameter") else []
    for infos, names in ((signature.inputs, arguments), (signature.outputs, tensor_names(message.result))):
        for number, name in enumerate(names):
            tensor = graph.get_tensor_by_name(name)
            info = infos[str(number)]
            info.name, info.dtype = name, tensor.dtype.as_datatype_enum
            info.tensor_shape.CopyFrom(tensor.shape.as_proto())
    try:
        message.graph_def.Pack(tf_optimizer.OptimizeGraph(config, meta))
    except ValueError:  # Grappler has nothing to do, for example where no tensor is computed
        return leaf
    return fw.CompiledComputation(proto, type_signature=leaf.type_signature)
