"""Label skew by a Dirichlet distribution (Yurochkin et al. 2019; Hsu et al. 2019; FedCMC, Section 4)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import ALPHA, CLIENTS, Partitioner, Sample, dirichlet_shares
from datasets.partition.by_class import dealt_by_shares, require_enough, units_by_class
from datasets.ranges import TRUE_OR_FALSE, one_of, whole_number

MOST_DRAWS = 20_000
"""Draws until every client has `min_size`; MOON's own code goes on for ever."""


@attrs.frozen
class Dirichlet(Partitioner):
    """For each class c, p_c ~ Dir_K(alpha), and client k gets the share p_{k,c} of the class's samples or groups.

    `min_size` = 10 and `capped` are the rule of MOON's released code (Li et al. 2021), after Yurochkin et al. 2019.

    Attributes:
      num_clients: K. Clients that get nothing are left out of the partition.
      alpha: The smaller, the more the clients differ.
      unit: What is given out, a ``sample`` or a whole ``document`` (dialogues grouped into hospitals).
      by: ``label``, or the name of a field whose values are the classes, e.g. ``diagnosis``. A document belongs to the
        class that most of its samples have, the smallest one on a tie.
      min_size: All shares are drawn again until every client has at least so many of the training corpus's samples, or
        documents, those that it holds out for testing included.
      capped: Whether a client that has N/K of them or more gets nothing of further classes, which are given out one
        after the other, whose shares for the other clients grow in proportion.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    alpha: float = attrs.field(validator=ALPHA)
    unit: str = attrs.field(default="sample", validator=one_of(("sample", "document")))
    by: str = "label"
    min_size: int = attrs.field(default=0, validator=whole_number(0))
    capped: bool = attrs.field(default=False, validator=TRUE_OR_FALSE)
    name: ClassVar[str] = "dirichlet"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> dict[Hashable, np.ndarray]:
        """Return the shares of each class, float64 [K].

        Raises DataError if no draw gives every client `min_size`.
        """
        sizes = {c: len(units) for c, units in units_by_class(samples, self.unit, self.by).items()}
        # A document's class may be another than its samples', and what the dev corpus has is given out by classes too.
        classes = sorted({*sizes, *units_by_class(samples, "sample", self.by)})
        if not self.min_size and not self.capped:
            return {c: dirichlet_shares(self.num_clients, self.alpha, rng) for c in classes}
        total = sum(sizes.values())
        require_enough(total, self.num_clients, self.min_size, self.unit)
        for _ in range(MOST_DRAWS):
            drawn = {c: dirichlet_shares(self.num_clients, self.alpha, rng) for c in classes}
            if (shares := self._shared(drawn, sizes, total)) is not None:
                return shares
        raise DataError(
            f"{MOST_DRAWS} draws did not give each of {self.num_clients} clients {self.min_size} {self.unit}s",
            remedy="use fewer clients, a smaller min_size, or a larger alpha",
        )

    def apply(self, drawn, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the sample indices of each client.

        Raises DataError for a class without a draw.
        """
        return dealt_by_shares(drawn, units_by_class(samples, self.unit, self.by), self.num_clients, self.by, rng)

    def _shared(
        self, drawn: Mapping[Hashable, np.ndarray], sizes: Mapping[Hashable, int], total: int
    ) -> dict[Hashable, np.ndarray] | None:
        """Return the shares after the cap, or None if a client is below `min_size` or a class has no client left."""
        held, shares = np.zeros(self.num_clients, np.int64), {}
        for c, drawn_shares in drawn.items():
            shares[c] = drawn_shares
            if self.capped:
                open_shares = drawn_shares * (held * self.num_clients < total)
                if not open_shares.any():
                    return None
                shares[c] = open_shares / open_shares.sum()
            held += by_cumulative_shares(sizes.get(c, 0), shares[c])
        return None if held.min() < self.min_size else shares
