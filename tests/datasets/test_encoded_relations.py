import random

import numpy as np
import pytest
from datasets_for_tests import refused

from datasets.dialogues.loading import load_corpus
from datasets.encoded_clients import encode_relations, training_texts
from datasets.errors import DataError
from datasets.partition import ByField, ClientSamples, Dirichlet, Iid, Natural, Partition, build_partition
from datasets.relations.records import RelationCorpus, RelationMention
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.relation_layout import as_text, blinded
from datasets.text.word_tokenizer import word_tokenizer, word_vocabulary

NAMES = ("no_relation", "inhibits", "activates")
WORDS = [f"w{n}" for n in range(40)]


def corpus(size, split="train", names=NAMES, seed=0, longest=12):
    """Mentions whose texts differ, of one to `longest` words beside the two arguments."""
    rng, mentions = random.Random(f"{split} {seed}"), []
    for i in range(size):
        rest = " ".join(rng.choices(WORDS, k=rng.randint(1, longest)))
        text, label = f"drug{i} gene{i} {rest}", rng.randrange(len(names))
        head, gap = len(f"drug{i}"), len(f"drug{i} ")
        tail = (gap, gap + len(f"gene{i}"))
        mentions.append(
            RelationMention(f"{split}-{i}", f"d{i // 2}", text, (0, head), tail, "drug", "gene", names[label], label)
        )
    return RelationCorpus("toy", tuple(mentions), names, "no_relation")


def encoding_of(*corpora, max_length=30, **options):
    texts = {"all": [m.text for c in corpora for m in c.mentions]}
    return RelationEncoding(word_tokenizer(word_vocabulary(texts)), max_length, **options)


def check_rows(federated, partition, encoding, *corpora):
    """Every client has the rows of its own mentions, the test rows by their length."""
    mention_of = {m.mention_id: m for c in corpora for m in c.mentions}
    assert [client.client_id for client in federated.clients] == list(partition.clients)
    for client in federated.clients:
        samples = partition.clients[client.client_id]
        test = [mention_of[i] for i in samples.test]
        lengths = encoding.encode(test).arrays["attention_mask"].sum(axis=1)
        order = sorted(range(len(test)), key=lambda k: lengths[k])
        rows = {"train": [mention_of[i] for i in samples.train], "test": [test[k] for k in order]}
        for split, mentions in rows.items():
            arrays = getattr(client, split)
            expected = {
                **encoding.encode(mentions).arrays,
                "y": np.array([m.label for m in mentions], np.int32),
            }
            assert arrays.keys() == expected.keys()
            for name, array in expected.items():
                np.testing.assert_array_equal(arrays[name], array, strict=True)
        assert (np.diff(client.test["attention_mask"].sum(axis=1)) >= 0).all()


def test_every_client_gets_its_own_rows():
    whole = corpus(60)
    partition = build_partition(whole, Dirichlet(num_clients=5, alpha=0.5), test_share=0.3)
    encoding = encoding_of(whole)
    federated, report = encode_relations(whole, partition, encoding)
    check_rows(federated, partition, encoding, whole)
    assert federated.label_names == NAMES
    assert federated.size("train") + federated.size("test") == 60
    rows = {tuple(row) for split in ("train", "test") for row in federated.pooled(split)["input_ids"]}
    assert len(rows) == 60, "no row is given out twice"
    assert (report.mentions, report.cut) == (60, 0) and report.notes() == ()


def test_the_official_split():
    train, test = corpus(20), corpus(31, "test")
    partition = build_partition(train, Iid(num_clients=3), dev_corpus=test)
    encoding = encoding_of(train, test, blind=True)
    federated, report = encode_relations((train, test), partition, encoding)
    check_rows(federated, partition, encoding, train, test)
    assert (federated.size("train"), federated.size("test"), report.mentions) == (20, 31, 51)


def test_only_the_test_rows_are_sorted():
    whole = corpus(40)
    some = [m.mention_id for m in whole.mentions]
    partition = Partition("natural", {}, 0, {"a": ClientSamples(tuple(some[:20]), tuple(some[20:]))})
    federated, _ = encode_relations(whole, partition, encoding_of(whole))
    client = federated.clients[0]
    train, test = (examples["attention_mask"].sum(axis=1).tolist() for examples in (client.train, client.test))
    words = [len(m.text.split()) + 6 for m in whole.mentions]  # two special words, four markers
    assert train == words[:20] != sorted(words[:20])
    assert test == sorted(words[20:]) != words[20:]


