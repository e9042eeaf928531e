"""Sentences of an abstract whose mentions are annotated in the document: a small rule, no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datasets.relations.reading import trimmed
from datasets.relations.records import Span

# A sentence ends at . ? or ! (and what closes after it), where blanks and a capital, a digit or a bracket follow.
_BOUNDARY = re.compile(r"[.?!][\"')\]]*(\s+)(?=[\"'(\[]*[^\W_a-z])")

_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:[A-Z]|e\.g|i\.e|vs|al|cf|ca|approx|resp|Fig|Figs|No|Nos|Dr|St|sp|spp|subsp|var)\.$"
)


def split_sentences(text: str, mentions: Sequence[Span] = ()) -> list[Span]:
    """The sentences of a text as spans without the blanks around them.

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
    """The sentences of a title and an abstract that one character separates, as spans in the whole text.

    No sentence goes on beyond the title's end. `mentions` are as for `split_sentences`, spans in the whole text.
    """
    start = title_length + 1
    after = split_sentences(text[start:], [(first - start, last - start) for first, last in mentions])
    return split_sentences(text[:title_length], mentions) + [(first + start, last + start) for first, last in after]
