"""Which client holds which samples: one partitioner a file."""

from __future__ import annotations

import dataclasses
import difflib

from datasets.errors import DataError, named
from datasets.partition.base import ClientSamples, Partition, Partitioner, Sample
from datasets.partition.build import build_partition
from datasets.partition.by_field import ByField
from datasets.partition.dirichlet import Dirichlet
from datasets.partition.iid import Iid
from datasets.partition.natural import Natural
from datasets.partition.quantity import Quantity
from datasets.partition.split import hold_out
from datasets.partition.statistics import LabelCounts, label_counts
from datasets.partition.storage import read_partition, write_partition
from datasets.partition.structural_entropy import StructuralEntropy

PARTITIONERS = {cls.name: cls for cls in (Natural, ByField, Iid, Dirichlet, Quantity, StructuralEntropy)}


def make_partitioner(name: str, **options) -> Partitioner:
    """The partitioner of a name, as a recipe gives it. Raises DataError for an unknown name or option."""
    if name not in PARTITIONERS:
        raise DataError(
            "there is no such partitioner",
            record=named("partitioner", name),
            remedy=f'did you mean "{_nearest(name, PARTITIONERS)}"?',
        )
    cls = PARTITIONERS[name]
    known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
    for option in options:
        if option not in known:
            raise DataError(
                f"has no such option ({named('option', option)})",
                record=f"partitioner {name}",
                remedy=f'did you mean "{_nearest(option, known)}"?' if known else "it has no options",
            )
    missing = [option for option, required in known.items() if required and option not in options]
    if missing:
        raise DataError(f"lacks the option {missing[0]}", record=f"partitioner {name}", remedy=f"give {missing[0]}")
    return cls(**options)


def _nearest(name: str, names) -> str:
    return difflib.get_close_matches(name, list(names), 1, cutoff=0.0)[0]


__all__ = [
    "PARTITIONERS",
    "ByField",
    "ClientSamples",
    "Dirichlet",
    "Iid",
    "LabelCounts",
    "Natural",
    "Partition",
    "Partitioner",
    "Quantity",
    "Sample",
    "StructuralEntropy",
    "build_partition",
    "hold_out",
    "label_counts",
    "make_partitioner",
    "read_partition",
    "write_partition",
]
