import numpy as np
import pytest
from bag_files import corpus, sentence
from datasets_for_tests import refused

from datasets.bags.encoding import encode_bag_clients, encode_bags
from datasets.partition import ClientSamples, Partition
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.vocabulary import Vocabulary
from datasets.text.word_tokenizer import SPECIAL, word_tokenizer

A, B, C = ("a", "x"), ("b", "x"), ("c", "y")
BOTH = ("born in", "lives in")
WORDS = ("ann", "of", "bonn")  # ids 2, 3, 4; [CLS] 5, [SEP] 6, markers 7 to 10
ANN_OF_BONN = [5, 7, 2, 8, 3, 9, 4, 10, 6, 0]


def toy():
    return corpus(
        sentence(1, B),
        sentence(2, A, BOTH),
        sentence(3, B, text="Bonn of Ann", head=(8, 11), tail=(0, 4)),
        sentence(4, C, ["lives in"]),
        sentence(5, A, BOTH, text="Ann of of of Bonn", tail=(13, 17)),
    )


def encoding():
    return RelationEncoding(word_tokenizer(Vocabulary((*WORDS, *SPECIAL))), 10)


def partition(*clients, server=()):
    made = {f"p{n}": ClientSamples(tuple(train), tuple(test)) for n, (train, test) in enumerate(clients)}
    return Partition("iid", {}, 0, made, (), tuple(server))


def test_the_rows_of_the_clients():
    federated, report = encode_bag_clients(toy(), partition((["s5", "s1"], []), (["s2", "s3", "s4"], [])), encoding())
    first, second = (client.train for client in federated.clients)
    assert first["y"].tolist() == [1, 2, 0] and first["triple"].tolist() == [1, 2, 0]
    assert first["platform"].tolist() == [0, 0, 0]
    assert first["input_ids"].tolist() == [[5, 7, 2, 8, 3, 3, 9, 4, 10, 6]] * 2 + [ANN_OF_BONN]
    assert second["y"].tolist() == [1, 2, 0, 2] and second["triple"].tolist() == [1, 2, 0, 3]
    assert second["platform"].tolist() == [1, 1, 1, 1]
    assert second["input_ids"].tolist() == [ANN_OF_BONN] * 2 + [[5, 9, 4, 10, 3, 7, 2, 8, 6, 0], ANN_OF_BONN]
    assert second["head_start"].tolist() == [1, 1, 5, 1]
    assert second["tail_mask"][2].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert {array.dtype for array in first.values()} == {np.dtype(np.int32)}
    for client in federated.clients:
        assert client.test.keys() == client.train.keys() and all(len(array) == 0 for array in client.test.values())
    assert federated.label_names == ("NA", "born in", "lives in") and federated.server is None
    assert (report.mentions, report.cut, report.middle_cut) == (5, 1, 1), (
        "each sentence once, the cut ones of all clients"
    )


@pytest.mark.parametrize(
    "wrong", [partition((["s1", "s2", "s3", "s4"], ["s5"])), partition((["s1", "s2", "s3", "s4"], []), server=["s5"])]
)
def test_sentences_held_out_are_refused(wrong):
    assert refused(encode_bag_clients, toy(), wrong, encoding()) == (
        "corpus toy: the partition holds out single sentences, but bags are evaluated as a whole; "
        "build it with test_share = 0 and server_share = 0"
    )
    assert "is not held by any client" in refused(encode_bag_clients, toy(), partition((["s1"], [])), encoding())


def test_whole_bags_for_evaluation():
    held_out, report = encode_bags(toy(), encoding())
    assert held_out.pairs == (B, A, C) and held_out.sentence_ids == ("s1", "s3", "s2", "s5", "s4")
    assert held_out.arrays["bag"].tolist() == [0, 0, 1, 1, 2] and held_out.arrays["bag"].dtype == np.int32
    assert held_out.labels.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]] and held_out.labels.dtype == np.float32
    assert held_out.arrays["input_ids"][[0, 2, 4]].tolist() == [ANN_OF_BONN] * 3
    assert held_out.arrays["input_ids"][1].tolist() == [5, 9, 4, 10, 3, 7, 2, 8, 6, 0]
    assert report.mentions == 5 and "Ann" not in repr(held_out)


def test_the_columns_are_those_of_training():
    names = ("NA", "dies in", "lives in", "born in")
    held_out, _ = encode_bags(toy(), encoding(), label_names=names)
    assert held_out.labels.tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]] and held_out.label_names == names
    assert refused(encode_bags, toy(), encoding(), label_names=names[:3]) == (
        "corpus toy: relation number 1 is not in the training corpus; read both with the same relations"
    )
