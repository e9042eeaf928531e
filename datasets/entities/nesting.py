"""Overlapping entities.

A token has one tag, so only one of them stays, or the text is refused.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from datasets.entities.records import EntitySpan
from datasets.json_values import Fail

NESTED = ("refuse", "outermost")
"""What is done with entities that overlap: a reader's option `nested`."""


def outermost(spans: Sequence[EntitySpan]) -> tuple[tuple[EntitySpan, ...], int]:
    """Return the longest of overlapping spans, in the order of the text, and how many were left out.

    Spans are taken from the longest to the shortest, each unless it overlaps one that was taken. Of equally long ones
    the first in the text is taken, of equal ones the first in `spans`.
    """
    result: list[EntitySpan] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        at = bisect.bisect_right(result, span.start, key=lambda span: span.start)
        overlaps = (at > 0 and result[at - 1].end > span.start) or (at < len(result) and result[at].start < span.end)
        if not overlaps:
            result.insert(at, span)
    return tuple(result), len(spans) - len(result)


def flat(spans: Sequence[EntitySpan], nested: str, fail: Fail) -> tuple[tuple[EntitySpan, ...], int]:
    """Return spans in the order of the text without overlaps, and how many were left out, for readers.

    Args:
      spans: The entities of a text, in any order.
      nested: ``refuse`` an overlap, or keep the ``outermost`` (see there).
      fail: Builds the error: called with the reason, and with `remedy`. It names the file and the sample.

    Raises `fail`'s error, with both offsets, for an overlap that is to be refused, and for a word not in `NESTED`.
    """
    if nested not in NESTED:
        raise fail("nested is not a known choice", remedy=f"use one of {', '.join(NESTED)}")
    if nested == "outermost":
        return outermost(spans)
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    for before, span in itertools.pairwise(ordered):
        if span.start < before.end:
            raise fail(
                f"the entity {span.start}:{span.end} overlaps {before.start}:{before.end}",
                remedy="keep one of them, or set nested = 'outermost' for the longest",
            )
    return tuple(ordered), 0
