"""The runtime of one machine: TFF's C++ worker, which we start and stop."""

import functools
import logging
import os
import sys
from collections.abc import Mapping

from tff_re.runtime.base import Runtime
from tff_re.runtime.events import WORKER_EXPOSED
from tff_re.runtime.local.worker import Worker

_log = logging.getLogger(__name__)
_announced: set[str] = set()


class LocalRuntime(Runtime):
    """A worker on this machine, and TFF's default execution context that speaks to it.

    No other user of the machine reaches the worker, if the kernel allows network namespaces; see `Worker`. Where it
    does not, the run's log says so each time, and standard error once in a process.

        with LocalRuntime("runs/first/worker.log") as runtime:
            learning_process.next(state, client_datasets)
    """

    name = "local"

    def __init__(
        self,
        log_path: str | os.PathLike,
        *,
        max_concurrent_computation_calls: int | None = None,
        clients: int | None = None,
        default_num_clients: int = 0,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
    ):
        """Prepare a runtime (see `Runtime`).

        Args:
          log_path, clients, default_num_clients: as for every runtime.
          max_concurrent_computation_calls, environment, start_timeout: see `Worker`.

        Raises:
          ValueError: if `max_concurrent_computation_calls` or `clients` is below 1 or `default_num_clients` below 0.
        """
        super().__init__(log_path, clients=clients, default_num_clients=default_num_clients)
        self._make_worker = functools.partial(
            Worker,
            log_path,
            max_concurrent_computation_calls=max_concurrent_computation_calls,
            clients=clients,
            environment=environment,
            start_timeout=start_timeout,
        )
        self.worker = self._make_worker()
        self._channel = None

    def _answers(self) -> bool:
        return self.worker.alive

    def _open(self):
        from tff_re.runtime.local import worker_context

        self.worker.start()
        if self.worker.why_exposed is not None:
            # Not as a warning: a run's log takes information too, and without one logging would print a second line.
            line = WORKER_EXPOSED.log(_log, reason=self.worker.why_exposed)
            if line not in _announced:
                _announced.add(line)
                print(f"tff-re: {line}", file=sys.stderr)
        context, self._channel = worker_context.connect(self.worker, default_num_clients=self._default_num_clients)
        return context

    def _close(self) -> None:
        # The worker first: a call that is still under way in TFF's thread ends with it, and the context waits for that
        # thread.
        self.worker.stop()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _restart(self) -> None:
        self._close()
        # Not the same `Worker` started again: what is left of the old context must find its own worker dead.
        self.worker = self._make_worker()
        self._start()

    def _details(self) -> dict:
        return {
            "worker_pid": self.worker.pid,
            "private": self.worker.private,
            "why_exposed": self.worker.why_exposed,
            "max_concurrent_computation_calls": self.worker.max_concurrent_computation_calls,
            "default_num_clients": self._default_num_clients,
            "worker_environment": dict(self.worker.environment),
            "log": str(self.worker.log_path),
        }


def exposure(reason: str) -> str:
    """Return a warning if the worker does not have its own network."""
    return WORKER_EXPOSED.line(reason=reason)
