"""Which implementation of the federated language runs: TensorFlow Federated, or federated-language with our layer."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

VARIABLE = "TFF_RE_STACK"
PACKAGES = {"tff": "tensorflow_federated", "language": "federated_language"}
"""The stacks, the preferred one first, and the package that each needs."""


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def choose_stack(forced: str | None, installed: Callable[[str], bool] = _installed) -> str:
    """The stack to use.

    Args:
      forced: the name of a stack, or None or an empty string for the first one whose package is installed.
      installed: whether a package can be imported.

    Raises:
      ImportError: there is no such stack, or its package is missing.
    """
    if forced and forced not in PACKAGES:
        raise ImportError(f"{VARIABLE} is {forced!r}; choose one of {', '.join(PACKAGES)}")
    wanted = [forced] if forced else list(PACKAGES)
    for name in wanted:
        if installed(PACKAGES[name]):
            return name
    missing = " nor ".join(PACKAGES[name] for name in wanted)
    if forced:
        raise ImportError(f"{VARIABLE} is {forced!r}, but {missing} is not installed")
    raise ImportError(f"neither {missing} is installed; `make setup` installs one of them")


STACK = choose_stack(os.environ.get(VARIABLE))
DISTRIBUTION = PACKAGES[STACK].replace("_", "-")
KERAS = {"tff": "keras", "language": "tf-keras"}[STACK]
"""What the stack and the Keras that is tf.keras are installed as."""
