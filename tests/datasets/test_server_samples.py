"""Samples that the server holds: how many, of which classes, and that no client has them."""

import json

import pytest
from datasets_for_tests import corpus, refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.partition import (
    ClientSamples,
    Dirichlet,
    Partition,
    build_partition,
    read_partition,
    write_partition,
)
from datasets.partition.split import draw_server_samples

labels_of_many = st.lists(st.integers(0, 2), min_size=4, max_size=60)
RULE = Dirichlet(3, 1.0)  # a client may go without


def toy(labels):
    return corpus(labels, [f"d{i}" for i in range(len(labels))], [{"ward": "w"}] * len(labels))


@given(labels_of_many, st.sampled_from([0.05, 0.2, 0.5, 0.9]), st.integers(0, 2**40), st.booleans())
def test_no_client_has_what_the_server_has(labels, share, seed, stratified):
    samples = toy(labels)
    try:
        partition = build_partition(
            samples, RULE, seed=seed, test_share=0.2, server_share=share, server_stratified=stratified
        )
    except DataError as error:
        chosen_all = {c for c in labels if labels.count(c) > 1} if stratified else set()
        assert "the server's examples have none of class" in str(error) and chosen_all != set(labels)
        return
    at_clients = [i for c in partition.clients.values() for i in c.train + c.test]
    assert sorted([*at_clients, *partition.server]) == sorted(s.sample_id for s in samples.samples)
    again = build_partition(samples, RULE, seed=seed, test_share=0.2, server_share=share, server_stratified=stratified)
    assert partition == again
    assert partition.options["server_share"] == share
    assert f"the server holds {len(partition.server)} of {len(labels)} training samples" in partition.notes[-1]


@given(st.integers(2, 400), st.sampled_from([0.01, 0.2, 0.5, 0.99]), st.integers(0, 9))
def test_the_share_is_rounded_and_leaves_one_on_each_side(count, share, seed):
    ids = draw_server_samples(toy([0] * count).samples, share, seed=seed)
    assert len(ids) == min(count - 1, max(1, round(share * count)))
    assert ids == tuple(sorted(set(ids), key=lambda i: int(i[1:]))), "in the order of the samples"


@given(st.lists(st.integers(2, 40), min_size=1, max_size=3), st.sampled_from([0.05, 0.2, 0.6]), st.integers(0, 9))
def test_stratified_classes_are_in_proportion(sizes, share, seed):
    labels = [c for c, size in enumerate(sizes) for _ in range(size)]
    samples = corpus(labels, [f"d{i}" for i in range(len(labels))], [{}] * len(labels)).samples
    chosen = set(draw_server_samples(samples, share, seed=seed, stratified=True))
    for c, size in enumerate(sizes):
        found = sum(s.label == c and s.sample_id in chosen for s in samples)
        assert 1 <= found < size or size == 1
        assert abs(found - share * size) <= 1.5


@pytest.mark.parametrize(
    ("labels", "options", "complaint"),
    [
        ([0], {}, "need two training samples"),
        *(([0, 1, 0], {"share": share}, "the test share is not") for share in (-0.1, 1.0, True, "0.2")),
        ([0] * 30 + [1], {"stratified": True}, 'none of class "rare"; leave the class out'),
        ([0] * 300 + [1] * 2, {}, 'none of class "rare"; set server_stratified = true'),
    ],
)
def test_what_the_server_cannot_have(labels, options, complaint):
    with pytest.raises(DataError, match=complaint):
        options = {"share": 0.1, "label_names": ("common", "rare", "never"), **options}
        draw_server_samples(toy(labels).samples, seed=0, **options)


def a_partition(**changes):
    clients = {"a": ClientSamples(("s1",), ("s2",)), "b": ClientSamples(("s3",), ())}
    return Partition(
        **{"partitioner": "iid", "options": {}, "seed": 1, "clients": clients, "server": ("s0",)} | changes
    )


def test_a_sample_at_the_server_and_at_a_client_is_refused():
    assert "is held by the server and a client" in refused(a_partition, server=("s0", "s3"))
    assert "the server holds a sample twice" in refused(a_partition, server=("s0", "s0"))


def test_files_name_the_servers_samples(tmp_path):
    path = tmp_path / "p.json"
    write_partition(a_partition(), path)
    assert json.loads(path.read_text("utf-8"))["server"] == ["s0"]
    assert read_partition(path) == a_partition()
    write_partition(a_partition(server=()), path)
    assert "server" not in json.loads(path.read_text("utf-8")), "files without are as they were"
    assert read_partition(path) == a_partition(server=())
