import pytest
from datasets_for_tests import SECRET, refused

from datasets.partition import PARTITIONERS, build_partition, label_counts, read_partition, write_partition
from datasets.relations.records import RelationCorpus, RelationMention


def mention(number=1, label=0, text=SECRET, head=(0, 2), tail=(3, 5), names=("no_relation", "x"), **more):
    values = {"head_type": "drug", "tail_type": "effect", "relation": names[label], "label": label, **more}
    return RelationMention(f"d{number % 3}/{number}", f"d{number % 3}", text, head, tail, **values)


def test_a_mention_shows_no_text():
    sample = mention()
    assert sample.head_text == "宝宝" and sample.tail_text == SECRET[3:5] and not sample.overlapping
    assert "宝" not in repr(sample) and "宝" not in repr(RelationCorpus("c", (sample,), ("no_relation",)))


@pytest.mark.parametrize("span", [(2, 2), (3, 2), (-1, 2), (0, 9), (8, 9)])
def test_spans_lie_in_the_text(span):
    for which in ("head", "tail"):
        text = refused(mention, **{which: span})
        assert text.startswith(f"mention d1/1: its {which} {span[0]}:{span[1]} is empty or lies beyond the text of 8")
    assert "its tail has no type" in refused(mention, tail_type=" ")


@pytest.mark.parametrize(
    "mentions, options, expected",
    [
        ([], {}, "corpus c: has no mentions"),
        ([mention(), mention()], {}, "mention d1/1: duplicate id"),
        ([mention()], {"relation_names": ("a", "a")}, "corpus c: has a relation twice"),
        ([mention()], {"negative": "none"}, "corpus c: its negative is not one of its relations"),
        ([mention(label=1)], {"relation_names": ("x",)}, "mention d1/1: its label 1 is not that of its relation"),
        ([mention(relation="x")], {}, "mention d1/1: its label 0 is not that of its relation"),
    ],
)
def test_what_is_no_corpus(mentions, options, expected):
    options = {"relation_names": ("no_relation", "x"), **options}
    assert refused(RelationCorpus, "c", tuple(mentions), **options).startswith(expected)


def test_partitioners_take_it_as_it_is(tmp_path):
    corpus = RelationCorpus("c", tuple(mention(n, n % 2) for n in range(40)), ("no_relation", "x"), "no_relation")
    assert corpus.positive_labels == (1,)
    assert RelationCorpus("c", corpus.mentions, corpus.relation_names).positive_labels == (0, 1)
    dirichlet = {"num_clients": 4, "alpha": 0.5, "unit": "document", "by": "relation"}
    for name, options in (("dirichlet", dirichlet), ("natural", {}), ("by_field", {"field": "relation"})):
        partition = build_partition(corpus, PARTITIONERS[name](**options), test_share=0.2)
        partition.check_against(corpus)
        write_partition(partition, tmp_path / "p.json")
        assert read_partition(tmp_path / "p.json") == partition
        assert label_counts(partition, corpus) is not None
