"""Entities that share characters: which stay, and that readers refuse them by default."""

from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.nesting import outermost, without_overlaps
from datasets.entities.records import EntitySpan


def span(text):
    start, end, name = text.split()
    return EntitySpan(int(start), int(end), name)


SPANS = st.builds(
    lambda start, length, name: EntitySpan(start, start + length, name),
    st.integers(0, 12),
    st.integers(1, 6),
    st.sampled_from("ab"),
)


def apart(first, second):
    return first.end <= second.start or second.end <= first.start


def test_the_longest_stay():
    spans = [span(text) for text in ("5 9 a", "0 9 b", "3 4 a", "9 11 a", "10 12 b", "20 22 b", "20 22 a")]
    taken = (span("0 9 b"), span("9 11 a"), span("20 22 b"))
    assert outermost(spans) == (taken, 4)
    assert without_overlaps(spans, "outermost", sample_id="s") == (taken, 4)
    assert outermost([]) == ((), 0)


@given(st.lists(SPANS, max_size=8))
def test_each_that_is_left_out_shares_characters_with_one_at_least_as_long(spans):
    taken, left_out = outermost(spans)
    assert len(taken) + left_out == len(spans) and list(taken) == sorted(taken)
    assert all(apart(a, b) for i, a in enumerate(taken) for b in taken[:i])
    for s in spans:
        longer = [t for t in taken if t.end - t.start >= s.end - s.start and not apart(s, t)]
        assert s in taken or longer
    if all(apart(a, b) for i, a in enumerate(spans) for b in spans[:i]):
        assert taken == tuple(sorted(spans)) == without_overlaps(spans, sample_id="s")[0]


def test_readers_refuse_them_by_default():
    spans = [span(text) for text in ("6 9 a", "0 4 b", "3 6 a")]
    assert refused(without_overlaps, spans, sample_id="d/1", path="file", line=7) == (
        "file: line 7: sample d/1: the entities 0:4 and 3:6 share characters; nested = 'outermost' keeps the longest"
    )
    assert without_overlaps(spans[:2], sample_id="d/1") == ((spans[1], spans[0]), 0)
    assert "nested must be one of 'refuse', 'outermost', got 'inner'" in refused(
        without_overlaps, [], "inner", sample_id="d"
    )
