"""A client is a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.partition.base import DrawThenApply, Sample


@attrs.frozen
class Natural(DrawThenApply):
    """Every document (a dialogue, say) is a client and holds its own samples: FLCMC's clients (Section 3.4.3)."""

    name: ClassVar[str] = "natural"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> None:
        """Nothing is random."""

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Document id to indices of samples."""
        clients: dict[str, list[int]] = {}
        for index, sample in enumerate(samples):
            clients.setdefault(sample.document_id, []).append(index)
        return clients
