"""The runtime of several machines: workers that run already, and clients spread over them."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tff_re.runtime import tls as tls_files
from tff_re.runtime.addresses import is_loopback, parse_address, parse_addresses
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem, WorkerStartFailed

_log = logging.getLogger(__name__)


class RemoteRuntime:
    """Workers on other machines, each started there by `python -m tff_re.run worker`.

        with RemoteRuntime("runs/first/worker.log", addresses="ward3:8000,ward4:8000"):
            learning_process.next(state, client_datasets)

    The clients of a call are dealt out to as many groups as there are workers; see
    `tff_re.runtime.remote.spreading`. The numbers depend on the number of addresses, because sums are made group by
    group, and on nothing else of where
    something ran: a worker that is lost has its groups computed by the others, which repeat what it had done.

    A call raises `WorkerDied` where all workers are lost; `restart()` waits for them to come back. Workers are not
    stopped by us. Entering and leaving is as with `LocalRuntime`.
    """

    name = "remote"

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        addresses: str | Sequence[str],
        tls: tls_files.Tls | None = None,
        connect_timeout: float = 10.0,
        restart_timeout: float = 60.0,
        patience: float = 20.0,
    ):
        """Prepares a runtime; nothing is connected or imported before it is entered.

        Args:
          log_path: named in errors; what the workers print is in their own logs.
          addresses: `HOST:PORT,HOST:PORT`, or the like in a sequence.
          tls: our certificates; None: those that the environment names (`tff_re.runtime.tls`), or no TLS where it names
            none.
          connect_timeout: seconds in which every worker has to answer at the beginning.
          restart_timeout: seconds in which one has to come back where all were lost.
          patience: seconds after which a worker that says nothing is asked whether it is there, and has to answer in.

        Raises:
          UnknownRuntime: an address is malformed or stands there twice.
          RuntimeProblem: the environment names some of the files for TLS and not all.
        """
        text = addresses if isinstance(addresses, str) else ",".join(addresses)
        self.addresses = parse_addresses(text)
        self._tls = tls or tls_files.from_environment()
        self._log_path = log_path
        self._connect_timeout, self._restart_timeout, self._patience = connect_timeout, restart_timeout, patience
        self._workers = self._context = None
        self._exit: contextlib.ExitStack | None = None

    def __enter__(self) -> RemoteRuntime:
        """Connects to all workers and makes their context TFF's default in this thread.

        Raises:
          WorkerStartFailed: a worker does not answer in time.
          RuntimeProblem: this runtime is open already, or a file for TLS cannot be read.
        """
        if self._context is not None:
            raise RuntimeProblem("this runtime is open already")
        if self._tls is None:
            for address in self.addresses:
                if not is_loopback(parse_address(address)[0]):
                    _log.warning("what goes to the worker %s and back is not encrypted; see docs/runtimes.md", address)
        self.require_answers()
        import tensorflow_federated as tff  # seconds, so not before it is known that there is somebody to talk to

        from computations.native_form import native_form
        from tff_re.runtime.remote.spreading import SpreadingFactory, Workers
        from tff_re.runtime.remote.staged_form import staged_form
        from tff_re.runtime.remote.worker import RemoteWorker

        with contextlib.ExitStack() as stack:
            connected = []
            for address in self.addresses:
                worker = RemoteWorker(address, self._tls, patience=self._patience)
                stack.callback(worker.close)
                connected.append(worker)
            self._workers = Workers(connected, self._log_path)
            self._context = tff.framework.SyncExecutionContext(
                executor_fn=SpreadingFactory(self._workers, functools.lru_cache(maxsize=64)(staged_form)),
                compiler_fn=native_form,
                transform_args=tff.tensorflow.transform_args,
                transform_result=tff.tensorflow.transform_result,
            )
            previous = tff.framework.get_context_stack().current
            tff.framework.set_default_context(self._context)
            stack.callback(self._leave, previous)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        if self._exit is not None:
            exit_, self._exit = self._exit, None
            exit_.close()

    @property
    def alive(self) -> bool:
        """Whether the runtime is open and one of its workers is there, as far as is known."""
        return self._context is not None and any(not worker.lost for worker in self._workers.all)

    @property
    def context(self):
        """The `tff.framework.SyncExecutionContext` of the open runtime.

        Raises:
          RuntimeClosed: if the runtime is not open.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open")
        return self._context

    def restart(self) -> None:
        """Waits until one of the workers is there; the others may follow.

        Raises:
          RuntimeClosed: if the runtime is not open.
          WorkerStartFailed: none came back in time.
        """
        if self._context is None:
            raise RuntimeClosed("this runtime is not open and cannot be restarted")
        deadline = time.monotonic() + self._restart_timeout
        while True:
            self._workers.look_again()
            if self.alive:
                return
            if time.monotonic() > deadline:
                raise WorkerStartFailed(
                    f"none of the workers {', '.join(self.addresses)} came back within {self._restart_timeout:g} s; "
                    "start them, then continue with --resume"
                )
            time.sleep(0.5)

    def describe(self) -> dict:
        """What a run's record tells about this runtime: strings, numbers, truth values, lists of strings."""
        from importlib import metadata

        return {
            "runtime": self.name,
            "alive": self.alive,
            "addresses": list(self.addresses),
            "lost": [worker.address for worker in self._workers.all if worker.lost] if self._workers else [],
            "tls": self._tls is not None,
            "tensorflow_federated": metadata.version("tensorflow-federated"),
        }

    def require_answers(self) -> None:
        """Raises WorkerStartFailed unless every worker answers in time, RuntimeProblem if our certificate or key is not
        fit for use; imports neither TensorFlow nor TFF."""
        from tff_re.runtime.connection import check_worker

        if self._tls is not None:
            self._tls.check(as_client=True)

        def check(address):
            return check_worker(address, self._tls, self._connect_timeout)

        with ThreadPoolExecutor(len(self.addresses)) as threads:
            reasons = list(threads.map(check, self.addresses))
        for address, reason in zip(self.addresses, reasons, strict=True):
            if reason is not None:
                port = parse_address(address)[1]
                raise WorkerStartFailed(
                    f"no worker answered at {address} within {self._connect_timeout:g} s ({reason}); start one on that "
                    f"machine with: python -m tff_re.run worker --port {port}"
                )

    def _leave(self, previous) -> None:
        import tensorflow_federated as tff

        self._workers.closed = True
        if tff.framework.get_context_stack().current is self._context:
            tff.framework.set_default_context(previous)
        self._context = None
