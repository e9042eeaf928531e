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
from tensorflow.python.eager import cancellation, context, execute
from tensorflow.python.ops import script_ops

from computations import federated as tff
from tff_re.runtime.errors import ComputationFailed, RuntimeProblem

_numbers = itertools.count()


@functools.cache
def _attributes() -> tuple:
    """Return how functions are called: TensorFlow's way, with graphs that TFF's compiler has already optimized."""
    config = tf.compat.v1.ConfigProto.FromString(context.context().function_call_options.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return "executor_type", "", "config_proto", config.SerializeToString()


class Cancellation:
    """Cancels the running leaves of one call of a computation."""

    def __init__(self):
        self._managers: set[cancellation.CancellationManager] = set()
        self._lock = threading.Lock()
        self._reason: RuntimeProblem | None = None

    def cancel(self, reason: RuntimeProblem) -> None:
        """Stop the running leaves, and start no others."""
        with self._lock:
            self._reason = self._reason or reason
            managers = list(self._managers)
        for manager in managers:
            manager.start_cancel()

    @contextlib.contextmanager
    def managed(self) -> Iterator[cancellation.CancellationManager]:
        """Return TensorFlow's cancellation manager for one leaf, not usable after an error.

        Raises the reason if cancelled.
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

    def call(self, leaf: Leaf, argument=None):
        """Return the leaf's value for an argument (see `Leaf`)."""
        return leaf(self, argument)

    def check(self) -> None:
        """Raise the reason if cancelled."""
        if self._reason is not None:
            raise self._reason


_CODES = {code: name for name, code in vars(tf.errors).items() if name.isupper() and isinstance(code, int)}


class Leaf:
    """A TensorFlow computation, imported at its first call and once more for each concurrent call.

    A copy has variables, tables and library functions of its own, so that no call sees another one's; leaves without
    state have one copy.
    """

    def __init__(self, proto):
        self._proto = proto
        self._graph_def = tf.compat.v1.GraphDef()
        self._proto.graph_def.Unpack(self._graph_def)
        self._exclusive = _keeps_state(self._graph_def)
        self.nodes = sum(1 for _ in _nodes_of(self._graph_def))
        self._lock = threading.Lock()
        self._idle: list[Copy] = []
        self.copies = 0

    def __call__(self, cancelled: Cancellation, argument=None):
        """Return the value for an argument.

        The variables are fresh in each call.

        Raises ComputationFailed for TensorFlow's errors, and the reason if the call was cancelled.
        """
        copy = self._take()
        try:
            with cancelled.managed() as manager:
                return copy(manager, argument)
        except tf.errors.OpError as error:
            cancelled.check()
            # Without the names that this module gave.
            message = re.sub(r"^(\{\{function_node \S*\}\} ?)+| \[Op:\S*\]$", "", " ".join(error.message.split()))
            raise ComputationFailed(
                f"a computation failed in this process: {message}", code=_CODES.get(error.error_code, "UNKNOWN")
            ) from error
        finally:
            if self._exclusive:
                with self._lock:
                    self._idle.append(copy)

    def new_copy(self) -> Copy:
        """Return an import of the leaf that the caller closes."""
        self.copies += 1
        return Copy(self._proto, self._graph_def)

    def _take(self) -> Copy:
        with self._lock:
            if not self._idle:
                self._idle.append(self.new_copy())
            return self._idle.pop() if self._exclusive else self._idle[0]

    @property
    def held_nodes(self) -> int:
        """The number of graph nodes in the copies that are not in use."""
        return self.nodes * len(self._idle)

    def close(self) -> None:
        """Free the copies that are not in use."""
        with self._lock:
            for copy in self._idle:
                copy.close()
            self._idle.clear()


class Copy:
    """One import of a leaf."""

    def __init__(self, proto, graph_def: tf.compat.v1.GraphDef):
        suffix = f"_in_process_{next(_numbers)}"
        graph_def = _made_unique(graph_def, suffix)
        self._inputs = _tensor_names(proto.parameter) if proto.HasField("parameter") else []
        self._wanted, self._result = _tensor_names(proto.result), proto.result
        # An argument that is handed on as it is needs no graph.
        self._computed = [name for name in dict.fromkeys(self._wanted) if name not in self._inputs]
        self._token = tf.constant(suffix) if proto.session_token_tensor_name else None
        inputs = [*self._inputs, proto.session_token_tensor_name] if self._token is not None else self._inputs
        specs = _specs(graph_def, inputs)
        # Nodes that the compiler's optimizer found to be unused are gone.
        self._indices = [index for index, name in enumerate(inputs) if name in specs]
        inputs = [inputs[index] for index in self._indices]
        self._initialize = _function(graph_def, proto.initialize_op, [], [], {}) if proto.initialize_op else None
        self._main = _function(graph_def, None, inputs, self._computed, specs) if self._computed else None
        self._variables = [node for node in graph_def.node if node.op == "VarHandleOp"]

    def __call__(self, manager, argument):
        named, arguments = self._arguments(argument)
        if self._main is not None:
            if self._initialize is not None:
                run_function(self._initialize, [], manager)
            named.update(zip(self._computed, run_function(self._main, arguments, manager), strict=True))
        return self._value(named)

    def in_graph(self, argument) -> tuple[object, list[tf.Tensor]]:
        """Call it in a graph that is being built.

        Returns:
          (its value, what it computed: once these tensors are there, it has ended)
        """
        named, arguments = self._arguments(argument)
        computed: list[tf.Tensor] = []
        if self._main is not None:
            begun = [] if self._initialize is None else call_in_graph(self._initialize, [])
            with tf.control_dependencies(begun):
                computed = call_in_graph(self._main, arguments)
            named.update(zip(self._computed, computed, strict=True))
        return self._value(named), computed

    def _arguments(self, argument) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        """Return an argument's tensors by the names of the inputs, and those that the main function takes."""
        arguments = tf.nest.flatten(argument) if self._inputs else []
        named = dict(zip(self._inputs, arguments, strict=True))
        if self._token is not None:
            arguments = [*arguments, self._token]
        return named, [arguments[index] for index in self._indices]

    def _value(self, named: dict[str, tf.Tensor]):
        return _bound(self._result, (named[name] for name in self._wanted))

    def close(self) -> None:
        for node in self._variables:
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.as_dtype(node.attr["dtype"].type),
                shape=tf.TensorShape(node.attr["shape"].shape),
                shared_name=node.attr["shared_name"].s,
                container=node.attr["container"].s,
            )
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _function(graph_def, operation: str | None, inputs: list[str], wanted: list[str], specs):
    """Return a function from a graph, which returns the requested tensors, or runs an operation and returns True."""
    nodes = [operation] if operation else [_node(name) for name in wanted]
    part = _reduced(graph_def, sorted(set(nodes)), set(map(_node, inputs)))
    needed = {_tensor(name) for node in part.node for name in node.input}

    def body(*tensors):
        mapped = {name: tensor for name, tensor in zip(inputs, tensors, strict=True) if name in needed}
        results = tf.graph_util.import_graph_def(part, mapped, wanted or [operation], name="")
        if not operation:
            return results
        with tf.control_dependencies(results):
            return tf.constant(True)

    return tf.compat.v1.wrap_function(body, [specs[name] for name in inputs])


