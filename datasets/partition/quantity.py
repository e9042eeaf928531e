"""Clients of different sizes and the same distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import ALPHA, CLIENTS, DrawThenApply, Sample, client_names, dirichlet_shares
from datasets.ranges import whole_number


@attrs.frozen
class Quantity(DrawThenApply):
    """The clients' shares of the samples are p ~ Dir_K(alpha); which samples they get is random (Li et al., ICDE 2022).

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
