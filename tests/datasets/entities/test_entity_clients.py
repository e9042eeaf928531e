"""From a partition of texts with entities to the clients' arrays; clients that annotate different types."""

import numpy as np
import pytest
from datasets_for_tests import refused
from entities_for_tests import TYPES, corpus, marked

from datasets.encoded_clients import training_texts
from datasets.entities.clients import encode_entity_clients
from datasets.entities.encoding import TaggedTokenEncoding
from datasets.entities.loading import load_entities
from datasets.entities.records import NO_ENTITY
from datasets.partition import ByField, Iid, Natural, build_partition, label_counts
from datasets.partition.base import ClientSamples, Partition
from datasets.text import CharacterEncoding, Vocabulary

VOCABULARY = Vocabulary(tuple("ab "))


def encoding(types=TYPES, max_length=6):
    return TaggedTokenEncoding(CharacterEncoding(VOCABULARY, max_length), types)


def partition(**clients):
    """Client -> (training ids, test ids), as strings of one character an id; `server` is the server."""
    server = tuple(clients.pop("server", ""))
    return Partition("made", {}, 0, {c: ClientSamples(*map(tuple, ids)) for c, ids in clients.items()}, server=server)


CORPUS = corpus(
    marked("1", "[Drug a]b[Disease b]a"),
    marked("2", "[Disease ab] [Drug b]"),
    marked("3", "ab[Disease a]b[Disease b]a"),
    marked("4", "[Drug a]"),
    marked("5", "[Drug ab]b [Disease aa]"),
)


def test_arrays_of_clients():
    federated, report = encode_entity_clients(CORPUS, partition(x=("1", "35"), y=("2", ""), server="4"), encoding())
    assert federated.label_names == CORPUS.label_names == ("no entity", "Drug", "Disease"), "classes of texts, not tags"
    x, y = federated.clients
    assert x.train["tags"].tolist() == [[1, 0, 3, 0, -1, -1]] and y.train["tags"].tolist() == [[3, 4, 0, 1, -1, -1]]
    assert x.test["y"].tolist() == [2, 1] and y.test["tags"].shape == (0, 6)
    assert federated.server["tags"].tolist() == [[1] + [-1] * 5]
    for examples in (x.train, x.test, federated.server):
        assert (examples["annotated"] == 1).all()
    assert (report.texts, report.entities, report.cut, report.unrepresented) == (5, 9, 0, 0)


def test_test_examples_are_sorted_by_their_number_of_tokens():
    federated, _ = encode_entity_clients(CORPUS, partition(x=("1", "5324")), encoding())
    assert (federated.clients[0].test["tags"] >= 0).sum(axis=1).tolist() == [1, 4, 6, 6]


def test_clients_that_annotate_some_types():
    made = partition(x=("1", "3"), y=("2", "5"), server="4")
    federated, report = encode_entity_clients(CORPUS, made, encoding(max_length=5), annotated={"y": ("Drug",)})
    x, y = federated.clients
    assert x.train["annotated"].tolist() == x.test["annotated"].tolist() == [[1, 1]]
    assert x.train["tags"].tolist() == [[1, 0, 3, 0, -1]] and federated.server["annotated"].tolist() == [[1, 1]]
    assert y.train["annotated"].tolist() == y.test["annotated"].tolist() == [[1, 0]]
    assert y.train["tags"].tolist() == [[0, 0, 0, 1, -1]] and y.test["tags"].tolist() == [[1, 2, 0, 0, 0]]
    assert y.train["y"].tolist() == [1] and y.test["unrepresented"].tolist() == [[0, 0]], "no disease is told"
    assert report.entities == 7 and x.test["unrepresented"].tolist() == [[0, 0]]


def test_corpora_of_different_types_train_together():
    drugs = corpus(marked("1", "[Drug a]b", types=("Drug",)), types=("Drug",), name="drugs")
    diseases = corpus(marked("2", "[Disease a]b", types=("Disease",)), types=("Disease",), name="diseases")
    made = partition(x=("1", ""), y=("2", ""))
    federated, _ = encode_entity_clients((drugs, diseases), made, encoding())
    x, y = (client.train for client in federated.clients)
    assert x["annotated"].tolist() == [[1, 0]] and y["annotated"].tolist() == [[0, 1]]
    assert x["tags"].tolist() == [[1, 0] + [-1] * 4] and y["tags"].tolist() == [[3, 0] + [-1] * 4]
    assert (x["y"].tolist(), y["y"].tolist()) == ([1], [2]), "the labels of all types"
    narrowed, _ = encode_entity_clients((drugs, diseases), made, encoding(), annotated={"y": TYPES})
    assert narrowed.clients[1].train["annotated"].tolist() == [[0, 1]], "a client annotates no more than its corpus"


@pytest.mark.parametrize(
    "annotated, expected",
    [
        ({"z": TYPES}, "annotated, client z: there is no such client; valid: x, y"),
        ({"x": ()}, "annotated, client x: annotates no type; name at least one, or leave the client out"),
        ({"x": ("drug",)}, "annotated, client x: there is no such type (type drug); did you mean 'Drug'?"),
        ({"宝宝": ()}, "annotated, client number 1: there is no such client; valid: x, y"),
    ],
)
def test_what_a_client_cannot_annotate(annotated, expected):
    made = partition(x=("12", "3"), y=("45", ""))
    assert refused(encode_entity_clients, CORPUS, made, encoding(), annotated=annotated) == expected


def test_what_does_not_fit():
    made = partition(x=("12345", ""))
    assert refused(encode_entity_clients, CORPUS, made, encoding(types=("Drug",))) == (
        "corpus toy: the encoding has no type Disease; encode with the types of all corpora"
    )
    assert "is not held by any client" in refused(encode_entity_clients, CORPUS, partition(x=("1234", "")), encoding())


def test_a_corpus_of_entities_is_one_for_partitions():
    made = build_partition(CORPUS, Iid(num_clients=2), seed=1, test_share=0.4)
    assert sum(len(ids.train) + len(ids.test) for ids in made.clients.values()) == 5
    assert CORPUS.label_names == (NO_ENTITY, *TYPES)
    counts = label_counts(made, CORPUS)
    assert (counts.train + counts.test).sum(axis=0).tolist() == [0, 4, 1]


def test_from_the_shipped_entities_to_the_clients_arrays():
    train, dev = (load_entities("shipped_entities", split=split) for split in ("train", "dev"))
    by_diagnosis = build_partition(train, ByField(field="diagnosis"), dev_corpus=dev)
    texts = training_texts(by_diagnosis, train, dev)
    characters = CharacterEncoding.build(texts, max_length=40)
    tagged = TaggedTokenEncoding(characters, train.entity_types, "BIOES")
    federated, report = encode_entity_clients((train, dev), by_diagnosis, tagged)
    assert len(federated.clients) == 10 and (federated.size("train"), federated.size("test")) == (279, 66)
    assert report.notes()[-1].endswith("of the tokens of all texts are unknown") and report.unrepresented == 0
    begins = [tag for tag, name in enumerate(tagged.tag_names) if name[0] in "BS"]
    for split, entities in (("train", 260), ("test", 65)):
        assert np.isin(federated.pooled(split)["tags"], begins).sum() == entities
    dialogues = build_partition(train, Natural(), test_share=0.2)
    assert len(encode_entity_clients(train, dialogues, tagged)[0].clients) == 40
