"""Stage-by-stage execution of a compiled computation: the server's steps, and a pass over the clients in each stage.

This is the one executor of stages. The runtime `in-process` folds all clients of a round with it; across sites each
site folds its own clients with it, and the coordinator computes the server's steps with it.
"""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from computations import federated as tff
from computations.native_form import native_block
from tff_re.runtime.compiled_form import CompiledForm, Name, Step, compiled_form
from tff_re.runtime.errors import ComputationFailed, RuntimeProblem
from tff_re.runtime.in_process.expressions import Expression, Expressions, Scope, UnknownIntrinsic
from tff_re.runtime.in_process.kept import Kept
from tff_re.runtime.in_process.leaves import Cancellation

fw = tff.framework


class Aggregation:
    """One `federated_aggregate`, which folds values of clients (each in its client's scope) into one at the server.

    Attributes:
      type: of a sum, before `report`.
      value_type: of what is folded, at the clients.
      merge: of two sums, for runtimes that add in several places.
    """

    def __init__(self, step: Step, expressions: Expressions):
        function = step.expression.function
        if function.uri != fw.FEDERATED_AGGREGATE.uri:
            raise UnknownIntrinsic(function.uri)
        value, zero, accumulate, _, report = step.expression.argument
        self.step, self.type, self._expressions = step, zero.type_signature, expressions
        self.value_type = value.type_signature
        self.value, self.zero, self.accumulate, self.report = map(
            expressions.compile, (value, zero, accumulate, report)
        )
        self.neutral: list[float] | None = None  # see `tff_re.sites.sums`

    @cached_property
    def merge(self) -> Expression:
        return self._expressions.compile(self.step.expression.argument[3])


@dataclass
class Stage:
    """What happens at clients between two aggregations, or after the last one.

    Attributes:
      number: from 0.
      steps: of each client, in this order; parts of the argument come first.
      dropped: for each of them, what is not used in this stage any more when it is there.
      sums: what the clients' values are folded into.
      stored: values that later stages or the caller need, so that they stay for all clients.
      forgotten: values kept by earlier stages that nobody needs after this one.
    """

    number: int
    steps: list[Step]
    dropped: list[list[Name]]
    sums: list[Aggregation]
    stored: list[Name]
    forgotten: list[Name]


class Plan:
    """The order in which a computation's steps run, and when a value can be freed.

    It is made once for a computation.

    Attributes:
      steps: of the server, and stages.
      dropped: for each of them, the server's values that no later one uses.
      stages: those among `steps`.
    """

    def __init__(self, computation: tff.Computation):
        self.form: CompiledForm = compiled_form(native_block(computation))
        form = self.form
        self.expressions = Expressions(None if form.parameter is None else form.parameter.name)
        computed = [step for step in form.steps.values() if not step.is_argument and not step.aggregates]
        self._compute: dict[Name, Expression] = {
            step.name: self.expressions.compile(step.expression) for step in computed
        }
        self.steps: list[Step | Stage] = []
        for number in range(form.stages + 1):
            self.steps += [s for s in form.steps.values() if s.stage == number and not (s.per_client or s.aggregates)]
            if form.at_clients(number) or form.aggregations(number):
                self.steps.append(self._stage(number))
        self.stages = [step for step in self.steps if isinstance(step, Stage)]
        at_server = {step.name for step in form.steps.values() if not step.per_client}
        self.dropped = _last_uses(map(_uses, self.steps), at_server - {*form.result})

    def compute(self, step: Step, scope: Scope):
        """Compute a step that is neither a part of the argument nor an aggregation."""
        return self._compute[step.name](scope)

    def run(
        self,
        server: dict,
        argument: Callable[[Step], object],
        totals: Callable[[Stage, Scope], Iterable[object]],
    ) -> None:
        """Run the server's steps.

        Args:
          server: values by the names of the steps, filled here.
          argument: the value of a part of the argument at the server.
          totals: the sums of a stage over the clients, not reported; gets the server's scope.
        """
        scope = Scope(server)
        for step, dropped in zip(self.steps, self.dropped, strict=True):
            if isinstance(step, Stage):
                for aggregation, total in zip(step.sums, totals(step, scope), strict=True):
                    server[aggregation.step.name] = aggregation.report(scope)(total)
            else:
                server[step.name] = argument(step) if step.is_argument else self.compute(step, scope)
            for name in dropped:
                server.pop(name, None)

    def result(self, part: Callable[[Step], object], result_type: tff.Type):
        """Return the result from its parts' values, in the Python containers of `result_type`.

        The compiled type does not name these containers.
        """
        parts = [part(self.all_steps[name]) for name in self.result_names]
        packed = tff.structure.pack_sequence_as(self.form.result_type, parts)
        return tff.types.type_to_py_container(packed, result_type)

    @property
    def all_steps(self) -> Mapping[Name, Step]:
        """The computation's steps by name, the parts of its argument included."""
        return self.form.steps

    @property
    def result_names(self) -> Sequence[Name]:
        """The names of the steps whose values are the parts of the result."""
        return self.form.result

    @property
    def held_nodes(self) -> int:
        """The number of graph nodes in the leaves' copies."""
        return sum(leaf.held_nodes for leaf in self.expressions.leaves.values())

    def close(self) -> None:
        """Free the leaves' copies.

        A later call imports them again.
        """
        for leaf in self.expressions.leaves.values():
            leaf.close()

    def _stage(self, number: int) -> Stage:
        form = self.form
        at_clients, sums = form.at_clients(number), form.aggregations(number)
        used = [form.steps[name] for name in dict.fromkeys(name for s in (*at_clients, *sums) for name in s.needs)]
        of_clients = [step for step in used if step.per_client]
        # An argument is taken from the caller again in each stage that needs it, and never kept.
        steps = [step for step in of_clients if step.is_argument] + at_clients
        stored, needed_after = form.stored(number), form.needed_after(number)
        stay = {*stored, *(name for step in sums for name in step.needs)}
        earlier = [step.name for step in of_clients if step.stage < number and not step.is_argument]
        return Stage(
            number=number,
            steps=steps,
            dropped=_last_uses(map(_uses, steps), {step.name for step in (*steps, *of_clients)} - stay),
            sums=[Aggregation(step, self.expressions) for step in sums],
            stored=stored,
            forgotten=[name for name in earlier if name not in needed_after],
        )


