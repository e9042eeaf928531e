"""Partitions in which a client is a document, or a value of a field, without anything random."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.errors import DataError, named, nearest
from datasets.partition.base import Partitioner, Sample


@attrs.frozen
class Natural(Partitioner):
    """Every document (a dialogue, say) is a client with its own samples, like FLCMC's clients (Section 3.4.3)."""

    name: ClassVar[str] = "natural"

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        return grouped([sample.document_id for sample in samples])


@attrs.frozen
class ByField(Partitioner):
    """All samples with the same value of a field are one client, e.g. a hospital for each diagnosis.

    Attributes:
      field: The field's name, e.g. ``diagnosis``.
    """

    field: str
    name: ClassVar[str] = "by_field"

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        return grouped(field_values(samples, self.field))


def grouped(values: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Return the indices of each value."""
    indices_of: dict[Hashable, list[int]] = {}
    for index, value in enumerate(values):
        indices_of.setdefault(value, []).append(index)
    return indices_of


def field_values(samples: Sequence[Sample], field: str) -> list[str]:
    """Return the value of a field for each sample.

    Raises:
      DataError: no sample has the field (the nearest name that there is is given), or one of them has not.
    """
    names = sorted({name for sample in samples for name in sample.fields})
    if field not in names:
        remedy = nearest(field, names) if names else "the samples have no fields"
        raise DataError("there is no such field", record=named("field", field), remedy=remedy)
    for position, sample in enumerate(samples, 1):
        if field not in sample.fields:
            record = named("sample", sample.sample_id, position)
            raise DataError(f"has no {field}", record=record, remedy="complete the data or use another partitioner")
    return [sample.fields[field] for sample in samples]