def run_function(function, arguments: list[tf.Tensor], manager) -> list[tf.Tensor]:
    """Call a function of `tf.compat.v1.wrap_function`.

    It is what calling it does, without TensorFlow's look for gradient tapes, and cancelled by our own manager instead
    of the one that TensorFlow has once for all threads.
    """
    arguments = [*arguments, *function.captured_inputs]
    return execute.execute_with_cancellation(
        function.name.decode(), len(function.outputs), arguments, _attributes(), context.context(), manager
    )


def call_in_graph(function, arguments: list[tf.Tensor]) -> list[tf.Tensor]:
    """Add a call of such a function to a graph, as `run_function` calls it."""
    results = tf.raw_ops.StatefulPartitionedCall(
        args=[*arguments, *function.captured_inputs],
        Tout=[tensor.dtype for tensor in function.outputs],
        f=function,
        config_proto=_attributes()[3],
    )
    for result, tensor in zip(results, function.outputs, strict=True):
        result.set_shape(tensor.shape)
    # TensorFlow puts the function's body in the place of the call. What waits for the call would then wait for nothing,
    # because the function declares no effects; what waits for an identity of its result waits for that.
    return [tf.identity(result) for result in results]


def _specs(graph_def, names: list[str]) -> dict[str, tf.TensorSpec]:
    nodes = {node.name: node.attr for node in graph_def.node}
    attributes = {name: nodes[_node(name)] for name in names if _node(name) in nodes}
    return {n: tf.TensorSpec(tf.TensorShape(a["shape"].shape), a["dtype"].type) for n, a in attributes.items()}


