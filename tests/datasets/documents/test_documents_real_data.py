"""Counts of CDR, CHR, BioRED and Re-DocRED, from the folder that TFF_RE_DATA names."""

from pathlib import Path

import numpy as np
import pytest

from datasets.catalogue import split_file
from datasets.documents.chemprot import read_chemprot_documents
from datasets.documents.loading import load_documents
from datasets.documents.scoring import facts_by_name, gold_facts
from datasets.partition import StructuralEntropy, build_partition
from datasets.partition.structural_entropy import entropies

pytestmark = pytest.mark.real_data


MESH_2017 = Path(__file__).parent / "mesh_2017_of_cdr.tsv.gz"
"""The tree numbers that the National Library of Medicine's MeSH of 2017 has for the descriptors of CDR's two splits."""


@pytest.mark.parametrize(
    ("split", "positive", "negative", "published", "notes"),
    [("train", 1038, 4394, 4202, (76, 97)), ("dev", 1012, 4249, 4075, (59, 99))],
)
def test_cdr(data_dir, split, positive, negative, published, notes):
    """The published negative pairs (FedLCC, Table 1) are what hypernym filtering by MeSH of 2017 leaves."""
    filtered = load_documents("cdr", data_dir, split=split, mesh_tree=MESH_2017)
    counts = filtered.counts()
    assert (counts["documents"], counts["positive"], counts["negative"]) == (500, positive, published)
    assert filtered.notes[-1] == (
        f"hypernym filtering with 1611 descriptors of MeSH: {published} of {negative} negative pairs are kept, "
        f"{negative - published} are hypernyms of a positive pair"
    )
    made = load_documents("cdr", data_dir, split=split)
    counts = made.counts()
    assert (counts["documents"], counts["positive"], counts["negative"]) == (500, positive, negative)
    assert made.notes == (
        f"{notes[0]} mentions without an identifier",
        f"{notes[1]} mentions name several entities",
        f"no hypernym filtering: all {negative} negative pairs are kept",
    )
    assert len(gold_facts(made).facts) == positive and all(sample.label for sample in made.samples)


@pytest.mark.parametrize(
    ("split", "documents", "facts", "both", "once"),
    [("train", 822, 2206, 7848, 3775), ("dev", 118, 314, 1096, 524)],
)
def test_chr(data_dir, split, documents, facts, both, once):
    for label, negative in (("both", both), ("once", once)):
        made = load_documents("chr", data_dir, split=split, label=label)
        counts = made.counts()
        assert (counts["documents"], counts["positive"], counts["negative"]) == (documents, facts, negative)
        assert len(gold_facts(made).facts) == facts
    assert made.notes[-1] == f"{ {'train': 44, 'dev': 6}[split] } relations of an entity with itself left out"


@pytest.mark.parametrize(
    ("split", "documents", "mentions", "facts", "positive", "negative"),
    [("train", 400, 13351, 4178, 4174, 17581), ("dev", 100, 3533, 1162, 1161, 5173)],
)
def test_biored(data_dir, split, documents, mentions, facts, positive, negative):
    """One of train's relations is of a variant and a gene, a pair that the corpus does not annotate; 3 and 1 are of an
    entity with itself."""
    made = load_documents("biored", data_dir, split=split)
    counts = made.counts()
    assert (counts["documents"], counts["positive"], counts["negative"]) == (documents, positive, negative)
    assert sum(len(sample.document.mentions) for sample in made.samples) == mentions
    assert sum(len(sample.document.facts) for sample in made.samples) == facts
    itself, gold = {"train": 3, "dev": 1}[split], gold_facts(made)
    assert len(gold.facts) == facts - itself and f"{itself} relations of an entity with itself left out" in made.notes
    kinds = {mention.kind for sample in made.samples for mention in sample.document.mentions}
    assert len(kinds) == 6 and len(made.relation_names) == 8 and len(made.pair_types) == 8
    stated = {made.relation_names[relation] for _, _, relation, _ in gold.facts}
    missing = set() if split == "train" else {"Drug_Interaction", "Conversion"}
    assert stated == set(made.relation_names) - missing


def test_re_docred(data_dir):
    made = load_documents("docred", data_dir, split="dev")
    counts, gold = made.counts(), gold_facts(made, facts_by_name([made]))
    assert (counts["documents"], counts["entities"], counts["positive"]) == (500, 9684, 13362)
    assert len(gold.facts) == len(gold.known) == 17284 and len(made.relation_names) == 95
    assert made.relation_names[:3] == ("P1001", "P102", "P1056") and len(made.pair_types) == 25
    assert made.notes == (
        "35 duplicate mentions are read once",
        "9 entities have mentions with several types; the first counts",
    )
    for sample in made.samples:
        assert len(sample.document.sentences) >= 3 and not sample.document.text.startswith(" ")


def test_structural_entropy(data_dir):
    """The range that the authors' program states in a comment, all digits."""
    for name, low, high in (
        ("cdr", 4.317657676193542, 24.289256154892264),
        ("chr", 2.0262599019087846, 15.806743472447325),
    ):
        made = load_documents(name, data_dir)
        values = entropies(made.samples, "released_code")
        # The sums are NumPy's: their last digit may differ with its version.
        np.testing.assert_allclose([values.min(), values.max()], [low, high], rtol=1e-15)
        partition = build_partition(made, StructuralEntropy(10, "released_code", name), test_share=0.0)
        sizes = [len(client.train) for client in partition.clients.values()]
        assert len(sizes) == 10 and sum(sizes) == len(made.samples)
        assert name != "cdr" or sizes == [5, 40, 84, 93, 121, 77, 51, 16, 6, 7]
    for graph, sizes in (
        ("released_code", [5, 11, 26, 54, 108, 123, 89, 58, 21, 5]),
        ("edge_oriented", [1, 3, 19, 31, 61, 120, 130, 98, 30, 7]),
    ):
        paper = build_partition(load_documents("cdr", data_dir), StructuralEntropy(10, graph=graph), test_share=0.0)
        assert [len(c.train) for c in paper.clients.values()] == sizes


@pytest.mark.parametrize(
    ("split", "documents", "mentions", "relations"), [("train", 1020, 25752, 4157), ("dev", 612, 15567, 2416)]
)
def test_chemprot_between_mentions(data_dir, split, documents, mentions, relations):
    path = split_file("chemprot_release", split, data_dir)
    made = read_chemprot_documents(path)
    assert len(made) == documents and sum(len(document.mentions) for document in made) == mentions
    assert sum(len(document.facts) for document in made) == relations
    assert [d.text for d in made] == [d.text for d in read_chemprot_documents(path, annotated=False)]
