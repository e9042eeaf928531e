"""The trivial model of documents that knows the types of a pair and whether a sentence mentions both."""

import numpy as np
import pytest

from datasets.documents.corpus import DocumentCorpus, DocumentEntity, DocumentPair, DocumentSample
from datasets.documents.encoding import identified_pairs
from datasets.documents.records import Document
from tff_re.tasks.type_shares import TypeShares

RELATIONS = ("treats", "causes")


def document(name, kinds, *pairs):
    """A document with entities of these types and pairs (head, tail, labels, intra)."""
    entities = tuple(DocumentEntity(f"{name}{place}", kind, ()) for place, kind in enumerate(kinds))
    return DocumentSample(f"x-{name}", Document(name, "", 0, (), ()), entities, tuple(DocumentPair(*p) for p in pairs))


def corpus(*samples):
    return DocumentCorpus("x", samples, RELATIONS, pair_types=(("Drug", "Rash"), ("Gene", "Rash")))


DEV = corpus(
    document("a", ("Drug", "Rash", "Gene"), (0, 1, (0,), True), (2, 1, (), True)),
    document("b", ("Drug", "Rash", "Rash"), (0, 1, (0, 1), True), (0, 2, (1,), False)),
    document("c", ("Drug", "Rash"), (0, 1, (), True)),
)


def test_shares_by_hand():
    shares = TypeShares.from_corpus(DEV).shares
    assert set(shares) == {("Drug", "Rash", True), ("Drug", "Rash", False), ("Gene", "Rash", True)}
    assert shares["Drug", "Rash", True] == pytest.approx([2 / 3, 1 / 3])
    assert shares["Drug", "Rash", False].tolist() == [0, 1]
    assert shares["Gene", "Rash", True].tolist() == [0, 0]


def test_scores_are_those_of_each_pairs_kind_in_the_order_of_the_rows():
    test = corpus(
        document("d", ("Gene", "Rash"), (0, 1, (), False)),
        document("e", ("Rash", "Drug", "Rash"), (1, 0, (), False), (1, 2, (), True)),
    )
    rows = identified_pairs(test.samples)[::-1]
    scores = TypeShares.from_corpus(DEV).scores(test, rows, 3)
    assert scores.dtype == np.float32 and scores.shape == (2, 3, 2)
    assert scores[0] == pytest.approx(np.array([[0, 1], [2 / 3, 1 / 3], [0, 0]]))
    assert not scores[1].any(), "a kind that dev does not have"


def test_a_rule_names_what_reaches_the_threshold():
    rule = TypeShares.from_corpus(DEV).rule(0.5)
    assert {kind: share.tolist() for kind, share in rule.shares.items()} == {
        ("Drug", "Rash", True): [1, 0],
        ("Drug", "Rash", False): [0, 1],
        ("Gene", "Rash", True): [0, 0],
    }
