import pytest
from bag_files import corpus, sentence
from datasets_for_tests import refused

from datasets.bags.selection import set_bags_apart, without_pairs
from datasets.errors import DataError
from datasets.partition import Iid, build_partition, label_counts

A, B, C = ("a", "x"), ("b", "x"), ("c", "y")
BOTH = ("born in", "lives in")


def toy():
    return corpus(
        sentence(1, B), sentence(2, A, BOTH), sentence(3, B), sentence(4, C, ["lives in"]), sentence(5, A, BOTH)
    )


def test_bags_pairs_and_triples_in_the_order_of_the_sentences():
    toy_corpus = toy()
    assert toy_corpus.pairs == (B, A, C)
    assert toy_corpus.bags == {B: (0, 2), A: (1, 4), C: (3,)}
    assert toy_corpus.triples == ((0, 0), (1, 1), (1, 2), (2, 2))
    assert "Ann" not in repr(toy_corpus) and "Ann" not in repr(toy_corpus.sentences[0])
    assert toy_corpus.describe() == "5 sentences, 3 pairs of entities, 3 facts"
    assert toy_corpus.positive_labels == (1, 2) and toy_corpus.label_names == ("NA", "born in", "lives in")


def test_partitioners_take_sentences():
    toy_corpus = toy()
    partition = build_partition(toy_corpus, Iid(2), test_share=0.0)
    assert sum(len(client.train) for client in partition.clients.values()) == 5
    assert label_counts(partition, toy_corpus).train.sum(axis=0).tolist() == [2, 2, 1]
    assert toy_corpus.samples[1].fields == {"relation": "born in", "head_type": "person", "tail_type": "place"}


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: sentence(1, head=(0, 12)), "sentence s1: its head 0:12 is empty or lies beyond the text of 11"),
        (lambda: sentence(1, relations=()), "sentence s1: its pair has no relation"),
        (lambda: corpus(), "corpus toy: has no sentences"),
        (lambda: corpus(sentence(1), names=("NA", "NA")), "corpus toy: has a relation twice"),
        (lambda: corpus(sentence(1), names=("born in", "NA")), "corpus toy: its negative is not its first relation"),
        (lambda: corpus(sentence(1), sentence(1, A)), "sentence s1: duplicate id"),
        (lambda: corpus(sentence(1, relations=["eats"])), "sentence s1: its pair has a relation that the corpus"),
        (lambda: corpus(sentence(1, relations=["NA", "born in"])), "sentence s1: its pair has NA and another relation"),
        (lambda: corpus(sentence(1, relations=BOTH[::-1])), "sentence s1: its pair has a relation twice or out of"),
        (lambda: corpus(sentence(1), sentence(2, relations=BOTH)), "sentence s2: another sentence of its pair has"),
        (lambda: corpus(sentence(1, relations=BOTH, label=2)), "sentence s1: its label 2 is not that of its rel"),
    ],
)
def test_what_is_no_corpus(make, expected):
    assert refused(make).startswith(expected)


def test_without_the_pairs_of_another_corpus():
    train = corpus(sentence(9, A, BOTH), name="train")
    left = without_pairs(toy(), train)
    assert left.pairs == (B, C) and [s.sentence_id for s in left.sentences] == ["s1", "s3", "s4"]
    assert left.notes == ("1 of 3 bags left out because train has their pairs",)
    assert without_pairs(left, train) == left
    assert refused(without_pairs, train, toy()) == "corpus train: no bag is left; use corpora with different pairs"


def test_bags_set_apart_are_whole_and_of_both_sorts():
    related = [sentence(n, (f"r{n // 2}", "x"), ["born in"]) for n in range(40)]
    unrelated = [sentence(100 + n, (f"u{n}", "x")) for n in range(30)]
    whole = corpus(*related, *unrelated)
    rest, apart = set_bags_apart(whole, 0.1, seed=3)
    assert not set(rest.bags) & set(apart.bags) and set(rest.bags) | set(apart.bags) == set(whole.bags)
    assert len(apart.pairs) == 5 and sum(s.label for s in apart.sentences) == 4, "2 of 20 related bags of 2, 3 of 30"
    assert rest.notes == ("5 of 50 bags are set apart",)
    assert set_bags_apart(whole, 0.1, seed=3) == (rest, apart) != set_bags_apart(whole, 0.1, seed=4)
    for wrong in (0.0, 1.0):
        with pytest.raises(DataError):
            set_bags_apart(whole, wrong, seed=0)
    assert refused(set_bags_apart, corpus(sentence(1)), 0.5, seed=0).startswith("corpus toy: setting bags apart needs")
