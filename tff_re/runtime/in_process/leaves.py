"""TensorFlow computations as functions of eager tensors: the leaves of a computation's tree.

A value is an eager tensor, a variant tensor (a sequence) or a tuple of values (a structure, whatever its names).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import threading
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import cancellation, context, execute

from tff_re.runtime.errors import ComputationFailed, RuntimeProblem
from tff_re.runtime.in_process.graph_defs import keeps_state, made_unique, reduced

_numbers = itertools.count()


@functools.cache
def _attributes() -> tuple:
    """How functions are called: as TensorFlow does, but TFF's compiler has optimized their graphs already."""
    config = tf.compat.v1.ConfigProto.FromString(context.context().function_call_options.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return "executor_type", "", "config_proto", config.SerializeToString()


class Cancellation:
    """Ends what is being computed for one call of a computation."""

    def __init__(self):
        self._managers: set[cancellation.CancellationManager] = set()
        self._lock = threading.Lock()
        self._reason: RuntimeProblem | None = None

    def cancel(self, reason: RuntimeProblem) -> None:
        """Ends the leaves that run; no other one begins."""
        with self._lock:
            self._reason = self._reason or reason
            managers = list(self._managers)
        for manager in managers:
            manager.start_cancel()

    @contextlib.contextmanager
    def managed(self) -> Iterator[cancellation.CancellationManager]:
        """TensorFlow's own for one leaf: it cannot be used after an error.

        Raises:
          RuntimeProblem: the reason, if cancelled.
        """
        manager = cancellation.CancellationManager()
        with self._lock:
            self.check()
            self._managers.add(manager)
        try:
            yield manager
        finally:
            with self._lock:
                self._managers.discard(manager)

    def check(self) -> None:
        """Raises the reason if cancelled."""
        if self._reason is not None:
            raise self._reason


class Leaf:
    """A TensorFlow computation, imported when it is first called and once more for each call at the same time.

    A copy has variables, tables and library functions of its own, so that no call sees another one's; leaves without
    state have one copy.
    """

    def __init__(self, proto, name: str):
        """
        Args:
          proto: the serialized computation, a `tensorflow` one.
          name: for messages.
        """
        self.name = name
        self._proto = proto.tensorflow
        self._graph_def = tf.compat.v1.GraphDef()
        self._proto.graph_def.Unpack(self._graph_def)
        self._exclusive = keeps_state(self._graph_def)
        self._lock = threading.Lock()
        self._idle: list[_Copy] = []
        self.copies = 0

    def __call__(self, cancelled: Cancellation, argument=None):
        """The value for an argument; each call is the first one as far as the variables are concerned.

        Raises:
          ComputationFailed: TensorFlow raised an error.
          RuntimeProblem: the call was cancelled, for this reason.
        """
        copy = self._take()
        try:
            with cancelled.managed() as manager:
                return copy(manager, argument)
        except tf.errors.OpError as error:
            cancelled.check()
            raise ComputationFailed(
                f"a computation failed in this process: {_message(error)}", code=_code(error)
            ) from error
        finally:
            if self._exclusive:
                with self._lock:
                    self._idle.append(copy)

    def _take(self) -> _Copy:
        with self._lock:
            if not self._idle:
                self._idle.append(_Copy(self._proto, self._graph_def))
                self.copies += 1
            return self._idle.pop() if self._exclusive else self._idle[0]

    def close(self) -> None:
        """Frees the copies that are not in use."""
        with self._lock:
            for copy in self._idle:
                copy.close()
            self._idle.clear()


class _Copy:
    """One import of a leaf."""

    def __init__(self, proto, graph_def: tf.compat.v1.GraphDef):
        suffix = f"_in_process_{next(_numbers)}"
        graph_def = made_unique(graph_def, suffix)
        self._given = _tensor_names(proto.parameter)
        self._result = proto.result
        wanted = list(dict.fromkeys(_tensor_names(proto.result)))
        # An argument that is handed on as it is needs no graph.
        self._computed = [name for name in wanted if name not in self._given]
        self._token = tf.constant(suffix) if proto.session_token_tensor_name else None
        given = [*self._given, proto.session_token_tensor_name] if self._token is not None else self._given
        specs = _specs(graph_def, given)
        # Nodes that the compiler's optimizer found to be unused are gone.
        self._places = [place for place, name in enumerate(given) if name in specs]
        given = [given[place] for place in self._places]
        self._initialize = _function(graph_def, proto.initialize_op, [], [], {}) if proto.initialize_op else None
        self._main = _function(graph_def, None, given, self._computed, specs) if self._computed else None
        self._variables = [node for node in graph_def.node if node.op == "VarHandleOp"]

    def __call__(self, manager, argument):
        arguments = _flat(argument) if self._given else []
        if len(arguments) != len(self._given):
            raise AssertionError(f"{len(arguments)} tensors for {len(self._given)} parameters")
        named = dict(zip(self._given, arguments, strict=True))
        if self._main is not None:
            if self._token is not None:
                arguments = [*arguments, self._token]
            if self._initialize is not None:
                _run(self._initialize, [], 1, manager)
            results = _run(self._main, [arguments[place] for place in self._places], len(self._computed), manager)
            named.update(zip(self._computed, results, strict=True))
        return _bound(self._result, named)

    def close(self) -> None:
        for node in self._variables:
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.as_dtype(node.attr["dtype"].type),
                shape=tf.TensorShape(node.attr["shape"].shape),
                shared_name=node.attr["shared_name"].s,
                container=node.attr["container"].s,
            )
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _function(graph_def, operation: str | None, given: list[str], wanted: list[str], specs):
    """A function of tensors from a graph: gives the tensors that are wanted, or runs an operation and gives True."""
    nodes = [operation] if operation else [_node(name) for name in wanted]
    part = reduced(graph_def, nodes, map(_node, given))
    needed = {_tensor(name) for node in part.node for name in node.input}

    def body(*tensors):
        mapped = {name: tensor for name, tensor in zip(given, tensors, strict=True) if name in needed}
        results = tf.graph_util.import_graph_def(part, mapped, wanted or [operation], name="")
        if not operation:
            return results
        with tf.control_dependencies(results):
            return tf.constant(True)

    return tf.compat.v1.wrap_function(body, [specs[name] for name in given])


