"""The runtime that computes in the Python process itself, with its TensorFlow.

Importing this package imports neither TensorFlow nor TensorFlow Federated; entering the runtime does.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem


class InProcessRuntime:
    """TFF's default execution context computes in this process while this is open.

        with InProcessRuntime("runs/first/worker.log") as runtime:
            learning_process.next(state, client_datasets)

    A GPU is used where TensorFlow sees one. All of TensorFlow's operations work inside of computations: those of
    tensorflow-text too, and `tf.py_function` in computations that are built while this is open (or in a block of
    `python_functions.kept_python_functions()`); the local worker has neither.

    As with `LocalRuntime`, the default that was there before is back after the block, TFF keeps a default for each
    thread, and an error within a computation raises `ComputationFailed`.
    """

    name = "in-process"

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        threads: int | None = None,
        default_num_clients: int = 0,
    ):
        """Prepares a runtime; nothing is imported before it is entered.

        Args:
          log_path: as for every runtime; nothing is started here that would write to it.
          threads: how many clients are computed side by side; None: as many as there are usable cores, or two where
            there is a GPU, whose memory they share.
          default_num_clients: the number of clients where the arguments of a computation tell none.

        Raises:
          ValueError: if `threads` is below 1 or `default_num_clients` below 0.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, but is {threads}")
        if default_num_clients < 0:
            raise ValueError(f"default_num_clients must not be negative, but is {default_num_clients}")
        self._log_path = Path(log_path)
        self._chosen_threads = threads
        self._default_num_clients = default_num_clients
        self._gpus: list[str] = []
        self._python = contextlib.ExitStack()
        self._context = None
        self._previous = None

    def __enter__(self) -> InProcessRuntime:
        """Makes the context TFF's default in this thread.

        Raises:
          RuntimeProblem: if this runtime is open already.
        """
        if self._context is not None:
            raise RuntimeProblem("this runtime is open already")
        import tensorflow_federated as tff  # seconds, so not before it is needed

        from tff_re.runtime.in_process.devices import prepare_gpus
        from tff_re.runtime.in_process.python_functions import kept_python_functions

        self._gpus = prepare_gpus()
        self._python.enter_context(kept_python_functions())
        self._previous = tff.framework.get_context_stack().current
        self._open()
        return self

    def __exit__(self, *exception) -> None:
        import tensorflow_federated as tff

        if self._context is None:
            return
        if tff.framework.get_context_stack().current is self._context:
            tff.framework.set_default_context(self._previous)
        self._previous = None
        context, self._context = self._context, None
        context.close()
        self._python.close()

    @property
    def alive(self) -> bool:
        """Whether the runtime is open."""
        return self._context is not None

    @property
    def context(self):
        """The `tff.framework.SyncContext` of the open runtime.

        Raises:
          RuntimeClosed: if the runtime is not open.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open")
        return self._context

    def restart(self) -> None:
        """Puts a new context in the place of the old one. For the thread that entered the runtime.

        Raises:
          RuntimeClosed: if the runtime is not open.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open and cannot be restarted")
        self._context.close()
        self._open()

    def describe(self) -> dict:
        """What a run's record and `doctor` tell about this runtime: strings, numbers, truth values and None only."""
        from importlib import metadata

        return {
            "runtime": self.name,
            "alive": self.alive,
            "threads": self._threads(),
            "default_num_clients": self._default_num_clients,
            "gpus": list(self._gpus),
            "log": str(self._log_path),
            "tensorflow": metadata.version("tensorflow"),
            "tensorflow_federated": metadata.version("tensorflow-federated"),
        }

    def _threads(self) -> int:
        cores = len(os.sched_getaffinity(0))
        return self._chosen_threads or (min(cores, 2) if self._gpus else cores)

    def _open(self) -> None:
        import tensorflow_federated as tff

        from tff_re.runtime.in_process.interpreter import InProcessContext

        context = InProcessContext(threads=self._threads(), default_num_clients=self._default_num_clients)
        tff.framework.set_default_context(context)
        self._context = context
