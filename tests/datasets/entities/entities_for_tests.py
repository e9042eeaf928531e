"""Texts with entities, at random and by hand."""

import itertools

from hypothesis import strategies as st

from datasets.entities.records import EntityCorpus, EntitySample, EntitySpan, label_of

TYPES = ("Drug", "Disease")


def sample(sample_id, text, *spans, types=TYPES, document=None, more=None):
    """A text whose entities are (start, end, type) or EntitySpans."""
    spans = tuple(span if isinstance(span, EntitySpan) else EntitySpan(*span) for span in spans)
    return EntitySample(sample_id, document or sample_id, text, spans, label_of(spans, types), more or {})


def marked(sample_id, text, types=TYPES, **more):
    """A text written with its entities, `[Drug aspirin] helps`; brackets stand for nothing else."""
    plain, spans = "", []
    for number, part in enumerate(text.replace("]", "[").split("[")):
        if number % 2:
            name, _, part = part.partition(" ")
            spans.append((len(plain), len(plain) + len(part), name))
        plain += part
    return sample(sample_id, plain, *spans, types=types, **more)


def corpus(*samples, types=TYPES, name="toy"):
    return EntityCorpus(name, tuple(samples), types)


@st.composite
def tokens(draw, max_tokens=12):
    """Tokens with gaps between some of them, at least one."""
    ends = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=max_tokens))
    result, position = [], 0
    for gap, length in ends:
        result.append((position + gap, position + gap + length))
        position += gap + length
    return result


@st.composite
def tokens_and_spans(draw, types=TYPES):
    """Tokens, and spans that begin and end with tokens and share no character."""
    drawn = draw(tokens())
    borders = sorted(draw(st.sets(st.integers(0, len(drawn)))))
    spans = [
        EntitySpan(drawn[first][0], drawn[after - 1][1], draw(st.sampled_from(types)))
        for first, after in itertools.pairwise(borders)
        if draw(st.booleans())
    ]
    return drawn, spans
