import json
from collections import Counter

import numpy as np
import pytest
from datasets_for_tests import corpus, refused
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.partition import (
    ByField,
    Dirichlet,
    Iid,
    Natural,
    Quantity,
    Shards,
    build_partition,
    hold_out,
    label_counts,
    read_partition,
    write_partition,
)
from datasets.partition.split import draw_server_samples
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
    st.builds(
        Dirichlet,
        *(st.integers(1, 4), st.sampled_from([1.0, 100.0]), st.just("sample"), st.sampled_from(["label", "ward"])),
        *(st.integers(0, 1), st.booleans()),
    ),
    st.builds(Shards, st.integers(1, 2), st.integers(1, 2), st.just("sample"), st.sampled_from(["label", "ward"])),
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


def assigned(rule, samples, seed=0):
    rng = generator(seed)
    return rule.apply(rule.draw(samples, rng), samples, rng)


def ids_of(partition):
    return [i for c in partition.clients.values() for i in c.train + c.test]


@given(corpora(), partitioners, st.integers(0, 2**40), st.sampled_from([0.0, 0.1, 0.5, 0.99]))
def test_every_sample_goes_to_one_client(toy, partitioner, seed, share):
    partition = build_partition(toy, partitioner, seed=seed, test_share=share)
    assert Counter(ids_of(partition)) == Counter(s.sample_id for s in toy.samples)
    assert partition == build_partition(toy, partitioner, seed=seed, test_share=share)
    sizes = [len(client.train) + len(client.test) for client in partition.clients.values()]
    for client, n in zip(partition.clients.values(), sizes, strict=True):
        assert len(client.test) == (0 if n == 1 or share == 0 else min(n - 1, max(1, round(share * n))))
    assert not isinstance(partitioner, Iid) or max(sizes) - min(sizes) <= 1
    smallest = min(sizes) if len(sizes) == getattr(partitioner, "num_clients", len(sizes)) else 0
    assert smallest >= getattr(partitioner, "min_size", 0)
    left_out = getattr(partitioner, "num_clients", len(sizes)) - len(sizes)
    assert bool(left_out) == any("got no sample and are left out" in note for note in partition.notes)
    if getattr(partitioner, "unit", "") == "document":
        client_of = {i: k for k, client in enumerate(partition.clients.values()) for i in client.train + client.test}
        assert len({(s.document_id, client_of[s.sample_id]) for s in toy.samples}) == len(
            {s.document_id for s in toy.samples}
        )


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
@given(corpora(), partitioners, st.sampled_from([0, 0.2]))
def test_partitions_are_read_as_they_were_written(tmp_path_factory, toy, partitioner, share):
    path = tmp_path_factory.mktemp("p") / "partition.json"
    try:
        partition = build_partition(toy, partitioner, server_share=share)
    except DataError:  # a class that the server would have no sample of, or too few samples
        assume(False)
    write_partition(partition, path)
    assert ("server" in json.loads(path.read_text("utf-8"))) == bool(share), "files without are as they were"
    back = read_partition(path, toy)
    assert back == partition and list(back.clients) == list(partition.clients)
    assert b"text" not in path.read_bytes()


def test_numbers_stay_the_same_from_release_to_release():
    partition = build_partition(corpus([0, 1, 2] * 4), Dirichlet(3, 0.5), seed=0)
    assert {c: (" ".join(s.train), " ".join(s.test)) for c, s in partition.clients.items()} == {
        "client-0": ("s3 s4 s8", "s1"),
        "client-1": ("s2 s6 s9 s11", "s7"),
        "client-2": ("s5 s10", "s0"),
    }


def test_natural_and_by_field_clients():
    toy = corpus([0, 1, 0], ["d1", "d0", "d1"], [{"ward": "x"}, {"ward": "y"}, {"ward": "y"}])
    assert assigned(Natural(), toy.samples, 0) == {"d1": [0, 2], "d0": [1]}
    assert assigned(ByField("ward"), toy.samples, 0) == {"x": [0], "y": [1, 2]}


def test_dirichlet_follows_the_shares_drawn():
    toy = corpus([0] * 100 + [1] * 50)
    rule = Dirichlet(3, 0.5)
    drawn = rule.draw(toy.samples, generator(5))
    clients = rule.apply(drawn, toy.samples, generator(6))
    for label, n in ((0, 100), (1, 50)):
        counts = [sum(toy.samples[i].label == label for i in indices) for indices in clients.values()]
        exact = np.cumsum(drawn[label]) * n
        assert np.all(np.abs(np.cumsum(counts) - exact) < 1) and sum(counts) == n


