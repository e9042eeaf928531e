"""Clients are random samples of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from datasets.errors import DataError
from datasets.partition.base import DrawThenApply, Sample, client_names, require_clients


@dataclass(frozen=True)
class Iid(DrawThenApply):
    """Samples are shuffled and dealt out: the clients' sizes differ by one at most.

    Attributes:
      num_clients: K, at least 1 and at most the number of training samples.
    """

    num_clients: int
    name: ClassVar[str] = "iid"

    def __post_init__(self):
        require_clients(self.num_clients)

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> None:
        """Nothing is drawn; raises DataError if there are more clients than samples."""
        if self.num_clients > len(samples):
            raise DataError(
                f"{self.num_clients} clients cannot share {len(samples)} samples",
                remedy=f"use at most {len(samples)} clients",
            )

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Client id to indices of samples."""
        order = rng.permutation(len(samples))
        return {
            client: sorted(order[k :: self.num_clients].tolist())
            for k, client in enumerate(client_names(self.num_clients))
        }
