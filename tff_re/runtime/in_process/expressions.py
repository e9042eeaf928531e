"""Building blocks of a compiled computation as Python functions, which call its TensorFlow leaves."""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable

import tensorflow as tf

from computations import federated as tff
from tff_re.runtime.compiled_form import free_names, reachable, selected_path
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.in_process.leaves import Leaf, import_leaf

fw = tff.framework

CANCELLATION = object()
"""Key in a scope of what calls the leaves: a `Cancellation`, or a caller in a graph being built (`one_call`)."""

Scope = collections.ChainMap
"""Values by the names of steps and local names. A value is an eager tensor, a variant tensor (a sequence), a tuple of
values (a structure, whatever its names), or a Python function of one value (None if it takes no argument)."""

Expression = Callable[[Scope], object]


class UnknownIntrinsic(RuntimeProblem):
    """A computation uses an intrinsic that this runtime does not support.

    `uri` is the intrinsic's name.
    """

    def __init__(self, uri: str):
        known = ", ".join(sorted(["federated_aggregate", *_INTRINSICS]))
        why = "it adds in the clear" if "secure" in uri else f"available: {known}"
        super().__init__(f"the runtime 'in-process' has no {uri}: {why}")
        self.uri = uri


class Expressions:
    """Makes Python functions of the building blocks of one computation, and collects its leaves."""

    def __init__(self, parameter: str | None):
        """Create the compiler.

        `parameter` is the blocks' name of the argument, whose parts stand in scopes by their index paths (`Name`).
        """
        self._parameter = parameter
        self.leaves: dict[bytes, Leaf] = {}  # each TensorFlow computation once

    def compile(self, block: fw.ComputationBuildingBlock) -> Expression:
        """Return a function that computes a block in a scope.

        Raises RuntimeProblem for blocks that this runtime does not support.
        """
        path = selected_path(block, self._parameter)
        if path is not None:
            return _argument(block.type_signature, path)
        if isinstance(block, fw.Reference):
            return operator.itemgetter(block.name)
        if isinstance(block, fw.Selection):
            source, select = self.compile(block.source), operator.itemgetter(block.as_index())
            return lambda scope: select(source(scope))
        if isinstance(block, fw.Struct):
            members = [self.compile(member) for member in block]
            return lambda scope: tuple(member(scope) for member in members)
        if isinstance(block, fw.Block):
            return self._block(block)
        if isinstance(block, fw.Lambda):
            name, result = block.parameter_name, self.compile(block.result)
            return lambda scope: lambda argument: result(scope.new_child({name: argument}))
        if isinstance(block, fw.Call):
            function = self.compile(block.function)
            argument = (lambda scope: None) if block.argument is None else self.compile(block.argument)
            return lambda scope: function(scope)(argument(scope))
        if isinstance(block, fw.Literal):
            constant = tf.constant(block.value, tf.as_dtype(block.type_signature.dtype.type))
            return lambda scope: constant
        if isinstance(block, fw.CompiledComputation):
            key = tff.proto_of(block).SerializeToString(deterministic=True)
            leaf = self.leaves[key] = self.leaves.get(key) or import_leaf(block)
            return lambda scope: functools.partial(scope[CANCELLATION].call, leaf)
        if isinstance(block, fw.Intrinsic):
            if block.uri not in _INTRINSICS:
                raise UnknownIntrinsic(block.uri)
            return lambda scope: _INTRINSICS[block.uri]
        raise RuntimeProblem(f"the runtime 'in-process' cannot run a {type(block).__name__} in a computation")

    def _block(self, block: fw.Block) -> Expression:
        definitions = dict(block.locals)
        needs = {name: free_names(value) for name, value in definitions.items()}
        wanted = reachable(definitions, free_names(block.result), needs)
        locals_ = [(name, self.compile(definitions[name])) for name in wanted]
        result = self.compile(block.result)

        def compute(scope):
            inner = scope.new_child()
            for name, value in locals_:
                inner[name] = value(inner)
            return result(inner)

        return compute


def _argument(type_signature: tff.Type, path: tuple[int, ...]) -> Expression:
    """Read a part of the argument, or build a structure of parts."""
    if not isinstance(type_signature, tff.StructType):
        return operator.itemgetter(path)
    members = [_argument(member, (*path, i)) for i, member in enumerate(type_signature.children())]
    return lambda scope: tuple(member(scope) for member in members)


def _call(argument):
    function, value = argument
    return function(value)


# Where a value is decides when it is computed (`stages.Plan`), not how. An aggregation is the plan's own.
_INTRINSICS = {
    "federated_apply": _call,
    "federated_broadcast": lambda value: value,
    "federated_eval_at_clients": lambda function: function(None),
    "federated_eval_at_server": lambda function: function(None),
    "federated_map": _call,
    "federated_map_all_equal": _call,
    "federated_value_at_clients": lambda value: value,
    "federated_value_at_server": lambda value: value,
    "federated_zip_at_clients": lambda value: value,
    "federated_zip_at_server": lambda value: value,
}
