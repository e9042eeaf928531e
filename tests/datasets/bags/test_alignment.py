import itertools
import math
from collections import Counter

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.bags.alignment import align, read_facts, stated_facts
from datasets.documents.records import Document, EntityMention, Fact
from datasets.relations.sentences import sentences_of_document

KINDS = {"head_kind": "Chemical", "tail_kind": "Disease"}


def document(text, *mentions, title="Title.", facts=(), name="1"):
    """Mentions as (place of the name counted from 0, name, kind, ids …), offsets in title, blank and text."""
    whole = f"{title} {text}"
    placed = []
    for nth, surface, kind, *ids in mentions:
        start = [i for i in range(len(whole)) if whole.startswith(surface, i)][nth]
        placed.append(EntityMention(start, start + len(surface), kind, tuple(ids)))
    return Document(name, whole, len(title), tuple(sorted(placed, key=lambda m: (m.start, m.end))), tuple(facts))


def chemical(name, *ids, nth=0):
    return (nth, name, "Chemical", *(ids or [name]))


def disease(name, *ids, nth=0):
    return (nth, name, "Disease", *(ids or [name]))


INDUCES = Fact("aspirin", "CID", "ulcer")


def test_sentences_that_mention_both_are_labelled():
    doc = document(
        "Some aspirin and ulcer. Then rash. Aspirin-like: aspirin, rash.",
        *(chemical("aspirin"), disease("ulcer"), disease("rash"), chemical("aspirin", nth=1), disease("rash", nth=1)),
        facts=[INDUCES],
    )
    corpus = align([doc], stated_facts([doc, doc]), **KINDS)
    assert [(s.text, s.head_text, s.tail_text, *s.pair, s.relations) for s in corpus.sentences] == [
        ("Some aspirin and ulcer.", "aspirin", "ulcer", "aspirin", "ulcer", ("CID",)),
        ("Aspirin-like: aspirin, rash.", "aspirin", "rash", "aspirin", "rash", ("NA",)),
    ]
    assert [(s.sentence_id, s.document_id, s.label) for s in corpus.sentences] == [
        ("aligned-train-1/1", "1", 1),
        ("aligned-train-1/2", "1", 0),
    ]
    assert (corpus.sentences[0].head_type, corpus.sentences[0].tail_type) == ("chemical", "disease")
    assert corpus.relation_names == ("NA", "CID")
    assert corpus.notes == (
        "1 documents give 2 sentences of 2 pairs",
        "1 of 1 facts have a sentence, 0 have none",
        "1 of 1 pairs without a fact are kept as NA",
    )


BOTH = chemical("aspirin"), disease("ulcer")
SECOND_ULCER = disease("ulcer", nth=1)


@pytest.mark.parametrize(
    "text, mentions, head, tail",
    [
        (
            "aspirin x ulcer and more ulcer aspirin",
            (*BOTH, SECOND_ULCER, chemical("aspirin", nth=1)),
            (31, 38),
            (25, 30),
        ),
        ("ulcer aspirin ulcer", (*BOTH, SECOND_ULCER), (6, 13), (0, 5)),  # a tie
        ("aspirin: x  ulcer", (BOTH[0], (0, "  ulcer", "Disease", "ulcer")), (0, 7), (12, 17)),
        # A mention holds its sentence together, and those of other kinds are not looked at.
        (
            "aspirin of E. Coli ulcer",
            (BOTH[0], disease("E. Coli ulcer", "ulcer"), (0, "of", "X", "Y")),
            (0, 7),
            (11, 24),
        ),
    ],
)
def test_the_nearest_mentions_stand_for_a_pair_and_on_a_tie_the_leftmost(text, mentions, head, tail):
    (sentence,) = align([document(text, *mentions)], [INDUCES], **KINDS).sentences
    assert (sentence.text, sentence.head, sentence.tail) == (text, head, tail)


def test_mentions_that_no_sentence_has():
    split = document("and ulcer.", *BOTH, title="On aspirin")
    mentions = [*BOTH, (0, "  ", "Disease", "blank"), (0, "e. as", "Disease", "across")]
    corpus = align([split, document("aspirin:  ulcer", *mentions, name="2")], [INDUCES], **KINDS)
    assert [s.document_id for s in corpus.sentences] == ["2"], "title and abstract are apart"
    assert corpus.notes[-1] == "2 mentions are not inside one sentence, or are blank"


