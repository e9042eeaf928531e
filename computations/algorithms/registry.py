"""The table of algorithms, with the options and composition of each name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.registry import Registry


@dataclass(frozen=True)
class Algorithm:
    """A published algorithm.

    Attributes:
      name: as recipes write it.
      title: as its paper writes it.
      source: paper, section, equations.
      options: a class made by `options_class`; its fields are the keys that a recipe may set under [algorithm].
      build: (model, options) -> FederatedAlgorithm.
    """

    name: str
    title: str
    source: str
    options: type
    build: Callable[[LocalModel, Any], FederatedAlgorithm]


ALGORITHMS = Registry("algorithm", "computations.algorithms")


def algorithm(name: str, *, title: str, source: str, options: type):
    """Register the decorated (model, options) -> FederatedAlgorithm under `name`.

    Raises:
      ValueError: where another file has taken the name.
    """

    def register(build):
        ALGORITHMS.add(name, Algorithm(name, title, source, options, build), build.__module__)
        return build

    return register


def names() -> list[str]:
    """Return the names of all algorithms, sorted."""
    return list(ALGORITHMS)


def find(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises KeyError if it is unknown.
    """
    return ALGORITHMS[name]
