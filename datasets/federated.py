"""Encoded examples held by clients, for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datasets.errors import DataError, named

Examples = dict[str, np.ndarray]
"""Arrays of equal leading size n; the key ``y`` holds the labels, int32 [n]."""

SPLITS = ("train", "test")


@dataclass(frozen=True)
class ClientExamples:
    """The examples of one client, of which train or test may be empty (n = 0), but not both.

    `dev`: what it keeps out of its training examples to choose on; None: nothing.
    """

    client_id: str
    train: Examples = field(repr=False)
    test: Examples = field(repr=False)
    dev: Examples | None = field(default=None, repr=False)


class PackedClients(Sequence[ClientExamples]):
    """Clients whose arrays are slices of shared ones.

    A client is made when it is asked for, without copying its arrays. It takes some 40 bytes in addition to its
    examples and its id.
    """

    def __init__(self, ids: Sequence[str], arrays: Examples, sizes: dict[str, np.ndarray]):
        """Create the clients.

        Args:
          ids: K of them.
          arrays: The examples of all clients, in the clients' order; a client's in the order of `sizes`.
          sizes: `train`, `test` and maybe `dev` -> the number of each client's examples, int64 [K].
        """
        self.ids, self.arrays, self.sizes = tuple(ids), arrays, sizes
        ends = np.cumsum(np.stack(list(sizes.values()), axis=1).reshape(-1))
        if int(ends[-1]) != len(arrays["y"]):
            raise ValueError(f"the clients hold {ends[-1]} examples, but there are {len(arrays['y'])}")
        self._bounds = np.concatenate([[0], ends])

    @classmethod
    def from_clients(cls, clients: Iterable[ClientExamples]) -> PackedClients:
        """Copy the arrays of at least one client into shared ones."""
        ids, parts, splits = [], [], SPLITS
        for client in clients:
            ids.append(client.client_id)
            splits = SPLITS if client.dev is None else (*SPLITS, "dev")
            parts += [getattr(client, split) for split in splits]
        sizes = np.array([len(part["y"]) for part in parts], np.int64).reshape(len(ids), len(splits))
        arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return cls(ids, arrays, dict(zip(splits, sizes.T, strict=True)))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index):
        """Return the client of an index, or the tuple of a slice's."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} clients, but the index is {index}")
        index, splits = index % len(self), {}
        for position, split in enumerate(self.sizes, index * len(self.sizes)):
            rows = slice(self._bounds[position], self._bounds[position + 1])
            splits[split] = {key: array[rows] for key, array in self.arrays.items()}
        return ClientExamples(self.ids[index], **splits)

    def pooled(self, split: str, keys: Iterable[str] | None = None) -> Examples:
        """See `FederatedExamples.pooled`."""
        of_split = np.tile([name == split for name in self.sizes], len(self))
        rows = np.repeat(of_split, np.diff(self._bounds))
        return {key: self.arrays[key][rows] for key in keys or self.arrays}

    def is_sound(self, num_classes: int) -> bool:
        """Return whether `FederatedExamples` takes these clients.

        What is wrong is found by looking at each client.
        """
        try:
            _check(self.arrays, num_classes, "")
        except DataError:
            return False
        return len(set(self.ids)) == len(self.ids) and bool((sum(self.sizes.values()) > 0).all())


