"""The positions of the four markers in a text with two mentions, which are kept or blinded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.errors import DataError
from datasets.relations.records import NO_RELATION, UNKNOWN_TYPE, RelationMention

MARKERS = ("<e1>", "</e1>", "<e2>", "</e2>")
"""Opening and closing marker of the head, opening and closing marker of the tail (FedCMC; FedED, Section 3.2)."""

NO_MARKER = -1


@dataclass(frozen=True)
class Part:
    """A marker, or a stretch of text without one inside.

    Attributes:
      text: The stretch; empty for a marker.
      marker: Index into the markers, `NO_MARKER` for a stretch of text.
      head, tail: Whether the part lies in the head, in the tail (markers are no part of a mention).
    """

    text: str = field(repr=False)
    marker: int = NO_MARKER
    head: bool = False
    tail: bool = False


def marked(mention: RelationMention) -> list[Part]:
    """Return the text with markers around both mentions (Baldini Soares et al., ACL 2019).

    Disjoint: ``a <e1> b </e1> c <e2> d </e2>``; adjacent mentions close before they open. One in the other:
    ``<e1> a <e2> b </e2> c </e1>``, also where they share an end. Overlapping: ``<e1> a <e2> b </e1> c </e2>``.
    The same span: ``<e1> <e2> a </e2> </e1>``. No character is lost or added; empty stretches are left out.
    """
    spans = (mention.head, mention.tail)
    events = []
    for which, (start, end) in enumerate(spans):
        # At one place: what closes, the inner one first; then what opens, the outer one first.
        events.append((start, 1, (-end, which), 2 * which))
        events.append((end, 0, (-start, -which), 2 * which + 1))
    parts, done, inside = [], 0, [False, False]
    for offset, opens, _, marker in sorted(events):
        if done < offset:
            parts.append(Part(mention.text[done:offset], head=inside[0], tail=inside[1]))
        parts.append(Part("", marker))
        inside[marker // 2] = bool(opens)
        done = offset
    if done < len(mention.text):
        parts.append(Part(mention.text[done:]))
    return parts


def blinded(mention: RelationMention, type_texts: Mapping[str, str] | None = None) -> list[Part]:
    """Return the text with each mention replaced by its type, between its markers.

    This is entity blinding (FedED, Section 3.2).

    Mentions that overlap in any way are replaced together: what either of them covers gives way to both types, the one
    that starts first first (on a tie the head), so that nothing of a mention's words remains.

    `type_texts` says what to write for a type, e.g. ``{"gene": "@GENE$"}``; one that is not there is written as it is.
    """
    arguments = [(mention.head, mention.head_type, 0), (mention.tail, mention.tail_type, 1)]
    arguments.sort(key=lambda argument: (argument[0][0], argument[2]))
    parts, done = [], 0
    for (start, end), kind, which in arguments:
        if done < start:
            parts.append(Part(mention.text[done:start]))
        text = kind if type_texts is None else type_texts.get(kind, kind)
        parts += [Part("", 2 * which), Part(text, head=which == 0, tail=which == 1), Part("", 2 * which + 1)]
        done = max(done, end)
    if done < len(mention.text):
        parts.append(Part(mention.text[done:]))
    return parts


def as_text(parts: list[Part], markers: tuple[str, ...] = MARKERS) -> str:
    """Return the parts as one string with blanks around markers, for encoders of words and for people."""
    return " ".join(piece.strip() for piece in _spelled(parts, markers) if piece.strip())


def with_inline_markers(mention: RelationMention, markers: tuple[str, ...] = MARKERS) -> str:
    """Return the text with the markers inserted and nothing else changed.

    `from_inline_markers` finds the spans again.
    """
    return "".join(_spelled(marked(mention), markers))


def _spelled(parts: list[Part], markers: tuple[str, ...]) -> list[str]:
    return [markers[part.marker] if part.marker != NO_MARKER else part.text for part in parts]


def from_inline_markers(
    text: str, head_type: str = UNKNOWN_TYPE, tail_type: str = UNKNOWN_TYPE, markers: tuple[str, ...] = MARKERS
) -> RelationMention:
    """Return the mentions of a text that contains each marker once, with the unknown relation.

    Raises:
      DataError: a marker is missing or repeated, or a mention is empty.
    """
    for marker in markers:
        if text.count(marker) != 1:
            raise DataError(
                f"holds the marker {marker} {text.count(marker)} times",
                remedy="write it as a <e1>head</e1> and a <e2>tail</e2>, or give the spans",
            )
    at, plain = {}, ""
    for piece in re.split(f"({'|'.join(map(re.escape, markers))})", text):
        if piece in markers:
            at[piece] = len(plain)
        else:
            plain += piece
    head_start, head_end, tail_start, tail_end = (at[marker] for marker in markers)
    spans = (head_start, head_end), (tail_start, tail_end)
    return RelationMention("text", "text", plain, *spans, head_type, tail_type, NO_RELATION, 0)
