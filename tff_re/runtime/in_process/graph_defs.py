"""TensorFlow graphs with unique names, so that several can be in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tensorflow as tf

_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""TensorFlow's shared name for a resource that is made anew by every execution of its operation."""


def nodes_of(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """The nodes of a graph and of all functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def keeps_state(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Whether a run changes what another run at the same time could see: variables, tables, queues, the positions of
    random generators."""
    return any("shared_name" in node.attr or "seed2" in node.attr for node in nodes_of(graph_def))


def made_unique(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """A copy with the suffix in the names of all its functions and of all that it shares by name.

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
    for node in nodes_of(copy):
        node.op = names.get(node.op, node.op)
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in names:
                    function.name = names[function.name]
        if "shared_name" in node.attr:
            shared = node.attr["shared_name"].s.decode()
            own = node.name if shared in ("", _ANONYMOUS) else shared
            node.attr["shared_name"].s = (own + suffix).encode()
    return copy


def reduced(
    graph_def: tf.compat.v1.GraphDef, wanted: Iterable[str], given: Iterable[str] = ()
) -> tf.compat.v1.GraphDef:
    """The part of a graph that some nodes need, without the placeholders that a caller gives and the waiting for them.

    In a function, other than in a session, each node with a side effect is run, needed or not.
    """
    graph_def = tf.compat.v1.graph_util.extract_sub_graph(graph_def, sorted(set(wanted)))
    given = frozenset(given)
    kept = [node for node in graph_def.node if node.name not in given]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    for node in graph_def.node:
        inputs = [name for name in node.input if not (name.startswith("^") and name[1:] in given)]
        del node.input[:]
        node.input.extend(inputs)
        if "_class" in node.attr:  # on which nodes' devices it wants to be
            places = node.attr["_class"].list.s
            there = [place for place in places if place.decode().removeprefix("loc:@") not in given]
            del places[:]
            places.extend(there)
    return graph_def
