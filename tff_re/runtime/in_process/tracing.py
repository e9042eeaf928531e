"""From a compiled computation to its graph: Lambda, Block, Call, Struct, Selection, Reference, Literal, leaves and
intrinsics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tensorflow_federated as tff

from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.in_process import sequences
from tff_re.runtime.in_process.graph import (
    Aggregated,
    Applied,
    Constant,
    Element,
    Given,
    Node,
    Program,
    level_of,
    nodes_in,
)
from tff_re.runtime.in_process.leaves import Leaf, import_leaf


class UnknownIntrinsic(RuntimeProblem):
    """A computation uses what this runtime cannot do.

    Attributes:
      uri: the intrinsic's name, such as `"federated_secure_sum"`.
    """

    def __init__(self, uri: str):
        why = (
            "it adds in the clear"
            if "secure" in uri
            else f"it knows {', '.join(sorted(name.removeprefix('_') for name in _INTRINSICS))}"
        )
        super().__init__(f"the runtime 'in-process' has no {uri}: {why}")
        self.uri = uri


@dataclass(frozen=True)
class Function:
    """A function that has not been called yet: given the tree of its argument, the tree of its result."""

    call: Callable


@dataclass
class Traced:
    """A computation's graph.

    Attributes:
      nodes: all of them, in an order in which they can be computed.
      result: tree.
      leaves: the TensorFlow computations in it.
    """

    nodes: list[Node]
    result: object
    leaves: list[Leaf]


def trace(block: tff.framework.ComputationBuildingBlock) -> Traced:
    """The graph of a compiled computation, a function with an argument or without.

    Raises:
      UnknownIntrinsic: it uses one that this runtime does not have.
      RuntimeProblem: it holds something else that this runtime cannot do.
    """
    tracer = _Tracer()
    function = tracer.value(block, {})
    parameter = block.type_signature.parameter
    argument = None if parameter is None else tracer.argument(parameter, ())
    result = tracer.apply(function, argument)
    return Traced(tracer.nodes, result, list(tracer.leaves.values()))


class _Tracer:
    def __init__(self):
        self.nodes: list[Node] = []
        self.leaves: dict[bytes, Leaf] = {}
        self._made = 0
        self._at_clients = False

    def argument(self, type_spec: tff.Type, path: tuple[int, ...]):
        """The tree of an argument: structures are taken apart down to what is placed or has none."""
        if isinstance(type_spec, tff.StructType):
            members = [member for _, member in tff.structure.to_elements(type_spec)]
            return tuple(self.argument(member, (*path, i)) for i, member in enumerate(members))
        many = isinstance(type_spec, tff.FederatedType) and not type_spec.all_equal
        with self._placed(many):
            return self._add(Given, 0, path=path, type_spec=type_spec)

    def value(self, block, names: dict):
        """The tree of a building block, or a Function."""
        if isinstance(block, tff.framework.Reference):
            return names[block.name]
        if isinstance(block, tff.framework.Selection):
            index = block.index
            if index is None:
                index = tff.structure.name_list_with_nones(block.source.type_signature).index(block.name)
            return self.select(self.value(block.source, names), index)
        if isinstance(block, tff.framework.Struct):
            return tuple(self.value(member, names) for _, member in tff.structure.to_elements(block))
        if isinstance(block, tff.framework.Block):
            names = dict(names)
            for name, local in block.locals:
                names[name] = self.value(local, names)
            return self.value(block.result, names)
        if isinstance(block, tff.framework.Lambda):
            return Function(
                lambda argument: self.value(
                    block.result, names if block.parameter_name is None else {**names, block.parameter_name: argument}
                )
            )
        if isinstance(block, tff.framework.Call):
            argument = None if block.argument is None else self.value(block.argument, names)
            return self.apply(self.value(block.function, names), argument)
        if isinstance(block, tff.framework.Literal):
            dtype = block.type_signature.dtype.type
            return self._add(Constant, 0, value=tf.constant(block.value, tf.as_dtype(dtype)))
        if isinstance(block, tff.framework.CompiledComputation):
            leaf = self._leaf(block)
            return Function(lambda argument: self.applied(leaf, argument))
        if isinstance(block, tff.framework.Intrinsic):
            found = _INTRINSICS.get(block.uri)
            if found is None:
                raise UnknownIntrinsic(block.uri)
            return Function(lambda argument: found(self, argument, block.type_signature))
        raise RuntimeProblem(f"the runtime 'in-process' cannot run a {type(block).__name__} in a computation")

    def apply(self, function: Function, argument):
        """The tree of a call. Functions are traced anew for each."""
        return function.call(argument)

    def apply_at(self, function: Function, argument, at_clients: bool):
        with self._placed(at_clients):
            return self.apply(function, argument)

    def select(self, source, index: int):
        if isinstance(source, tuple):
            return source[index]
        with self._placed(source.at_clients):
            return self._add(Element, source.level, source=source, index=index)

    def applied(self, function: Callable, argument, *programs: Program) -> Node:
        """The node of a function of values."""
        needs = [*(() if argument is None else nodes_in(argument)), *(n for p in programs for n in p.captured)]
        return self._add(Applied, level_of(needs), function=function, argument=argument, programs=programs)

    def program(self, function: Function) -> Program:
        """A function as one that can be called while the graph runs."""
        outer, self.nodes = self.nodes, []
        try:
            with self._placed(False):
                parameter = self._add(Given, 0)
                result = self.apply(function, parameter)
                return Program(parameter, self.nodes, result)
        finally:
            self.nodes = outer

    def aggregated(self, value, zero, accumulate: Program) -> Node:
        level = level_of([*nodes_in(value), *nodes_in(zero), *accumulate.captured]) + 1
        with self._placed(False):
            return self._add(Aggregated, level, value=value, zero=zero, accumulate=accumulate)

    def _leaf(self, block) -> Leaf:
        key = block.proto.SerializeToString(deterministic=True)
        if key not in self.leaves:
            self.leaves[key] = import_leaf(block)
        return self.leaves[key]

    def _add(self, kind, level: int, **attributes) -> Node:
        node = kind(self._at_clients, self._made, level, **attributes)
        self._made += 1
        self.nodes.append(node)
        return node

    @contextlib.contextmanager
    def _placed(self, at_clients: bool):
        before, self._at_clients = self._at_clients, at_clients
        try:
            yield
        finally:
            self._at_clients = before


def _aggregate(tracer: _Tracer, argument, type_spec):
    # `merge` is for runtimes that add in several places.
    value, zero, accumulate, _, report = argument
    folded = tracer.aggregated(value, zero, tracer.program(accumulate))
    return tracer.apply_at(report, folded, False)


def _select(tracer: _Tracer, argument, type_spec):
    keys, _, server_value, select = argument
    program = tracer.program(select)
    make = sequences.selected(type_spec.result.member.element)
    with tracer._placed(True):
        return tracer.applied(make, (server_value, keys), program)


def _sequence_map(tracer: _Tracer, argument, type_spec):
    function, sequence = argument
    program = tracer.program(function)
    source = type_spec.parameter[1].element
    return tracer.applied(sequences.mapped(source, type_spec.result.element), (sequence,), program)


def _sequence_reduce(tracer: _Tracer, argument, type_spec):
    sequence, zero, function = argument
    program = tracer.program(function)
    return tracer.applied(sequences.reduced(type_spec.parameter[0].element), (sequence, zero), program)


def _sequence_sum(tracer: _Tracer, argument, type_spec):
    return tracer.applied(sequences.total(type_spec.result), (argument,))


_INTRINSICS = {
    "federated_aggregate": _aggregate,
    "federated_apply": lambda tracer, argument, _: tracer.apply_at(*argument, False),
    "federated_broadcast": lambda tracer, argument, _: argument,
    "federated_eval_at_clients": lambda tracer, argument, _: tracer.apply_at(argument, None, True),
    "federated_eval_at_server": lambda tracer, argument, _: tracer.apply_at(argument, None, False),
    "federated_map": lambda tracer, argument, _: tracer.apply_at(*argument, True),
    # One for all, whatever the number of clients.
    "federated_map_all_equal": lambda tracer, argument, _: tracer.apply_at(*argument, False),
    "federated_select": _select,
    "federated_value_at_clients": lambda tracer, argument, _: argument,
    "federated_value_at_server": lambda tracer, argument, _: argument,
    "federated_zip_at_clients": lambda tracer, argument, _: argument,
    "federated_zip_at_server": lambda tracer, argument, _: argument,
    "sequence_map": _sequence_map,
    "sequence_reduce": _sequence_reduce,
    "sequence_sum": _sequence_sum,
}
