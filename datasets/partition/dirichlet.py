"""Label skew by a Dirichlet distribution (Yurochkin et al. 2019; Hsu et al. 2019; FedCMC, Section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import ALPHA, CLIENTS, Partitioner, Sample, client_names, dirichlet_shares
from datasets.partition.by_field import field_values, grouped
from datasets.ranges import one_of


@attrs.frozen
class Dirichlet(Partitioner):
    """For each class c, p_c ~ Dir_K(alpha), and client k gets the share p_{k,c} of what belongs to the class.

    Attributes:
      num_clients: K. Clients that get nothing are left out of the partition.
      alpha: The smaller, the more the clients differ.
      unit: What is given out, a ``sample`` or a whole ``document`` (dialogues grouped into hospitals).
      by: ``label``, or the name of a field whose values are the classes, e.g. ``diagnosis``. A document belongs to the
        class that most of its samples have, the smallest one on a tie.
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    alpha: float = attrs.field(validator=ALPHA)
    unit: str = attrs.field(default="sample", validator=one_of(("sample", "document")))
    by: str = "label"
    name: ClassVar[str] = "dirichlet"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> dict[Hashable, np.ndarray]:
        """Class to shares, float64 [K]."""
        classes = sorted(set(self._classes(samples)))
        return {c: dirichlet_shares(self.num_clients, self.alpha, rng) for c in classes}

    def apply(self, drawn, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Client id to indices of samples; raises DataError for a class that was not drawn for."""
        units = [[index] for index in range(len(samples))]
        if self.unit == "document":
            units = list(grouped([sample.document_id for sample in samples]).values())
        members: dict[Hashable, list[list[int]]] = {}
        classes = self._classes(samples)
        for indices in units:
            counts = Counter(classes[i] for i in indices)
            members.setdefault(min(counts, key=lambda c: (-counts[c], c)), []).append(indices)
        names = client_names(self.num_clients)
        clients: dict[str, list[int]] = {client: [] for client in names}
        for c in sorted(members):
            if c not in drawn:
                raise DataError(
                    f"a class of the dev corpus ({self.by}) never occurs in the training corpus",
                    remedy="partition with natural or by_field, or hold out a test share instead",
                )
            ends = np.cumsum(by_cumulative_shares(len(members[c]), drawn[c]))
            for client, part in zip(names, np.split(rng.permutation(len(members[c])), ends[:-1]), strict=True):
                clients[client].extend(index for position in part for index in members[c][position])
        return {client: sorted(indices) for client, indices in clients.items()}

    def _classes(self, samples: Sequence[Sample]) -> list:
        return [sample.label for sample in samples] if self.by == "label" else field_values(samples, self.by)
