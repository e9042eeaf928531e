"""Encoded examples held by clients, for training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True)
class FederatedExamples:
    """The examples of all clients.

    Attributes:
      clients: With unique ids, the same keys, dtypes and shapes after the leading one.
      label_names: The classes, in the order of the labels.
      server: What the server itself holds (FedED's D_v), or None.

    Raises:
      DataError: a client without examples or with an id that another has, arrays that do not fit each other, labels
        that are not int32 in [0, C), or a feature that is NaN or infinite; the client is named.
    """

    clients: tuple[ClientExamples, ...]
    label_names: tuple[str, ...]
    server: Examples | None = field(default=None, repr=False)

    def __post_init__(self):
        if not self.clients:
            raise DataError("there are no clients", remedy="give at least one client examples")
        expected_spec, seen = None, set()
        if self.server is not None:
            if not _check(self.server, len(self.label_names), "the server"):
                raise DataError("has no examples", record="the server", remedy="give it some, or None")
            expected_spec = {key: (array.dtype, array.shape[1:]) for key, array in self.server.items()}
        for position, client in enumerate(self.clients, 1):
            record = named("client", client.client_id, position)
            if client.client_id in seen:
                raise DataError("duplicate id", record=record, remedy="give every client an id of its own")
            seen.add(client.client_id)
            sizes = 0
            for split in SPLITS if client.dev is None else (*SPLITS, "dev"):
                examples = getattr(client, split)
                sizes += _check(examples, len(self.label_names), f"{record}, {split}")
                spec = {key: (array.dtype, array.shape[1:]) for key, array in examples.items()}
                expected_spec = spec if expected_spec is None else expected_spec
                if spec != expected_spec:
                    raise DataError(
                        "its arrays have a different name, dtype or shape from the other clients'",
                        record=f"{record}, {split}",
                        remedy="encode all clients in the same way",
                    )
            if not sizes:
                raise DataError("has no examples", record=record, remedy="leave the client out")

    def pooled(self, split: str) -> Examples:
        """Return the examples of all clients in one, in the clients' order.

        `split` is ``train`` or ``test``.
        """
        parts = [getattr(client, split) for client in self.clients]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def size(self, split: str) -> int:
        """Return the number of examples of a split over all clients."""
        held = (getattr(client, split) for client in self.clients)
        return sum(len(examples["y"]) for examples in held if examples is not None)


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

    def examples(sample_ids: Sequence[str], order_by: np.ndarray | None = None) -> Examples:
        rows = np.array([row_of[sample_id] for sample_id in sample_ids], np.int64)
        if order_by is not None:
            rows = rows[np.argsort(order_by[rows], kind="stable")]
        return {name: array[rows] for name, array in arrays.items()}

    clients = (
        ClientExamples(client, examples(ids.train), examples(ids.test, order_test_by))
        for client, ids in partition.clients.items()
    )
    return FederatedExamples(tuple(clients), label_names, examples(partition.server) if partition.server else None)


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
