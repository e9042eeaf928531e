"""Mentions for the tests of layout and encoding."""

from hypothesis import strategies as st

from datasets.relations.records import RelationMention

LETTERS = "abcdeäé頭𝄞"


def mention(text, head, tail, head_type="drug", tail_type="gene"):
    return RelationMention("m/1", "m", text, head, tail, head_type, tail_type, "x", 0)


@st.composite
def mentions(draw, alphabet=LETTERS + " -.\n", longest=40):
    text = draw(st.text(alphabet, min_size=1, max_size=longest))
    spans = []
    for _ in range(2):
        start = draw(st.integers(0, len(text) - 1))
        spans.append((start, draw(st.integers(start + 1, len(text)))))
    if draw(st.booleans()):
        spans[1] = spans[0]
    return mention(text, *spans)
