"""Small relation extraction files, and mentions for the tests of layout and encoding."""

import json

from hypothesis import strategies as st

from datasets.relations.records import RelationMention


def write(path, *lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_objects(path, *values):
    return write(path, *(json.dumps(value, ensure_ascii=False) for value in values))


def mentions_of(corpus):
    """Ids, mentions and relations of a corpus."""
    return [(m.mention_id, m.head_text, m.tail_text, m.relation) for m in corpus.mentions]


def mention(text, head, tail, head_type="drug", tail_type="gene"):
    return RelationMention("m/1", "m", text, head, tail, head_type, tail_type, "x", 0)


@st.composite
def mentions(draw, alphabet="abcdeäé頭𝄞 -.\n", longest=40):
    text = draw(st.text(alphabet, min_size=1, max_size=longest))
    spans = []
    for _ in range(2):
        start = draw(st.integers(0, len(text) - 1))
        spans.append((start, draw(st.integers(start + 1, len(text)))))
    if draw(st.booleans()):
        spans[1] = spans[0]
    return mention(text, *spans)
