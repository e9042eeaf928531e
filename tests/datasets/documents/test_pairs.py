import pytest
from datasets_for_tests import refused
from documents_for_tests import CHR, corpus, document, worked

from datasets.documents.corpus import DocumentCorpus
from datasets.documents.mesh import is_hypernym, read_mesh_tree
from datasets.documents.pairs import PairRule
from datasets.documents.records import Document, EntityMention, Fact
from datasets.errors import DataError

ROOM = document(
    "1",
    "x gives y.",
    "Z holds x. W is v and x.",
    [("x", 0, "C1"), ("y", 0, "D1"), ("Z", 0, "C2"), ("x", 1, "C1"), ("W", 0, "D2"), ("v", 0, "D3"), ("x", 2, "C1")],
    facts=[("C1", "D1"), ("C2", "D3")],
)


def pairs_of(corpus, index=0):
    sample = corpus.samples[index]
    return {sample.pair_ids(pair)[1:]: (pair.labels, pair.intra) for pair in sample.pairs}


def test_chemicals_and_diseases():
    made = corpus(ROOM)
    assert pairs_of(made) == {
        ("C1", "D1"): ((0,), True),
        ("C1", "D2"): ((), True),
        ("C1", "D3"): ((), True),
        ("C2", "D1"): ((), False),
        ("C2", "D2"): ((), False),
        ("C2", "D3"): ((0,), False),
    }
    counts = {"documents": 1, "entities": 5, "mentions": 7, "pairs": 6, "positive": 2, "negative": 4}
    assert made.counts() == {**counts, "intra": 3, "positive_intra": 1}
    sample = made.samples[0]
    assert (sample.sample_id, sample.document_id, sample.fields) == ("toy-train-1", "1", {"label": "related"})
    assert made.label_names == ("unrelated", "related")
    assert "gives" not in repr(made) + repr(sample)


def test_composite_and_unlinked_mentions():
    made = corpus(worked())
    entities = [(e.entity_id, e.kind, [(m.start, m.end) for m in e.mentions]) for e in made.samples[0].entities]
    assert entities == [
        ("C1", "Chemical", [(0, 2), (23, 25)]),
        ("D1", "Disease", [(10, 16)]),
        ("D2", "Disease", [(10, 16), (14, 16)]),
    ]
    assert pairs_of(made) == {("C1", "D1"): ((), True), ("C1", "D2"): ((0,), True)}


def test_chemicals_both_ways_and_once():
    some = document(
        "1",
        "x y.",
        "z",
        [("x", 0, "M1"), ("y", 0, "M2"), ("z", 0, "M3")],
        facts=[("M2", "M1"), ("M3", "M3")],
        relation="React",
    )
    both = corpus(some, rule=CHR)
    assert list(pairs_of(both)) == [(a, b) for a in ("M1", "M2", "M3") for b in ("M1", "M2", "M3") if a != b]
    assert [key for key, (labels, _) in pairs_of(both).items() if labels] == [("M2", "M1")]
    assert both.notes == ("1 relations of an entity with itself left out",)
    once = corpus(some, rule=PairRule((("ChemMet", "ChemMet"),), ("React",), unrelated="once"))
    assert pairs_of(once) == {("M1", "M3"): ((), False), ("M2", "M1"): ((0,), True), ("M2", "M3"): ((), False)}


def test_what_no_candidate_finds_is_noted():
    mentions = (EntityMention(0, 1, "Chemical", ("X",)), EntityMention(0, 1, "Disease", ("X",)))
    facts = (Fact("X", "CID", "X"), Fact("X", "CID", "D9"), Fact("C9", "CID", "D9"))
    made = corpus(Document("1", "a b", 1, mentions, facts))
    assert made.samples[0].pairs == () and made.samples[0].label == 0
    assert [entity.kind for entity in made.samples[0].entities] == ["Chemical", "Disease"]
    assert made.notes == (
        "1 relations of an entity with itself left out",
        "2 relations of entities that are not candidates, which count as missed",
        "1 documents without a candidate pair",
    )


def test_hypernyms_are_left_out():
    """D2 is above D1, which C1 causes. C2, above C1, stays, like in the published counts: only tails are compared."""
    some = document(
        "1",
        "x y.",
        "z w v",
        [("x", 0, "C1"), ("y", 0, "D1"), ("z", 0, "C2"), ("w", 0, "D2"), ("v", 0, "D3")],
        facts=[("C1", "D1")],
    )
    tree = {"D1": ("C10.228.140", "C23.100"), "D2": ("C10.228",), "D3": ("C10.22",), "C1": ("D02.1",), "C2": ("D02",)}
    made = corpus(some, tree_numbers=tree)
    assert set(pairs_of(made)) == set(pairs_of(corpus(some))) - {("C1", "D2")}
    assert made.notes == (
        "hypernym filtering with 5 descriptors of MeSH: 4 of 5 negative pairs are kept, 1 are hypernyms of a positive "
        "pair",
    )
    assert len(pairs_of(corpus(some))) == 6
    assert is_hypernym(("C10",), ("D01", "C10.228")) and is_hypernym(("C10",), ("C10",))
    assert not is_hypernym(("C10.228",), ("C10", "C10.2280")) and not is_hypernym((), ("C10",))


def test_what_does_not_fit_is_refused():
    assert "document 7: states a relation that is unknown here" in refused(corpus, worked(), rule=CHR)
    assert "corpus toy: has no documents" in refused(DocumentCorpus, "toy", (), ("CID",))
    (sample,) = corpus(worked()).samples
    assert "duplicate id" in refused(DocumentCorpus, "toy", (sample, sample), ("CID",))


def test_mesh_files(tmp_path):
    path = tmp_path / "mesh"
    expected = {"D001921": ("C10.228", "C23"), "D000069259": ("A01.500",)}
    for text in (
        "Tree Number\tDesc Ui\tTerm\nC10.228\tD001921\tBrain\nC23\tD001921\tBrain\nA01.500\tD000069259\tx\n",
        "D001921\tC10.228\nD001921\tC23\n\nD000069259\tA01.500\n",
        "*NEWRECORD\nRECTYPE = D\nMH = Brain\nMN = C10.228\nMN = C23\nUI = D001921\n\n"
        "*NEWRECORD\nMH = none\nUI = D000005\n\n*NEWRECORD\nMN = A01.500\nUI = D000069259\n",
    ):
        path.write_text(text)
        assert read_mesh_tree(path) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("Tree Number\tDesc Ui\n", None),
        ("D001921\tC10\nBrain;C10.228\n", 2),
        ("D001921\tC10.2\n", 1),
        ("*NEWRECORD\nMN = C1\nUI = D001921\n", 2),
        ("*NEWRECORD\nMN = C10\n*NEWRECORD\nUI = D001921\n", 1),
        ("*NEWRECORD\nUI = D001921\nUI = D001922\n", 3),
        ("*NEWRECORD\nUI = D001921\n", None),
    ],
)
def test_malformed_mesh_files(tmp_path, text, line):
    path = tmp_path / "mesh"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_mesh_tree(path)
    assert caught.value.line == line and caught.value.path == str(path) and "Brain" not in str(caught.value)