def test_clients_with_one_of_the_two_splits():
    whole = corpus(4)
    ids = [m.mention_id for m in whole.mentions]
    clients = {"a": ClientSamples((ids[2], ids[0]), ()), "b": ClientSamples((), (ids[3], ids[1]))}
    partition = Partition("natural", {}, 0, clients)
    encoding = encoding_of(whole)
    federated, _ = encode_relations(whole, partition, encoding)
    check_rows(federated, partition, encoding, whole)
    assert [(len(c.train["y"]), len(c.test["y"])) for c in federated.clients] == [(2, 0), (0, 2)]
    assert federated.clients[0].test["input_ids"].shape == (0, 30)
    assert list(training_texts(partition, whole)) == ["a"]


def test_the_report_counts_what_the_limit_cut():
    whole = corpus(30)
    partition = build_partition(whole, Iid(num_clients=2))
    federated, report = encode_relations(whole, partition, encoding_of(whole, max_length=12))
    cut = sum(len(m.text.split()) + 6 > 12 for m in whole.mentions)
    assert 0 < cut < 30 and (report.mentions, report.cut, report.middle_cut) == (30, cut, 0)
    assert report.notes() == (f"{cut} of 30 texts cut to the length limit around their mentions",)
    assert federated.clients[0].train["input_ids"].shape[1] == 12


def test_a_partition_of_another_corpus_is_refused():
    train, test = corpus(6), corpus(4, "test")
    partition = build_partition(train, Natural())
    encoding = encoding_of(train, test)
    for wrong, expected in (
        (test, "sample train-0: is not in the corpus, nor are 5 others"),
        ((train, test), "sample test-0: is held by no client, nor are 3 others"),
    ):
        assert refused(encode_relations, wrong, partition, encoding).startswith(expected)
    with pytest.raises(DataError, match="sample train-0: is not in the corpus"):
        training_texts(partition, test, text_of=lambda mention: mention.text)


def test_corpora_of_different_classes_are_refused():
    train, test = corpus(3), corpus(3, "test", names=("no_relation", "inhibits"))
    clients = {
        "a": ClientSamples(tuple(m.mention_id for m in train.mentions), tuple(m.mention_id for m in test.mentions))
    }
    with pytest.raises(DataError, match="the corpora differ in their classes; read them with the same label_names"):
        encode_relations((train, test), Partition("natural", {}, 0, clients), encoding_of(train, test))


def test_training_texts():
    whole = corpus(12)
    partition = build_partition(whole, Iid(num_clients=3), test_share=0.5)
    mention_of = {m.mention_id: m for m in whole.mentions}
    texts = training_texts(partition, whole)
    assert texts == {c: [mention_of[i].text for i in samples.train] for c, samples in partition.clients.items()}
    assert sum(map(len, texts.values())) == 6, "no text that a client tests on"
    seen = training_texts(partition, whole, text_of=lambda mention: as_text(blinded(mention), ("", "", "", "")))
    for client, samples in partition.clients.items():
        assert seen[client] == [" ".join(["drug", "gene", *mention_of[i].text.split()[2:]]) for i in samples.train]


def test_training_texts_of_a_text_corpus():
    train = load_corpus("shipped")
    partition = build_partition(train, ByField(field="diagnosis"))
    lengths = training_texts(partition, train, text_of=lambda sample: str(len(sample.text)))
    texts = training_texts(partition, train)
    assert lengths == {client: [str(len(text)) for text in some] for client, some in texts.items()}


def test_the_vocabulary_of_clients_that_train():
    """From the clients' training texts to the arrays: a word that one client alone holds is unknown."""
    whole = corpus(30)
    partition = build_partition(whole, Iid(num_clients=3), test_share=0.2)
    texts = training_texts(partition, whole)
    vocabulary = word_vocabulary(texts, min_clients=2)
    encoding = RelationEncoding(word_tokenizer(vocabulary), 30)
    federated, _ = encode_relations(whole, partition, encoding)
    assert not any(word.startswith(("drug", "gene")) for word in vocabulary.words), "each names one sample"
    pooled = federated.pooled("train")
    assert (pooled["input_ids"][pooled["head_mask"] == 1] == 1).all()
    assert pooled["input_ids"].max() < len(vocabulary)
    held = {word: sum(any(word in text.split() for text in some) for some in texts.values()) for word in WORDS}
    assert {word for word, count in held.items() if count > 1} == set(vocabulary.words) & set(WORDS)
    assert any(count < 2 for count in held.values()), "otherwise nothing is tried here"
