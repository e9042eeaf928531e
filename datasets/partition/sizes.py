"""Partitions into random samples of the whole, of equal or different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import ALPHA, CLIENTS, Partitioner, Sample, client_names, dirichlet_shares
from datasets.ranges import whole_number


@attrs.frozen
class Iid(Partitioner):
    """Shuffled samples are dealt out, and the clients' sizes differ by at most one.

    Attributes:
      num_clients: K, at least 1 and at most the number of training samples.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    name: ClassVar[str] = "iid"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> None:
        """Draw nothing.

        Raises DataError if there are more clients than samples.
        """
        if self.num_clients > len(samples):
            raise DataError(
                f"{self.num_clients} clients cannot share {len(samples)} samples",
                remedy=f"use at most {len(samples)} clients",
            )

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        order = rng.permutation(len(samples))
        names = client_names(self.num_clients)
        return {client: sorted(order[k :: self.num_clients].tolist()) for k, client in enumerate(names)}


@attrs.frozen
class Quantity(Partitioner):
    """Random samples of sizes p ~ Dir_K(alpha) (Li et al., ICDE 2022).

    Attributes:
      num_clients: K.
      alpha: The smaller, the more the sizes differ.
      min_size: Every client gets this many training samples first, and its share of what is left.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    alpha: float = attrs.field(validator=ALPHA)
    min_size: int = attrs.field(default=1, validator=whole_number(0))
    name: ClassVar[str] = "quantity"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> np.ndarray:
        """Return the clients' shares, float64 [K].

        They are exactly those of the training samples, with `min_size` met.
        """
        left = len(samples) - self.num_clients * self.min_size
        if left < 0:
            raise DataError(
                f"{self.num_clients} clients with {self.min_size} samples each cannot share {len(samples)} samples",
                remedy="use fewer clients or a smaller min_size",
            )
        shares = dirichlet_shares(self.num_clients, self.alpha, rng)
        return (self.min_size + by_cumulative_shares(left, shares)) / len(samples)

    def apply(self, drawn: np.ndarray, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        ends = np.cumsum(by_cumulative_shares(len(samples), drawn))
        parts = np.split(rng.permutation(len(samples)), ends[:-1])
        names = client_names(self.num_clients)
        return {client: sorted(part.tolist()) for client, part in zip(names, parts, strict=True)}
