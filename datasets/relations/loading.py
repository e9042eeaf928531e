"""Relation extraction data sets of the catalogue, by name."""

from __future__ import annotations

import re
from pathlib import Path

from datasets.catalogue import find_data_set, label_choice, split_file
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations import ade, biobert_tsv, chemprot, chemprot_release, i2b2_2010, pgr, semeval2010_task8
from datasets.relations.records import RelationCorpus

_RELEASE = re.compile(r"(.+)_(relations|gold_standard|relations_gs)\.tsv(\.gz)?")


def load_relations(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
) -> RelationCorpus:
    """Reads the pairs of mentions of a data set.

    Args:
      name: A relation data set of the catalogue.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file (for i2b2_2010 a folder, for chemprot_release the file of relations) in place of the catalogue's.
      label: One of the data set's label choices; the first one by default.
      split: One of the data set's splits; part of the mentions' ids.

    Raises:
      DataError: a data set of another kind, an unknown name, label or split, or a file that is missing or malformed.
    """
    data_set = find_data_set(name)
    if not data_set.relations:
        raise DataError(
            "holds no pairs of mentions", record=f"data set {name}", remedy="use it with the task that it is for"
        )
    label = label_choice(data_set, label)
    file = Path(split_file(name, split, data_dir) if path is None else path)
    negatives = label.endswith("with_negatives")
    if name == "chemprot":
        return chemprot.read_sentences(file, split=split, classes=label)
    if name == "chemprot_release":
        classes = label.removesuffix("_with_negatives")
        tables = _beside(file, "abstracts"), _beside(file, "entities")
        return chemprot_release.read_release(
            *tables, file, split=split, classes=classes, negatives=negatives, name=name
        )
    if name == "pgr":
        return pgr.read_pairs(file, split=split, confirmed=label == "confirmed")
    if name == "ade":
        if file.name.startswith("DRUG-DOSE"):
            raise DataError("has drugs and doses, no adverse effects", path=file, remedy="give DRUG-AE.rel")
        if label == "with_negative_sentences":
            return ade.read_pairs(file, negative_sentences=_negative_sentences(file))
        return ade.read_pairs(file, negatives=negatives)
    if name == "semeval2010_task8":
        return semeval2010_task8.read_sentences(file, split=split, directed=label == "directed")
    if name == "i2b2_2010":
        return i2b2_2010.read_records(i2b2_2010.find_split(file), split=split, negatives=negatives)
    return biobert_tsv.read_pairs(file, name=name, split=split)


def _negative_sentences(pairs: Path) -> Path:
    """ADE-NEG.txt beside the file of pairs, with or without ``.gz``."""
    paths = [pairs.with_name(f"ADE-NEG.txt{end}") for end in ("", ".gz")]
    return next((path for path in paths if path.exists()), paths[0])


def _beside(relations: Path, kind: str) -> Path:
    """The release's file of that kind beside its file of relations, with or without ``.gz``."""
    match = _RELEASE.fullmatch(relations.name)
    if match is None:
        raise DataError(
            "is not named as the release names it",
            path=relations,
            remedy="use *_relations.tsv, *_relations_gs.tsv or *_gold_standard.tsv, with *_abstracts.tsv and "
            "*_entities.tsv (or *_gs.tsv) beside it",
        )
    # The test split's tables end in _gs, its gold standard does not.
    marks = ("_gs", "") if match[2] == "relations_gs" else ("", "_gs")
    paths = [relations.with_name(f"{match[1]}_{kind}{mark}.tsv{end}") for mark in marks for end in ("", ".gz")]
    return next((path for path in paths if path.exists()), paths[0])
