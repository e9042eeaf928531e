"""Where a federated computation runs: `open_runtime("local", log_path=…)`.

Importing this package imports neither TensorFlow nor TensorFlow Federated; entering a runtime does.
"""

import os
from collections.abc import Callable
from typing import Protocol

from tff_re.runtime.errors import (
    ComputationFailed,
    RuntimeClosed,
    RuntimeProblem,
    UnknownRuntime,
    WorkerDied,
    WorkerStartFailed,
)
from tff_re.runtime.in_process import InProcessRuntime
from tff_re.runtime.local import LocalRuntime
from tff_re.runtime.signals import install_signal_handlers

__all__ = [
    "ComputationFailed",
    "InProcessRuntime",
    "LocalRuntime",
    "Runtime",
    "RuntimeClosed",
    "RuntimeProblem",
    "UnknownRuntime",
    "WorkerDied",
    "WorkerStartFailed",
    "install_signal_handlers",
    "open_runtime",
    "runtime_names",
]


class Runtime(Protocol):
    """What every runtime can do. While it is open, its context is TFF's default in the thread that opened it."""

    name: str

    def __enter__(self) -> "Runtime": ...

    def __exit__(self, *exception) -> None: ...

    def restart(self) -> None:
        """Begins anew after `WorkerDied`; the object stays the same."""

    @property
    def alive(self) -> bool:
        """Whether computations can be called now."""

    def describe(self) -> dict:
        """What a run's record tells about it; fit for JSON."""


_RUNTIMES: dict[str, Callable[..., Runtime]] = {"local": LocalRuntime, "in-process": InProcessRuntime}


def runtime_names() -> tuple[str, ...]:
    """The names that `open_runtime` knows."""
    return tuple(_RUNTIMES)


def open_runtime(name: str, *, log_path: str | os.PathLike, **options) -> Runtime:
    """The runtime of that name, for a `with` statement, which starts it.

    Args:
      name: one of `runtime_names()`.
      log_path: a file to which the output of what the runtime starts is appended.
      **options: see the runtime's class, `LocalRuntime` for `local`, `InProcessRuntime` for `in-process`.

    Raises:
      UnknownRuntime: if there is no runtime of that name.
      TypeError: if the runtime does not have such an option.
      ValueError: if an option's value is not possible.
    """
    if name not in _RUNTIMES:
        raise UnknownRuntime(f"there is no runtime named {name!r}; there is: {', '.join(_RUNTIMES)}")
    return _RUNTIMES[name](log_path, **options)
