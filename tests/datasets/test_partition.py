import json
from collections import Counter

import numpy as np
import pytest
from datasets_for_tests import corpus, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.partition import (
    ByField,
    Dirichlet,
    Iid,
    Natural,
    Quantity,
    build_partition,
    hold_out,
    label_counts,
    read_partition,
    write_partition,
)
from datasets.seeds import generator

partitioners = st.one_of(
    st.just(Natural()),
    st.just(ByField("ward")),
    st.integers(1, 4).map(Iid),
    st.builds(
        Dirichlet,
        st.integers(1, 8),
        st.sampled_from([0.01, 0.5, 100.0]),
        st.sampled_from(["sample", "document"]),
        st.sampled_from(["label", "ward"]),
    ),
    st.builds(Quantity, st.integers(1, 4), st.sampled_from([0.05, 1.0, 50.0]), st.integers(0, 1)),
)


@st.composite
def corpora(draw, prefix="s"):
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 2)), min_size=4, max_size=40))
    return corpus(
        [r[0] for r in rows],
        [f"d{r[1]}" for r in rows],
        [{"ward": f"w{r[2]}"} for r in rows],
        prefix=prefix,
    )


def ids_of(partition):
    return [i for c in partition.clients.values() for i in c.train + c.test]


@given(corpora(), partitioners, st.integers(0, 2**40), st.sampled_from([0.0, 0.1, 0.5, 0.99]))
def test_every_sample_goes_to_one_client(toy, partitioner, seed, share):
    partition = build_partition(toy, partitioner, seed=seed, test_share=share)
    assert Counter(ids_of(partition)) == Counter(s.sample_id for s in toy.samples)
    assert partition == build_partition(toy, partitioner, seed=seed, test_share=share)
    for client in partition.clients.values():
        n = len(client.train) + len(client.test)
        assert len(client.test) == (0 if n == 1 or share == 0 else min(n - 1, max(1, round(share * n))))


@given(corpora(), corpora("t"), partitioners, st.integers(0, 99))
def test_the_official_split_tests_on_the_dev_corpus(toy, dev, partitioner, seed):
    try:
        partition = build_partition(toy, partitioner, seed=seed, dev_corpus=dev)
    except DataError as error:
        by = getattr(partitioner, "by", "none")
        value = {"label": lambda s: s.label, "ward": lambda s: s.fields["ward"]}[by]
        known = {value(s) for s in toy.samples}
        assert "never occurs in the training corpus" in str(error)
        assert any(value(s) not in known for s in dev.samples)
        return
    assert {i for c in partition.clients.values() for i in c.train} == {s.sample_id for s in toy.samples}
    assert {i for c in partition.clients.values() for i in c.test} == {s.sample_id for s in dev.samples}
    partition.check_against(toy, dev)


@settings(max_examples=30)
@given(corpora(), partitioners, st.integers(0, 99))
def test_partitions_are_read_as_they_were_written(tmp_path_factory, toy, partitioner, seed):
    path = tmp_path_factory.mktemp("p") / "partition.json"
    partition = build_partition(toy, partitioner, seed=seed)
    write_partition(partition, path)
    back = read_partition(path, toy)
    assert back == partition and list(back.clients) == list(partition.clients)
    assert b"text" not in path.read_bytes()


def test_another_seed_is_another_partition():
    toy = corpus([i % 3 for i in range(200)])
    for partitioner in (Iid(5), Dirichlet(5, 0.5), Quantity(5, 0.5)):
        assert build_partition(toy, partitioner, seed=0) != build_partition(toy, partitioner, seed=1)


def test_numbers_stay_the_same_from_release_to_release():
    partition = build_partition(corpus([0, 1, 2] * 4), Dirichlet(3, 0.5), seed=0)
    assert {c: (" ".join(s.train), " ".join(s.test)) for c, s in partition.clients.items()} == {
        "client-0": ("s3 s4 s8", "s1"),
        "client-1": ("s2 s6 s9 s11", "s7"),
        "client-2": ("s5 s10", "s0"),
    }


def test_natural_and_by_field_clients():
    toy = corpus([0, 1, 0], ["d1", "d0", "d1"], [{"ward": "x"}, {"ward": "y"}, {"ward": "y"}])
    assert Natural().assign(toy.samples, generator(0)) == {"d1": [0, 2], "d0": [1]}
    assert ByField("ward").assign(toy.samples, generator(0)) == {"x": [0], "y": [1, 2]}


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(i) for i in Iid(4).assign(corpus([0] * 11).samples, generator(3)).values()]
    assert sorted(sizes) == [2, 3, 3, 3]


