"""Where a federated computation runs: `open_runtime("local", log_path=…)`.

Importing this package imports neither TensorFlow nor TensorFlow Federated; entering a runtime does.
"""

import os
from collections.abc import Callable

from tff_re.runtime.addresses import parse_addresses
from tff_re.runtime.base import Runtime
from tff_re.runtime.errors import (
    ComputationFailed,
    RuntimeClosed,
    RuntimeProblem,
    UnknownRuntime,
    WorkerDied,
    WorkerStartFailed,
)
from tff_re.runtime.in_process import InProcessRuntime
from tff_re.runtime.local.runtime import LocalRuntime
from tff_re.runtime.remote.runtime import RemoteRuntime
from tff_re.runtime.signals import install_signal_handlers

__all__ = [
    "ComputationFailed",
    "InProcessRuntime",
    "LocalRuntime",
    "RemoteRuntime",
    "Runtime",
    "RuntimeClosed",
    "RuntimeProblem",
    "UnknownRuntime",
    "WorkerDied",
    "WorkerStartFailed",
    "check_runtime_name",
    "install_signal_handlers",
    "open_runtime",
    "require_runtime",
    "runtime_names",
]


_RUNTIMES: dict[str, Callable[..., Runtime]] = {"local": LocalRuntime, "in-process": InProcessRuntime}
_WITH_ADDRESSES = "remote"


def runtime_names() -> tuple[str, ...]:
    """The names that `open_runtime` knows, in the form in which they are given."""
    return (*_RUNTIMES, f"{_WITH_ADDRESSES}:HOST:PORT,HOST:PORT")


def check_runtime_name(name: str) -> None:
    """Checks that `open_runtime` knows the name.

    Raises:
      UnknownRuntime: there is no such runtime, or an address in its name is malformed.
    """
    kind, _, addresses = name.partition(":")
    if kind == _WITH_ADDRESSES:
        parse_addresses(addresses)
    elif name not in _RUNTIMES:
        raise UnknownRuntime(f"there is no runtime named {name!r}; available: {', '.join(runtime_names())}")


def require_runtime(name: str) -> None:
    """Checks that the runtime of that name can be opened now, as far as that is known without starting anything.

    Raises:
      UnknownRuntime: see `check_runtime_name`.
      WorkerStartFailed: a worker that its name names does not answer.
    """
    check_runtime_name(name)
    if name not in _RUNTIMES:
        RemoteRuntime(os.devnull, addresses=name.partition(":")[2]).require_answers()


def open_runtime(name: str, *, log_path: str | os.PathLike, **options) -> Runtime:
    """The runtime of that name, for a `with` statement, which starts it.

    Args:
      name: one of `runtime_names()`; `remote:` with the addresses of the workers.
      log_path: a file to which the output of what the runtime starts is appended.
      **options: see the runtime's class: `LocalRuntime` for `local`, `InProcessRuntime` for `in-process`,
        `RemoteRuntime` for `remote:…`.

    Raises:
      UnknownRuntime: if there is no runtime of that name.
      TypeError: if the runtime does not have such an option.
      ValueError: if an option's value is not possible.
    """
    check_runtime_name(name)
    if name not in _RUNTIMES:
        return RemoteRuntime(log_path, addresses=name.partition(":")[2], **options)
    return _RUNTIMES[name](log_path, **options)
