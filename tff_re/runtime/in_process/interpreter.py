"""The TFF execution context that runs computations in this process.

Clients are gone through in *passes*, one for each stage of the compiled form. A pass computes everything of one client
that can be computed before the server knows more, folds it into the sums, and goes on to the next client.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import tensorflow_federated as tff
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import infer_cardinalities

from computations.native_form import native_block
from tff_re.runtime.compiled_form import CompiledForm, Name, Step, compiled_form
from tff_re.runtime.errors import ComputationFailed, RuntimeClosed, RuntimeProblem
from tff_re.runtime.in_process.expressions import CANCELLATION, Expression, Expressions, Scope, UnknownIntrinsic
from tff_re.runtime.in_process.kept import Kept
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values

fw = tff.framework


class Sum:
    """An aggregation: values of clients (each in its client's scope) folded into one at the server, in their order."""

    def __init__(self, step: Step, expressions: Expressions):
        function = step.expression.function
        if function.uri != fw.FEDERATED_AGGREGATE.uri:
            raise UnknownIntrinsic(function.uri)
        # `merge` is for runtimes that add in several places.
        value, zero, accumulate, _, report = step.expression.argument
        self.step = step
        self.value, self.zero, self.accumulate, self.report = map(expressions.of, (value, zero, accumulate, report))


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
      expressions: by the names of the steps, without the parts of the argument.
      steps: of the server, and passes.
      dropped: for each of them, the server's values that no later one uses.
    """

    def __init__(self, form: CompiledForm):
        self.form = form
        made = Expressions(form.parameter.name if form.parameter is not None else None)
        computed = [step for step in form.steps.values() if not step.given and not step.aggregates]
        self.expressions: dict[Name, Expression] = {step.name: made.of(step.expression) for step in computed}
        self.steps: list[Step | Pass] = []
        for stage in range(form.stages + 1):
            self.steps += [s for s in form.steps.values() if s.stage == stage and not (s.per_client or s.aggregates)]
            if form.at_clients(stage) or form.aggregations(stage):
                self.steps.append(_pass(form, stage, made))
        self.leaves = list(made.leaves.values())
        at_server = {step.name for step in form.steps.values() if not step.per_client}
        self.dropped = _last_uses(map(_uses, self.steps), at_server - {*form.result})

    def close(self) -> None:
        for leaf in self.leaves:
            leaf.close()


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


@dataclass
class Execution:
    """One call of a computation: the server's steps in this thread, clients side by side in the pool.

    One client more than the pool has threads is begun before the first of them is folded.
    """

    plan: Plan
    argument: object
    num_clients: int
    values: Values
    pool: concurrent.futures.Executor
    threads: int
    cancelled: Cancellation

    def __post_init__(self):
        self._server: dict[object, object] = {CANCELLATION: self.cancelled}
        self._kept = Kept(self.num_clients, frozenset(self.plan.form.result))
        self._brought: dict[int, list] = {}

    def run(self):
        """The result as TFF's own context gives it, structures as `tff.structure.Struct`."""
        with contextlib.closing(self._kept):
            return self._run()

    def _run(self):
        scope = Scope(self._server)
        for step, dropped in zip(self.plan.steps, self.plan.dropped, strict=True):
            if isinstance(step, Pass):
                self._run_pass(step, scope)
            else:
                self._server[step.name] = self._compute(step, scope)
            for name in dropped:
                self._server.pop(name, None)
        form = self.plan.form
        return tff.structure.pack_sequence_as(form.result_type, [self._part(form.steps[name]) for name in form.result])

    def _part(self, step: Step):
        if step.per_client:
            values = (self._kept.of(client)[step.name] for client in range(self.num_clients))
            return [self.values.give(value, step.type_signature.member) for value in values]
        return self.values.give(self._server[step.name], step.type_signature)

    def _run_pass(self, one: Pass, scope: Scope) -> None:
        totals = [summed.zero(scope) for summed in one.sums]
        accumulate = [summed.accumulate(scope) for summed in one.sums]
        under_way: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for client in range(self.num_clients + self.threads):
                if client < self.num_clients:
                    under_way.append(self.pool.submit(self._one_client, one, client))
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
        for summed, total in zip(one.sums, totals, strict=True):
            self._server[summed.step.name] = summed.report(scope)(total)

    def _one_client(self, one: Pass, client: int) -> None:
        own, kept = {}, self._kept.of(client)
        scope = Scope(own, kept, self._server)
        try:
            for step, dropped in zip(one.steps, one.dropped, strict=True):
                own[step.name] = self._compute(step, scope, client)
                for name in dropped:
                    own.pop(name, None)
            # Not returned: the thread that ran this would hold on to it.
            self._brought[client] = [summed.value(scope) for summed in one.sums]
        except ComputationFailed as error:
            if error.client is not None:  # another one's, which cancelled this one
                raise
            message = f"client {client + 1} of {self.num_clients}: {error}"
            named = ComputationFailed(message, code=error.code, client=client)
            self.cancelled.cancel(named)  # the others need not go on
            raise named from error
        self._kept.add(client, {name: own[name] for name in one.kept})
        self._kept.forget(client, one.forgotten)

    def _compute(self, step: Step, scope: Scope, client: int | None = None):
        if not step.given:
            return self.plan.expressions[step.name](scope)
        value = self.argument
        for index in step.name:
            value = tff.structure.from_container(value)[index]
        return self.values.take(value if client is None else value[client], step.type_signature)


class InProcessContext(tff.framework.SyncContext):
    """Compiles a computation as the worker's context does, and computes it with this process's TensorFlow.

    May be called from several threads at once.
    """

    def __init__(self, *, threads: int, default_num_clients: int):
        """See `InProcessRuntime`."""
        self._threads = threads
        self._default_num_clients = default_num_clients
        self._values = Values()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="tff-re-client")
        self._plans: collections.OrderedDict[tff.Computation, Plan] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._running: set[Cancellation] = set()
        self._closed = False

    def invoke(self, comp: tff.Computation, arg):
        """See tff.framework.SyncContext.

        Raises:
          ComputationFailed, TypeError: TensorFlow raised an error, or an argument is not of its type.
          RuntimeProblem: this runtime cannot do what is in the computation, or has been closed.
        """
        if not isinstance(comp.type_signature, tff.FunctionType):
            raise ValueError(f"only a function can be called, not a {comp.type_signature}")
        cancelled = Cancellation()
        with self._lock:
            if self._closed:
                raise RuntimeClosed()
            self._running.add(cancelled)
        call: concurrent.futures.Future = concurrent.futures.Future()

        def work():
            try:
                call.set_result(self._compute(comp, arg, cancelled))
            except BaseException as error:
                call.set_exception(error)

        # Not in this thread: it waits in Python, where Ctrl-C reaches it, while TensorFlow computes.
        thread = threading.Thread(target=work, name="tff-re-call", daemon=True)
        try:
            thread.start()
            return call.result()
        except BaseException:
            cancelled.cancel(RuntimeProblem("the call was interrupted"))
            raise
        finally:
            thread.join(10.0)
            with self._lock:
                self._running.discard(cancelled)

    def close(self) -> None:
        """Ends what is being computed and frees everything."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for cancelled in running:
            cancelled.cancel(RuntimeClosed())
        self._pool.shutdown(wait=True, cancel_futures=True)
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        self._values.close()

    def _compute(self, comp: tff.Computation, arg, cancelled: Cancellation):
        num_clients = self._default_num_clients
        parameter = comp.type_signature.parameter
        if arg is not None:
            num_clients = infer_cardinalities(arg, parameter).get(tff.CLIENTS, num_clients)
        plan = self._plan(comp)
        execution = Execution(plan, arg, num_clients, self._values, self._pool, self._threads, cancelled)
        return tff.types.type_to_py_container(execution.run(), comp.type_signature.result)

    def _plan(self, comp: tff.Computation) -> Plan:
        with self._lock:
            if comp not in self._plans:
                self._plans[comp] = Plan(compiled_form(native_block(comp)))
                if len(self._plans) > 64:  # as many as `native_form` keeps
                    self._plans.popitem(last=False)[1].close()
            self._plans.move_to_end(comp)
            return self._plans[comp]
