"""Label skew by shards, the pathological partition of FedAvg (McMahan et al. 2017, Section 3)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.partition.base import CLIENTS, Partitioner, Sample
from datasets.partition.by_class import dealt_by_shares, require_enough, units_by_class
from datasets.ranges import one_of, whole_number


@attrs.frozen
class Shards(Partitioner):
    """Samples or groups sorted by class are cut into K * S shards of equal size, to within one, and each client gets S.

    A shard lies in one class or across the border of a few, so that a client has few classes. A dev corpus is given out
    in the same shares of every class.

    Attributes:
      num_clients: K.
      shards_per_client: S; 2 in the paper.
      unit: What is given out, a ``sample`` or a whole ``document``.
      by: ``label``, or the name of a field whose values are the classes; a document's class is that of most of its
        samples.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    shards_per_client: int = attrs.field(default=2, validator=whole_number(1))
    unit: str = attrs.field(default="sample", validator=one_of(("sample", "document")))
    by: str = "label"
    name: ClassVar[str] = "shards"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> dict[Hashable, np.ndarray]:
        """Return the clients' shares of each class, float64 [K].

        Raises DataError if there are more shards than units.
        """
        sizes = {c: len(units) for c, units in units_by_class(samples, self.unit, self.by).items()}
        total, shards = sum(sizes.values()), self.num_clients * self.shards_per_client
        require_enough(total, self.num_clients, self.shards_per_client, self.unit)
        owners = rng.permutation(np.repeat(np.arange(self.num_clients), self.shards_per_client))
        owner_of = np.repeat(owners, by_cumulative_shares(total, np.full(shards, 1 / shards)))
        ends = np.cumsum(list(sizes.values()))
        parts = np.split(owner_of, ends[:-1])
        return {
            c: np.bincount(part, minlength=self.num_clients) / len(part) for c, part in zip(sizes, parts, strict=True)
        }

    def apply(self, drawn, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the sample indices of each client.

        Raises DataError for a class without a draw.
        """
        return dealt_by_shares(drawn, units_by_class(samples, self.unit, self.by), self.num_clients, self.by, rng)
