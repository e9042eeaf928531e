"""What partitions by class share: the units of classes, and their assignment by given shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from datasets.apportion import by_cumulative_shares
from datasets.errors import DataError
from datasets.partition.base import Sample, client_names
from datasets.partition.by_field import field_values, grouped


def units_by_class(samples: Sequence[Sample], unit: str, by: str) -> dict[Hashable, list[list[int]]]:
    """Return the units of each class, each as the indices of its samples, with the classes in ascending order.

    Args:
      samples: All of them.
      unit: ``sample`` or ``document``, which belongs to the class that most of its samples have, the smallest on a tie.
      by: ``label``, or the name of a field whose values are the classes.

    Raises:
      DataError: no such field, or a sample without it.
    """
    classes = [sample.label for sample in samples] if by == "label" else field_values(samples, by)
    units = [[index] for index in range(len(samples))]
    if unit == "document":
        units = list(grouped([sample.document_id for sample in samples]).values())
    members: dict[Hashable, list[list[int]]] = {}
    for indices in units:
        counts = Counter(classes[i] for i in indices)
        members.setdefault(min(counts, key=lambda c: (-counts[c], c)), []).append(indices)
    return {c: members[c] for c in sorted(members)}


def dealt_by_shares(
    shares: Mapping[Hashable, np.ndarray],
    members: Mapping[Hashable, Sequence[Sequence[int]]],
    num_clients: int,
    by: str,
    rng: np.random.Generator,
) -> dict[str, list[int]]:
    """Return the sample indices of each client, which gets its share of every class's units in a random order.

    Raises:
      DataError: a class without shares.
    """
    names = client_names(num_clients)
    clients: dict[str, list[int]] = {client: [] for client in names}
    for c, units in members.items():
        if c not in shares:
            raise DataError(
                f"a class of the dev corpus ({by}) never occurs in the training corpus",
                remedy="partition with natural or by_field, or hold out a test share instead",
            )
        ends = np.cumsum(by_cumulative_shares(len(units), shares[c]))
        for client, part in zip(names, np.split(rng.permutation(len(units)), ends[:-1]), strict=True):
            clients[client].extend(index for position in part for index in units[position])
    return {client: sorted(indices) for client, indices in clients.items()}


def require_enough(units: int, num_clients: int, min_size: int, unit: str) -> None:
    """Raise DataError if this number of clients cannot have this number of units each."""
    if num_clients * min_size > units:
        raise DataError(
            f"{num_clients} clients with {min_size} {unit}s each cannot share {units} {unit}s",
            remedy="use fewer clients or a smaller min_size",
        )
