"""Own documents: relations and types as the files state them, given ones, directions, identifiers."""

import itertools
import string

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st
from test_pubtator import documents, lines_of, write

from datasets.documents.loading import load_documents
from datasets.documents.pairs import PairRule, document_corpus, rule_of
from datasets.documents.records import Document, EntityMention, Fact
from datasets.documents.scoring import gold_facts

LINES = (
    "1|t|ab cd ef.",
    "1|a|gh ij.",
    "1\t0\t2\tab\tDrug\tC1|C2",
    "1\t3\t5\tcd\tGene\t7;8",
    "1\t6\t8\tef\tGene\t9",
    "1\t10\t12\tgh\tDrug\tNone",
    "1\t13\t15\tij\tIllness\tD1",
    "1\ttreats\tC1\tD1",
    "1\tbinds\tC1\t7",
    "1\tbinds\t7\t9\tNovel",
    "1\tbinds\t9\tC2",
)


def load(folder, *lines, name="some.pubtator", **options):
    return load_documents("documents", path=write(folder, *(lines or LINES), name=name), **options)


def pairs_of(corpus):
    (sample,) = corpus.samples
    return {sample.pair_ids(p)[1:]: "".join(corpus.relation_names[i][0] for i in p.labels) for p in sample.pairs}


def test_what_the_file_states(tmp_path):
    corpus = load(tmp_path)
    assert corpus.relation_names == ("binds", "treats")
    assert corpus.pair_types == (("Drug", "Gene"), ("Drug", "Illness"), ("Gene", "Drug"), ("Gene", "Gene"))
    pairs = pairs_of(corpus)
    assert {ids: names for ids, names in pairs.items() if names} == {
        **{("C1", "7"): "b", ("7", "9"): "b", ("9", "C2"): "b", ("C1", "D1"): "t"},
    }
    assert len(pairs) == 6 + 2 + 6 + 6
    undirected = load(tmp_path, directed=False)
    assert undirected.pair_types == (("Drug", "Gene"), ("Drug", "Illness"), ("Gene", "Gene"))
    assert {ids: names for ids, names in pairs_of(undirected).items() if names} == {
        **{("C1", "7"): "b", ("7", "9"): "b", ("C2", "9"): "b", ("C1", "D1"): "t"},
    }
    assert len(pairs_of(undirected)) == 6 + 2 + 3
    mixed = load(tmp_path, directed=["treats"])
    assert mixed.pair_types == undirected.pair_types, "no directed relation is of a gene and a drug"
    assert len(pairs_of(mixed)) == 6 + 2 + 6 and pairs_of(mixed)["9", "7"] == "b"
    assert len(gold_facts(mixed).facts) == len(gold_facts(corpus).facts) == 4


def test_identifiers_as_aliases_and_other_separators(tmp_path):
    lines = [line.replace("\tC1\t", "\tC1|C2\t").replace("9\tC2", "9\tC2|C1") for line in LINES]
    corpus = load(tmp_path, *lines, label="aliases", separators="|")
    (sample,) = corpus.samples
    assert [e.entity_id for e in sample.entities] == ["C1|C2", "7;8", "9", "D1"]
    assert [f.head_id for f in sample.document.facts] == ["C1|C2", "C1|C2", "7", "9"]
    assert load(tmp_path, separators=";").samples[0].entities[0].entity_id == "C1|C2"


def test_held_out_documents_are_paired_as_those_for_training(tmp_path):
    training = load(tmp_path)
    lines = [line.replace("treats", "cures") for line in LINES[:-1]]
    agreed = {"relations": training.relation_names, "pair_types": training.pair_types, "held_out": True}
    test = load(tmp_path, *lines, split="test", **agreed)
    assert test.relation_names == training.relation_names and test.pair_types == training.pair_types
    assert "1 stated facts have a relation that training does not state, and count as missed" in test.notes
    assert gold_facts(test).facts == {
        ("1", "C1", 2, "D1"): False,
        ("1", "C1", 0, "7"): True,
        ("1", "7", 0, "9"): True,
    }
    assert pairs_of(test)["C1", "D1"] == "" and pairs_of(test).keys() == pairs_of(training).keys()
    message = refused(load, tmp_path, *lines, relations=training.relation_names)
    assert message.endswith("some.pubtator: document 1: states a relation that is not in the list; "
                            "valid: binds, treats")  # fmt: skip
    nothing = load(tmp_path, *lines[:7], **agreed)
    assert not gold_facts(nothing).facts and pairs_of(nothing).keys() == pairs_of(training).keys()


