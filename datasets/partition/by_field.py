"""A client is a value of a field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.errors import DataError, named, nearest
from datasets.partition.base import DrawThenApply, Sample


@attrs.frozen
class ByField(DrawThenApply):
    """All samples with the same value of a field are one client, e.g. a hospital for each diagnosis.

    Attributes:
      field: The field's name, e.g. ``diagnosis``.
    """

    field: str
    name: ClassVar[str] = "by_field"

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> None:
        """Nothing is random."""

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Value to indices of samples; raises DataError if a sample does not have the field."""
        clients: dict[str, list[int]] = {}
        for index, value in enumerate(field_values(samples, self.field)):
            clients.setdefault(value, []).append(index)
        return clients


def field_values(samples: Sequence[Sample], field: str) -> list[str]:
    """The value of a field for each sample.

    Raises:
      DataError: no sample has the field (the nearest name that there is is given), or one of them has not.
    """
    names = sorted({name for sample in samples for name in sample.fields})
    if field not in names:
        raise DataError(
            "there is no such field",
            record=named("field", field),
            remedy=nearest(field, names) if names else "the samples have no fields",
        )
    for position, sample in enumerate(samples, 1):
        if field not in sample.fields:
            raise DataError(
                f"has no {field}",
                record=named("sample", sample.sample_id, position),
                remedy="complete the data or use another partitioner",
            )
    return [sample.fields[field] for sample in samples]