def _uses(step: Step | Stage) -> list[Name]:
    if isinstance(step, Step):
        return [step.name, *step.needs]
    return [name for inner in (*step.steps, *(aggregation.step for aggregation in step.sums)) for name in _uses(inner)]


def _last_uses(uses: Iterable[list[Name]], candidates: set[Name]) -> list[list[Name]]:
    """Return, for each step's uses, the candidates that no later step uses."""
    uses = list(uses)
    last = {name: index for index, names in enumerate(uses) for name in names if name in candidates}
    dropped: list[list[Name]] = [[] for _ in uses]
    for name, index in last.items():
        dropped[index].append(name)
    return dropped


@dataclass
class ClientPass:
    """One stage over several clients, side by side in a pool.

    One client more than the pool has threads is begun before the first of them is folded.

    Attributes:
      argument_part: client -> the value of a part of its argument.
      store: what earlier stages left of each client, and this one leaves.
      threads: clients under way at once; the pool has at least as many.
    """

    plan: Plan
    stage: Stage
    num_clients: int
    argument_part: Callable[[int, Step], object]
    store: Kept
    threads: int
    pool: concurrent.futures.Executor
    cancelled: Cancellation
    _brought: dict[int, list] = field(default_factory=dict)

    def totals(self, scope: Scope) -> list[object]:
        """Return the sums over the clients, folded in their order, before the report step.

        `scope` has what clients read from the server.

        Raises:
          ComputationFailed: a leaf failed at a client, which the message names; the others are cancelled.
        """
        sums = self.stage.sums
        totals = [aggregation.zero(scope) for aggregation in sums]
        accumulate = [aggregation.accumulate(scope) for aggregation in sums]
        under_way: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for client in range(self.num_clients + self.threads):
                if client < self.num_clients:
                    under_way.append(self.pool.submit(self._one_client, client, scope))
                first = client - self.threads
                if first >= 0:
                    under_way.popleft().result()
                    brought = zip(accumulate, totals, self._brought.pop(first), strict=True)
                    totals = [add((total, value)) for add, total, value in brought]
                    del brought  # nothing of the client stays
        except BaseException as error:
            self.cancelled.cancel(RuntimeProblem(f"the round failed: {error}"))
            raise
        finally:
            for future in under_way:
                future.cancel()
            concurrent.futures.wait(under_way)
        return totals

    def _one_client(self, client: int, server: Scope) -> None:
        values, stage = {}, self.stage
        scope = Scope(values, self.store.of(client), *server.maps)
        try:
            for step, dropped in zip(stage.steps, stage.dropped, strict=True):
                values[step.name] = (
                    self.argument_part(client, step) if step.is_argument else self.plan.compute(step, scope)
                )
                for name in dropped:
                    values.pop(name, None)
            # Not returned: the thread that ran this would hold on to it.
            self._brought[client] = [aggregation.value(scope) for aggregation in stage.sums]
        except ComputationFailed as error:
            if error.client is not None:  # of another client, which cancelled this one
                raise
            message = f"client {client + 1} of {self.num_clients}: {error}"
            named = ComputationFailed(message, code=error.code, client=client)
            self.cancelled.cancel(named)  # the others need not go on
            raise named from error
        self.store.add(client, {name: values[name] for name in stage.stored})
        self.store.forget(client, stage.forgotten)
