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
    """Reads the texts of a data set, see `datasets.catalogue.load`; the split is part of the samples' ids.

    Options of readers: `entity_types` (keeps these types only, in this order), `nested` (`"refuse"` or `"outermost"`).
    """
    return load("entities", name, data_dir, path=path, split=split, **options)
