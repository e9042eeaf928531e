"""What a compiled computation does, as a graph of operations at the server and at each client.

A *tree* is a node or a tuple of trees: structures of values are taken apart while the graph is made, so that placing,
zipping, broadcasting and selecting are nothing at all when it runs.

The computation's clients are gone through in *passes*. A pass computes everything of one client that can be computed
before the server knows more, folds it into the sums, and goes on to the next client. A value that comes out of a sum
and is broadcast can be used in the following pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """A value at the server (or of no placement), or one at each client.

    Attributes:
      at_clients: whether there is one for each client.
      number: how many nodes were made before; what a node needs has lower ones.
      level: at clients, the pass in which it is computed; else, the number of passes before it can be.
    """

    at_clients: bool
    number: int
    level: int

    def needs(self) -> Iterator[Node]:
        """The nodes without which it cannot be computed."""
        return iter(())


@dataclass(eq=False)
class Given(Node):
    """A part of the argument, at these places of nested structures; or the argument of a `Program`."""

    path: tuple[int, ...] = ()
    type_spec: object = None


@dataclass(eq=False)
class Constant(Node):
    """A value that is known beforehand."""

    value: object = None


@dataclass(eq=False)
class Element(Node):
    """An element of a structure that another node gives."""

    source: Node = None
    index: int = 0

    def needs(self):
        yield self.source


@dataclass(eq=False)
class Applied(Node):
    """A function of values: `function(cancellation, value)`, or `function(cancellation)` if there is no argument.

    Attributes:
      programs: those that `function` calls, which need what they take from around them.
    """

    function: Callable = None
    argument: object = None
    programs: tuple[Program, ...] = ()

    def needs(self):
        if self.argument is not None:
            yield from nodes_in(self.argument)
        for program in self.programs:
            yield from program.captured


@dataclass(eq=False)
class Aggregated(Node):
    """Clients' values folded into one at the server, in the order of the clients.

    Attributes:
      value: tree at clients.
      zero: tree at the server.
      accumulate: program from (accumulator, value) to an accumulator.
    """

    value: object = None
    zero: object = None
    accumulate: Program = None

    @property
    def pass_number(self) -> int:
        return self.level - 1

    def needs(self):
        yield from nodes_in(self.value)
        yield from nodes_in(self.zero)
        yield from self.accumulate.captured


@dataclass(eq=False)
class Program:
    """A function that is called with values while the graph runs.

    Attributes:
      parameter: the node of its argument.
      body: its nodes, in order.
      result: tree.
      captured: nodes of the graph around it that it uses.
    """

    parameter: Given
    body: list[Node]
    result: object
    captured: list[Node] = field(default_factory=list)

    def __post_init__(self):
        self.body = needed(self.body, nodes_in(self.result))
        own = {self.parameter, *self.body}
        used = {*nodes_in(self.result), *(node for one in self.body for node in one.needs())}
        self.captured = sorted(used - own, key=lambda node: node.number)


def nodes_in(tree) -> Iterator[Node]:
    """The nodes of a tree."""
    if isinstance(tree, tuple):
        for branch in tree:
            yield from nodes_in(branch)
    else:
        yield tree


def level_of(nodes: Iterable[Node]) -> int:
    """The highest level, 0 if there is none."""
    return max((node.level for node in nodes), default=0)


def needed(nodes: list[Node], roots: Iterable[Node]) -> list[Node]:
    """Those nodes that some roots need, roots included, in the same order."""
    wanted = set(roots)
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(node.needs())
    return [node for node in nodes if node in wanted]
