"""The table of algorithms: name -> options and composition."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel


@dataclass(frozen=True)
class Algorithm:
    """A published algorithm.

    Attributes:
      name: as recipes write it.
      title: as its paper writes it.
      source: paper, section, equations.
      options: a frozen dataclass; its fields are the keys that a recipe may set under [algorithm].
      build: (model, options) -> FederatedAlgorithm.
    """

    name: str
    title: str
    source: str
    options: type
    build: Callable[[LocalModel, Any], FederatedAlgorithm]


_TABLE: dict[str, Algorithm] = {}


def algorithm(name: str, *, title: str, source: str, options: type):
    """Registers the decorated (model, options) -> FederatedAlgorithm under `name`.

    Raises:
      ValueError: where another file has taken the name.
    """

    def register(build):
        known = _TABLE.get(name)
        if known is not None and known.build.__module__ != build.__module__:
            raise ValueError(f"algorithm {name!r} is registered by {known.build.__module__} and {build.__module__}")
        _TABLE[name] = Algorithm(name, title, source, options, build)
        return build

    return register


def _load_all() -> None:
    package = importlib.import_module("computations.algorithms")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"computations.algorithms.{module.name}")


def names() -> list[str]:
    """Names of all algorithms, sorted."""
    _load_all()
    return sorted(_TABLE)


def find(name: str) -> Algorithm:
    """The algorithm of that name; KeyError for an unknown one."""
    _load_all()
    return _TABLE[name]
