import functools
import itertools

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.nesting import flat
from datasets.entities.records import EntitySpan
from datasets.errors import DataError

FAIL = functools.partial(DataError, path="f", line=3)
SPANS = st.lists(
    st.builds(
        lambda start, length, kind: EntitySpan(start, start + length, kind),
        *(st.integers(0, 9), st.integers(1, 9), st.sampled_from("ab")),
    ),
    max_size=8,
)


def spans(*places):
    return [EntitySpan(*place) for place in places]


@pytest.mark.parametrize(
    "nested_spans, outermost, left_out",
    [
        ([], [], 0),
        (spans((3, 5, "b"), (0, 3, "a")), spans((0, 3, "a"), (3, 5, "b")), 0),
        (spans((0, 4, "a"), (0, 9, "b"), (5, 9, "a")), spans((0, 9, "b")), 2),
        (spans((4, 8, "a"), (0, 4, "a"), (2, 6, "b")), spans((0, 4, "a"), (4, 8, "a")), 1),
        (spans((2, 4, "b"), (2, 4, "a")), spans((2, 4, "b")), 1),
        (spans((0, 3, "a"), (2, 7, "a"), (6, 8, "a"), (9, 10, "a")), spans((2, 7, "a"), (9, 10, "a")), 2),
    ],
)
def test_the_longest_of_overlapping_entities_stay(nested_spans, outermost, left_out):
    assert flat(nested_spans, "outermost", FAIL) == (tuple(outermost), left_out)


def test_an_overlap_is_refused_by_its_offsets():
    message = refused(flat, spans((5, 8, "a"), (0, 3, "a"), (7, 9, "b")), "refuse", FAIL)
    assert message == (
        "f: line 3: the entity 7:9 overlaps 5:8; keep one of them, or set nested = 'outermost' for the longest"
    )
    assert "use one of refuse, outermost" in refused(flat, [], "innermost", FAIL)


@given(SPANS)
def test_what_stays_is_flat_and_what_goes_overlaps_something_that_is_as_long(drawn):
    result, left_out = flat(drawn, "outermost", FAIL)
    assert len(result) + left_out == len(drawn) and set(result) <= set(drawn)
    assert all(before.end <= span.start for before, span in itertools.pairwise(result))
    for span in set(drawn) - set(result):
        assert any(
            s.start < span.end and span.start < s.end and s.end - s.start >= span.end - span.start for s in result
        )
    overlap = any(a.start < b.end and b.start < a.end for a, b in itertools.combinations(drawn, 2))
    if overlap:
        assert "overlaps" in refused(flat, drawn, "refuse", FAIL)
    else:
        assert flat(drawn, "refuse", FAIL) == (result, 0) == (tuple(sorted(drawn)), 0)