def counts_of(assigned_samples, samples):
    """int [K, C]: what each client has of the classes 0, 1, 2."""
    return np.array(
        [[sum(samples[i].label == c for i in indices) for c in range(3)] for indices in assigned_samples.values()]
    )


@given(
    st.tuples(*[st.integers(0, 60)] * 3).filter(lambda sizes: sum(sizes) >= 20),
    st.integers(2, 5),
    st.sampled_from([0.05, 0.5, 5.0]),
    st.integers(0, 999),
)
def test_the_rule_of_moon(sizes, num_clients, alpha, seed):
    """Class after class: who has N/K or more gets nothing of it, the others as their shares are; all have min_size."""
    samples = corpus([c for c, n in enumerate(sizes) for _ in range(n)]).samples
    rule = Dirichlet(num_clients, alpha, min_size=2, capped=True)
    drawn = rule.draw(samples, generator(seed))
    counts = counts_of(rule.apply(drawn, samples, generator(1)), samples)
    assert counts.sum(axis=1).min() >= 2 and tuple(counts.sum(axis=0)) == sizes
    held = np.zeros(num_clients)
    for c in range(3):
        full = held >= sum(sizes) / num_clients
        assert not counts[full, c].any() and (c not in drawn or not drawn[c][full].any())
        held += counts[:, c]
    # Whoever went over N/K did so with one class, the last that it got.
    assert (held - counts.max(axis=1) < sum(sizes) / num_clients).all()


def test_moons_rule_keeps_the_largest_client_small():
    """300 samples of three classes, five clients."""
    samples = corpus([i % 3 for i in range(300)]).samples
    plain, moon = (
        np.mean([max(map(len, assigned(rule, samples, seed).values())) for seed in range(10)])
        for rule in (Dirichlet(5, 0.1), Dirichlet(5, 0.1, min_size=10, capped=True))
    )
    assert plain > 1.1 * moon


def test_shares_are_drawn_again_until_all_have_enough():
    samples = corpus([i % 3 for i in range(60)]).samples
    plain = [min(map(len, assigned(Dirichlet(4, 0.3), samples, seed).values())) for seed in range(20)]
    enough = [min(map(len, assigned(Dirichlet(4, 0.3, min_size=8), samples, seed).values())) for seed in range(20)]
    assert min(plain) < 8 <= min(enough)
    # Where the first draw is enough it is the one taken.
    lucky = plain.index(max(plain))
    with_minimum = assigned(Dirichlet(4, 0.3, min_size=max(plain)), samples, lucky)
    assert with_minimum == assigned(Dirichlet(4, 0.3), samples, lucky)


def test_documents_count_as_one():
    samples = corpus([0, 0, 1, 1, 2, 2, 0, 1], [f"d{i // 2}" for i in range(8)]).samples
    clients = assigned(Dirichlet(2, 0.5, "document", min_size=2), samples)
    assert all(
        len({samples[i].document_id for i in indices}) == 2 and len(indices) == 4 for indices in clients.values()
    )


@given(
    st.tuples(*[st.integers(0, 60)] * 3).filter(lambda sizes: sum(sizes) >= 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 999),
)
def test_shards(sizes, num_clients, per_client, seed):
    """K * S runs of the samples sorted by class, of equal size to within one; a border of two classes adds a class."""
    samples = corpus([c for c, n in enumerate(sizes) for _ in range(n)]).samples
    rule = Shards(num_clients, per_client)
    counts = counts_of(assigned(rule, samples, seed), samples)
    shards, classes = num_clients * per_client, sum(n > 0 for n in sizes)
    size = sum(sizes) / shards
    assert tuple(counts.sum(axis=0)) == sizes
    assert (np.abs(counts.sum(axis=1) - per_client * size) < per_client).all()
    assert np.count_nonzero(counts) <= shards + classes - 1


def test_shards_in_order():
    """24 samples in 6 shards of 4: class 0 has two and a half of them, the next shard lies in two classes."""
    samples = corpus([0] * 10 + [1] * 6 + [2] * 8).samples
    counts = counts_of(assigned(Shards(3), samples), samples)
    assert (counts.sum(axis=1) == 8).all() and (counts % 2 == 0).all()
    assert sorted(np.count_nonzero(counts % 4, axis=1)) == [0, 0, 2]


