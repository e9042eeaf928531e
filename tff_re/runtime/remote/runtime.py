"""The runtime of several machines: workers that run already, and clients spread over them."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tff_re.runtime import tls as tls_files
from tff_re.runtime.addresses import is_loopback, parse_address, parse_addresses
from tff_re.runtime.base import Runtime, execution_context
from tff_re.runtime.errors import WorkerStartFailed

_log = logging.getLogger(__name__)


class RemoteRuntime(Runtime):
    """Workers on other machines, each started there by `python -m tff_re.run worker`.

        with RemoteRuntime("runs/first/worker.log", addresses="ward3:8000,ward4:8000"):
            learning_process.next(state, client_datasets)

    The clients of a call are dealt out to as many groups as there are workers; see
    `tff_re.runtime.remote.spreading`. The numbers depend on the number of addresses, because sums are made group by
    group, and on nothing else: the groups of a worker that is lost are computed by the others, from the same values.

    A call raises `WorkerDied` where all workers are lost; `restart()` waits until one of them is back. Workers are not
    stopped by us.
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
        """Prepares a runtime; see `Runtime`.

        Args:
          log_path: named in errors; what the workers print is in their own logs.
          addresses: `HOST:PORT,HOST:PORT`, or a sequence of `HOST:PORT`.
          tls: our certificates; None: those that the environment names (`tff_re.runtime.tls`), or none.
          connect_timeout: seconds in which every worker has to answer at the beginning.
          restart_timeout: seconds in which one has to come back where all were lost.
          patience: seconds after which a worker that has not answered is asked whether it is there; it has as long to
            answer that.

        Raises:
          UnknownRuntime: an address is malformed or a duplicate.
          RuntimeProblem: the environment names some of the files for TLS and not all.
        """
        super().__init__(log_path)
        text = addresses if isinstance(addresses, str) else ",".join(addresses)
        self.addresses = parse_addresses(text)
        self._tls = tls or tls_files.from_environment()
        self._connect_timeout, self._restart_timeout, self._patience = connect_timeout, restart_timeout, patience
        self._workers = None
        self._opened = contextlib.ExitStack()

    def _check(self) -> None:
        if self._tls is None:
            for address in self.addresses:
                if not is_loopback(parse_address(address)[0]):
                    _log.warning("what goes to the worker %s and back is not encrypted; see docs/runtimes.md", address)
        self.require_answers()

    def _open(self):
        from tff_re.runtime.remote.spreading import SpreadingFactory, Workers
        from tff_re.runtime.remote.worker import RemoteWorker

        connected = [RemoteWorker(address, self._tls, patience=self._patience) for address in self.addresses]
        for worker in connected:
            self._opened.callback(worker.close)
        self._workers = Workers(connected, self._log_path)
        return execution_context(SpreadingFactory(self._workers))

    def _close(self) -> None:
        if self._workers is not None:
            self._workers.closed = True
        self._opened.close()

    def _restart(self) -> None:
        """Waits until one of the workers is there; the others may follow."""
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

    def _answers(self) -> bool:
        return any(not worker.lost for worker in self._workers.all)

    def _details(self) -> dict:
        return {
            "addresses": list(self.addresses),
            "lost": [worker.address for worker in self._workers.all if worker.lost] if self._workers else [],
            "tls": self._tls is not None,
        }

    def require_answers(self) -> None:
        """WorkerStartFailed unless every worker answers in time; RuntimeProblem if our files are not fit for use."""
        from tff_re.runtime.connection import check_worker

        if self._tls is not None:
            self._tls.check(as_client=True)
        with ThreadPoolExecutor(len(self.addresses)) as threads:
            reasons = threads.map(lambda a: check_worker(a, self._tls, self._connect_timeout), self.addresses)
        for address, reason in zip(self.addresses, reasons, strict=True):
            if reason is not None:
                port = parse_address(address)[1]
                raise WorkerStartFailed(
                    f"no worker answered at {address} within {self._connect_timeout:g} s ({reason}); start one on that "
                    f"machine with: python -m tff_re.run worker --port {port}"
                )