def _node(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _tensor(name: str) -> str:
    return name if ":" in name or name.startswith("^") else f"{name}:0"


def _tensor_names(binding) -> list[str]:
    return [_tensor(name) for name in tff.tensor_names(binding)]


def _bound(binding, tensors: Iterator[tf.Tensor]):
    """Return the value with the structure of a binding from its tensors, depth first."""
    if binding.WhichOneof("binding") == "struct":
        return tuple(_bound(element, tensors) for element in binding.struct.element)
    return next(tensors)


def import_leaf(block: tff.framework.CompiledComputation) -> Leaf:
    """Return the leaf of a compiled computation.

    Raises RuntimeProblem if it is not TensorFlow.
    """
    proto = tff.proto_of(block)
    kind = proto.WhichOneof("computation")
    if kind != "tensorflow":
        raise RuntimeProblem(f"the runtime 'in-process' runs TensorFlow computations, not {kind}")
    return Leaf(proto.tensorflow)


@contextlib.contextmanager
def held_python_functions() -> Iterator[None]:
    """Hold references to the Python functions (`tf.py_function`) of computations built in the block.

    TensorFlow keeps them as long as the graph that they were written into, which TFF throws away once serialized.
    """
    registry, held = script_ops._py_funcs, []
    insert = registry.insert

    def keep(function):
        held.append(function)
        return insert(function)

    registry.insert = keep
    try:
        yield
    finally:
        if registry.insert is keep:
            registry.insert = insert


_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""TensorFlow's shared name for a resource that is made anew by every execution of its operation."""


def _nodes_of(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _keeps_state(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Return whether a run changes state that a concurrent run could see.

    State is variables, tables, queues and the positions of random generators.
    """
    return any("shared_name" in node.attr or "seed2" in node.attr for node in _nodes_of(graph_def))


def _made_unique(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """Return a copy with the suffix in the names of all its functions and shared resources.

    TensorFlow numbers functions in each process from zero, so two graphs may both bring a `__inference_step_12`, which
    are not the same; and two copies of a graph in one process would share their variables.
    """
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    names = {function.signature.name: function.signature.name + suffix for function in copy.library.function}
    for function in copy.library.function:
        function.signature.name = names[function.signature.name]
    for gradient in copy.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    for node in _nodes_of(copy):
        node.op = names.get(node.op, node.op)
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in names:
                    function.name = names[function.name]
        if "shared_name" in node.attr:
            shared = node.attr["shared_name"].s.decode()
            shared_name = node.name if shared in ("", _ANONYMOUS) else shared
            node.attr["shared_name"].s = (shared_name + suffix).encode()
    return copy


def _reduced(graph_def: tf.compat.v1.GraphDef, wanted: list[str], placeholders: set[str]) -> tf.compat.v1.GraphDef:
    """Return the part of a graph that some nodes need, without the caller's placeholders and waiting for them.

    In a function, other than in a session, each node with a side effect is run, needed or not.
    """
    graph_def = tf.compat.v1.graph_util.extract_sub_graph(graph_def, wanted)
    nodes = [node for node in graph_def.node if node.name not in placeholders]
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    for node in graph_def.node:
        inputs = [name for name in node.input if not (name.startswith("^") and name[1:] in placeholders)]
        del node.input[:]
        node.input.extend(inputs)
        if "_class" in node.attr:  # on which nodes' devices it wants to be
            colocated = node.attr["_class"].list.s
            there = [name for name in colocated if name.decode().removeprefix("loc:@") not in placeholders]
            del colocated[:]
            colocated.extend(there)
    return graph_def
