import itertools
from collections import Counter

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.partition import Iid, build_partition
from datasets.relations.records import RelationCorpus, RelationMention
from datasets.relations.selection import balanced_subset, set_documents_apart, subset

NAMES = ("no_relation", "a", "b", "c")


def corpus(labels, documents=None):
    documents = range(len(labels)) if documents is None else documents
    mentions = tuple(
        RelationMention(f"m{i:03d}", f"d{document:03d}", "x y", (0, 1), (2, 3), "drug", "gene", NAMES[label], label)
        for i, (label, document) in enumerate(zip(labels, documents, strict=True))
    )
    return RelationCorpus("toy", mentions, NAMES, "no_relation", ("as read",))


def ids(part):
    return [m.mention_id for m in part.mentions]


def documents_of(part):
    return {m.document_id for m in part.mentions}


def labels_of(part):
    return dict(sorted(Counter(m.label for m in part.mentions).items()))


def check_a_part(part, whole):
    """Samples of the whole, in its order, each at most once; everything else as it was."""
    position = {m: i for i, m in enumerate(whole.mentions)}
    places = [position[m] for m in part.mentions]
    assert all(earlier < later for earlier, later in itertools.pairwise(places))
    assert (part.name, part.relation_names, part.negative) == (whole.name, whole.relation_names, whole.negative)
    assert part.notes[: len(whole.notes)] == whole.notes


seeds = st.integers(0, 2**40)


@st.composite
def corpora(draw):
    labels = draw(st.lists(st.integers(0, 3), min_size=1, max_size=40))
    return corpus(labels, draw(st.lists(st.integers(0, 8), min_size=len(labels), max_size=len(labels))))


@given(corpora().filter(lambda c: len(documents_of(c)) > 1), st.floats(0.001, 0.999), seeds)
def test_a_document_is_on_one_side(whole, share, seed):
    train, test = set_documents_apart(whole, share, seed=seed)
    for part in (train, test):
        check_a_part(part, whole)
    assert sorted(ids(train) + ids(test)) == ids(whole), "nothing is lost and nothing is held twice"
    assert not documents_of(train) & documents_of(test)
    count = len(documents_of(whole))
    assert len(documents_of(test)) == min(max(1, round(share * count)), count - 1)
    assert set_documents_apart(whole, share, seed=seed) == (train, test)


def test_the_documents_set_apart_are_a_partitions_test_set():
    train, test = set_documents_apart(corpus([0, 1, 2, 3] * 10, [i // 2 for i in range(40)]), 0.2, seed=0)
    assert train.notes == ("as read", "test set: 8 samples of 4 of the 20 documents")
    partition = build_partition(train, Iid(num_clients=3), dev_corpus=test)
    partition.check_against(train, test)
    assert {i for client in partition.clients.values() for i in client.test} == set(ids(test))


def test_the_seed_draws():
    whole = corpus([0, 1] * 10)
    for draw, amount in ((lambda *a, **o: set_documents_apart(*a, **o)[1], 0.2), (subset, 4), (balanced_subset, 2)):
        drawn = [tuple(ids(draw(whole, amount, seed=seed))) for seed in range(60)]
        assert len(set(drawn)) > 40 and {i for ids_drawn in drawn for i in ids_drawn} == set(ids(whole)), (
            "each can be drawn"
        )
        for seed in (-1, 0.5, True):
            assert "the seed is not a whole number of zero or more" in refused(draw, whole, amount, seed=seed)
    turned = RelationCorpus("toy", whole.mentions[::-1], NAMES, "no_relation")
    left, right = (set_documents_apart(c, 0.2, seed=1)[1] for c in (whole, turned))
    assert documents_of(left) == documents_of(right), "not by the order of the samples"


@pytest.mark.parametrize(
    "documents, share, expected",
    [
        *[
            (None, share, "the test share is not a number of at least 0 and below 1")
            for share in (-0.1, 1, True, "half")
        ],
        (
            [7, 7],
            0.5,
            "corpus toy: a test set of whole documents needs two documents and a share above 0; hold samples",
        ),
        (None, 0, "corpus toy: a test set of whole documents needs two documents and a share above 0; hold samples"),
    ],
)
def test_documents_that_cannot_be_set_apart(documents, share, expected):
    assert refused(set_documents_apart, corpus([0, 1], documents), share, seed=0).startswith(expected)


def test_classes_keep_their_proportions():
    whole = corpus([0] * 50 + [1] * 30 + [2] * 15 + [3] * 5)
    assert labels_of(subset(whole, 20, seed=0)) == {0: 10, 1: 6, 2: 3, 3: 1}
    # 7 · (50, 30, 15, 5) / 100 = (3.5, 2.1, 1.05, 0.35): the one that is left goes to the largest remainder.
    assert labels_of(subset(whole, 7, seed=0)) == {0: 4, 1: 2, 2: 1}
    assert subset(whole, 7, seed=0).notes == ("as read", "a subset of 7 of 100 samples, classes in proportion")
    note = "a subset of 35 of 100 samples, 10 a class at most"
    assert balanced_subset(whole, 10, seed=0).notes == ("as read", note)
    assert subset(whole, 100, seed=0) is whole


@given(corpora(), st.integers(1, 50), seeds)
def test_the_sizes_of_subsets(whole, count, seed):
    part, balanced = subset(whole, count, seed=seed), balanced_subset(whole, count, seed=seed)
    for chosen in (part, balanced):
        check_a_part(chosen, whole)
    assert len(part.mentions) == min(count, len(whole.mentions))
    for label, number in labels_of(whole).items():
        assert abs(labels_of(part).get(label, 0) - len(part.mentions) * number / len(whole.mentions)) < 1
    assert labels_of(balanced) == {label: min(number, count) for label, number in labels_of(whole).items()}
    assert (part, balanced) == (subset(whole, count, seed=seed), balanced_subset(whole, count, seed=seed))


@pytest.mark.parametrize("draw", [subset, balanced_subset])
@pytest.mark.parametrize("count", [0, 1.5, True, "3"])
def test_impossible_sizes(draw, count):
    assert refused(draw, corpus([0, 1, 2]), count, seed=0) == (
        "a subset's size is not a whole number of at least 1; use e.g. 1000"
    )
