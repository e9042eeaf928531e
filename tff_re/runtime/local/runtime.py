"""The runtime of one machine: TFF's C++ worker, started and stopped by us."""

import functools
import logging
import os
import sys
from collections.abc import Mapping

from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem
from tff_re.runtime.local.worker import Worker

_log = logging.getLogger(__name__)
_told: set[str] = set()


class LocalRuntime:
    """A worker on this machine, and the execution context that speaks to it as TFF's default.

    No other user of the machine reaches the worker, if the kernel allows network namespaces; see `Worker`. Where it
    does not, the run's log says so each time, and standard error once in a process.

        with LocalRuntime("runs/first/worker.log") as runtime:
            learning_process.next(state, client_datasets)

    The default that was there before is back after the block. Where that is TFF's own, a call to a computation then
    starts a worker that nobody stops.

    TFF keeps a default context for each thread. Entering sets that of the entering thread; another thread calls
    `tff.framework.set_default_context(runtime.context)`.

    Inside the `with` block a call to a computation raises `ComputationFailed` for an error within the computation, and
    `WorkerDied` if the worker has gone or goes meanwhile; `restart()` helps then.
    """

    name = "local"

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        max_concurrent_computation_calls: int | None = None,
        default_num_clients: int = 0,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ):
        """Prepares a runtime; nothing is started or imported before it is entered.

        Args:
          log_path: a file to which the worker's output is appended.
          max_concurrent_computation_calls: how many clients are computed side by side; None: as many as there are
            usable cores.
          default_num_clients: the number of clients where the arguments of a computation tell none.
          environment: environment variables for the worker, such as `TF_NUM_INTRAOP_THREADS`.
          start_timeout: seconds that the worker may take to start.

        Raises:
          ValueError: if `max_concurrent_computation_calls` is below 1 or `default_num_clients` below 0.
        """
        if default_num_clients < 0:
            raise ValueError(f"default_num_clients must not be negative, but is {default_num_clients}")
        self._default_num_clients = default_num_clients
        self._make_worker = functools.partial(
            Worker,
            log_path,
            max_concurrent_computation_calls=max_concurrent_computation_calls,
            environment=environment,
            start_timeout=start_timeout,
        )
        self._worker = self._make_worker()
        self._context = None
        self._channel = None
        self._previous = None

    def __enter__(self) -> "LocalRuntime":
        """Starts the worker and makes its context TFF's default in this thread.

        Raises:
          WorkerStartFailed: if the worker cannot be started or is not ready in time.
          RuntimeProblem: if this runtime is open already.
        """
        if self._context is not None:
            raise RuntimeProblem("this runtime is open already")
        import tensorflow_federated as tff  # seconds, so not before it is needed

        # Public TFF has no look at the default below other contexts; outside of computations being built, the current
        # one is the default.
        previous = tff.framework.get_context_stack().current
        self._open()
        self._previous = previous
        return self

    def __exit__(self, *exception) -> None:
        import tensorflow_federated as tff

        if self._context is None:
            return
        if tff.framework.get_context_stack().current is self._context:
            tff.framework.set_default_context(self._previous)
        self._previous = None
        self._close()

    @property
    def alive(self) -> bool:
        """Whether the runtime is open and its worker runs."""
        return self._context is not None and self._worker.alive

    @property
    def context(self):
        """The `tff.framework.SyncExecutionContext` of the open runtime.

        Raises:
          RuntimeClosed: if the runtime is not open.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open")
        return self._context

    @property
    def worker(self) -> Worker:
        """The worker process, for those who want to look at it."""
        return self._worker

    def restart(self) -> None:
        """Puts a new worker and a new context in the place of the old ones, dead or alive.

        For the thread that entered the runtime. What a call returned before is plain Python and stays good.

        Raises:
          RuntimeClosed: if the runtime is not open.
          WorkerStartFailed: as on entering. The runtime stays open without a worker, and `restart()` may be tried
            again.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open and cannot be restarted")
        self._worker.stop()
        self._channel.close()
        # Not the same `Worker` started again: what is left of the old context must find its own worker dead.
        self._worker = self._make_worker()
        self._open()

    def describe(self) -> dict:
        """What a run's record and `doctor` tell about this runtime: strings, numbers, truth values and None only."""
        from importlib import metadata

        return {
            "runtime": self.name,
            "alive": self.alive,
            "worker_pid": self._worker.pid,
            "private": self._worker.private,
            "why_exposed": self._worker.why_exposed,
            "max_concurrent_computation_calls": self._worker.max_concurrent_computation_calls,
            "default_num_clients": self._default_num_clients,
            "worker_environment": dict(self._worker.environment),
            "log": str(self._worker.log_path),
            "tensorflow_federated": metadata.version("tensorflow-federated"),
        }

    def _open(self) -> None:
        import tensorflow_federated as tff

        from tff_re.runtime.local import worker_context

        self._worker.start()
        if self._worker.why_exposed is not None:
            _tell(exposure(self._worker.why_exposed))
        try:
            context, channel = worker_context.connect(self._worker, default_num_clients=self._default_num_clients)
            tff.framework.set_default_context(context)
        except BaseException:
            self._worker.stop()
            raise
        self._context, self._channel = context, channel

    def _close(self) -> None:
        # The worker first: a call that is still under way in TFF's thread ends with it, and the context waits for that
        # thread.
        self._worker.stop()
        self._channel.close()
        self._context = self._channel = None


def exposure(reason: str) -> str:
    """What a user has to know where the worker has no network of its own."""
    return (
        "the worker can be reached by everybody on this machine and its network while it runs: no network namespace "
        f"is allowed here ({reason}); --runtime in-process has no worker"
    )


def _tell(line: str) -> None:
    # Not as a warning: a run's log takes information too, and where there is none, logging would print a second line.
    _log.info(line)
    if line not in _told:
        _told.add(line)
        print(f"tff-re: {line}", file=sys.stderr)
