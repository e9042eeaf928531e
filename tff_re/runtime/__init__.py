"""Where a federated computation runs: `open_runtime("in-process", log_path=…)`.

Importing this package imports neither TensorFlow nor TensorFlow Federated; entering a runtime does.
"""

import os
from collections.abc import Callable

from computations.stack import STACK
from tff_re.runtime.base import Runtime, install_signal_handlers
from tff_re.runtime.errors import (
    ComputationFailed,
    RuntimeClosed,
    RuntimeProblem,
    UnknownRuntime,
    WorkerDied,
    WorkerStartFailed,
)
from tff_re.runtime.in_process.runtime import InProcessRuntime
from tff_re.runtime.local.runtime import LocalRuntime

__all__ = [
    "DEFAULT_RUNTIME",
    "ComputationFailed",
    "InProcessRuntime",
    "LocalRuntime",
    "Runtime",
    "RuntimeClosed",
    "RuntimeProblem",
    "UnknownRuntime",
    "WorkerDied",
    "WorkerStartFailed",
    "check_runtime_name",
    "install_signal_handlers",
    "is_of_sites",
    "open_runtime",
    "require_runtime",
    "runtime_names",
]


DEFAULT_RUNTIME = "in-process"
"""The runtime if none is named: the fastest one, and both stacks have it."""

_RUNTIMES: dict[str, Callable[..., Runtime]] = {DEFAULT_RUNTIME: InProcessRuntime}
if STACK == "tff":
    _RUNTIMES["local"] = LocalRuntime


def runtime_names() -> tuple[str, ...]:
    """Return the names that `open_runtime` knows."""
    return (*_RUNTIMES, "sites:NAME=SOCKET,NAME=SOCKET", "flower:SOCKET")


def check_runtime_name(name: str) -> None:
    """Raise UnknownRuntime if there is no such runtime, or the name of one across sites has no socket."""
    kind, _, sockets = name.partition(":")
    if is_of_sites(name):
        if not sockets:
            raise UnknownRuntime(f"the runtime '{kind}' needs a socket; see docs/sites.md")
    elif name == "local" and name not in _RUNTIMES:
        raise UnknownRuntime(
            "the runtime 'local' is TensorFlow Federated's worker, and this environment has no TensorFlow Federated; "
            "choose in-process"
        )
    elif name not in _RUNTIMES:
        raise UnknownRuntime(f"there is no runtime named {name!r}; available: {', '.join(runtime_names())}")


def is_of_sites(name: str | Runtime) -> bool:
    """Return whether the clients are at sites, which hold the data.

    `train` and `evaluate` know such runtimes (`tff_re.sites`).
    """
    return isinstance(name, str) and name.partition(":")[0] in ("sites", "flower")


def require_runtime(name: str, *, clients: int | None = None) -> None:
    """Check that the named runtime can be opened, as far as possible without starting anything.

    With `clients` as for `open_runtime`, to be called before TensorFlow computes here, which `in-process` needs.

    Raises UnknownRuntime as `check_runtime_name`.
    """
    runtime = open_runtime(name, log_path=os.devnull, clients=clients)
    if isinstance(runtime, InProcessRuntime):
        runtime.share_cores()


def open_runtime(name: str, *, log_path: str | os.PathLike, clients: int | None = None, **options) -> Runtime:
    """Return the named runtime, which a `with` statement starts.

    Args:
      name: one of `runtime_names()`.
      log_path: a file to which the output of what the runtime starts is appended.
      clients: how many take part in a round, if that is known, see `Runtime`.
      **options: see `LocalRuntime` and `InProcessRuntime`.

    Raises:
      UnknownRuntime: if there is no runtime of that name.
      TypeError, ValueError: if the runtime has no such option, or its value is not possible.
    """
    check_runtime_name(name)
    if is_of_sites(name):
        kind = name.partition(":")[0]
        raise UnknownRuntime(f"the runtime '{kind}' is only for train and evaluate; choose {' or '.join(_RUNTIMES)}")
    return _RUNTIMES[name](log_path, clients=clients, **options)
