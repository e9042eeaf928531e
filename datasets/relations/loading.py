"""Relation extraction data sets of the catalogue, by name."""

from __future__ import annotations

from datasets.catalogue import load
from datasets.files import PathLike
from datasets.relations.records import RelationCorpus


def load_relations(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
    **options,
) -> RelationCorpus:
    """Read the pairs of mentions of a data set (see `datasets.catalogue.load`).

    The split is part of the mentions' ids.

    For i2b2_2010 `path` is a folder, for chemprot_release the file of relations. The data set `relations`, of your own
    files, takes `class_names`, `negative_label` and `labelled`.
    """
    return load("relations", name, data_dir, path=path, label=label, split=split, **options)
