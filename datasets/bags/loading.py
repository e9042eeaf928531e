"""Distantly supervised data sets of the catalogue, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.bags import mirgene, nyt10
from datasets.bags.alignment import align
from datasets.bags.knowledge_base import read_facts, stated_facts
from datasets.bags.records import BagCorpus
from datasets.catalogue import find_data_set, split_file
from datasets.errors import DataError
from datasets.files import PathLike

CDR_RELATION = "CID"
CDR_KINDS = ("Chemical", "Disease")

_READERS = {"nyt10": nyt10, "mirgene": mirgene}


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
    """Reads the bags of a data set.

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
      seed: For cdr_aligned: of their draw.

    Raises:
      DataError: a data set of another kind, an unknown name or split, an option that is not the data set's, or a file
        that is missing or malformed.
    """
    data_set = find_data_set(name)
    if data_set.kind != "bags":
        raise DataError(
            "holds no bags of sentences", record=f"data set {name}", remedy="use it with the task that it is for"
        )
    aligned = name == "cdr_aligned"
    of_lines = {"rel2id": rel2id, "misplaced": misplaced}
    of_alignment = {
        "knowledge_base": knowledge_base,
        "head_kind": head_kind,
        "tail_kind": tail_kind,
        "na_rate": na_rate,
    }
    _refuse(name, of_lines if aligned else of_alignment)
    file = Path(split_file(name, split, data_dir) if path is None else path)
    if not aligned:
        relations = _beside(file, f"{name}_rel2id.json") if rel2id is None else rel2id
        return _READERS[name].read_bags(file, relations, split=split, misplaced=misplaced or "refuse")
    from datasets.documents.pubtator import read_pubtator

    documents = read_pubtator(file)
    given = {} if knowledge_base is not None else {"relation_names": (CDR_RELATION,)}
    return align(
        documents,
        stated_facts(documents) if knowledge_base is None else read_facts(knowledge_base),
        head_kind=head_kind or CDR_KINDS[0],
        tail_kind=tail_kind or CDR_KINDS[1],
        na_rate=1.0 if na_rate is None else na_rate,
        seed=seed,
        split=split,
        name=name,
        **given,
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
      DataError: a data set of another kind, or a file that is missing, malformed or without a sentence of a pair.
    """
    if find_data_set(name).kind != "bags":
        raise DataError("holds no bags of sentences", record=f"data set {name}", remedy="choose one that does")
    if name in _READERS:
        return _READERS[name].read_bags(path, None, split="given", misplaced=misplaced or "refuse")
    from datasets.documents.pubtator import read_pubtator

    kinds = {"head_kind": head_kind or CDR_KINDS[0], "tail_kind": tail_kind or CDR_KINDS[1]}
    return align(read_pubtator(path), None, **kinds, split="given", name=name)


def _refuse(name: str, options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if value is not None:
            raise DataError(f"has no use for {option}", record=f"data set {name}", remedy=f"leave {option} out")


def _beside(path: Path, name: str) -> Path:
    """The file of that name in the same folder, with or without ``.gz``."""
    paths = [path.with_name(name), path.with_name(name + ".gz")]
    return next((candidate for candidate in paths if candidate.exists()), paths[0])
