"""Document-level data sets of the catalogue, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets.catalogue import find_data_set, load
from datasets.documents.corpus import DocumentCorpus
from datasets.files import PathLike


def load_documents(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
    mesh_tree: PathLike | None = None,
    **pairing,
) -> DocumentCorpus:
    """Read the documents of a data set with their candidate pairs (see `datasets.catalogue.load`).

    The split is part of the documents' ids. With `mesh_tree`, a file of MeSH (see `read_mesh_tree`), negative pairs of
    ``cdr`` whose disease is a hypernym of one that the same chemical induces are left out, and the notes say so.
    `pairing` are `relations`, `pair_types`, `directed` and `held_out` of `datasets.documents.pairs.rule_of`, and
    `separators` of `read_pubtator`, for the data sets whose readers take them.
    """
    return load("documents", name, data_dir, path=path, label=label, split=split, mesh_tree=mesh_tree, **pairing)


def pairing_for(name: str, pairing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `load_documents` that a data set's reader takes.

    Raises DataError for an unknown name.
    """
    taken = find_data_set(name).options
    return {option: value for option, value in pairing.items() if option in taken}
