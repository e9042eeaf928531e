"""The runtime `in-process`. Importing this module imports neither TensorFlow nor TensorFlow Federated."""

from __future__ import annotations

import contextlib
import os
from importlib import metadata

from tff_re.runtime.base import THREADS_AN_OPERATION, Runtime, cores_to_use, threads_an_operation, usable_cores

MOST_NODES = 60_000
"""Graph nodes that are held between runs: about 1 GB, the graphs of two to four algorithms with an encoder."""

MOST_GROWTH = 2**28
"""Bytes by which the process may grow before what earlier runs have left is freed."""


class InProcessRuntime(Runtime):
    """TFF's default execution context computes in this process while this is open.

    A GPU is used where TensorFlow sees one. All of TensorFlow's operations work inside of computations: those of
    tensorflow-text too, and `tf.py_function` in computations that are built while this is open (or in a block of
    `leaves.held_python_functions()`); the local worker has neither.
    """

    name = "in-process"

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        threads: int | None = None,
        clients: int | None = None,
        default_num_clients: int = 0,
    ):
        """Prepare a runtime (see `Runtime`).

        Args:
          log_path: as for every runtime; nothing is started here that would write to it.
          threads: how many clients are computed side by side; None: as many as there are usable cores, or two where
            there is a GPU, whose memory they share.
          clients, default_num_clients: as for every runtime; `clients` has an effect if TensorFlow has not computed
            anything in this process.

        Raises:
          ValueError: if `threads` or `clients` is below 1 or `default_num_clients` below 0.
        """
        super().__init__(log_path, clients=clients, default_num_clients=default_num_clients)
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, but is {threads}")
        self._chosen_threads = threads
        self._gpus: list[str] = []
        self._opened = contextlib.ExitStack()
        self._resident: int | None = None  # bytes when memory was last returned

    def share_cores(self) -> None:
        """Give each operation the threads that the round's clients leave it.

        TensorFlow accepts this only before its first computation, so a program that computes before it opens the
        runtime calls this earlier.
        """
        limited = cores_to_use() < usable_cores()
        if THREADS_AN_OPERATION in os.environ or (self._clients is None and not limited):
            return
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # it has computed
            threads = threads_an_operation(self._clients or 1, self._threads())
            tf.config.threading.set_intra_op_parallelism_threads(threads)

    def between_runs(self) -> None:
        """See `Runtime`: the graphs of computations that were not used for longest, and what runs have left."""
        import psutil

        from tff_re.runtime.in_process.interpreter import return_memory

        self.context.free_copies(MOST_NODES)
        process = psutil.Process()
        if self._resident is None:
            self._resident = process.memory_info().rss
        elif process.memory_info().rss > self._resident + MOST_GROWTH:
            return_memory()
            self._resident = process.memory_info().rss

    def _open(self):
        self.share_cores()
        from tff_re.runtime.in_process.devices import prepare_gpus
        from tff_re.runtime.in_process.interpreter import InProcessContext
        from tff_re.runtime.in_process.leaves import held_python_functions

        if self._context is None:  # no restart, after which the Python functions have to be there still
            self._gpus = prepare_gpus()
            self._opened.enter_context(held_python_functions())
        context = InProcessContext(threads=self._threads(), default_num_clients=self._default_num_clients)
        self._opened.callback(context.close)
        return context

    def _close(self) -> None:
        self._opened.close()

    def _restart(self) -> None:
        self._context.close()
        self._start()

    def _details(self) -> dict:
        import tensorflow as tf

        return {
            "threads": self._threads(),
            "threads_an_operation": tf.config.threading.get_intra_op_parallelism_threads() or "all cores",
            "default_num_clients": self._default_num_clients,
            "gpus": list(self._gpus),
            "log": str(self._log_path),
            "tensorflow": metadata.version("tensorflow"),
        }

    def _threads(self) -> int:
        cores = cores_to_use()
        return self._chosen_threads or (min(cores, 2) if self._gpus else cores)
