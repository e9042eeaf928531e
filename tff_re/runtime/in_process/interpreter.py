"""The TFF execution context that runs computations in this process.

It goes through the clients once for each stage (`stages`): everything of one client that can be computed before the
server knows more is computed and folded into the sums.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import functools
import gc
import threading
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from computations import federated as tff
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.kept import Kept
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.one_call import OneCall
from tff_re.runtime.in_process.stages import ClientPass, Plan, Stage
from tff_re.runtime.in_process.values import Values, elements


@dataclass
class Execution:
    """One call of a computation.

    The server's steps run in this thread, and clients side by side in the pool.
    """

    one_call: OneCall
    argument: object
    num_clients: int
    values: Values
    pool: concurrent.futures.Executor
    threads: int
    cancelled: Cancellation

    @property
    def plan(self) -> Plan:
        return self.one_call.plan

    def run(self, result_type: tff.Type):
        """Run the call and return the result like TFF's own context."""
        if self.one_call.fits(self.num_clients):
            values = self._as_one_function()
            if values is not None:
                return self.plan.result(functools.partial(self._part_of_one_function, values), result_type)
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

    def _as_one_function(self):
        """Return what `OneCall.run` returns, or None if a leaf failed in it.

        Its error does not tell at which client; the stages, which compute the same, find it.
        """
        try:
            return self.one_call.run(
                self.num_clients, functools.partial(self._argument_part, None), self._arrays, self.cancelled
            )
        except tf.errors.OpError:
            self.cancelled.check()
            return None

    def _part_of_one_function(self, values, step: Step):
        value = values[step.name]
        if not step.per_client:
            return self.values.give(value, step.type_signature)
        return self.values.give_rows(value, step.type_signature.member, self.num_clients)

    def _arrays(self, step: Step) -> list[list[np.ndarray]]:
        """Return the arrays of a part of the argument, for each client."""
        value = self._selected(step)
        return [self.values.arrays(value[client], step.type_signature.member) for client in range(self.num_clients)]

    def _selected(self, step: Step):
        value = self.argument
        for index in step.name:
            value = elements(value)[index]
        return value

    def _argument_part(self, client: int | None, step: Step):
        """Return a part of the argument, of a client or (with None) of the server."""
        value = self._selected(step)
        return self.values.take(value if client is None else value[client], step.type_signature)


def return_memory() -> None:
    """Free what only reference cycles hold, as graphs and models are, and give the memory back to the system."""
    gc.collect()
    context.context().clear_kernel_cache()  # which holds what functions became that are gone
    with contextlib.suppress(OSError, AttributeError):  # of glibc
        ctypes.CDLL(None).malloc_trim(0)  # or the freed memory would stay this process's


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
        self._calls: collections.OrderedDict[tff.Computation, OneCall] = collections.OrderedDict()
        self._latest: dict[int, tuple[tff.Computation, OneCall]] = {}
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
        """Free the imported graphs of the calls that were not used for longest, until at most this many nodes are left.

        The plans stay, and import their graphs again when they are called.
        """
        with self._lock:
            held = {call: call.held_nodes for call in self._calls.values()}
            total, freed = sum(held.values()), False
            for call, nodes in held.items():
                if total <= most_nodes:
                    break
                call.close()
                total -= nodes
                freed = freed or nodes > 0
        if freed:
            return_memory()

    def close(self) -> None:
        """Cancel the running computation and free everything."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for cancelled in running:
            cancelled.cancel(RuntimeClosed())
        self._pool.shutdown(wait=True, cancel_futures=True)
        for one_call in self._calls.values():
            one_call.close()
        self._calls.clear()
        self._latest.clear()
        self._values.close()

    def _compute(self, comp: tff.Computation, arg, cancelled: Cancellation):
        num_clients = self._default_num_clients
        parameter = comp.type_signature.parameter
        if arg is not None:
            num_clients = tff.infer_cardinalities(arg, parameter).get(tff.CLIENTS, num_clients)
        execution = Execution(
            self._one_call(comp), arg, num_clients, self._values, self._pool, self._threads, cancelled
        )
        return execution.run(comp.type_signature.result)

    def _one_call(self, comp: tff.Computation) -> OneCall:
        with self._lock:
            if self._latest.get(id(comp), (None, None))[0] is comp:  # sooner than comparing computations
                return self._latest[id(comp)][1]
            if comp not in self._calls:
                self._calls[comp] = OneCall(Plan(comp), self._threads)
                if len(self._calls) > 64:  # as many as `native_form` keeps
                    self._calls.popitem(last=False)[1].close()
                self._latest.clear()
            self._calls.move_to_end(comp)
            self._latest[id(comp)] = comp, self._calls[comp]
            return self._calls[comp]
