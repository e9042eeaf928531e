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


def corpus(labels, documents=None, notes=("as read",)):
    documents = range(len(labels)) if documents is None else documents
    mentions = tuple(
        RelationMention(f"m{i:03d}", f"d{document:03d}", "x y", (0, 1), (2, 3), "drug", "gene", NAMES[label], label)
        for i, (label, document) in enumerate(zip(labels, documents, strict=True))
    )
    return RelationCorpus("toy", mentions, NAMES, "no_relation", notes)


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
    assert all(one < other for one, other in itertools.pairwise(places))
    assert (part.name, part.relation_names, part.negative) == (whole.name, whole.relation_names, whole.negative)
    assert part.notes[: len(whole.notes)] == whole.notes


labels = st.lists(st.integers(0, 3), min_size=1, max_size=40)
seeds = st.integers(0, 2**40)


@st.composite
def corpora(draw, most_documents=8):
    some = draw(labels)
    return corpus(some, draw(st.lists(st.integers(0, most_documents), min_size=len(some), max_size=len(some))))


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


def test_the_share_is_that_of_documents():
    whole = corpus([1] * 100, [i // 5 for i in range(100)])
    train, test = set_documents_apart(whole, 0.25, seed=3)
    assert len(documents_of(test)) == 5 and len(test.mentions) == 25 and len(train.mentions) == 75
    assert train.notes == ("as read", "test set: 25 samples of 5 of the 20 documents")
    assert len(documents_of(set_documents_apart(whole, 0.001, seed=3)[1])) == 1, "at least one"
    assert len(documents_of(set_documents_apart(whole, 0.999, seed=3)[0])) == 1, "at least one stays"


def test_the_seed_draws_the_documents():
    whole = corpus([1] * 50)
    drawn = {tuple(ids(set_documents_apart(whole, 0.2, seed=seed)[1])) for seed in range(10)}
    assert len(drawn) == 10
    turned = RelationCorpus("toy", whole.mentions[::-1], NAMES, "no_relation")
    one, other = (set_documents_apart(c, 0.2, seed=1)[1] for c in (whole, turned))
    assert documents_of(one) == documents_of(other), "not by the order of the samples"


def test_every_document_can_be_drawn():
    whole = corpus([1] * 6)
    drawn = Counter(i for seed in range(300) for i in ids(set_documents_apart(whole, 0.2, seed=seed)[1]))
    assert set(drawn) == set(ids(whole)) and min(drawn.values()) > 20


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, True, "half", float("nan")])
def test_impossible_shares(share):
    assert "the test share is not a number of at least 0 and below 1" in refused(
        set_documents_apart, corpus([0, 1]), share, seed=0
    )


def test_what_has_no_documents_to_set_apart():
    expected = "corpus toy: a test set of whole documents needs two documents and a share above 0; hold samples out at"
    assert refused(set_documents_apart, corpus([0, 1], [7, 7]), 0.5, seed=0).startswith(expected)
    assert refused(set_documents_apart, corpus([0, 1]), 0, seed=0).startswith(expected)


def test_a_partition_takes_the_documents_set_apart_as_its_test_set():
    train, test = set_documents_apart(corpus([0, 1, 2, 3] * 10, [i // 2 for i in range(40)]), 0.2, seed=0)
    partition = build_partition(train, Iid(num_clients=3), dev_corpus=test)
    partition.check_against(train, test)
    tested = {i for client in partition.clients.values() for i in client.test}
    assert tested == set(ids(test)) and len(tested) == 8


def test_classes_keep_their_proportions():
    whole = corpus([0] * 50 + [1] * 30 + [2] * 15 + [3] * 5)
    assert labels_of(subset(whole, 20, seed=0)) == {0: 10, 1: 6, 2: 3, 3: 1}
    # 7 · (50, 30, 15, 5) / 100 = (3.5, 2.1, 1.05, 0.35): the one that is left goes to the largest remainder.
    assert labels_of(subset(whole, 7, seed=0)) == {0: 4, 1: 2, 2: 1}
    assert subset(whole, 7, seed=0).notes == (
        "as read",
        "a subset of 7 of 100 samples, classes in proportion",
    )


@given(corpora(), st.integers(1, 50), seeds)
def test_a_subset_has_its_size(whole, size, seed):
    part = subset(whole, size, seed=seed)
    check_a_part(part, whole)
    assert len(part.mentions) == min(size, len(whole.mentions))
    of_whole = labels_of(whole)
    for label, count in of_whole.items():
        exact = len(part.mentions) * count / len(whole.mentions)
        assert abs(labels_of(part).get(label, 0) - exact) < 1
    assert subset(whole, size, seed=seed) == part


def test_a_subset_of_everything_is_the_corpus():
    whole = corpus([0, 1, 2])
    for size in (3, 4, 10**9):
        assert subset(whole, size, seed=0) is whole


def test_the_seed_draws_the_subset():
    whole = corpus([0, 1] * 50)
    for draw in (subset, balanced_subset):
        assert len({tuple(ids(draw(whole, 10, seed=seed))) for seed in range(10)}) == 10
        drawn = {i for seed in range(60) for i in ids(draw(whole, 10, seed=seed))}
        assert drawn == set(ids(whole)), "every sample can be drawn"


def test_balanced():
    whole = corpus([0] * 50 + [1] * 30 + [3] * 5)
    part = balanced_subset(whole, 10, seed=0)
    assert labels_of(part) == {0: 10, 1: 10, 3: 5}
    assert part.notes == ("as read", "a subset of 25 of 85 samples, 10 a class at most")
    assert balanced_subset(whole, 50, seed=0).mentions == whole.mentions


@given(corpora(), st.integers(1, 50), seeds)
def test_a_balanced_subset_has_so_many_of_each_class(whole, per_class, seed):
    part = balanced_subset(whole, per_class, seed=seed)
    check_a_part(part, whole)
    assert labels_of(part) == {label: min(count, per_class) for label, count in labels_of(whole).items()}
    assert balanced_subset(whole, per_class, seed=seed) == part


@pytest.mark.parametrize("draw", [subset, balanced_subset])
@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3"])
def test_impossible_sizes(draw, count):
    assert refused(draw, corpus([0, 1, 2]), count, seed=0) == (
        "a subset's size is not a whole number of at least 1; use e.g. 1000"
    )


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_impossible_seeds(seed):
    whole = corpus([0, 1, 2])
    for draw, amount in ((subset, 2), (balanced_subset, 1), (set_documents_apart, 0.5)):
        assert "the seed is not a whole number of zero or more" in refused(draw, whole, amount, seed=seed)