@dataclass(frozen=True)
class FederatedExamples:
    """The examples of all clients.

    Attributes:
      clients: With unique ids, the same keys, dtypes and shapes after the leading one. Of `PackedClients` each look
        makes the client again.
      label_names: The classes, in the order of the labels.
      server: What the server itself holds (FedED's D_v), or None.

    Raises:
      DataError: a client without examples or with an id that another has, arrays that do not fit each other, labels
        that are not int32 in [0, C), or a feature that is NaN or infinite; the client is named.
    """

    clients: Sequence[ClientExamples]
    label_names: tuple[str, ...]
    server: Examples | None = field(default=None, repr=False)

    def __post_init__(self):
        if not self.clients:
            raise DataError("there are no clients", remedy="give at least one client examples")
        expected_spec, seen = None, set()
        if self.server is not None:
            if not _check(self.server, len(self.label_names), "the server"):
                raise DataError("has no examples", record="the server", remedy="give it some, or None")
            expected_spec = _spec(self.server)
        packed = isinstance(self.clients, PackedClients) and self.clients.is_sound(len(self.label_names))
        if packed and expected_spec in (None, _spec(self.clients.arrays)):
            return
        for position, client in enumerate(self.clients, 1):
            record = named("client", client.client_id, position)
            if client.client_id in seen:
                raise DataError("duplicate id", record=record, remedy="give every client an id of its own")
            seen.add(client.client_id)
            sizes = 0
            for split in SPLITS if client.dev is None else (*SPLITS, "dev"):
                examples = getattr(client, split)
                sizes += _check(examples, len(self.label_names), f"{record}, {split}")
                spec = _spec(examples)
                expected_spec = spec if expected_spec is None else expected_spec
                if spec != expected_spec:
                    raise DataError(
                        "its arrays have a different name, dtype or shape from the other clients'",
                        record=f"{record}, {split}",
                        remedy="encode all clients in the same way",
                    )
            if not sizes:
                raise DataError("has no examples", record=record, remedy="leave the client out")

    def pooled(self, split: str, keys: Iterable[str] | None = None) -> Examples:
        """Return the examples of all clients in one, in the clients' order.

        `split` is ``train`` or ``test``, `keys` names some of the arrays; None: all.
        """
        if isinstance(self.clients, PackedClients):
            return self.clients.pooled(split, keys)
        parts = [getattr(client, split) for client in self.clients]
        return {key: np.concatenate([part[key] for part in parts]) for key in keys or parts[0]}

    def sizes(self, split: str) -> np.ndarray:
        """Return the number of each client's examples of a split, int64 [K]."""
        if isinstance(self.clients, PackedClients):
            return self.clients.sizes.get(split, np.zeros(len(self.clients), np.int64))
        held = (getattr(client, split) for client in self.clients)
        return np.array([0 if examples is None else len(examples["y"]) for examples in held], np.int64)

    def size(self, split: str) -> int:
        """Return the number of examples of a split over all clients."""
        return int(self.sizes(split).sum())

    @property
    def has_dev(self) -> bool:
        """Return whether a client keeps dev examples out of its training examples, be it none of them."""
        if isinstance(self.clients, PackedClients):
            return "dev" in self.clients.sizes
        return any(client.dev is not None for client in self.clients)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the clients' ids."""
        if isinstance(self.clients, PackedClients):
            return self.clients.ids
        return tuple(client.client_id for client in self.clients)


def distribute(
    partition: Any, samples: Sequence[Any], arrays: Examples, label_names: tuple[str, ...], order_test_by=None
) -> FederatedExamples:
    """Distribute the rows of arrays [n, ...] over the clients (and the server) of a `datasets.partition.Partition`.

    Args:
      partition: Of the samples.
      samples: n of them, in the order of the rows.
      arrays: With the labels.
      label_names: The classes.
      order_test_by: [n]; a client's test examples are sorted by it, their lengths: evaluation pads to the longest.
    """
    row_of = {sample.sample_id: row for row, sample in enumerate(samples)}
    held = list(partition.clients.values())
    sizes = {split: np.array([len(getattr(ids, split)) for ids in held], np.int64) for split in SPLITS}
    in_order = (row_of[sample_id] for ids in held for split in SPLITS for sample_id in getattr(ids, split))
    rows = np.fromiter(in_order, np.int64, sum(int(of_split.sum()) for of_split in sizes.values()))
    if order_test_by is not None:
        end = 0
        for train, test in zip(*sizes.values(), strict=True):
            start, end = end + train, end + train + test
            rows[start:end] = rows[start:end][np.argsort(order_test_by[rows[start:end]], kind="stable")]
    packed = {name: array[rows] for name, array in arrays.items()}
    server = np.array([row_of[sample_id] for sample_id in partition.server], np.int64)
    return FederatedExamples(
        PackedClients(tuple(partition.clients), packed, sizes),
        label_names,
        {name: array[server] for name, array in arrays.items()} if len(server) else None,
    )


def _spec(examples: Examples) -> dict[str, tuple]:
    return {key: (array.dtype, array.shape[1:]) for key, array in examples.items()}


def _check(examples: Examples, num_classes: int, record: str) -> int:
    if "y" not in examples:
        raise DataError('has no labels "y"', record=record, remedy='add an int32 array "y"')
    labels = examples["y"]
    if labels.dtype != np.int32 or labels.ndim != 1:
        raise DataError("its labels are not int32 [n]", record=record, remedy="convert them")
    for key, array in examples.items():
        if array.ndim == 0 or len(array) != len(labels):
            raise DataError(f'"{key}" and the labels have different lengths', record=record, remedy="align the arrays")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise DataError(f'"{key}" holds NaN or infinity', record=record, remedy="repair or remove these examples")
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        reason = f"a label is outside the {num_classes} classes"
        raise DataError(reason, record=record, remedy=f"use 0 to {num_classes - 1}")
    return len(labels)
