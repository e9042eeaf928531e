"""Entities that share characters: a token has one tag, so that only one of them stays, or the text is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from datasets.entities.records import EntitySpan
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.ranges import one_of, require

REFUSE, OUTERMOST = NESTED = ("refuse", "outermost")
"""What a reader's option `nested` may be, the default one first."""


def outermost(spans: Iterable[EntitySpan]) -> tuple[tuple[EntitySpan, ...], int]:
    """(the longest of the spans that share characters, in the order of the text; how many are left out).

    Spans are taken from the longest to the shortest, each unless it shares a character with one that is taken. Of
    equally long ones the earlier in the text comes first, of those between the same offsets the first of `spans`.
    """
    spans = list(spans)
    taken: list[EntitySpan] = []
    for span in sorted(spans, key=lambda s: (s.start - s.end, s.start)):
        if all(span.end <= other.start or other.end <= span.start for other in taken):
            taken.append(span)
    return tuple(sorted(taken)), len(spans) - len(taken)


def without_overlaps(
    spans: Iterable[EntitySpan],
    nested: str = REFUSE,
    *,
    sample_id: str,
    path: PathLike | None = None,
    line: int | None = None,
) -> tuple[tuple[EntitySpan, ...], int]:
    """(spans that share no character, in the order of the text; how many are left out), for readers.

    Args:
      spans: In any order.
      nested: `"refuse"` or `"outermost"` (see `outermost`).
      sample_id, path, line: For the message.

    Raises:
      DataError: with `"refuse"`, two spans share a character (the sample and their offsets are named), or another
        value of `nested`.
    """
    require(one_of(NESTED), nested=nested)
    if nested == OUTERMOST:
        return outermost(spans)
    ordered = tuple(sorted(spans))
    for span, following in itertools.pairwise(ordered):
        if following.start < span.end:
            raise DataError(
                f"the entities {span.start}:{span.end} and {following.start}:{following.end} share characters",
                path=path,
                line=line,
                record=named("sample", sample_id),
                remedy=f"nested = '{OUTERMOST}' keeps the longest",
            )
    return ordered, 0
