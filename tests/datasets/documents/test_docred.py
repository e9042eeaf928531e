"""DocRED's JSON: tokens, entities, relations between places."""

import copy
import gzip
import json

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st
from test_pubtator import TEXTS

from datasets.documents.docred import read_docred_json
from datasets.documents.graph import sentences_of
from datasets.documents.loading import load_documents
from datasets.documents.records import Document, EntityMention, Fact

DOCUMENT = {
    "title": "Anna",
    "sents": [["Anna", "Ek", "lives", "in", "Bonn", "."], ["She", "'s", "a", "Swede", "."]],
    "vertexSet": [
        [
            {"name": "Anna Ek", "sent_id": 0, "pos": [0, 2], "type": "PER"},
            {"name": "She", "sent_id": 1, "pos": [0, 1], "type": "PER"},
        ],
        [{"name": "Bonn", "sent_id": 0, "pos": [4, 5], "type": "LOC"}],
        [{"name": "Swedes", "sent_id": 1, "pos": [3, 4], "type": "LOC"}],
    ],
    "labels": [
        {"h": 0, "t": 1, "r": "P551", "evidence": [0]},
        {"h": 0, "t": 2, "r": "P27", "evidence": [1]},
        {"h": 0, "t": 1, "r": "P19", "evidence": []},
    ],
}


def write(folder, *values, name="some.json"):
    path = folder / name
    data = json.dumps(list(values)).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def changed(*keys, to):
    """The document with another value at a place."""
    value = copy.deepcopy(DOCUMENT)
    inner = value
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return value


def test_a_document(tmp_path):
    (document,) = read_docred_json(write(tmp_path, DOCUMENT, name="some.json.gz"))
    assert document == Document(
        "Anna",
        "Anna Ek lives in Bonn . She 's a Swede .",
        0,
        (
            EntityMention(0, 7, "PER", ("0",)),
            EntityMention(17, 21, "LOC", ("1",)),
            EntityMention(24, 27, "PER", ("0",)),
            EntityMention(33, 38, "LOC", ("2",), "Swedes"),
        ),
        (Fact("0", "P551", "1"), Fact("0", "P27", "2"), Fact("0", "P19", "1")),
        ((0, 23), (24, 40)),
    )
    assert sentences_of(document) == [(0, 23), (24, 40)]
    assert document.names() == {"0": {"Anna Ek", "She"}, "1": {"Bonn"}, "2": {"Swedes"}}
    assert "Bonn" not in repr(document) and "Swede" not in repr(document.mentions)


@pytest.mark.parametrize("name", ["docred", "documents"])
def test_a_corpus(tmp_path, name):
    without_labels = {**{key: DOCUMENT[key] for key in ("sents", "vertexSet")}, "title": "2"}
    corpus = load_documents(name, path=write(tmp_path, DOCUMENT, without_labels))
    assert corpus.relation_names == ("P19", "P27", "P551") and corpus.pair_types == (("PER", "LOC"),)
    first, second = corpus.samples
    assert [(p.head, p.tail, p.labels, p.intra) for p in first.pairs] == [(0, 1, (0, 2), True), (0, 2, (1,), True)]
    assert [p.labels for p in second.pairs] == [(), ()] and corpus.facts_by_name
    assert first.sample_id == f"{name}-train-Anna"
    every = load_documents(name, path=write(tmp_path, DOCUMENT), pair_types=[["PER", "LOC"], ["LOC", "LOC"]])
    assert len(every.samples[0].pairs) == 4
    if name == "documents":
        path = write(tmp_path, DOCUMENT)
        assert "are only for PubTator files" in refused(load_documents, name, path=path, label="aliases")


