"""Clients are random samples of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.errors import DataError
from datasets.partition.base import CLIENTS, DrawThenApply, Sample, client_names


@attrs.frozen
class Iid(DrawThenApply):
    """Samples are shuffled and dealt out: the clients' sizes differ by one at most.

    Attributes:
      num_clients: K, at least 1 and at most the number of training samples.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    name: ClassVar[str] = "iid"

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
