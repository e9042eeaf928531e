import pytest
from datasets_for_tests import SECRET, message, refused

from datasets.errors import DataError
from datasets.partition import PARTITIONERS, build_partition, label_counts, read_partition, write_partition
from datasets.relations.records import RelationCorpus, RelationMention


def mention(number=1, label=0, text=SECRET, head=(0, 2), tail=(3, 5), names=("no_relation", "x"), **more):
    values = {"head_type": "drug", "tail_type": "effect", "relation": names[label], "label": label, **more}
    return RelationMention(f"d{number % 3}/{number}", f"d{number % 3}", text, head, tail, **values)


def test_a_mention_shows_no_text():
    one = mention()
    assert one.head_text == "宝宝" and one.tail_text == SECRET[3:5] and not one.overlapping
    assert "宝" not in repr(one) and "宝" not in repr(RelationCorpus("c", (one,), ("no_relation",)))


@pytest.mark.parametrize("head", [(2, 2), (3, 2), (-1, 2), (0, 9), (8, 9)])
def test_spans_lie_in_the_text(head):
    for spans in ({"head": head}, {"tail": head}):
        with pytest.raises(DataError) as caught:
            mention(**spans)
        assert "is empty or lies beyond the text of 8 characters" in message(caught.value)
        assert message(caught.value).startswith("mention d1/1: its ")


def test_types_are_told():
    assert "its tail has no type" in refused(mention, tail_type=" ")


@pytest.mark.parametrize(
    "mentions, options, expected",
    [
        ([], {}, "corpus c: has no mentions"),
        ([mention(), mention()], {}, "mention d1/1: duplicate id"),
        ([mention()], {"relation_names": ("a", "a")}, "corpus c: has a relation twice"),
        ([mention()], {"negative": "none"}, "corpus c: its negative is none of its relations"),
        ([mention(label=1)], {"relation_names": ("x",)}, "mention d1/1: its label 1 is not that of its relation"),
        ([mention(relation="x")], {}, "mention d1/1: its label 0 is not that of its relation"),
    ],
)
def test_what_is_no_corpus(mentions, options, expected):
    options = {"relation_names": ("no_relation", "x"), **options}
    assert refused(RelationCorpus, "c", tuple(mentions), **options).startswith(expected)


def test_positive_labels():
    one = mention()
    assert RelationCorpus("c", (one,), ("no_relation", "x", "y"), "no_relation").positive_labels == (1, 2)
    assert RelationCorpus("c", (one,), ("no_relation", "x")).positive_labels == (0, 1)


@pytest.mark.parametrize(
    "name, options",
    [
        ("dirichlet", {"num_clients": 4, "alpha": 0.5}),
        ("dirichlet", {"num_clients": 4, "alpha": 0.5, "unit": "document", "by": "relation"}),
        ("iid", {"num_clients": 3}),
        ("natural", {}),
        ("by_field", {"field": "relation"}),
    ],
)
def test_partitioners_take_it_as_it_is(name, options, tmp_path):
    corpus = RelationCorpus("c", tuple(mention(n, n % 2) for n in range(40)), ("no_relation", "x"), "no_relation")
    partition = build_partition(corpus, PARTITIONERS[name](**options), test_share=0.2)
    held = [i for c in partition.clients.values() for i in c.train + c.test]
    assert sorted(held) == sorted(m.sample_id for m in corpus.mentions)
    partition.check_against(corpus)
    write_partition(partition, tmp_path / "p.json")
    assert read_partition(tmp_path / "p.json") == partition
    assert label_counts(partition, corpus) is not None
