"""The implementation of the federated language: TensorFlow Federated, or federated-language with our layer."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

VARIABLE = "TFF_RE_STACK"
PACKAGES = {"tff": "tensorflow_federated", "language": "federated_language"}
"""The stacks, and the package that each needs."""


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def choose_stack(forced: str | None, installed: Callable[[str], bool] = _installed) -> str:
    """Choose the stack to use.

    Args:
      forced: the name of a stack, or None or an empty string for the one whose package is installed.
      installed: whether a package can be imported.

    Raises:
      ImportError: there is no such stack, its package is missing, or none is forced and both are installed.
    """
    if forced and forced not in PACKAGES:
        raise ImportError(f"{VARIABLE} is {forced!r}; choose one of {', '.join(PACKAGES)}")
    there = [name for name, package in PACKAGES.items() if installed(package)]
    if forced:
        if forced not in there:
            raise ImportError(f"{VARIABLE} is {forced!r}, but {PACKAGES[forced]} is not installed")
        return forced
    if not there:
        missing = " nor ".join(PACKAGES.values())
        raise ImportError(f"neither {missing} is installed; `make setup` installs one")
    if len(there) > 1:
        both = " and ".join(PACKAGES.values())
        raise ImportError(
            f"{both} are both installed; uninstall one of them, or set {VARIABLE} to {' or '.join(PACKAGES)}"
        )
    return there[0]


STACK = choose_stack(os.environ.get(VARIABLE))
if STACK == "language":
    # Before TensorFlow looks for Keras: the models are of Keras 2, which newer versions of TensorFlow call tf_keras.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
DISTRIBUTIONS = {stack: package.replace("_", "-") for stack, package in PACKAGES.items()}
DISTRIBUTION = DISTRIBUTIONS[STACK]
KERAS = {"tff": "keras", "language": "tf-keras"}[STACK]
"""What the stack and the Keras that is tf.keras are installed as."""
KERAS_MODULE = KERAS.replace("-", "_")
