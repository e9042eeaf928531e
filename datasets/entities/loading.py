"""Entity recognition data sets of the catalogue, by name."""

from __future__ import annotations

from datasets.catalogue import load
from datasets.entities.records import EntityCorpus
from datasets.files import PathLike


def load_entities(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    split: str = "train",
    **options,
) -> EntityCorpus:
    """Read the texts of a data set (see `datasets.catalogue.load`).

    The split is part of the samples' ids.

    Options of readers: `entity_types` (keeps these types only, in this order), `nested` (`"refuse"` or `"outermost"`),
    and where a reader has them `unit` (`"document"` or `"sentence"`), `negative_sentences` (of ``ade_entities``),
    `other_types` and `labelled` (of own files, see `datasets.entities.neutral.read`).
    """
    return load("entities", name, data_dir, path=path, split=split, **options)
