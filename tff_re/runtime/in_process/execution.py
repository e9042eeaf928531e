"""Runs a computation: the server's steps in this thread, clients side by side in a pool of threads.

Clients are gone through in *passes*, one for each stage of the compiled form. A pass computes everything of one client
that can be computed before the server knows more, folds it into the sums, and goes on to the next client.
"""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import tensorflow_federated as tff

from tff_re.runtime.compiled_form import CompiledForm, Name, Step, packed
from tff_re.runtime.errors import ComputationFailed, RuntimeProblem
from tff_re.runtime.in_process.expressions import CANCELLATION, Expression, Expressions, Scope, UnknownIntrinsic
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values

fw = tff.framework


class Sum:
    """Clients' values folded into one at the server, in the order of the clients.

    Attributes:
      step: the aggregation.
      value: a client's value, in the client's scope.
      zero, accumulate, report: at the server.
    """

    def __init__(self, step: Step, expressions: Expressions):
        function = step.expression.function
        if function.uri != fw.FEDERATED_AGGREGATE.uri:
            raise UnknownIntrinsic(function.uri)
        # `merge` is for runtimes that add in several places.
        value, zero, accumulate, _, report = step.expression.argument
        self.step = step
        self.value, self.zero = expressions.of(value), expressions.of(zero)
        self.accumulate, self.report = expressions.of(accumulate), expressions.of(report)


@dataclass
class Pass:
    """What is done once for every client.

    Attributes:
      steps: computed, in this order.
      dropped: for each of them, what is not used in this pass any more when it is there.
      sums: what the clients' values are folded into.
      kept: values that later passes or the caller need, so that they stay for all clients.
      forgotten: values kept by earlier passes that nobody needs after this one.
    """

    steps: list[Step]
    dropped: list[list[Name]]
    sums: list[Sum]
    kept: list[Name]
    forgotten: list[Name]


class Plan:
    """In which order a computation's steps are computed, and when a value can go; made once for a computation.

    Attributes:
      form: what is computed.
      expressions: by the names of the steps, without the parts of the argument.
      steps: of the server, and passes.
      dropped: for each of them, the server's values that no later one uses.
      leaves: the TensorFlow computations.
    """

    def __init__(self, form: CompiledForm):
        """
        Raises:
          UnknownIntrinsic: a step uses one that this runtime does not have.
          RuntimeProblem: a step holds something else that this runtime cannot do.
        """
        self.form = form
        made = Expressions(form.parameter.name if form.parameter is not None else None)
        computed = [step for step in form.steps.values() if not step.given and not step.aggregates]
        self.expressions: dict[Name, Expression] = {step.name: made.of(step.expression) for step in computed}
        self.steps: list[Step | Pass] = []
        waiting = [step for step in form.steps.values() if not step.per_client and not step.aggregates]
        for stage in range(form.stages + 1):
            self.steps += [step for step in waiting if step.stage <= stage]
            waiting = [step for step in waiting if step.stage > stage]
            if form.at_clients(stage) or form.aggregations(stage):
                self.steps.append(_pass(form, stage, made))
        self.leaves = made.leaves
        at_server = {step.name for step in form.steps.values() if not step.per_client}
        self.dropped = _last_uses(map(_uses, self.steps), at_server - {*form.result})


def _pass(form: CompiledForm, stage: int, expressions: Expressions) -> Pass:
    own, sums = form.at_clients(stage), form.aggregations(stage)
    used = [form.steps[name] for name in dict.fromkeys(name for step in (*own, *sums) for name in step.needs)]
    of_clients = [step for step in used if step.per_client]
    # An argument is taken from the caller again in each pass that needs it, and never kept.
    steps = [step for step in of_clients if step.given] + own
    kept, needed_after = form.kept(stage), form.needed_after(stage)
    stay = {*kept, *(name for step in sums for name in step.needs)}
    return Pass(
        steps=steps,
        dropped=_last_uses(map(_uses, steps), {step.name for step in (*steps, *of_clients)} - stay),
        sums=[Sum(step, expressions) for step in sums],
        kept=kept,
        forgotten=[s.name for s in of_clients if s.stage < stage and not s.given and s.name not in needed_after],
    )