def test_a_dev_corpus_is_given_out_in_the_shares_of_the_shards():
    toy = corpus([0] * 40 + [1] * 40)
    dev = corpus([0] * 20 + [1] * 20, prefix="t")
    partition = build_partition(toy, Shards(4, 1), dev_corpus=dev, seed=3)
    labels = {s.sample_id: s.label for s in (*toy.samples, *dev.samples)}
    for client in partition.clients.values():
        assert len(client.train) == 20 and len(client.test) == 10
        assert {labels[i] for i in client.train} == {labels[i] for i in client.test}


def test_alpha_sets_the_skew():
    toy = corpus([i % 3 for i in range(600)])
    for partitioner in (Iid(5), Dirichlet(5, 0.5), Quantity(5, 0.5)):
        assert build_partition(toy, partitioner, seed=0) != build_partition(toy, partitioner, seed=1)
    sizes = [len(i) for i in assigned(Quantity(10, 0.05), toy.samples).values()]
    assert max(sizes) > 120
    skew = [
        label_counts(build_partition(toy, Dirichlet(10, alpha)), toy).summary()["label_skew"]
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert skew[0] > 0.4 > skew[1] > 0.1 > skew[2]


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
    "partitioner, options, expected",
    [
        (Iid(4), {}, "4 clients cannot share 3 samples; use at most 3 clients"),
        (Quantity(2, 1.0, 2), {}, "2 clients with 2 samples each cannot share 3 samples; use fewer clients or"),
        (Shards(2, 2), {}, "2 clients with 2 samples each cannot share 3 samples; use fewer clients or"),
        (Dirichlet(2, 1.0, min_size=2), {}, "2 clients with 2 samples each cannot share 3 samples; use fewer clients"),
        (Dirichlet(3, 0.01, by="ward", min_size=1), {}, "20 draws did not give each of 3 clients 1 samples; use fewer"),
        (ByField("wards"), {}, "field wards: there is no such field; did you mean 'ward'?"),
        (Dirichlet(2, 1.0, by="diagnosis"), {}, "field diagnosis: there is no such field; valid: "),
        (Natural(), {"test_share": 1.0}, "the test share is not a number of at least 0 and below 1; use e.g. 0.1"),
        (Natural(), {"test_unit": "word"}, "unit must be one of 'sample', 'document', got 'word'"),
        (Natural(), {"seed": -1}, "the seed is not a whole number of zero or more; use e.g. 0"),
    ],
)
def test_impossible_partitions(partitioner, options, expected, monkeypatch):
    monkeypatch.setattr("datasets.partition.dirichlet.MOST_DRAWS", 20)
    some = corpus([0, 1], fields=[{"ward": "x"}, {}])
    assert refused(build_partition, some, ByField("ward")).startswith("sample s1: has no ward")
    toy = corpus([0, 1, 2], fields=[{"ward": "x"}] * 3)
    assert refused(build_partition, toy, partitioner, **options).startswith(expected)


def test_impossible_options():
    for make, *wrong in (
        *((Dirichlet, 0, 1.0), (Dirichlet, 3, 0.0), (Dirichlet, 3, float("inf")), (Dirichlet, 3, 1.0, "word")),
        *((Dirichlet, 3, 1.0, "sample", "label", -1), (Dirichlet, 3, 1.0, "sample", "label", 0, "yes"), (Shards, 2, 0)),
        *((Quantity, 2, -1.0), (Quantity, 2, 1.0, -1), (Iid, True)),
    ):
        assert " must be " in refused(make, *wrong)


def test_dev_corpora_that_do_not_fit():
    toy = corpus([0, 1, 1])
    for dev, expected in (
        (corpus([0], names=("a", "b", "z"), prefix="t"), "dev corpus toy: 1 of its classes never occur in the"),
        (corpus([0], names=("b", "a", "c"), prefix="t"), "dev corpus toy: its classes are in another order"),
        (corpus([0]), "dev corpus toy: 1 samples are in the training corpus as well; use disjoint splits"),
    ):
        assert refused(build_partition, toy, Natural(), dev_corpus=dev).startswith(expected)
    dev = corpus([2], prefix="t")
    assert "both a test share and a dev corpus" in refused(
        build_partition, toy, Natural(), test_share=0, dev_corpus=dev
    )


