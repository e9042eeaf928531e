"""Errors of runtimes.

A value of the wrong type raises TFF's own errors.
"""


class RuntimeProblem(Exception):
    """Base of all errors of `tff_re.runtime`, with a text of one line for the user."""


class UnknownRuntime(RuntimeProblem, ValueError):
    """The name given to `open_runtime` is unknown."""


class WorkerStartFailed(RuntimeProblem):
    """The worker could not be started, or was not ready in time."""


class WorkerDied(RuntimeProblem):
    """The worker ended while it was needed.

    The context is lost, and `restart()` of the runtime makes a new one.

    Attributes:
      pid: the process id that the worker had.
      log_path: the file with the worker's output.
      exit_code, signal_number: its exit code, or the signal that killed it; None if not known.
    """

    def __init__(self, message, *, pid, log_path, exit_code=None, signal_number=None):
        super().__init__(message)
        self.pid, self.log_path, self.exit_code, self.signal_number = pid, log_path, exit_code, signal_number


class RuntimeClosed(RuntimeProblem):
    """A computation was called through a runtime that was closed or restarted."""

    def __init__(self, message="the runtime that this computation was called in has been closed"):
        super().__init__(message)


class ComputationFailed(RuntimeProblem):
    """A computation raised an error.

    The worker stays alive.

    Attributes:
      code: names the gRPC status, as `"INVALID_ARGUMENT"`.
      client: the place among the clients, from 0, of the one whose part failed; None where the runtime does not know.
    """

    def __init__(self, message, *, code, client: int | None = None):
        super().__init__(message)
        self.code, self.client = code, client