def _uses(step: Step | Pass) -> list[Name]:
    if isinstance(step, Step):
        return [step.name, *step.needs]
    return [name for inner in (*step.steps, *(one.step for one in step.sums)) for name in _uses(inner)]


def _last_uses(uses: Iterable[list[Name]], candidates: set[Name]) -> list[list[Name]]:
    """For each step's uses, those of the candidates that no later step uses."""
    uses = list(uses)
    last = {name: place for place, names in enumerate(uses) for name in names if name in candidates}
    found: list[list[Name]] = [[] for _ in uses]
    for name, place in last.items():
        found[place].append(name)
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
        self._server: dict[object, object] = {CANCELLATION: cancelled}
        self._kept: list[dict[Name, object]] = [{} for _ in range(num_clients)]
        self._brought: dict[int, list] = {}

    def run(self) -> None:
        """Computes everything; afterwards `result` reads it."""
        scope = Scope(self._server)
        for step, dropped in zip(self._plan.steps, self._plan.dropped, strict=True):
            if isinstance(step, Pass):
                self._run_pass(step, scope)
            else:
                self._server[step.name] = self._compute(step, scope)
            for name in dropped:
                self._server.pop(name, None)

    def result(self):
        """The result as TFF's own context gives it, structures as `tff.structure.Struct`."""
        form = self._plan.form
        return packed(form.result_type, (self._part(form.steps[name]) for name in form.result))

    def _part(self, step: Step):
        if step.per_client:
            return [self._values.give(kept[step.name], step.type_signature.member) for kept in self._kept]
        return self._values.give(self._server[step.name], step.type_signature)

    def _run_pass(self, one: Pass, scope: Scope) -> None:
        totals = [summed.zero(scope) for summed in one.sums]
        accumulate = [summed.accumulate(scope) for summed in one.sums]
        under_way: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for client in range(self._num_clients + self._threads):
                if client < self._num_clients:
                    under_way.append(self._pool.submit(self._one_client, one, client))
                first = client - self._threads
                if first >= 0:
                    under_way.popleft().result()
                    self._fold(first, totals, accumulate)
        except BaseException as error:
            self._cancelled.cancel(RuntimeProblem(f"the round failed: {error}"))
            raise
        finally:
            for future in under_way:
                future.cancel()
            concurrent.futures.wait(under_way)
        for summed, total in zip(one.sums, totals, strict=True):
            self._server[summed.step.name] = summed.report(scope)(total)

    def _fold(self, client: int, totals: list, accumulate: list[Callable]) -> None:
        """Adds what a client brought; nothing of it stays."""
        for place, value in enumerate(self._brought.pop(client)):
            totals[place] = accumulate[place]((totals[place], value))

    def _one_client(self, one: Pass, client: int) -> None:
        own, kept = {}, self._kept[client]
        scope = Scope(own, kept, self._server)
        try:
            for step, dropped in zip(one.steps, one.dropped, strict=True):
                own[step.name] = self._compute(step, scope, client)
                for name in dropped:
                    own.pop(name, None)
            # Not returned: the thread that ran this would hold on to it.
            self._brought[client] = [summed.value(scope) for summed in one.sums]
        except ComputationFailed as error:
            named = ComputationFailed(f"client {client + 1} of {self._num_clients}: {error}", code=error.code)
            self._cancelled.cancel(named)  # the others need not go on
            raise named from error
        kept.update((name, own[name]) for name in one.kept)
        for name in one.forgotten:
            kept.pop(name, None)

    def _compute(self, step: Step, scope: Scope, client: int | None = None):
        if not step.given:
            return self._plan.expressions[step.name](scope)
        value = self._argument
        for index in step.name:
            value = tff.structure.from_container(value)[index]
        return self._values.take(value if client is None else value[client], step.type_signature)