def test_what_cannot_be_paired(tmp_path):
    assert "states no relation; name the relations (task.relations)" in refused(load, tmp_path, *LINES[:7])
    message = refused(load, tmp_path, *LINES[:7], "1\tbinds\tC1\tX")
    assert message.endswith("no stated relation joins two entities that are mentioned; name the types of the pairs "
                            "(task.pair_types)")  # fmt: skip
    assert "did you mean 'Gene'?" in refused(load, tmp_path, pair_types=[["Drug", "Genes"]])
    assert "directed names an unknown relation; did you mean 'binds'?" in refused(load, tmp_path, directed=["bind"])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3).flatmap(
    lambda numbers: st.tuples(*(documents(number) for number in range(len(numbers))))
))  # fmt: skip
def test_round_trips(tmp_path_factory, made):
    """Written in PubTator's form with novelty and bars, read again: the same documents, whatever the pairs."""
    lines = []
    for number, document in enumerate(made):
        of_text = list(lines_of(document))[: 2 + len(document.mentions)]
        facts = [f"{document.document_id}\tR\t{f.head_id}\t{f.tail_id}" + "\tNo" * (number % 2) for f in document.facts]
        lines += [*of_text, *facts, ""]
    path = write(tmp_path_factory.mktemp("own"), *lines, name="own.pubtator")
    options = {"relations": ["R"], "pair_types": [["A", "B"], ["B", "A"]], "held_out": True, "separators": "|"}
    corpus = load_documents("documents", path=path, **options)
    assert tuple(sample.document for sample in corpus.samples) == made
    for sample in corpus.samples:
        stated = {(f.head_id, f.tail_id) for f in sample.document.facts}
        for pair in sample.pairs:
            assert bool(pair.labels) == (sample.pair_ids(pair)[1:] in stated)


NAMES = st.sampled_from(string.ascii_lowercase[:4])


@st.composite
def _with_facts(draw):
    """A document of four entities of two types with facts of two relations."""
    kinds = {name: draw(st.sampled_from("AB")) for name in "abcd"}
    mentions = tuple(EntityMention(i, i + 1, kinds[name], (name,)) for i, name in enumerate("abcd"))
    facts = draw(st.lists(st.tuples(NAMES, st.sampled_from("RS"), NAMES), unique=True, max_size=6))
    return Document("1", "abcd", 0, mentions, tuple(Fact(*fact) for fact in facts))


@given(_with_facts(), st.sampled_from([True, False, ("R",), ("S",)]))
def test_every_fact_is_counted_once(document, directed):
    """With the types of all facts no fact is missed, and each labels one place that counts."""
    joins = [f for f in document.facts if f.head_id != f.tail_id]
    if not joins:
        return
    rule = rule_of([document], "some", relations=["R", "S"], directed=directed)
    corpus = document_corpus([document], rule, name="some")
    (sample,) = corpus.samples
    counted = [
        (*sample.pair_ids(pair)[1:], relation)
        for pair in sample.pairs
        for relation in pair.labels
        if relation not in pair.uncounted
    ]
    gold = {(head, tail, relation) for _, head, relation, tail in gold_facts(corpus).facts}
    assert set(counted) == gold and len(counted) == len(gold)

    def as_stated(head, relation, tail):
        either = "RS"[relation] not in rule.undirected
        return ((head, tail) if either else frozenset((head, tail)), "RS"[relation])

    stated = {as_stated(f.head_id, "RS".index(f.relation), f.tail_id) for f in joins}
    assert stated == {as_stated(head, relation, tail) for head, tail, relation in gold}
    if not rule.directed:
        entities = [frozenset(sample.pair_ids(pair)[1:]) for pair in sample.pairs]
        assert len(set(entities)) == len(entities), "two entities are a candidate once"


def test_identifiers_with_several_types_are_a_pair_once():
    mentions = tuple(EntityMention(i, i + 1, kind, (name,)) for i, (kind, name) in enumerate(("Ax", "Bx", "Ay")))
    rule = PairRule((("A", "A"), ("B", "A")), ("R",))
    corpus = document_corpus([Document("1", "abc", 0, mentions, (Fact("x", "R", "y"),))], rule, name="some")
    assert [(p.head, p.tail, p.labels) for p in corpus.samples[0].pairs] == [(0, 2, (0,)), (2, 0, ())]
    assert corpus.notes == ("1 pairs of identifiers that have several types are candidates once",)


@pytest.mark.parametrize("directed", [True, False])
def test_two_orders_of_a_type_pair(directed):
    """With both orders given and no direction two entities are a candidate once, the first named as the head."""
    mentions = tuple(EntityMention(i, i + 1, kind, (kind,)) for i, kind in enumerate("BA"))
    document = Document("1", "ba", 0, mentions, (Fact("A", "R", "B"),))
    rule = rule_of([document], "some", pair_types=[["A", "B"], ["B", "A"]], directed=directed)
    (sample,) = document_corpus([document], rule, name="some").samples
    expected = [("B", "A", ()), ("A", "B", (0,))] if directed else [("B", "A", (0,))]
    assert [(*sample.pair_ids(p)[1:], p.labels) for p in sample.pairs] == expected
    orders = list(itertools.permutations("AB"))
    assert (sample.document.facts[0].head_id, sample.document.facts[0].tail_id) == orders[0 if directed else 1]
