"""A digest of a compiled computation that is the same on every machine that builds it from the same recipe.

TFF and TensorFlow number names in each process, and a graph holds the paths of files with fixed weights. So names are
replaced by the order of their first use, paths by what lies behind the run's own folder, and what says where a graph
was written (versions, debug information, devices) is left out. Constants count with all their digits.
"""

from __future__ import annotations

import hashlib
import json

import tensorflow as tf

from computations import federated as tff
from computations.stack import STACK
from tff_re.runtime.compiled_form import CompiledForm

fw = tff.framework


def program_digest(form: CompiledForm) -> str:
    """Return the SHA-256 of a computation (hexadecimal): the stack, and steps with stages, placements and graphs."""
    names = {name: f"step {index}" for index, name in enumerate(form.steps)}
    if form.parameter is not None:
        names[form.parameter.name] = "argument"
    leaves: dict[bytes, str] = {}
    steps = [
        [names[name], step.stage, step.per_client, step.aggregates, _block(step.expression, names, leaves)]
        for name, step in form.steps.items()
    ]
    whole = [STACK, str(form.result_type), [names[name] for name in form.result], steps]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _block(block, names: dict, leaves: dict[bytes, str]):
    """Return a building block as lists of strings that do not depend on its names."""
    kind, of_type = type(block).__name__, str(block.type_signature)
    if isinstance(block, fw.Reference):
        return [kind, of_type, names[block.name]]
    if isinstance(block, fw.Selection):
        return [kind, of_type, block.as_index(), _block(block.source, names, leaves)]
    if isinstance(block, fw.Intrinsic):
        return [kind, of_type, block.uri]
    if isinstance(block, fw.Literal):
        return [kind, of_type, repr(block.value)]
    if isinstance(block, fw.CompiledComputation):
        return [kind, of_type, _leaf(tff.proto_of(block), leaves)]
    if isinstance(block, fw.Lambda):
        inner = {**names, block.parameter_name: f"inner {len(names)}"}
        return [kind, of_type, _block(block.result, inner, leaves)]
    if isinstance(block, fw.Block):
        inner, made = dict(names), []
        for name, value in block.locals:
            made.append(_block(value, inner, leaves))
            inner[name] = f"inner {len(inner)}"
        return [kind, made, _block(block.result, inner, leaves)]
    if isinstance(block, fw.Struct | fw.Call):
        return [kind, of_type, *(_block(child, names, leaves) for child in block.children())]
    raise ValueError(f"a {kind} has no digest")


def _leaf(proto, leaves: dict[bytes, str]) -> str:
    key = proto.SerializeToString(deterministic=True)
    if key not in leaves:
        if proto.WhichOneof("computation") != "tensorflow":
            raise ValueError(f"a computation of {proto.WhichOneof('computation')} has no digest")
        leaves[key] = _Graph(proto.tensorflow).digest()
    return leaves[key]


class _Graph:
    """A TensorFlow leaf whose nodes and functions are named by their order of first use from its result."""

    _IGNORED = frozenset(("_class", "_output_shapes", "shared_name", "container", "_has_manual_control_dependencies"))

    def __init__(self, leaf):
        self._leaf = leaf
        self._graph = tf.compat.v1.GraphDef()
        leaf.graph_def.Unpack(self._graph)
        self._functions = {function.signature.name: function for function in self._graph.library.function}
        self._seen: dict[str, int] = {}
        self._queue: list[str] = []

    def digest(self) -> str:
        nodes = {node.name: node for node in self._graph.node}
        leaf = self._leaf
        roots = [name for name in (leaf.initialize_op, leaf.session_token_tensor_name) if name]
        bindings = [self._binding(leaf.parameter, roots), self._binding(leaf.result, roots)]
        body = self._body(nodes, roots)
        functions, done = [], 0
        while done < len(self._queue):
            function = self._functions[self._queue[done]]
            done += 1
            nodes_here = {node.name: node for node in function.node_def}
            arguments = [argument.name for argument in function.signature.input_arg]
            returned = [function.ret[argument.name] for argument in function.signature.output_arg]
            controls = [function.control_ret[name] for name in function.signature.control_output]
            types = [str(a.type) for a in (*function.signature.input_arg, *function.signature.output_arg)]
            functions.append([types, self._body(nodes_here, [*returned, *controls, *nodes_here], arguments)])
        return hashlib.sha256(json.dumps([bindings, body, functions]).encode()).hexdigest()

    def _binding(self, binding, roots: list[str]):
        kind = binding.WhichOneof("binding")
        if kind == "struct":
            return [self._binding(element, roots) for element in binding.struct.element]
        if kind is None:
            return None
        name = binding.tensor.tensor_name if kind == "tensor" else binding.sequence.variant_tensor_name
        roots.append(name)
        return [kind, len(roots)]

    def _body(self, nodes: dict, roots: list[str], arguments: list[str] = ()) -> list:
        """Return the nodes that the roots need, in the order in which a walk from the roots meets them."""
        number = {name: f"given {index}" for index, name in enumerate(arguments)}
        order: list = []
        waiting = [_name(root) for root in reversed(roots)]
        while waiting:
            name = waiting.pop()
            if name in number or name not in nodes:
                continue
            number[name] = f"node {len(order)}"
            order.append(nodes[name])
            waiting.extend(_name(source) for source in reversed(_sources(nodes[name])))
        described = [
            [
                self._function(node.op),
                [_renamed(source, number) for source in _sources(node)],
                {key: self._attribute(node, key) for key in sorted(node.attr) if key not in self._IGNORED},
            ]
            for node in order
        ]
        return [[_renamed(root, number) for root in roots], described]

    def _attribute(self, node, key: str):
        value = node.attr[key]
        if key == "memory_region_name":  # a file of fixed weights: the folder is named by the digest of its numbers
            return value.s.decode().split("/")[-2:]
        kind = value.WhichOneof("value")
        if kind == "func":
            return self._called(value.func)
        if kind == "list" and value.list.func:
            return [self._called(function) for function in value.list.func]
        if kind == "tensor":
            array = tf.make_ndarray(value.tensor)
            content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            return [str(array.dtype), array.shape, hashlib.sha256(content).hexdigest()]
        return value.SerializeToString(deterministic=True).hex()

    def _called(self, function) -> list:
        attributes = {key: function.attr[key].SerializeToString(deterministic=True).hex() for key in function.attr}
        return [self._function(function.name), attributes]

    def _function(self, name: str) -> str:
        if name not in self._functions:
            return name
        if name not in self._seen:
            self._seen[name] = len(self._seen)
            self._queue.append(name)
        return f"function {self._seen[name]}"


def _sources(node) -> list[str]:
    """Return a node's inputs.

    Control inputs come last, in an order that does not depend on names.
    """
    data = [name for name in node.input if not name.startswith("^")]
    return data + [name for name in node.input if name.startswith("^")]


def _name(source: str) -> str:
    return source.removeprefix("^").partition(":")[0]


def _renamed(source: str, number: dict[str, str]) -> str:
    control, name = source.startswith("^"), _name(source)
    rest = source.removeprefix("^")[len(name) :]
    rest = "" if rest == ":0" and not control else rest
    return ("^" if control else "") + number.get(name, "absent") + rest