def test_official_clients_of_one_side_are_kept_and_noted():
    dev = corpus([0, 1], ["d0", "x"], prefix="t")
    partition = build_partition(corpus([0, 1], ["d0", "d1"]), Natural(), dev_corpus=dev)
    assert {c: (s.train, s.test) for c, s in partition.clients.items()} == {
        "d0": (("s0",), ("t0",)),
        "d1": (("s1",), ()),
        "x": ((), ("t1",)),
    }
    assert partition.notes == ("1 clients have only test samples", "1 clients have no test samples")


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda v: v.update(format="x"), "is not a partition; write it with write_partition"),
        (lambda v: v.update(version=2), "is written in another version of the format; this program reads version 1"),
        (lambda v: v.update(version=True), "is written in another version of the format; this program reads version 1"),
        (lambda v: v.update(clients=[]), '"clients" is not an object; make it an object'),
        (lambda v: v.update(clients={}), "the partition has no clients; give it at least one"),
        (lambda v: v.pop("seed"), 'has no "seed"; add the key "seed"'),
        (lambda v: v["clients"]["d1"].update(train=[1], test=[]), 'client d1: an item of "train" is not a string; '),
        (lambda v: v["clients"]["d1"].update(train=[], test=[]), "client number 2: has no samples; leave the client"),
        (lambda v: v["clients"]["d1"].update(train=["s0"]), "sample s0: is held by two clients; give every sample"),
        (lambda v: v["clients"]["d1"].update(test=["s1"]), "sample s1: is held twice by one client; give every sample"),
        (lambda v: v["clients"]["d1"].update(train=["s9"]), "sample s9: is not in the corpus; use the corpus and the"),
        (lambda v: v["clients"].pop("d1"), "sample s1: is not held by any client; use the corpus and the label choice"),
        (lambda v: v.update(server=["s1"]), "sample s1: is held by the server and a client; give every"),
        (lambda v: v.update(server=["s9", "s9"]), "the server holds a sample twice"),
        (lambda v: v.update(server=["s9"]), "sample s9: is not in the corpus"),
    ],
)
def test_partition_files_are_checked(tmp_path, change, expected):
    toy = corpus([0, 1, 2])
    path = tmp_path / "p.json"
    write_partition(build_partition(toy, Natural()), path)
    value = json.loads(path.read_text())
    change(value)
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


# What the server holds.


@given(
    st.lists(st.integers(0, 2), min_size=4, max_size=60),
    st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_no_client_has_what_the_server_has(labels, share, seed, stratified):
    samples, options = corpus(labels), {"seed": seed, "server_share": share, "server_stratified": stratified}
    try:
        partition = build_partition(samples, Dirichlet(3, 1.0), **options)
    except DataError as error:
        chosen_all = {c for c in labels if labels.count(c) > 1} if stratified else set()
        assert "the server has no example of class" in str(error) and chosen_all != set(labels)
        return
    at_clients = [i for c in partition.clients.values() for i in c.train + c.test]
    assert sorted([*at_clients, *partition.server]) == sorted(s.sample_id for s in samples.samples)
    assert partition == build_partition(samples, Dirichlet(3, 1.0), **options)
    assert partition.options["server_share"] == share
    assert f"the server holds {len(partition.server)} of {len(labels)} training samples" in partition.notes[-1]


@given(st.integers(2, 400), st.sampled_from([0.01, 0.2, 0.5, 0.99]), st.integers(0, 9))
def test_the_share_is_rounded_and_leaves_one_on_each_side(count, share, seed):
    ids = draw_server_samples(corpus([0] * count).samples, share, seed=seed)
    assert len(ids) == min(count - 1, max(1, round(share * count)))
    assert ids == tuple(sorted(set(ids), key=lambda i: int(i[1:]))), "in the order of the samples"


@given(st.lists(st.integers(2, 40), min_size=1, max_size=3), st.sampled_from([0.05, 0.2, 0.6]), st.integers(0, 9))
def test_stratified_classes_are_in_proportion(sizes, share, seed):
    labels = [c for c, size in enumerate(sizes) for _ in range(size)]
    samples = corpus(labels).samples
    chosen = set(draw_server_samples(samples, share, seed=seed, stratified=True))
    for c, size in enumerate(sizes):
        count = sum(s.label == c and s.sample_id in chosen for s in samples)
        assert 1 <= count < size or size == 1
        assert abs(count - share * size) <= 1.5


@pytest.mark.parametrize(
    ("labels", "options", "complaint"),
    [
        ([0], {}, "need at least two training samples"),
        *(([0, 1, 0], {"share": share}, "the test share is not") for share in (-0.1, 1.0, True, "0.2")),
        ([0] * 30 + [1], {"stratified": True}, 'no example of class "rare"; leave the class out'),
        ([0] * 300 + [1] * 2, {}, 'no example of class "rare"; set server_stratified = true'),
    ],
)
def test_what_the_server_cannot_have(labels, options, complaint):
    with pytest.raises(DataError, match=complaint):
        options = {"share": 0.1, "label_names": ("common", "rare", "never"), **options}
        draw_server_samples(corpus(labels).samples, seed=0, **options)
