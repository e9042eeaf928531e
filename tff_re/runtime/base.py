"""What all runtimes share: opening, closing, being TFF's default context, and handling SIGTERM.

Importing this module imports neither TensorFlow nor TensorFlow Federated; entering a runtime does.
"""

from __future__ import annotations

import abc
import os
import signal
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from computations.stack import DISTRIBUTION, PACKAGES, STACK
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem

THREADS_AN_OPERATION = "TF_NUM_INTRAOP_THREADS"
"""TensorFlow's environment variable for it, which goes before what the runtimes choose."""


_limit: int | None = None


def usable_cores() -> int:
    """Return the cores that this process may use, which can be fewer than all in a container or batch job."""
    return len(os.sched_getaffinity(0))


def limit_cores(number: int | None) -> None:
    """Set how many cores the runtimes of this process compute with.

    For a process that shares the machine with other runs. None: all usable ones. Call it before a runtime is made.
    """
    global _limit
    _limit = number


def cores_to_use() -> int:
    """Return the cores that runtimes compute with: all usable ones, or fewer (`limit_cores`)."""
    return usable_cores() if _limit is None else max(1, min(_limit, usable_cores()))


def threads_an_operation(clients: int, side_by_side: int) -> int:
    """Return the threads for one operation in a round, given its number of clients and how many run at once.

    Each client gets an equal share of the cores.

    With TensorFlow's default, all cores for every operation, those of clients side by side wait for each other: an
    LSTM's round takes 1.5 times as long on two cores (docs/performance.md).
    """
    return max(cores_to_use() // min(clients, side_by_side), 1)


class Runtime(abc.ABC):
    """Where computations run.

    While it is open, its context is TFF's default in the thread that opened it.

    The default that was there before is back after the block. Where that is TFF's own, a call to a computation then
    starts a worker that nobody stops. Another thread calls `tff.framework.set_default_context(runtime.context)`, since
    TFF keeps a default for each.

    Inside the `with` block a call to a computation raises `ComputationFailed` for an error within the computation, and
    `WorkerDied` if the worker it needs has ended or ends meanwhile; `restart()` helps then.
    """

    name: str

    def __init__(self, log_path: str | os.PathLike, *, clients: int | None = None, default_num_clients: int = 0):
        """Prepare a runtime.

        Nothing is started or imported before it is entered.

        Args:
          log_path: a file to which the output of what the runtime starts is appended.
          clients: how many take part in a round, if that is known: they share the cores, see `threads_an_operation`.
          default_num_clients: the number of clients where the arguments of a computation do not tell it.

        Raises:
          ValueError: if `clients` is below 1 or `default_num_clients` below 0.
        """
        if default_num_clients < 0:
            raise ValueError(f"default_num_clients must not be negative, but is {default_num_clients}")
        if clients is not None and clients < 1:
            raise ValueError(f"clients must be at least 1, but is {clients}")
        self._log_path = Path(log_path)
        self._clients = clients
        self._default_num_clients = default_num_clients
        self._context = None
        self._previous = None

    def __enter__(self) -> Self:
        """Opens the runtime and makes its context TFF's default in this thread.

        Raises:
          WorkerStartFailed: a worker cannot be started, or does not answer in time.
          RuntimeProblem: this runtime is open already, or a file for TLS cannot be used.
        """
        if self._context is not None:
            raise RuntimeProblem("this runtime is open already")
        self._check()
        from computations import federated as tff  # seconds, so not before it is needed

        # Public TFF has no look at the default below other contexts; outside of computations being built, the current
        # one is the default.
        previous = tff.framework.get_context_stack().current
        self._start()
        self._previous = previous
        return self

    def __exit__(self, *exception) -> None:
        from computations import federated as tff

        if self._context is None:
            return
        if tff.framework.get_context_stack().current is self._context:
            tff.framework.set_default_context(self._previous)
        self._previous = None
        try:
            self._close()
        finally:
            self._context = None

    def restart(self) -> None:
        """Start anew, for example after `WorkerDied`.

        The object stays the same. For the thread that entered the runtime.

        Raises:
          RuntimeClosed: if the runtime is not open.
          WorkerStartFailed: as on entering. The runtime stays open, and `restart()` may be tried again.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open and cannot be restarted")
        self._restart()

    def begin_round(self, number: int) -> None:  # noqa: B027
        """Notify the runtime before each round of a run.

        It matters to runtimes whose clients keep their state elsewhere.
        """

    def between_runs(self) -> None:  # noqa: B027
        """Free memory that further runs may not need, and that is made again if they do."""

    def participation(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        """Return what makes a run's `Participation`.

        It is `usual`, unless the runtime itself sees which clients answer.
        """
        return usual

    @property
    def answered(self) -> tuple[int, int] | None:
        """Return the sites that the latest computation's sums include, and the sites that have clients of it.

        None if the clients are in this process.
        """
        return None

    @property
    def own_results(self) -> Mapping[str, Any]:
        """Return the latest computation's results over single sites, by site, of the sites that allow it."""
        return {}

    @property
    def alive(self) -> bool:
        """Return whether computations can be called now, as far as known."""
        return self._context is not None and self._answers()

    @property
    def context(self):
        """Return the `tff.framework.SyncContext` of the open runtime.

        Raises RuntimeClosed if it is not open.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open")
        return self._context

    def describe(self) -> dict:
        """Return what a run's record and `doctor` say about this runtime, as values for JSON."""
        stack = {PACKAGES[STACK]: metadata.version(DISTRIBUTION)}
        return {"runtime": self.name, "alive": self.alive, **self._details(), **stack}

    def _start(self) -> None:
        from computations import federated as tff

        try:
            context = self._open()
            tff.framework.set_default_context(context)
            self._context = context
        except BaseException:  # Ctrl-C too
            self._close()
            raise

    def _check(self) -> None:  # noqa: B027
        """Check, before TFF is imported, that the runtime can be opened.

        Raises an error if not.
        """

    @abc.abstractmethod
    def _open(self):
        """Start what is needed, and return the execution context."""

    @abc.abstractmethod
    def _close(self) -> None:
        """End all that `_open` started, even if it did not finish."""

    @abc.abstractmethod
    def _restart(self) -> None:
        """Restart the open runtime (see `restart`)."""

    def _answers(self) -> bool:
        """Return whether the open runtime's workers are alive."""
        return True

    @abc.abstractmethod
    def _details(self) -> dict:
        """Return what `describe` says in addition to what all runtimes say."""


def execution_context(executor_factory):
    """Return the `tff.framework.SyncExecutionContext` that runs native forms on a factory's executors."""
    from computations import federated as tff
    from computations.native_form import native_form

    return tff.framework.SyncExecutionContext(
        executor_fn=executor_factory,
        compiler_fn=native_form,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )


def install_signal_handlers() -> bool:
    """Make SIGTERM raise `SystemExit(143)`, so that `finally` blocks, context managers and `atexit` functions run.

    For the command line to call, once, at its start. A program that uses us as a library keeps its own handlers:
    nothing is changed outside the main thread, nor where SIGTERM has a handler or is ignored; then it returns False.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise_system_exit)
    return signal.getsignal(signal.SIGTERM) is _raise_system_exit


def _raise_system_exit(number, frame):
    # A second SIGTERM must not interrupt the cleanup that the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
