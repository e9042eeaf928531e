"""The TFF execution context that runs computations in this process.

Importing this module imports TensorFlow Federated, which takes seconds.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading

import tensorflow_federated as tff
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import infer_cardinalities

from computations.native_form import native_form
from tff_re.runtime.compiled_form import compiled_form
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem
from tff_re.runtime.in_process.execution import Execution, Plan
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values

_KEPT_COMPUTATIONS = 64  # as many as `native_form` keeps
_SECONDS_TO_END = 10.0


class InProcessContext(tff.framework.SyncContext):
    """Compiles a computation as the worker's context does, and computes it with this process's TensorFlow.

    May be called from several threads at once.
    """

    def __init__(self, *, threads: int, default_num_clients: int):
        """
        Args:
          threads: how many clients are computed side by side.
          default_num_clients: the number of clients where the arguments of a computation tell none.
        """
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
          ComputationFailed: TensorFlow raised an error within the computation.
          UnknownIntrinsic, RuntimeProblem: the computation has something that this runtime cannot do.
          RuntimeClosed: the runtime has been closed, before or meanwhile.
          TypeError: an argument is not of its type.
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
            thread.join(_SECONDS_TO_END)
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
            _free(plan)
        self._plans.clear()
        self._values.close()

    def _compute(self, comp: tff.Computation, arg, cancelled: Cancellation):
        num_clients = self._default_num_clients
        parameter = comp.type_signature.parameter
        if arg is not None:
            num_clients = infer_cardinalities(arg, parameter).get(tff.CLIENTS, num_clients)
        execution = Execution(
            self._plan(comp),
            arg,
            num_clients,
            values=self._values,
            pool=self._pool,
            threads=self._threads,
            cancelled=cancelled,
        )
        execution.run()
        return tff.types.type_to_py_container(execution.result(), comp.type_signature.result)

    def _plan(self, comp: tff.Computation) -> Plan:
        with self._lock:
            if comp not in self._plans:
                self._plans[comp] = Plan(compiled_form(native_form(comp).to_building_block()))
                if len(self._plans) > _KEPT_COMPUTATIONS:
                    _, oldest = self._plans.popitem(last=False)
                    _free(oldest)
            self._plans.move_to_end(comp)
            return self._plans[comp]


def _free(plan: Plan) -> None:
    for leaf in plan.leaves:
        leaf.close()