def test_dirichlet_follows_the_shares_drawn():
    toy = corpus([0] * 100 + [1] * 50)
    rule = Dirichlet(3, 0.5)
    drawn = rule.draw(toy.samples, generator(5))
    clients = rule.apply(drawn, toy.samples, generator(6))
    for label, n in ((0, 100), (1, 50)):
        counts = [sum(toy.samples[i].label == label for i in indices) for indices in clients.values()]
        exact = np.cumsum(drawn[label]) * n
        assert np.all(np.abs(np.cumsum(counts) - exact) < 1) and sum(counts) == n


def test_alpha_sets_the_skew():
    toy = corpus([i % 3 for i in range(600)])
    skew = [
        label_counts(build_partition(toy, Dirichlet(10, alpha)), toy).summary()["label_skew"]
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert skew[0] > 0.4 > skew[1] > 0.1 > skew[2]


def test_hospitals_hold_whole_documents():
    toy = corpus([i % 3 for i in range(90)], [f"d{i // 6}" for i in range(90)])
    clients = Dirichlet(4, 1.0, unit="document").assign(toy.samples, generator(1))
    holders = {}
    for client, indices in clients.items():
        for i in indices:
            holders.setdefault(toy.samples[i].document_id, set()).add(client)
    assert len(holders) == 15 and all(len(h) == 1 for h in holders.values())


def test_clients_without_samples_are_left_out_with_a_note():
    partition = build_partition(corpus([0] * 5), Dirichlet(40, 0.01), seed=0)
    left_out = 40 - len(partition.clients)
    assert left_out >= 35
    assert f"{left_out} of 40 clients got no sample and are left out" in partition.notes


def test_quantity_keeps_the_smallest_size():
    toy = corpus([0] * 100)
    sizes = [len(i) for i in Quantity(10, 0.05, min_size=5).assign(toy.samples, generator(2)).values()]
    assert sum(sizes) == 100 and min(sizes) >= 5 and max(sizes) > 20


def test_hold_out_depends_on_nothing_but_seed_client_and_samples():
    samples = corpus([0] * 30, [f"d{i // 3}" for i in range(30)]).samples
    train, test = hold_out("c", samples, 0.2, seed=1)
    assert len(test) == 6 and set(train) | set(test) == {s.sample_id for s in samples}
    assert set(hold_out("c", samples[::-1], 0.2, seed=1)[1]) == set(test)
    assert hold_out("d", samples, 0.2, seed=1)[1] != test != hold_out("c", samples, 0.2, seed=2)[1]
    _, documents = hold_out("c", samples, 0.2, seed=1, unit="document")
    held = {s.document_id for s in samples if s.sample_id in documents}
    assert len(held) == 2 and len(documents) == 6
    assert hold_out("c", samples[:1], 0.5, seed=0) == (("s0",), ())
    assert len(hold_out("c", samples[:2], 0.01, seed=0)[1]) == 1


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: Dirichlet(0, 1.0), "num_clients must be a whole number of at least 1, got 0"),
        (lambda: Dirichlet(3, 0.0), "alpha must be a number from 0.001 to 1000000, got 0.0"),
        (lambda: Dirichlet(3, float("inf")), "alpha must be a number from 0.001 to 1000000, got inf"),
        (lambda: Dirichlet(3, 1.0, unit="word"), "unit must be one of 'sample', 'document', got 'word'"),
        (lambda: Quantity(2, -1.0), "alpha must be a number from 0.001 to 1000000, got -1.0"),
        (lambda: Quantity(2, 1.0, min_size=-1), "min_size must be a whole number of at least 0, got -1"),
        (lambda: Iid(True), "num_clients must be a whole number of at least 1, got True"),
    ],
)
def test_impossible_options(make, expected):
    assert refused(make).startswith(expected)


@pytest.mark.parametrize(
    "partitioner, options, expected",
    [
        (Iid(4), {}, "4 clients cannot share 3 samples; use at most 3 clients"),
        (
            Quantity(2, 1.0, 2),
            {},
            "2 clients with 2 samples each cannot share 3 samples; use fewer clients or a smaller",
        ),
        (ByField("wards"), {}, "field wards: there is no such field; did you mean 'ward'?"),
        (Dirichlet(2, 1.0, by="diagnosis"), {}, "field diagnosis: there is no such field; valid: "),
        (Natural(), {"test_share": 1.0}, "the test share is not a number of at least 0 and below 1; use e.g. 0.1"),
        (Natural(), {"test_unit": "word"}, "unit must be one of 'sample', 'document', got 'word'"),
        (Natural(), {"seed": -1}, "the seed is not a whole number of zero or more; use e.g. 0"),
    ],
)
def test_impossible_partitions(partitioner, options, expected):
    toy = corpus([0, 1, 2], fields=[{"ward": "x"}] * 3)
    assert refused(build_partition, toy, partitioner, **options).startswith(expected)


