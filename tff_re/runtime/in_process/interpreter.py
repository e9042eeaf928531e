"""The TFF execution context that runs computations in this process.

It goes through the clients once for each stage (`stages`): everything of one client that can be computed before the
server knows more is computed and folded into the sums.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import gc
import threading
from dataclasses import dataclass

from computations import federated as tff
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.kept import Kept
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.stages import ClientPass, Plan, Stage
from tff_re.runtime.in_process.values import Values


@dataclass
class Execution:
    """One call of a computation.

    The server's steps run in this thread, and clients side by side in the pool.
    """

    plan: Plan
    argument: object
    num_clients: int
    values: Values
    pool: concurrent.futures.Executor
    threads: int
    cancelled: Cancellation

    def run(self, result_type: tff.Type):
        """Run the call and return the result like TFF's own context."""
        server: dict[object, object] = {CANCELLATION: self.cancelled}
        with contextlib.closing(Kept(self.num_clients, frozenset(self.plan.form.result))) as store:

            def totals(stage: Stage, scope: Scope) -> list[object]:
                ways = {"threads": self.threads, "pool": self.pool, "cancelled": self.cancelled}
                return ClientPass(self.plan, stage, self.num_clients, self._argument_part, store, **ways).totals(scope)

            def part(step: Step):
                if step.per_client:
                    values = (store.of(client)[step.name] for client in range(self.num_clients))
                    return [self.values.give(value, step.type_signature.member) for value in values]
                return self.values.give(server[step.name], step.type_signature)

            self.plan.run(server, lambda step: self._argument_part(None, step), totals)
            return self.plan.result(part, result_type)

    def _argument_part(self, client: int | None, step: Step):
        """Return a part of the argument, of a client or (with None) of the server."""
        value = self.argument
        for index in step.name:
            value = tff.structure.from_container(value)[index]
        return self.values.take(value if client is None else value[client], step.type_signature)


class InProcessContext(tff.framework.SyncContext):
    """Compiles a computation like the worker's context, and runs it with this process's TensorFlow.

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

    def free_copies(self, most_nodes: int) -> None:
        """Free the imported graphs of the plans that were not used for longest, until at most this many nodes are left.

        The plans stay, and import their graphs again when they are called.
        """
        with self._lock:
            held = {plan: plan.held_nodes for plan in self._plans.values()}
            total, freed = sum(held.values()), False
            for plan, nodes in held.items():
                if total <= most_nodes:
                    break
                plan.close()
                total -= nodes
                freed = freed or nodes > 0
        if freed:
            gc.collect()  # graphs are reference cycles
            with contextlib.suppress(OSError, AttributeError):  # of glibc
                ctypes.CDLL(None).malloc_trim(0)  # or the freed memory would stay this process's

    def close(self) -> None:
        """Cancel the running computation and free everything."""
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
            num_clients = tff.infer_cardinalities(arg, parameter).get(tff.CLIENTS, num_clients)
        plan = self._plan(comp)
        execution = Execution(plan, arg, num_clients, self._values, self._pool, self._threads, cancelled)
        return execution.run(comp.type_signature.result)

    def _plan(self, comp: tff.Computation) -> Plan:
        with self._lock:
            if comp not in self._plans:
                self._plans[comp] = Plan(comp)
                if len(self._plans) > 64:  # as many as `native_form` keeps
                    self._plans.popitem(last=False)[1].close()
            self._plans.move_to_end(comp)
            return self._plans[comp]
