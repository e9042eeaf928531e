"""Document-level data sets of the catalogue, by name."""

from __future__ import annotations

from datasets.catalogue import load
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
) -> DocumentCorpus:
    """Reads the documents of a data set, with their candidate pairs, see `datasets.catalogue.load`.

    The split is part of the documents' ids. With `mesh_tree`, a file of MeSH (see `read_mesh_tree`), negative pairs of
    ``cdr`` that are hypernyms of a positive one are left out, and the notes say so.
    """
    return load("documents", name, data_dir, path=path, label=label, split=split, mesh_tree=mesh_tree)