def test_what_is_irregular_but_clear_is_counted(tmp_path):
    again = copy.deepcopy(DOCUMENT)
    again["vertexSet"][1] += [{**again["vertexSet"][1][0], "type": "ORG"}]
    again["labels"] += again["labels"][:1]
    again["sents"].insert(1, [])
    again["vertexSet"][0][1]["sent_id"] = again["vertexSet"][2][0]["sent_id"] = 2
    corpus = load_documents("docred", path=write(tmp_path, DOCUMENT, again))
    assert [sample.document_id for sample in corpus.samples] == ["Anna", "Anna (2)"]
    assert corpus.samples[0].document.mentions == corpus.samples[1].document.mentions
    assert corpus.notes == (
        "1 documents have the title of an earlier one",
        "1 duplicate mentions are read once",
        "1 entities have mentions with several types; the first counts",
        "1 duplicate relations are read once",
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "document number 1: it is not an object"),
        ({}, 'document number 1: has no "title"'),
        (changed("title", to=" "), "document number 1: has no title"),
        (changed("sents", to=[]), "document number 1: has no text"),
        (changed("sents", 0, 2, to=3), "a token of sentence 0 is not a string"),
        (changed("sents", 0, to="Anna Ek"), "sentence 0 is not a list"),
        (changed("vertexSet", 1, to=[]), "entity 1 has no mention"),
        (
            changed("vertexSet", 0, 1, "sent_id", to=2),
            "mention 1 of entity 0 is in no sentence; give a sent_id below 2",
        ),
        (
            changed("vertexSet", 0, 0, "pos", to=[5, 7]),
            "mention 0 of entity 0 is empty or beyond its sentence of 6 tokens",
        ),
        (changed("vertexSet", 0, 0, "pos", to=[2, 2]), "mention 0 of entity 0 is empty or beyond"),
        (changed("vertexSet", 0, 0, "pos", to=[2]), "mention 0 of entity 0 is empty or beyond"),
        (changed("vertexSet", 0, 0, "pos", to=["a", "b"]), "the place of mention 0 of entity 0 is not a whole number"),
        (changed("sents", 0, 4, to=""), "mention 0 of entity 1 is empty; give it a token that is not"),
        (changed("vertexSet", 0, 0, "type", to=""), "mention 0 of entity 0 has no type"),
        (changed("vertexSet", 0, 0, "name", to=None), 'mention 0 of entity 0: "name" is not a string'),
        (changed("labels", 1, "r", to=3), 'label 1: "r" is not a string'),
        (changed("labels", 1, "t", to=3), "label 1 names an entity that does not exist; give h and t from 0 to 2"),
        (changed("labels", 1, "h", to=-1), "label 1 names an entity that does not exist"),
        (changed("labels", 1, "r", to=""), "label 1 names no relation"),
        (changed("labels", to={}), '"labels" is not a list'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_documents(tmp_path, value, reason):
    message = refused(read_docred_json, write(tmp_path, value))
    assert reason in message and "lives" not in message and str(tmp_path) in message and "\n" not in message


def test_malformed_files(tmp_path):
    path = tmp_path / "some.json"
    for text, reason in (("[]", "has no documents"), ("{}", "the file is not a list"), ("[", "is not JSON")):
        path.write_text(text)
        assert reason in refused(read_docred_json, path)


@st.composite
def values(draw, number):
    """A document as DocRED writes it."""
    sentences = draw(st.lists(st.lists(TEXTS, max_size=5), min_size=1, max_size=3).filter(any))
    places = [(s, a, b) for s, t in enumerate(sentences) for a in range(len(t)) for b in range(a + 1, len(t) + 1)]
    entities = []
    for kind in draw(st.lists(st.sampled_from(["PER", "LOC"]), min_size=1, max_size=3)):
        chosen = draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True))
        mentions = [{"name": draw(TEXTS), "sent_id": s, "pos": [a, b], "type": kind} for s, a, b in chosen]
        entities.append(mentions)
    places = st.integers(0, len(entities) - 1)
    labels = draw(st.lists(st.tuples(places, st.sampled_from(["P1", "P2"]), places), unique=True, max_size=3))
    labels = [{"h": h, "t": t, "r": r, "evidence": []} for h, r, t in labels]
    return {"title": f"{number}", "sents": sentences, "vertexSet": entities, "labels": labels}


def as_written(document):
    """What a document says in DocRED's form, apart from the order of mentions: by its offsets alone."""
    entities = [set() for _ in document.entities()]
    for mention in document.mentions:
        text = document.text[mention.start : mention.end]
        entities[int(mention.entity_ids[0])].add((text, mention.kind, text if mention.name is None else mention.name))
    return entities, [(int(f.head_id), f.relation, int(f.tail_id)) for f in document.facts]


@given(st.integers(1, 2).flatmap(lambda count: st.tuples(*(values(number) for number in range(count)))))
def test_round_trips(tmp_path_factory, made):
    read = read_docred_json(write(tmp_path_factory.mktemp("docred"), *made))
    assert [document.document_id for document in read] == [value["title"] for value in made]
    for document, value in zip(read, made, strict=True):
        tokens = value["sents"]
        wanted = [
            {(" ".join(tokens[m["sent_id"]][slice(*m["pos"])]), m["type"], m["name"]) for m in mentions}
            for mentions in value["vertexSet"]
        ]
        assert as_written(document) == (wanted, [(label["h"], label["r"], label["t"]) for label in value["labels"]])
        spans = [document.text[a:b] for a, b in document.sentences]
        assert spans == [" ".join(sentence) for sentence in tokens if sentence]
