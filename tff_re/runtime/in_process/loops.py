"""Takes out of a graph's loops the variables that never change.

TensorFlow makes everything that a loop's body reads a variable of the loop, which goes through three operations in each
iteration (Merge, Switch, NextIteration). For a small model they are a third of a training step's operations.
"""

from __future__ import annotations

import collections

import tensorflow as tf

GraphDef = tf.compat.v1.GraphDef
NodeDef = tf.compat.v1.NodeDef


def without_invariants(graph_def: GraphDef) -> GraphDef:
    """Return the graph with constants in place of the loops' variables that are the same in all iterations.

    Loops are those of the main graph, as operations (not as a `While` with functions).
    """
    copy = GraphDef()
    copy.CopyFrom(graph_def)
    loops = collections.defaultdict(list)
    graph = _Graph(copy)
    for node in list(copy.node):
        if (variable := graph.variable(node)) is not None:
            loops[node.input[1]].append(variable)
    for variables in loops.values():
        changing = [variable for variable in variables if not graph.never_changes(variable)]
        if changing:
            gate, end = graph.gate_and_end(changing[0])
            for variable in variables:
                if graph.never_changes(variable) and graph.may_be_constant(variable):
                    graph.make_constant(variable, gate, end)
    graph.remove_unused(copy)
    return copy


class _Variable(collections.namedtuple("_Variable", ["enter", "merge", "switch", "next"])):
    """The nodes of a variable of a loop."""


class _Graph:
    """A graph's nodes and which nodes take their outputs."""

    def __init__(self, graph_def: GraphDef):
        self._graph_def = graph_def
        self._nodes = {node.name: node for node in graph_def.node}
        self._takers = collections.defaultdict(dict)  # name -> names of those that take it, in order
        self._removed: set[str] = set()
        for node in graph_def.node:
            for source in node.input:
                self._takers[_name(source)][node.name] = None

    def variable(self, switch: NodeDef) -> _Variable | None:
        """Return the variable of a loop that a node switches, or None if it is no such node."""
        if switch.op != "Switch" or self._nodes[_name(switch.input[1])].op != "LoopCond":
            return None
        merge = self._nodes[_name(switch.input[0])]
        sources = {self._nodes[_name(source)].op: self._nodes[_name(source)] for source in merge.input}
        if merge.op != "Merge" or set(sources) != {"Enter", "NextIteration"}:
            return None
        return _Variable(sources["Enter"], merge, switch, sources["NextIteration"])

    def never_changes(self, variable: _Variable) -> bool:
        source = variable.next.input[0]
        while source != f"{variable.switch.name}:1":
            node = self._nodes[_name(source)]
            if node.op != "Identity":
                return False
            source = node.input[0]
        return True

    def may_be_constant(self, variable: _Variable) -> bool:
        """Return whether all nodes that take the variable can take a constant with a control dependency."""
        merge, switch = variable.merge.name, variable.switch.name
        of_merge, of_switch = self._inputs_from(variable.merge), self._inputs_from(variable.switch)
        return (
            all(source in (merge, f"^{merge}") for _, source in of_merge)
            and all(source in (switch, f"{switch}:1", f"^{switch}") for _, source in of_switch)
            and all(node.op == "Exit" for node, source in of_switch if source == switch)
            and all(node.op != "Merge" for node, _ in of_switch)
            and set(self._takers[variable.next.name]) == {merge}
        )

    def gate_and_end(self, variable: _Variable) -> tuple[str, str]:
        """Return a node that runs in each iteration, and one that runs after the last one."""
        switch = variable.switch
        gate = self._graph_def.node.add(name=f"{switch.name}/in_iteration", op="Identity", input=[f"{switch.name}:1"])
        gate.attr["T"].CopyFrom(switch.attr["T"])
        end = self._graph_def.node.add(name=f"{switch.name}/after_loop", op="Exit", input=[switch.name])
        end.attr["T"].CopyFrom(switch.attr["T"])
        for node in (gate, end):
            self._nodes[node.name] = node
            self._takers[switch.name][node.name] = None
        return gate.name, end.name

    def make_constant(self, variable: _Variable, gate: str, end: str) -> None:
        """Let the nodes that take the variable take what enters the loop, each at the time at which they do now."""
        enter, merge, switch, following = variable
        enter.attr["is_constant"].b = True
        for node, source in self._inputs_from(merge):
            self._replace(node, source, f"^{enter.name}" if source.startswith("^") else enter.name)
        for node, source in self._inputs_from(switch):
            if source.startswith("^"):
                self._replace(node, source, f"^{enter.name}")
            elif source == f"{switch.name}:1":
                self._replace(node, source, enter.name, f"^{gate}")
            else:  # after the loop
                node.op = "Identity"
                self._replace(node, source, enter.input[0], f"^{end}")
        self._removed.update(node.name for node in (merge, switch, following))

    def remove_unused(self, graph_def: GraphDef) -> None:
        left = [node for node in graph_def.node if node.name not in self._removed]
        kept = GraphDef()
        kept.node.extend(left)
        del graph_def.node[:]
        graph_def.node.extend(kept.node)
        for node in graph_def.node:
            if "_class" in node.attr:
                together = node.attr["_class"].list.s
                others = [name for name in together if name.decode().removeprefix("loc:@") not in self._removed]
                del together[:]
                together.extend(others)

    def _inputs_from(self, node: NodeDef) -> list[tuple[NodeDef, str]]:
        """Return the inputs of other nodes that are a node's outputs, without those of removed nodes."""
        takers = [self._nodes[name] for name in self._takers[node.name] if name not in self._removed]
        return [
            (taker, source) for taker in takers for source in dict.fromkeys(taker.input) if _name(source) == node.name
        ]

    def _replace(self, node: NodeDef, source: str, by: str, control: str | None = None) -> None:
        """Replace an input of a node, and add a control input."""
        inputs = [by if name == source else name for name in node.input]
        data = [name for name in inputs if not name.startswith("^")]
        controls = [name for name in inputs if name.startswith("^")] + ([] if control is None else [control])
        del node.input[:]
        node.input.extend([*data, *dict.fromkeys(controls)])
        for name in (by, *([] if control is None else [control])):
            self._takers[_name(name)][node.name] = None


def _name(source: str) -> str:
    """Return the name of the node of an input."""
    return source.removeprefix("^").partition(":")[0]
