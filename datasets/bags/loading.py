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
    rel2id: PathLike | None = None,
    misplaced: str | None = None,
    knowledge_base: PathLike | None = None,
    head_kind: str | None = None,
    tail_kind: str | None = None,
    na_rate: float | None = None,
    seed: int = 0,
) -> BagCorpus:
    """Reads the bags of a data set, see `datasets.catalogue.load`.

    Args:
      name: A data set of bags of the catalogue.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file in place of the catalogue's; for an aligned data set documents of one's own in PubTator's form.
      split: One of the data set's splits; part of the sentences' ids.
      rel2id: For nyt10 and mirgene: the file of relations; by default ``<name>_rel2id.json`` beside the split's file.
      misplaced: For nyt10 and mirgene, see `nyt10.read_bags`; ``refuse`` by default.
      knowledge_base: For cdr_aligned: a table of facts (`knowledge_base.read_facts`); by default the documents' own.
      head_kind, tail_kind: For cdr_aligned: kinds of the mentions, Chemical and Disease by default.
      na_rate: For cdr_aligned: the share of unrelated pairs that is kept, see `align`; 1 by default.
      seed: Of that draw; for data sets that draw nothing it is of no effect.

    Raises:
      DataError: as `datasets.catalogue.load`.
    """
    return load(
        "bags",
        name,
        data_dir,
        path=path,
        split=split,
        rel2id=rel2id,
        misplaced=misplaced,
        knowledge_base=knowledge_base,
        head_kind=head_kind,
        tail_kind=tail_kind,
        na_rate=na_rate,
        seed=seed if "seed" in find_data_set(name).options else None,
    )


def load_unlabelled_bags(
    name: str,
    path: PathLike,
    *,
    misplaced: str | None = None,
    head_kind: str | None = None,
    tail_kind: str | None = None,
) -> BagCorpus:
    """Reads sentences in a data set's form whose pairs' relations are to be predicted: all stand as negative.

    Args:
      name: A data set of bags of the catalogue. What lines of its file say of relations is not read.
      path: The file.
      misplaced, head_kind, tail_kind: As for `load_bags`.

    Raises:
      DataError: as `datasets.catalogue.load`, or a file without a sentence of a pair.
    """
    options = {"misplaced": misplaced, "head_kind": head_kind, "tail_kind": tail_kind}
    return load("bags", name, path=path, split="given", labelled=False, **options)