def test_a_sample_without_the_field_is_named():
    with pytest.raises(DataError, match="sample s1: has no ward"):
        build_partition(corpus([0, 1], fields=[{"ward": "x"}, {}]), ByField("ward"))


def test_dev_corpora_that_do_not_fit():
    toy = corpus([0, 1, 1])
    for dev, expected in (
        (
            corpus([0], names=("a", "b", "z"), prefix="t"),
            "dev corpus toy: 1 of its classes never occur in the training",
        ),
        (corpus([0], names=("b", "a", "c"), prefix="t"), "dev corpus toy: its classes are in another order"),
        (corpus([0]), "dev corpus toy: 1 samples are in the training corpus as well; use disjoint splits"),
    ):
        assert refused(build_partition, toy, Natural(), dev_corpus=dev).startswith(expected)
    with pytest.raises(DataError, match=r"a class of the dev corpus \(label\) never occurs in the training corpus"):
        build_partition(toy, Dirichlet(2, 1.0), dev_corpus=corpus([2], prefix="t"))
    with pytest.raises(DataError, match="both a test share and a dev corpus"):
        build_partition(toy, Natural(), test_share=0.1, dev_corpus=corpus([0], prefix="t"))


def test_official_clients_of_one_side_are_kept_and_noted():
    dev = corpus([0, 1], ["d0", "x"], prefix="t")
    partition = build_partition(corpus([0, 1], ["d0", "d1"]), Natural(), dev_corpus=dev)
    assert {c: (s.train, s.test) for c, s in partition.clients.items()} == {
        "d0": (("s0",), ("t0",)),
        "d1": (("s1",), ()),
        "x": ((), ("t1",)),
    }
    assert partition.notes == ("1 clients have test samples alone", "1 clients have no test samples")


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda v: v.update(format="x"), "is not a partition; write it with write_partition"),
        (lambda v: v.update(version=2), "is written in another version of the format; this program reads version 1"),
        (lambda v: v.update(version=True), "is written in another version of the format; this program reads version 1"),
        (lambda v: v.update(clients=[]), '"clients" is not an object; make it an object'),
        (lambda v: v.update(clients={}), "the partition has no clients; give it at least one"),
        (lambda v: v.pop("seed"), 'has no "seed"; add the key "seed"'),
        (lambda v: v["clients"]["d1"].update(train=[1], test=[]), 'client d1: an id in "train" is not a string; make'),
        (
            lambda v: v["clients"]["d1"].update(train=[], test=[]),
            "client number 2: has no samples; leave the client out",
        ),
        (lambda v: v["clients"]["d1"].update(train=["s0"]), "sample s0: is held by two clients; give every sample"),
        (lambda v: v["clients"]["d1"].update(test=["s1"]), "sample s1: is held twice by one client; give every sample"),
        (lambda v: v["clients"]["d1"].update(train=["s9"]), "sample s9: is not in the corpus; use the corpus and the"),
        (lambda v: v["clients"].pop("d1"), "sample s1: is held by no client, nor are 1 others; use the corpus and"),
    ],
)
def test_partition_files_are_checked(tmp_path, change, expected):
    toy = corpus([0, 1, 2])
    path = tmp_path / "p.json"
    write_partition(build_partition(toy, Natural()), path)
    value = json.loads(path.read_text())
    change(value)
    if "d1" not in value["clients"] and expected.startswith("sample s1"):
        value["clients"].pop("d2")
    path.write_text(json.dumps(value))
    assert refused(read_partition, path, toy).startswith(f"{path}: {expected}")


def test_label_counts():
    toy = corpus([0, 0, 1, 2, 2, 2], ["d0", "d0", "d0", "d1", "d1", "d1"])
    partition = build_partition(toy, Natural(), test_share=0.0)
    counts = label_counts(partition, toy)
    np.testing.assert_array_equal(counts.train, [[2, 1, 0], [0, 0, 3]])
    np.testing.assert_array_equal(counts.test, np.zeros((2, 3)))
    assert counts.rows()[0] == {"client": "d0", "train": 3, "test": 0, "classes": 2, "largest_share": 2 / 3}
    summary = counts.summary()
    # |(2/3,1/3,0) − (1/3,1/6,1/2)| / 2 = 1/2, and the same for the other client
    assert summary["label_skew"] == pytest.approx(0.5) and summary["classes"] == 1.5 and summary["median"] == 3
