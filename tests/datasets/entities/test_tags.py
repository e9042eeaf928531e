"""Tags of spans and spans of tags: the round trip, the decoder against seqeval's, what is refused."""

import hashlib
import itertools
import json

import pytest
from datasets_for_tests import refused
from entities_for_tests import TYPES, tokens, tokens_and_spans
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.records import EntitySpan
from datasets.entities.tags import SCHEMES, spans_of, tag_names, tags_of


def spans_of_names(names, scheme, types=TYPES):
    """(type, first token, last token), as seqeval's `get_entities` gives them."""
    known = tag_names(types, scheme)
    cells = [(index, index + 1) for index in range(len(names))]
    spans = spans_of([known.index(name) for name in names], cells, types, scheme)
    return [(span.type, span.start, span.end - 1) for span in spans]


def test_names():
    assert tag_names(TYPES) == ("O", "B-Drug", "I-Drug", "B-Disease", "I-Disease")
    assert tag_names(("x-y",), "BIOES") == ("O", "B-x-y", "I-x-y", "E-x-y", "S-x-y")
    assert refused(tag_names, TYPES, "IOB") == "scheme must be one of 'BIO', 'BIOES', got 'IOB'"
    for types in ((), ("a", "a"), ("",)):
        assert refused(tag_names, types).startswith("there are no entity types, or one is empty or a duplicate")


def test_tags_by_hand():
    """Aspirin | causes | stomach | bleeding | . — and a span that ends inside of a token."""
    cells = [(0, 7), (8, 14), (15, 22), (23, 31), (31, 32)]
    drug, disease, inside = EntitySpan(0, 7, "Drug"), EntitySpan(15, 31, "Disease"), EntitySpan(8, 13, "Drug")
    assert tags_of([drug, inside, disease], cells, TYPES) == ([1, 0, 3, 4, 0], (inside,))
    assert tags_of([drug, disease], cells, TYPES, "BIOES") == ([4, 0, 5, 7, 0], ())
    assert tags_of([EntitySpan(23, 40, "Drug")], cells, TYPES) == ([0] * 5, (EntitySpan(23, 40, "Drug"),)), "cut off"
    assert tags_of([], [], TYPES) == ([], ()) and spans_of([], [], TYPES) == ()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tokens_and_spans())
def test_spans_at_the_borders_of_tokens_come_back(scheme, drawn):
    cells, spans = drawn
    tags, unrepresented = tags_of(spans, cells, TYPES, scheme)
    assert unrepresented == () and spans_of(tags, cells, TYPES, scheme) == tuple(spans)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tokens_and_spans(), st.data())
def test_spans_inside_of_tokens_are_left_out_and_the_others_come_back(scheme, drawn, data):
    cells, spans = drawn
    moved = [
        EntitySpan(s.start, s.end - 1, s.type)
        if s.end - s.start > 1 and not any(end == s.end - 1 for _, end in cells) and data.draw(st.booleans())
        else s
        for s in spans
    ]
    tags, unrepresented = tags_of(moved, cells, TYPES, scheme)
    assert unrepresented == tuple(span for span, before in zip(moved, spans, strict=True) if span != before)
    assert spans_of(tags, cells, TYPES, scheme) == tuple(span for span in moved if span not in unrepresented)


WORKED = {
    "BIO": {
        "O I-Drug I-Drug O": [("Drug", 1, 2)],
        "B-Drug B-Drug I-Drug": [("Drug", 0, 0), ("Drug", 1, 2)],
        "B-Drug I-Disease I-Drug": [("Drug", 0, 0), ("Disease", 1, 1), ("Drug", 2, 2)],
        "I-Drug B-Disease I-Disease": [("Drug", 0, 0), ("Disease", 1, 2)],
        "O O": [],
    },
    "BIOES": {
        "B-Drug I-Drug E-Drug S-Drug": [("Drug", 0, 2), ("Drug", 3, 3)],
        "E-Drug E-Drug I-Drug": [("Drug", 0, 0), ("Drug", 1, 1), ("Drug", 2, 2)],
        "S-Drug I-Drug E-Drug": [("Drug", 0, 0), ("Drug", 1, 2)],
        "B-Drug E-Disease O I-Drug": [("Drug", 0, 0), ("Disease", 1, 1), ("Drug", 3, 3)],
        "B-Drug S-Drug I-Drug": [("Drug", 0, 0), ("Drug", 1, 1), ("Drug", 2, 2)],
        "B-Drug I-Drug": [("Drug", 0, 1)],
    },
}
"""What seqeval 1.2.2's `get_entities` finds in tags that no scheme forbids it to read."""

DIGESTS = {
    "BIO": "18bcfdc68bfe8a5830ef1026212adba424bc0ae5f3e53324c72cd3a200b3487e",
    "BIOES": "a87e92b5e475435aa1b5088b58c0981db2aa52f90450dd944d46f94656fa7f78",
}
"""Of what it finds in every sequence of four tags of two types."""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_decoder_is_seqevals(scheme):
    for tags, expected in WORKED[scheme].items():
        assert spans_of_names(tags.split(), scheme) == expected, tags
    sequences = itertools.product(tag_names(TYPES, scheme), repeat=4)
    decoded = json.dumps([spans_of_names(names, scheme) for names in sequences])
    assert hashlib.sha256(decoded.encode()).hexdigest() == DIGESTS[scheme]


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.data())
def test_the_decoder_is_seqevals_at_random(scheme, data):
    """Runs where seqeval is installed; the project does not need it."""
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    names = data.draw(st.lists(st.sampled_from(tag_names((*TYPES, "Gene"), scheme)), max_size=20))
    assert spans_of_names(names, scheme, (*TYPES, "Gene")) == seqeval.get_entities(names)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tokens(), st.data())
def test_any_tags_are_spans_that_share_no_character(scheme, cells, data):
    tag = st.integers(0, len(tag_names(TYPES, scheme)) - 1)
    spans = spans_of(data.draw(st.lists(tag, min_size=len(cells), max_size=len(cells))), cells, TYPES, scheme)
    assert all(first.end <= second.start for first, second in itertools.pairwise(spans))
    tags, unrepresented = tags_of(spans, cells, TYPES, scheme)
    assert not unrepresented and spans_of(tags, cells, TYPES, scheme) == spans


def test_what_is_refused():
    reason = "the entity 0:1 has a type that is not one of Drug, Disease; add its type to entity_types"
    assert refused(tags_of, [EntitySpan(0, 1, "Gene")], [(0, 1)], TYPES) == reason
    assert refused(spans_of, [0], [], TYPES) == "there are 1 tags of 0 tokens; give one tag for each token"
    for tag in (-1, 5):
        reason = f"the tag {tag} is not from 0 to 4; leave out what is not a token"
        assert refused(spans_of, [tag], [(0, 1)], TYPES) == reason
