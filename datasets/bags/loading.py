"""Distantly supervised data sets of the catalogue, by name."""

from __future__ import annotations

from datasets.bags.records import BagCorpus
from datasets.catalogue import find_data_set, load
from datasets.files import PathLike


def load_bags(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    split: str = "train",
    seed: int = 0,
    **options,
) -> BagCorpus:
    """Read the bags of a data set (see `datasets.catalogue.load`).

    Args:
      name: A data set of bags of the catalogue.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file in place of the catalogue's; for an aligned data set documents of one's own in PubTator's form.
      split: One of the data set's splits; part of the sentences' ids.
      seed: Of the draw by `na_rate`; for data sets that draw nothing it is of no effect.
      **options: For nyt10 and mirgene (see `nyt10.read`) ``rel2id``, the file of relations, and ``misplaced``. For
        cdr_aligned (see `alignment.align`) ``knowledge_base``, a table of facts in place of the documents' own,
        ``head_kind``, ``tail_kind`` and ``na_rate``. None is the default.

    Raises:
      DataError: as `datasets.catalogue.load`.
    """
    if "seed" in find_data_set(name).options:
        options["seed"] = seed
    return load("bags", name, data_dir, path=path, split=split, **options)


def load_unlabelled_bags(name: str, path: PathLike, **options) -> BagCorpus:
    """Read sentences in a data set's format whose pairs' relations are to be predicted.

    All are labelled as negative.

    What lines of the file say of relations is not read; the options are ``misplaced``, ``head_kind`` and ``tail_kind``
    of `load_bags`.

    Raises:
      DataError: as `datasets.catalogue.load`, or a file without a sentence of a pair.
    """
    return load("bags", name, path=path, split="given", labelled=False, **options)
