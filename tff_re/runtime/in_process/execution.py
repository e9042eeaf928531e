"""Runs a computation's graph: the server's operations in this thread, clients side by side in a pool of threads."""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow_federated as tff

from tff_re.runtime.errors import ComputationFailed, RuntimeProblem
from tff_re.runtime.in_process.graph import (
    Aggregated,
    Applied,
    Constant,
    Element,
    Given,
    Node,
    Program,
    needed,
    nodes_in,
)
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.tracing import Traced
from tff_re.runtime.in_process.values import Values


@dataclass
class Pass:
    """What is done once for every client.

    Attributes:
      nodes: computed, in this order.
      dropped: for each of them, what is not used in this pass any more when it is there.
      aggregated: what the clients' values are folded into.
      kept: nodes whose values later passes or the caller need, so that they stay for all clients.
      forgotten: kept nodes of earlier passes that nobody needs after this one.
    """

    nodes: list[Node]
    dropped: list[list[Node]] = field(default_factory=list)
    aggregated: list[Aggregated] = field(default_factory=list)
    kept: list[Node] = field(default_factory=list)
    forgotten: list[Node] = field(default_factory=list)


class Plan:
    """In which order a graph is computed, and when a value can go; made once for a computation."""

    def __init__(self, traced: Traced):
        self.result = traced.result
        roots = set(nodes_in(traced.result))
        self.handed_on = [node for node in roots if node.at_clients and isinstance(node, Given)]
        nodes = needed(traced.nodes, roots)
        aggregated = [node for node in nodes if isinstance(node, Aggregated)]
        at_clients = [node for node in nodes if node.at_clients]
        count = max([node.level for node in at_clients] + [node.pass_number for node in aggregated], default=-1) + 1
        self.passes = [self._make_pass(number, at_clients, aggregated, roots) for number in range(count)]
        self.steps: list[Node | Pass] = []
        waiting = [node for node in nodes if not node.at_clients and not isinstance(node, Aggregated)]
        for number, one in enumerate(self.passes):
            self.steps += [node for node in waiting if node.level <= number]
            self.steps.append(one)
            waiting = [node for node in waiting if node.level > number]
        self.steps += waiting
        self.dropped = _last_uses([_needs(step) for step in self.steps], roots, lambda node: not node.at_clients)

    def _make_pass(self, number: int, at_clients, aggregated, roots) -> Pass:
        sums = [node for node in aggregated if node.pass_number == number]
        own = [node for node in at_clients if node.level == number and not isinstance(node, Given)]
        used = {need for node in (*own, *sums) for need in node.needs()}
        # An argument is taken from the caller again in each pass that needs it, and never kept.
        given = [node for node in at_clients if isinstance(node, Given) and node in used]
        nodes = sorted((*given, *own), key=lambda node: node.number)
        later = {
            need
            for node in (*at_clients, *aggregated)
            if (node.pass_number if isinstance(node, Aggregated) else node.level) > number
            for need in node.needs()
        } | roots
        kept = [node for node in own if node in later]
        stays = {*kept, *(need for one in sums for need in nodes_in(one.value))}
        before = [node for node in used if node.at_clients and node.level < number and not isinstance(node, Given)]
        forgotten = [node for node in before if node not in later]
        needs = [[*node.needs(), node] for node in nodes]
        return Pass(nodes, _last_uses(needs, stays, lambda node: node.at_clients), sums, kept, forgotten)


def _needs(step: Node | Pass) -> list[Node]:
    if isinstance(step, Node):
        return [step, *step.needs()]
    return [need for node in (*step.nodes, *step.aggregated) for need in (node, *node.needs())]


def _last_uses(uses: list[list[Node]], stays: set[Node], counts: Callable[[Node], bool]) -> list[list[Node]]:
    """For each step, the nodes that no later one uses."""
    last = {node: step for step, nodes in enumerate(uses) for node in nodes if node not in stays and counts(node)}
    found: list[list[Node]] = [[] for _ in uses]
    for node, step in last.items():
        found[step].append(node)
    return found