def test_overlapping_mentions_yes_the_same_span_no():
    nested = document("aspirin ulcer came", chemical("aspirin"), disease("aspirin ulcer", "ulcer"))
    same = document("aspirinism came", chemical("aspirinism", "aspirin"), disease("aspirinism", "ulcer"), name="2")
    both = document(
        "aspirinism came by ulcer",
        *(chemical("aspirinism", "aspirin"), disease("aspirinism", "ulcer"), disease("ulcer")),
        name="3",
    )
    corpus = align([nested, same, both], [INDUCES], **KINDS)
    assert [(s.document_id, s.head_text, s.tail_text) for s in corpus.sentences] == [
        ("1", "aspirin", "aspirin ulcer"),
        ("3", "aspirinism", "ulcer"),
    ]
    assert corpus.sentences[0].overlapping
    assert corpus.notes[-1] == "1 times a sentence mentions both entities of a pair with the same span; left out"


def test_two_relations_of_a_pair_and_a_fact_without_a_sentence():
    doc = document("aspirin: ulcer", *BOTH)
    facts = [Fact("aspirin", "treats", "ulcer"), INDUCES, Fact("aspirin", "CID", "gout"), INDUCES]
    corpus = align([doc], facts, **KINDS)
    assert corpus.sentences[0].relations == ("CID", "treats") and corpus.triples == ((0, 1), (0, 2))
    assert corpus.notes[1] == "2 of 3 facts have a sentence, 1 have none"
    given_order = align([doc], facts, relation_names=["treats", "prevents", "CID"], **KINDS)
    assert given_order.relation_names == ("NA", "treats", "prevents", "CID")
    assert given_order.sentences[0].relations == ("treats", "CID")


def test_head_and_tail_of_one_kind():
    doc = document(
        "aspirin or ibuprofen or aspirin", *map(chemical, ("aspirin", "ibuprofen")), chemical("aspirin", nth=1)
    )
    fact = Fact("ibuprofen", "replaces", "aspirin")
    corpus = align([doc], [fact], head_kind="Chemical", tail_kind="Chemical")
    assert [(s.pair, s.relations) for s in corpus.sentences] == [
        (("aspirin", "ibuprofen"), ("NA",)),
        (("ibuprofen", "aspirin"), ("replaces",)),
    ]


def test_unrelated_pairs_are_kept_at_the_rate_with_all_their_sentences():
    chemicals = [chemical(f"C{n:02}") for n in range(50)]
    text = " ".join(name for _, name, *_ in chemicals) + " rash"
    documents = [document(text, *chemicals, disease("rash"), name=str(n)) for n in range(2)]
    facts = [Fact("C03", "CID", "rash")]
    corpus = align(documents, facts, na_rate=0.3, seed=1, **KINDS)
    assert len(set(corpus.pairs) - {("C03", "rash")}) == 15, "round(0.3 * 49)"
    assert set(Counter(s.pair for s in corpus.sentences).values()) == {2}
    assert corpus.notes[2] == "15 of 49 pairs without a fact are kept as NA"
    assert align(documents, facts, na_rate=0.3, seed=1, **KINDS) == corpus
    assert set(align(documents, facts, na_rate=0.3, seed=2, **KINDS).pairs) != set(corpus.pairs)
    assert len(align(documents, facts, na_rate=0.001, **KINDS).pairs) == 2, "at least one"
    whole = align(documents, facts, **KINDS)
    assert len(whole.pairs) == 50
    # The kept ones keep their place and everything else.
    apart = {(s.document_id, s.pair): s.text for s in whole.sentences}
    assert all(apart[s.document_id, s.pair] == s.text for s in corpus.sentences)


@pytest.mark.parametrize(
    "change, expected",
    [
        *[({"na_rate": rate}, "na_rate is not a number above 0 and at most 1") for rate in (0, 1.5, True, math.nan)],
        (
            {"relation_names": ["treats"]},
            "fact number 1: its relation is not one of the corpus's; name it in relation_",
        ),
        (
            {"facts": [Fact("aspirin", "NA", "ulcer")], "relation_names": ["CID"]},
            "fact number 1: its relation is the negative",
        ),
        ({"head_kind": "Gene"}, "corpus aligned: no sentence mentions the pair of any of the 1 facts; check the ids"),
        ({"facts": []}, "corpus aligned: no sentence mentions the pair of any of the 0 facts"),
        ({"relation_names": ["CID", "CID"]}, "corpus aligned: has a relation twice"),
        ({"twice": True}, "sentence aligned-train-1/1: duplicate id"),
        ({"seed": -1}, "the seed is not a whole number"),
    ],
)
def test_what_cannot_be_aligned(change, expected):
    documents = [document("aspirin: ulcer, rash", *BOTH, disease("rash"))] * (1 + change.pop("twice", False))
    arguments = {"documents": documents, "facts": [INDUCES], **KINDS, **change}
    assert refused(align, arguments.pop("documents"), arguments.pop("facts"), **arguments).startswith(expected)


