"""Which client holds which samples."""

from __future__ import annotations

from datasets.partition.base import ClientSamples, Partition, Sample
from datasets.partition.build import build_partition
from datasets.partition.by_field import ByField, Natural
from datasets.partition.dirichlet import Dirichlet
from datasets.partition.shards import Shards
from datasets.partition.sizes import Iid, Quantity
from datasets.partition.split import hold_out
from datasets.partition.statistics import LabelCounts, label_counts
from datasets.partition.storage import read_partition, write_partition
from datasets.partition.structural_entropy import StructuralEntropy

PARTITIONERS = {cls.name: cls for cls in (Natural, ByField, Iid, Dirichlet, Shards, Quantity, StructuralEntropy)}

__all__ = [
    "PARTITIONERS",
    "ByField",
    "ClientSamples",
    "Dirichlet",
    "Iid",
    "LabelCounts",
    "Natural",
    "Partition",
    "Quantity",
    "Sample",
    "Shards",
    "StructuralEntropy",
    "build_partition",
    "hold_out",
    "label_counts",
    "read_partition",
    "write_partition",
]
