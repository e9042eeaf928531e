"""CHR: reactions of chemicals in whole abstracts (Sahu et al., ACL 2019), in PubTator's form."""

from __future__ import annotations

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.pairs import UNRELATED, PairRule
from datasets.documents.reading import read_pairs
from datasets.files import PathLike


@data_set(
    "chr",
    title="CHR, whole abstracts",
    kind="documents",
    task="chemicals in an abstract: does the first react to the second; unrelated pairs in both directions, or once",
    labels=UNRELATED,
    files={split: f"chr/{split}.pubtator" for split in ("train", "dev", "test")},
    licence="Creative Commons Attribution 4.0 (annotations, NaCTeM)",
    citation="Sahu et al., Inter-sentence Relation Extraction with Document-level Graph Convolutional Neural Network, "
    "ACL 2019",
    available_from="the National Centre for Text Mining, Manchester: nactem.ac.uk/CHR",
)
def read(path: PathLike, *, name: str, label: str, split: str) -> DocumentCorpus:
    """The documents of a file; the label says which unrelated pairs are candidates, see `PairRule`."""
    rule = PairRule("ChemMet", "ChemMet", ("React",), label)
    return read_pairs(path, rule, name=name, split=split, joined="aliases")
