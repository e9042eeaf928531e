"""Clients of different sizes and the same distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import (
    DrawThenApply,
    Sample,
    client_names,
    dirichlet_shares,
    require_alpha,
    require_clients,
)


@dataclass(frozen=True)
class Quantity(DrawThenApply):
    """The clients' shares of the samples are p ~ Dir_K(alpha); which samples they get is random (Li et al., ICDE 2022).

    Attributes:
      num_clients: K.
      alpha: The smaller, the more the sizes differ.
      min_size: Every client gets this many training samples first, and its share of what is left.
    """

    num_clients: int
    alpha: float
    min_size: int = 1
    name: ClassVar[str] = "quantity"

    def __post_init__(self):
        require_clients(self.num_clients)
        require_alpha(self.alpha)
        if isinstance(self.min_size, bool) or not isinstance(self.min_size, int) or self.min_size < 0:
            raise DataError("min_size is not a whole number of zero or more", remedy="use e.g. 1")

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> np.ndarray:
        """The clients' shares, float64 [K], exactly those of the training samples with `min_size` met."""
        left = len(samples) - self.num_clients * self.min_size
        if left < 0:
            raise DataError(
                f"{self.num_clients} clients with {self.min_size} samples each cannot share {len(samples)} samples",
                remedy="use fewer clients or a smaller min_size",
            )
        shares = dirichlet_shares(self.num_clients, self.alpha, rng)
        return (self.min_size + by_cumulative_shares(left, shares)) / len(samples)

    def apply(self, drawn: np.ndarray, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Client id to indices of samples."""
        order = rng.permutation(len(samples))
        ends = np.cumsum(by_cumulative_shares(len(samples), drawn))
        parts = np.split(order, ends[:-1])
        return {
            client: sorted(part.tolist()) for client, part in zip(client_names(self.num_clients), parts, strict=True)
        }
