"""Document-level data sets of the catalogue, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.catalogue import find_data_set, label_choice, split_file
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.mesh import read_mesh_tree
from datasets.documents.pairs import PairRule, document_corpus
from datasets.documents.pubtator import read_pubtator
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import notes_of


@dataclass(frozen=True)
class _Format:
    """How a corpus is read: the types and the relation of its pairs, and options of `read_pubtator`."""

    head_kind: str
    tail_kind: str
    relation: str
    options: Mapping[str, str] = field(default_factory=dict)


_FORMATS = {
    "cdr": _Format("Chemical", "Disease", "CID"),
    "chr": _Format("ChemMet", "ChemMet", "React", {"joined": "aliases"}),
    "gda": _Format("Gene", "Disease", "GDA", {"separators": "|;,"}),
}


def load_documents(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
    mesh_tree: PathLike | None = None,
) -> DocumentCorpus:
    """Reads the documents of a data set, with their candidate pairs.

    Args:
      name: A document-level data set of the catalogue: ``cdr``, ``chr`` or ``gda``.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file in place of the catalogue's.
      label: One of the data set's label choices; the first one by default. ``chr`` has ``both`` and ``once`` (see
        `PairRule`).
      split: One of the data set's splits; part of the documents' ids.
      mesh_tree: For ``cdr``, a file of MeSH (see `read_mesh_tree`): negative pairs that are hypernyms of a positive
        one are left out, and the notes say so; None: all pairs are kept.

    Raises:
      DataError: a data set of another kind, an unknown name, label or split, a MeSH file for another data set than
        CDR, or a file that is missing or malformed.
    """
    data_set = find_data_set(name)
    if name not in _FORMATS:
        raise DataError(
            "holds no document-level relations",
            record=f"data set {name}",
            remedy=f"use one of {', '.join(_FORMATS)}, or the task that it is for",
        )
    if mesh_tree is not None and name != "cdr":
        raise DataError(
            "is not filtered by hypernyms", record=f"data set {name}", remedy="leave the MeSH file out, or use cdr"
        )
    form = _FORMATS[name]
    label = label_choice(data_set, label)
    rule = PairRule(form.head_kind, form.tail_kind, (form.relation,), label if name == "chr" else "both")
    file = split_file(name, split, data_dir) if path is None else path
    tally: Counter[str] = Counter()
    documents = read_pubtator(
        file,
        kinds=tuple(dict.fromkeys((form.head_kind, form.tail_kind))),
        relations=(form.relation,),
        tally=tally,
        **form.options,
    )
    tree_numbers = None if mesh_tree is None else read_mesh_tree(mesh_tree)
    notes = [*notes_of(tally)]
    if name == "cdr" and mesh_tree is None:
        notes.append("no hypernym filtering: all negative pairs are kept")
    return document_corpus(documents, rule, name=name, split=split, tree_numbers=tree_numbers, notes=notes)