class Execution:
    """One call of a computation."""

    def __init__(
        self,
        plan: Plan,
        argument,
        num_clients: int,
        *,
        values: Values,
        pool: concurrent.futures.Executor,
        threads: int,
        cancelled: Cancellation,
    ):
        """
        Args:
          plan: the computation's.
          argument: the caller's.
          num_clients: in this round.
          values: converts the argument.
          pool: where clients are computed.
          threads: how many threads it has; one client more than that is begun before the first of them is folded.
          cancelled: ends the computation.
        """
        self._plan = plan
        self._argument = argument
        self._num_clients = num_clients
        self._values = values
        self._pool = pool
        self._threads = threads
        self._cancelled = cancelled
        self._server: dict[Node, object] = {}
        self._kept: list[dict[Node, object]] = [{} for _ in range(num_clients)]
        self._brought: dict[int, dict[Aggregated, object]] = {}

    def run(self) -> None:
        """Computes everything; afterwards `result` reads it."""
        for step, dropped in zip(self._plan.steps, self._plan.dropped, strict=True):
            if isinstance(step, Pass):
                self._run_pass(step)
            else:
                self._server[step] = self._compute(step, self._server)
            for node in dropped:
                self._server.pop(node, None)

    def result(self, type_spec: tff.Type, tree=None):
        """The result as TFF's own context gives it, structures as `tff.structure.Struct`."""
        tree = self._plan.result if tree is None else tree
        if isinstance(type_spec, tff.FederatedType) and not type_spec.all_equal:
            return [
                self._values.give(_read(tree, self._final_scope(client)), type_spec.member)
                for client in range(self._num_clients)
            ]
        if isinstance(type_spec, tff.StructType) and isinstance(tree, tuple):
            types = tff.structure.to_elements(type_spec)
            return tff.structure.Struct(
                [(name, self.result(kind, branch)) for (name, kind), branch in zip(types, tree, strict=True)]
            )
        return self._values.give(_read(tree, self._server), type_spec)

    def _run_pass(self, one: Pass) -> None:
        sums = {node: _read(node.zero, self._server) for node in one.aggregated}
        accumulate = {node: self._bound(node.accumulate, self._server) for node in one.aggregated}
        under_way: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for client in range(self._num_clients + self._threads):
                if client < self._num_clients:
                    under_way.append(self._pool.submit(self._one_client, one, client))
                first = client - self._threads
                if first >= 0:
                    under_way.popleft().result()
                    self._fold(first, sums, accumulate)
        except BaseException as error:
            self._cancelled.cancel(RuntimeProblem(f"the round failed: {error}"))
            raise
        finally:
            for future in under_way:
                future.cancel()
            concurrent.futures.wait(under_way)
        self._server.update(sums)

    def _fold(self, client: int, sums: dict, accumulate: Mapping) -> None:
        """Adds what a client brought; nothing of it stays."""
        for node, value in self._brought.pop(client).items():
            sums[node] = accumulate[node]((sums[node], value))

    def _one_client(self, one: Pass, client: int) -> None:
        scope = self._scope(client)
        own = scope.maps[0]
        kept = self._kept[client]
        try:
            for node, dropped in zip(one.nodes, one.dropped, strict=True):
                own[node] = self._compute(node, scope, client)
                for done in dropped:
                    own.pop(done, None)
        except ComputationFailed as error:
            named = ComputationFailed(f"client {client + 1} of {self._num_clients}: {error}", code=error.code)
            self._cancelled.cancel(named)  # the others need not go on
            raise named from error
        # Not returned: the thread that ran this would hold on to it.
        self._brought[client] = {node: _read(node.value, scope) for node in one.aggregated}
        kept.update((node, own[node]) for node in one.kept)
        for node in one.forgotten:
            kept.pop(node, None)

    def _scope(self, client: int) -> collections.ChainMap:
        return collections.ChainMap({}, self._kept[client], self._server)

    def _final_scope(self, client: int) -> collections.ChainMap:
        scope = self._scope(client)
        scope.update((node, self._compute(node, scope, client)) for node in self._plan.handed_on)
        return scope

    def _compute(self, node: Node, scope: Mapping[Node, object], client: int | None = None):
        if isinstance(node, Element):
            return scope[node.source][node.index]
        if isinstance(node, Applied):
            programs = [self._bound(program, scope) for program in node.programs]
            if node.argument is None:
                return node.function(self._cancelled, *programs)
            return node.function(self._cancelled, _read(node.argument, scope), *programs)
        if isinstance(node, Given):
            value = self._argument
            for index in node.path:
                value = tff.structure.from_container(value)[index]
            return self._values.take(value if client is None else value[client], node.type_spec)
        if isinstance(node, Constant):
            return node.value
        raise AssertionError(f"{node} is not computed by itself")

    def _bound(self, program: Program, scope: Mapping[Node, object]) -> Callable:
        def call(value):
            inner = collections.ChainMap({program.parameter: value}, scope)
            for node in program.body:
                if node is not program.parameter:
                    inner[node] = self._compute(node, inner)
            return _read(program.result, inner)

        return call


def _read(tree, scope: Mapping[Node, object]):
    if isinstance(tree, tuple):
        return tuple(_read(branch, scope) for branch in tree)
    return scope[tree]
