import random

import numpy as np
from datasets_for_tests import refused

from datasets.encoded_clients import encode_relations, training_texts
from datasets.partition import ClientSamples, Iid, Natural, Partition, build_partition
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
    whole = corpus(40)
    ids = [m.mention_id for m in whole.mentions]
    clients = {
        "a": ClientSamples((ids[2], ids[0]), ()),
        "b": ClientSamples((), (ids[3], ids[1])),
        "c": ClientSamples(tuple(ids[4:20]), tuple(ids[20:])),
    }
    partition = Partition("natural", {}, 0, clients)
    encoding = encoding_of(whole)
    federated, report = encode_relations(whole, partition, encoding)
    check_rows(federated, partition, encoding, whole)
    assert federated.label_names == NAMES and federated.clients[0].test["input_ids"].shape == (0, 30)
    assert (report.mentions, report.cut, report.notes()) == (40, 0, ())
    assert list(training_texts(partition, whole)) == ["a", "c"]


def test_the_official_split():
    train, test = corpus(20), corpus(31, "test")
    partition = build_partition(train, Iid(num_clients=3), dev_corpus=test)
    encoding = encoding_of(train, test, blind=True)
    federated, report = encode_relations((train, test), partition, encoding)
    check_rows(federated, partition, encoding, train, test)
    assert (federated.size("train"), federated.size("test"), report.mentions) == (20, 31, 51)


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
        ((train, test), "sample test-0: is not held by any client, nor are 3 others"),
    ):
        assert refused(encode_relations, wrong, partition, encoding).startswith(expected)
    assert "sample train-0: is not in the corpus" in refused(training_texts, partition, test)
    fewer = corpus(4, "test", names=NAMES[:2])
    partition = build_partition(train, Natural(), dev_corpus=test)
    assert refused(encode_relations, (train, fewer), partition, encoding) == (
        "the corpora differ in their classes; read them with the same label_names"
    )


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
