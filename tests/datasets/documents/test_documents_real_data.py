"""Counts of CDR and CHR, from the folder that TFF_RE_DATA names."""

import numpy as np
import pytest

from datasets.documents.loading import load_documents
from datasets.documents.scoring import gold_facts
from datasets.partition import StructuralEntropy, build_partition
from datasets.partition.structural_entropy import entropies

pytestmark = pytest.mark.real_data


@pytest.mark.parametrize(
    ("split", "positive", "negative", "hypernyms", "notes"),
    [("train", 1038, 4394, 192, (76, 97)), ("dev", 1012, 4249, 174, (59, 99))],
)
def test_cdr(data_dir, split, positive, negative, hypernyms, notes):
    """The published 4,202 and 4,075 negative pairs are what hypernym filtering by MeSH of 2017 leaves.

    A public log of the filter script that later work took over (BRAN's) tells 192 and 174 pairs removed.
    """
    made = load_documents("cdr", data_dir, split=split)
    counts = made.counts()
    assert (counts["documents"], counts["positive"], counts["negative"]) == (500, positive, negative)
    assert negative - hypernyms == {"train": 4202, "dev": 4075}[split]
    assert made.notes == (
        f"{notes[0]} mentions without an identifier",
        f"{notes[1]} mentions name several entities",
        "no hypernym filtering: all negative pairs are kept",
    )
    assert len(gold_facts(made)) == positive and all(sample.label for sample in made.samples)


@pytest.mark.parametrize(
    ("split", "documents", "facts", "both", "once"),
    [("train", 822, 2206, 7848, 3775), ("dev", 118, 314, 1096, 524)],
)
def test_chr(data_dir, split, documents, facts, both, once):
    for label, negative in (("both", both), ("once", once)):
        made = load_documents("chr", data_dir, split=split, label=label)
        counts = made.counts()
        assert (counts["documents"], counts["positive"], counts["negative"]) == (documents, facts, negative)
        assert len(gold_facts(made)) == facts
    assert made.notes[-1] == f"{ {'train': 44, 'dev': 6}[split] } relations of an entity with itself left out"


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
