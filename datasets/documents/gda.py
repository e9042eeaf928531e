"""GDA: associations of genes and diseases in whole abstracts (Wu et al., RECOMB 2019), in PubTator's form."""

from __future__ import annotations

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.pairs import PairRule
from datasets.documents.reading import read_pairs
from datasets.files import PathLike


@data_set(
    "gda",
    title="GDA, whole abstracts",
    kind="documents",
    task="genes and diseases in an abstract: associated or not",
    labels=("relation",),
    files={split: f"gda/{split}.pubtator" for split in ("train", "dev", "test")},
    licence="none stated for the data",
    citation="Wu et al., RENET: A Deep Learning Approach for Extracting Gene-Disease Associations, RECOMB 2019",
    available_from="alexwuhkucs/renet on Bitbucket, turned into PubTator form; the published split is in "
    "fenchri/edge-oriented-graph on GitHub",
)
def read(path: PathLike, *, name: str, label: str, split: str) -> DocumentCorpus:
    """The documents of a file."""
    return read_pairs(path, PairRule("Gene", "Disease", ("GDA",)), name=name, split=split, separators="|;,")
