"""CDR, CHR and GDA: relations of chemicals, diseases and genes in whole abstracts, in PubTator format."""

from __future__ import annotations

import dataclasses
from collections import Counter

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus, entity_types
from datasets.documents.mesh import read_mesh_tree
from datasets.documents.pairs import UNRELATED, PairRule, document_corpus, filtering_note
from datasets.documents.pubtator import read_pubtator
from datasets.files import PathLike
from datasets.relations.reading import notes_of

CDR = PairRule((("Chemical", "Disease"),), ("CID",))
CHR = PairRule((("ChemMet", "ChemMet"),), ("React",))
GDA = PairRule((("Gene", "Disease"),), ("GDA",))


def _read(path: PathLike, rule: PairRule, *, tree_numbers=None, name: str, split: str, **options: str):
    """Read the documents with their candidate pairs.

    `options` are those of `read_pubtator`, and the others as there and in `document_corpus`.
    """
    tally: Counter[str] = Counter()
    kinds = entity_types(rule.pair_types)
    documents = read_pubtator(path, kinds=kinds, relations=rule.relation_names, tally=tally, **options)
    return document_corpus(documents, rule, name=name, split=split, tree_numbers=tree_numbers, notes=notes_of(tally))


def _files(name: str) -> dict[str, str]:
    return {split: f"{name}/{split}.pubtator" for split in ("train", "dev", "test")}


@data_set(
    "cdr",
    title="CDR, whole abstracts",
    kind="documents",
    task="chemicals and diseases in an abstract: does the chemical induce the disease",
    labels=("relation",),
    files=_files("cdr"),
    pair_types=CDR.pair_types,
    licence="none stated for the data",
    citation="Li et al., BioCreative V CDR task corpus, Database 2016",
    available_from="BioCreative V, track 3: CDR_TrainingSet.PubTator.txt, CDR_DevelopmentSet and CDR_TestSet",
)
def read_cdr(path: PathLike, *, name: str, label: str, split: str, mesh_tree: PathLike | None = None) -> DocumentCorpus:
    """Read the documents of a file.

    With a file of MeSH, negative pairs whose disease is a hypernym of one that the same chemical induces are left out.
    With that of 2017 4,202 negative pairs stay in train and 4,075 in dev, as in FedLCC's Table 1 (4,138 in test).
    """
    tree_numbers = None if mesh_tree is None else read_mesh_tree(mesh_tree)
    corpus = _read(path, CDR, tree_numbers=tree_numbers, name=name, split=split)
    if mesh_tree is not None:
        return corpus
    return dataclasses.replace(corpus, notes=(*corpus.notes, filtering_note(corpus.counts()["negative"])))


@data_set(
    "chr",
    title="CHR, whole abstracts",
    kind="documents",
    task="chemicals in an abstract: does the first react to the second; unrelated pairs in both directions, or once",
    labels=UNRELATED,
    files=_files("chr"),
    pair_types=CHR.pair_types,
    licence="Creative Commons Attribution 4.0 (annotations, NaCTeM)",
    citation="Sahu et al., Inter-sentence Relation Extraction with Document-level Graph Convolutional Neural Network, "
    "ACL 2019",
    available_from="the National Centre for Text Mining, Manchester: nactem.ac.uk/CHR",
)
def read_chr(path: PathLike, *, name: str, label: str, split: str) -> DocumentCorpus:
    """Read the documents of a file.

    The label says which unrelated pairs are candidates (see `PairRule`).
    """
    rule = dataclasses.replace(CHR, unrelated=label)
    return _read(path, rule, joined="aliases", name=name, split=split)


@data_set(
    "gda",
    title="GDA, whole abstracts",
    kind="documents",
    task="genes and diseases in an abstract: associated or not",
    labels=("relation",),
    files=_files("gda"),
    pair_types=GDA.pair_types,
    licence="none stated for the data",
    citation="Wu et al., RENET: A Deep Learning Approach for Extracting Gene-Disease Associations, RECOMB 2019",
    available_from="alexwuhkucs/renet on Bitbucket, turned into PubTator form; the published split is in "
    "fenchri/edge-oriented-graph on GitHub",
)
def read_gda(path: PathLike, *, name: str, label: str, split: str) -> DocumentCorpus:
    """Read the documents of a file."""
    return _read(path, GDA, separators="|;,", name=name, split=split)
