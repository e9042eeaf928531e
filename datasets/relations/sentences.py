"""A small rule, without a model, for the sentences of a text with known mentions."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

from datasets.relations.reading import trimmed
from datasets.relations.records import Span

# A sentence ends at . ? or ! (and what closes after it), where blanks and a capital, a digit or a bracket follow.
_BOUNDARY = re.compile(r"[.?!][\"')\]]*(\s+)(?=[\"'(\[]*[^\W_a-z])")

# In any text: what ends a Chinese sentence, with what closes after it; and an empty line.
_PART = re.compile(r"[。！？｡]+[”’」』）】\"')\]]*(\s*)(?=\S)|(\n[^\S\n]*\n\s*)")

_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:[A-Z]|e\.g|i\.e|vs|al|cf|ca|approx|resp|Fig|Figs|No|Nos|Dr|St|sp|spp|subsp|var)\.$"
)


def split_sentences(text: str, mentions: Sequence[Span] = ()) -> list[Span]:
    """Return the sentences of a text as spans without the blanks around them.

    A full stop after a single capital or a common abbreviation ends nothing, nor does one inside of a mention (a
    span), with which annotators told that the sentence goes on.
    """
    result, start = [], 0
    for match in _BOUNDARY.finditer(text):
        end, following = match.start(1), match.end(1)
        if _ABBREVIATION.search(text, max(start, end - 12), end):
            continue
        if any(first < following and end < last for first, last in mentions):
            continue
        result.append((start, end))
        start = following
    result.append((start, len(text)))
    spans = (trimmed(text, span) for span in result)
    return [span for span in spans if span[0] < span[1]]


def sentences_of_document(text: str, title_length: int, mentions: Sequence[Span] = ()) -> list[Span]:
    """Return the sentences of a title and an abstract that one character separates, as spans in the whole text.

    No sentence goes on beyond the title's end. `mentions` are as for `split_sentences`, spans in the whole text.
    """
    start = title_length + 1
    after = split_sentences(text[start:], [(first - start, last - start) for first, last in mentions])
    return split_sentences(text[:title_length], mentions) + [(first + start, last + start) for first, last in after]


def sentences_of_text(text: str, mentions: Sequence[Span] = (), title_length: int | None = None) -> list[Span]:
    """Return the sentences of any text, English or Chinese, as spans without the blanks around them.

    As `split_sentences`; 。, ！ and ？ end a sentence too, and so does an empty line. No boundary cuts a mention.

    Args:
      text: Any text.
      mentions: Spans in it.
      title_length: Where a title ends that one character separates from the rest; None: there is no title.
    """
    if title_length is not None:
        start = title_length + 1
        after = sentences_of_text(text[start:], [(first - start, last - start) for first, last in mentions])
        return sentences_of_text(text[:title_length], mentions) + [(a + start, b + start) for a, b in after]
    mentions, parts, start, passed = sorted(mentions), [], 0, 0
    for match in _PART.finditer(text):
        end, following = match.span(match.lastindex)
        while passed < len(mentions) and mentions[passed][1] <= end:
            passed += 1
        beginning = bisect.bisect_left(mentions, (following,))
        if any(last > end for _, last in mentions[passed:beginning]):
            continue
        parts.append((start, end))
        start = following
    parts.append((start, len(text)))
    return [sentence for part in parts for sentence in _within(text, part, mentions)]


def _within(text: str, part: Span, mentions: Sequence[Span]) -> list[Span]:
    """Return the sentences of a part of the text, as spans in the text.

    `mentions` are sorted.
    """
    start, end = part
    inside = mentions[bisect.bisect_left(mentions, (start,)) : bisect.bisect_left(mentions, (end,))]
    spans = split_sentences(text[start:end], [(a - start, b - start) for a, b in inside])
    return [(a + start, b + start) for a, b in spans]