def _run(function, arguments: list[tf.Tensor], num_results: int, manager) -> list[tf.Tensor]:
    # What calling the function does, without TensorFlow's look for gradient tapes, and cancelled by our own manager
    # instead of the one that TensorFlow has once for all threads.
    return execute.execute_with_cancellation(
        function.name.decode(), num_results, arguments, _attributes(), context.context(), manager
    )


def _specs(graph_def, given: list[str]) -> dict[str, tf.TensorSpec]:
    nodes = {node.name: node for node in graph_def.node}
    found = {}
    for name in given:
        node = nodes.get(_node(name))
        if node is not None:
            found[name] = tf.TensorSpec(tf.TensorShape(node.attr["shape"].shape), node.attr["dtype"].type)
    return found


def _node(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _tensor(name: str) -> str:
    return name if ":" in name or name.startswith("^") else f"{name}:0"


def _tensor_names(binding) -> list[str]:
    """The tensors of a structure, depth first."""
    kind = binding.WhichOneof("binding")
    if kind == "tensor":
        return [_tensor(binding.tensor.tensor_name)]
    if kind == "sequence":
        return [_tensor(binding.sequence.variant_tensor_name)]
    if kind == "struct":
        return [name for element in binding.struct.element for name in _tensor_names(element)]
    return []


def _bound(binding, named: dict[str, tf.Tensor]):
    """The value with the structure of a binding."""
    if binding.WhichOneof("binding") == "struct":
        return tuple(_bound(element, named) for element in binding.struct.element)
    (name,) = _tensor_names(binding)
    return named[name]


def _flat(value) -> list[tf.Tensor]:
    if isinstance(value, tuple):
        return [tensor for member in value for tensor in _flat(member)]
    return [value]


def _code(error: tf.errors.OpError) -> str:
    names = {value: name for name, value in vars(tf.errors).items() if name.isupper() and isinstance(value, int)}
    return names.get(error.error_code, "UNKNOWN")


def _message(error: tf.errors.OpError) -> str:
    # Without the names that this module gave.
    return re.sub(r"^(\{\{function_node \S*\}\} ?)+| \[Op:\S*\]$", "", " ".join(error.message.split()))


def import_leaf(block: tff.framework.CompiledComputation) -> Leaf:
    """The leaf of a compiled computation.

    Raises:
      RuntimeProblem: it is not a TensorFlow one.
    """
    proto = block.proto
    kind = proto.WhichOneof("computation")
    if kind != "tensorflow":
        raise RuntimeProblem(f"the runtime 'in-process' runs TensorFlow computations, not {kind}; use 'local'")
    return Leaf(proto, block.name)
