"""Entities that overlap: which stay, and that readers refuse them by default."""

import functools
import itertools

from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.nesting import flat, outermost
from datasets.entities.records import EntitySpan
from datasets.errors import DataError

FAIL = functools.partial(DataError, path="file", line=7, record="sample d/1")


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
    assert outermost(spans) == flat(spans, "outermost", FAIL) == (taken, 4)
    assert outermost([]) == flat([], "refuse", FAIL) == ((), 0)


@given(st.lists(SPANS, max_size=8))
def test_each_that_is_left_out_overlaps_one_at_least_as_long(spans):
    taken, left_out = outermost(spans)
    assert len(taken) + left_out == len(spans) and list(taken) == sorted(taken)
    assert all(apart(a, b) for a, b in itertools.combinations(taken, 2))
    for s in spans:
        longer = [t for t in taken if t.end - t.start >= s.end - s.start and not apart(s, t)]
        assert s in taken or longer
    if all(apart(a, b) for a, b in itertools.combinations(spans, 2)):
        assert taken == tuple(sorted(spans)) == flat(spans, "refuse", FAIL)[0]
    else:
        assert "overlaps" in refused(flat, spans, "refuse", FAIL)


def test_the_message_names_the_sample_and_both_offsets():
    spans = [span(text) for text in ("6 9 a", "0 4 b", "3 6 a")]
    assert refused(flat, spans, "refuse", FAIL) == (
        "file: line 7: sample d/1: the entity 3:6 overlaps 0:4; keep one of them, or set nested = 'outermost' for the "
        "longest"
    )
    assert "nested is not a known choice; use one of refuse, outermost" in refused(flat, [], "inner", FAIL)