def test_the_facts_of_a_table(tmp_path):
    path = tmp_path / "kb.tsv"
    path.write_text("C1\tCID\tD1\r\n C2\t CID\tD 2 \n")
    assert read_facts(path) == (Fact("C1", "CID", "D1"), Fact("C2", "CID", "D 2"))
    for text, expected in (
        ("C1\tCID\tD1\nC1\tCID", f"{path}: line 2: has 2 columns; give it 3"),
        ("C1\t \tD1", f"{path}: line 1: its relation is empty; give head, relation and tail between tabs"),
        ("C1\tCID\tD1\nC1\tCID\tD1\n", f"{path}: line 2: is the same fact as line 1; remove one of them"),
        ("", f"{path}: has no facts; give it at least one line"),
    ):
        path.write_text(text)
        assert refused(read_facts, path).startswith(expected)


WORDS = st.sampled_from(["aa", "Bb", "c.", "dd.", "E", "f", "é頭", "  "])


@st.composite
def documents(draw):
    made = []
    for number in range(draw(st.integers(1, 3))):
        title, abstract = (" ".join(draw(st.lists(WORDS, min_size=1, max_size=8))) for _ in range(2))
        text = f"{title} {abstract}"
        ends = [0, *(i for i, c in enumerate(text) if c == " "), len(text)]
        mentions, spans = [], []
        for _ in range(draw(st.integers(0, 8))):
            if spans and draw(st.integers(0, 4)) == 0:
                start, end = draw(st.sampled_from(spans))
            else:
                first = draw(st.integers(0, len(ends) - 2))
                start, end = ends[first], ends[draw(st.integers(first + 1, min(len(ends) - 1, first + 3)))]
            if start < end:
                spans.append((start, end))
                kind, ids = draw(st.sampled_from([("Chemical", "ab"), ("Disease", "xy")]))
                named = draw(st.sets(st.sampled_from(ids), min_size=draw(st.sampled_from([0, 1, 1, 1]))))
                mentions.append(EntityMention(start, end, kind, tuple(sorted(named))))
        made.append(Document(str(number), text, len(title), tuple(mentions), ()))
    return made


FACTS = st.sets(st.builds(Fact, st.sampled_from("ab"), st.sampled_from(["r", "s"]), st.sampled_from("xy")), min_size=1)


@given(documents(), FACTS, st.sampled_from([0.3, 1.0]))
def test_every_sentence_has_its_mentions_and_every_pair_its_facts(made, facts, rate):
    # What there is to find, written down anew: pairs of different trimmed spans in one sentence.
    possible, surfaces = set(), set()
    for d in made:
        spans = [(m.start, m.end, d.text[m.start : m.end], m) for m in d.mentions]
        spans = [(a + len(t) - len(t.lstrip()), b - len(t) + len(t.rstrip()), m) for a, b, t, m in spans if t.strip()]
        surfaces |= {(d.document_id, m.kind, i, d.text[a:b]) for a, b, m in spans for i in m.entity_ids}
        for first, last in sentences_of_document(d.text, d.title_length, [span[:2] for span in spans]):
            inside = [span for span in spans if first <= span[0] and span[1] <= last]
            for (*head, m), (*tail, n) in itertools.product(inside, inside):
                if (m.kind, n.kind) == ("Chemical", "Disease") and head != tail:
                    pairs = itertools.product(m.entity_ids, n.entity_ids)
                    possible |= {(d.document_id, first, *pair) for pair in pairs}
    known = {}
    for fact in facts:
        known.setdefault((fact.head_id, fact.tail_id), set()).add(fact.relation)
    if not {key[2:] for key in possible} & known.keys():
        assert "no sentence mentions the pair" in refused(align, made, facts, na_rate=rate, **KINDS)
        return
    corpus = align(made, facts, na_rate=rate, **KINDS)
    for s in corpus.sentences:
        assert (s.document_id, "Chemical", s.head_id, s.head_text) in surfaces
        assert (s.document_id, "Disease", s.tail_id, s.tail_text) in surfaces
        assert set(s.relations) == known.get(s.pair, {"NA"}) and s.head != s.tail
        assert s.text in made[int(s.document_id)].text and s.text == s.text.strip()
    wanted = Counter((key[0], key[2:]) for key in possible if rate == 1 or key[2:] in known)
    got = Counter((s.document_id, s.pair) for s in corpus.sentences if rate == 1 or s.pair in known)
    assert got == wanted
