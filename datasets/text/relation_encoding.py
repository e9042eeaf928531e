"""From two mentions in a text to word pieces with entity markers, as arrays.

The tokenizer is the caller's: a fast tokenizer of `transformers`, or anything with the same few methods (`Tokenizer`).
It needs ids for the four markers; `with_markers` gives a copy that has them and the size to which the encoder's
embeddings have to grow (``model.resize_token_embeddings(size)``). In place of new ones, pieces that the vocabulary has
and no text uses can serve: ``markers=("[unused1]", "[unused2]", "[unused3]", "[unused4]")``, and nothing has to grow.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from datasets.errors import DataError, named
from datasets.relations.records import RelationMention
from datasets.text.relation_layout import MARKERS, NO_MARKER, Part, blinded, marked

MIN_LENGTH = 8
"""[CLS], four markers, a piece of each mention, [SEP]."""


class Tokenizer(Protocol):
    """What the encoding requires of a tokenizer.

    The fast tokenizers of `transformers` have it.
    """

    cls_token_id: int
    sep_token_id: int
    pad_token_id: int
    unk_token_id: int
    all_special_tokens: Sequence[str]

    def __call__(self, text: list[str], **options) -> Mapping[str, list[list[int]]]:
        """Return the pieces' ids under ``input_ids``.

        It is called with ``add_special_tokens=False`` and no padding or cutting.
        """

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        """Return the id of a piece, or that of the unknown piece (or None) if it is not in the vocabulary."""


def with_markers(tokenizer: Any, markers: Sequence[str] = MARKERS) -> tuple[Any, int]:
    """Return a copy of a `transformers` tokenizer with the markers as special tokens, and its vocabulary's size.

    Additional special tokens that it has already stay. The size counts all pieces, old and new: what the encoder's
    embedding matrix needs. A tokenizer that has the markers gives a copy of the same size.
    """
    result = copy.deepcopy(tokenizer)
    result.add_special_tokens({"additional_special_tokens": list(markers)}, replace_additional_special_tokens=False)
    return result, len(result)


def check_tokenizer(tokenizer: Any, markers: Mapping[str, str], remedy: str) -> None:
    """Raise DataError for a tokenizer without a special piece or a marker.

    The argument maps each marker to its name in messages.
    """
    for name in ("cls_token_id", "sep_token_id", "pad_token_id", "unk_token_id"):
        if getattr(tokenizer, name, None) is None:
            raise DataError(f"the tokenizer has no {name}", remedy="use the tokenizer of a BERT or DistilBERT")
    for marker, description in markers.items():
        if tokenizer.convert_tokens_to_ids(marker) in (None, tokenizer.unk_token_id):
            raise DataError(f"the tokenizer does not know the {description}", remedy=remedy)


@dataclass(frozen=True)
class EncodingReport:
    """What the length limit did to the texts.

    Attributes:
      mentions: Texts encoded.
      cut: Texts that lost pieces.
      middle_cut: Of these, texts that lost pieces between the two mentions.
      mention_cut: Of these, texts that lost pieces of a mention, from its end.
      unknown: Texts with a mention that the tokenizer drops altogether; an unknown piece stands in for it.
    """

    mentions: int = 0
    cut: int = 0
    middle_cut: int = 0
    mention_cut: int = 0
    unknown: int = 0

    def notes(self) -> tuple[str, ...]:
        """Return the report in sentences, or none if nothing happened."""
        return tuple(
            f"{count} of {self.mentions} texts {what}"
            for count, what in (
                (self.cut, "cut to the length limit around their mentions"),
                (self.middle_cut, "cut between their mentions"),
                (self.mention_cut, "cut inside of a mention"),
                (self.unknown, "have a mention without word pieces, which is read as unknown"),
            )
            if count
        )


@dataclass(frozen=True)
class EncodedRelations:
    """The arrays and the report of an encoding (see `RelationEncoding.encode`)."""

    arrays: dict[str, np.ndarray] = field(repr=False)
    report: EncodingReport


@dataclass(frozen=True)
class RelationEncoding:
    """Word pieces of a text with entity markers, blinded or not.

    The stretches between the markers are tokenized one by one, so that the pieces of a mention are those that the
    mention alone would have. A marker or special piece that a text itself spells out (``[SEP]``) is read as plain text.

    Attributes:
      tokenizer: With ids for the markers; see `with_markers`.
      max_length: Pieces of a row, at least 8; longer texts are cut as `encode` says.
      blind: Whether a mention is replaced by its type.
      markers: The four markers as the tokenizer knows them.
      type_texts: With `blind`, what to write for a type; see `blinded`.
      unit: What the tokenizer cuts a text into, for reports.

    Raises:
      DataError: max_length is too small, or the tokenizer lacks a special piece or a marker.
    """

    tokenizer: Tokenizer = field(repr=False)
    max_length: int
    blind: bool = False
    markers: tuple[str, ...] = MARKERS
    type_texts: Mapping[str, str] | None = None
    unit: str = "word pieces"

    def __post_init__(self):
        length = self.max_length
        if isinstance(length, bool) or not isinstance(length, int) or length < MIN_LENGTH:
            raise DataError(f"max_length is not a whole number of at least {MIN_LENGTH}", remedy="use e.g. 128")
        if len(set(self.markers)) != len(MARKERS):
            raise DataError(f"there are not {len(MARKERS)} different markers", remedy=f"use {' '.join(MARKERS)}")
        descriptions = {marker: named("marker", marker.strip("<>")) for marker in self.markers}
        check_tokenizer(self.tokenizer, descriptions, remedy="add the markers with with_markers")

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return f"{self.unit}: {self.max_length} a text, entity {'blinding and ' if self.blind else ''}markers"

    def parts(self, mention: RelationMention) -> list[Part]:
        """Return the text to be tokenized, as stretches of text and markers."""
        return blinded(mention, self.type_texts) if self.blind else marked(mention)

    def token_ids(self, mentions: Sequence[RelationMention]) -> list[list[int]]:
        """The ids of each text, [CLS], markers and [SEP] included, before it is cut."""
        first, last = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        return [[first, *(item.id for item in items), last] for items, _ in self._texts(mentions)]

    def _texts(self, mentions: Sequence[RelationMention]) -> Iterator[tuple[list[_Item], bool]]:
        """See `_items`, of each text."""
        all_parts = [self.parts(mention) for mention in mentions]
        texts = [part.text for parts in all_parts for part in parts if part.marker == NO_MARKER]
        pieces = tokenized(self.tokenizer, texts, self.markers)
        marker_ids = [self.tokenizer.convert_tokens_to_ids(marker) for marker in self.markers]
        for parts in all_parts:
            yield _items(parts, pieces, marker_ids, self.tokenizer.unk_token_id)

    def encode(self, mentions: Sequence[RelationMention]) -> EncodedRelations:
        """Return the arrays of n mentions, all int32: ``[CLS]``, the pieces and markers, ``[SEP]``, padding.

        - ``input_ids``, ``attention_mask`` [n, max_length];
        - ``head_mask``, ``tail_mask`` [n, max_length]: 1 on the pieces of the mention, 0 on markers and elsewhere;
        - ``head_start``, ``tail_start`` [n]: where the opening markers stand.

        A text that is too long loses first what is farthest from the mentions on either side; then, if the mentions
        with what is between them do not fit, the middle of what is between, so that what remains stands beside a
        mention; then the ends of mentions, the longer one's first. The markers and a piece of each mention stay.
        """
        shape = (len(mentions), self.max_length)
        arrays = {name: np.zeros(shape, np.int32) for name in ("attention_mask", "head_mask", "tail_mask")}
        arrays["input_ids"] = np.full(shape, self.tokenizer.pad_token_id, np.int32)
        starts = np.zeros((2, len(mentions)), np.int32)
        cut = middle_cut = mention_cut = unknown = 0
        for row, (items, without) in enumerate(self._texts(mentions)):
            indices = range(len(items))
            if len(items) > self.max_length - 2:
                tiers = _priorities(items)
                indices = sorted(sorted(indices, key=lambda i: (*tiers[i], i))[: self.max_length - 2])
                lost = {tiers[i][0] for i in set(range(len(items))).difference(indices)}
                cut, middle_cut, mention_cut = cut + 1, middle_cut + (_BETWEEN in lost), mention_cut + (_INSIDE in lost)
            unknown += without
            end = len(indices) + 2
            ids = [self.tokenizer.cls_token_id, *(items[i].id for i in indices), self.tokenizer.sep_token_id]
            arrays["input_ids"][row, :end] = ids
            arrays["attention_mask"][row, :end] = 1
            arrays["head_mask"][row, 1 : end - 1] = [items[i].head for i in indices]
            arrays["tail_mask"][row, 1 : end - 1] = [items[i].tail for i in indices]
            for position, i in enumerate(indices, 1):
                if items[i].marker in (0, 2):
                    starts[items[i].marker // 2, row] = position
        arrays["head_start"], arrays["tail_start"] = starts
        return EncodedRelations(arrays, EncodingReport(len(mentions), cut, middle_cut, mention_cut, unknown))


def tokenized(tokenizer: Tokenizer, texts: Sequence[str], markers: Sequence[str] = ()) -> Iterator[list[int]]:
    """Return the ids of each text, one after the other.

    Special pieces and markers that a text spells out are plain text.
    """
    parts = plain_parts(tokenizer, texts, markers)
    flat = [part for pieces in parts for part in pieces]
    ids = iter(tokenizer(flat, **TOKENIZE_ONLY)["input_ids"] if flat else ())
    for pieces in parts:
        yield [i for _ in pieces for i in next(ids)]


TOKENIZE_ONLY = {"add_special_tokens": False, "padding": False, "truncation": False, "verbose": False}
"""Options of a tokenizer's call: the pieces of the text and nothing else."""


def plain_parts(tokenizer: Tokenizer, texts: Sequence[str], markers: Sequence[str] = ()) -> list[list[str]]:
    """Return each text in parts without any special piece or marker for the tokenizer.

    Together they are the text.
    """
    special = sorted({*tokenizer.all_special_tokens, *markers}, key=len, reverse=True)
    pattern = re.compile(f"(?={'|'.join(map(re.escape, special))})")
    # A special piece is not found in a text that is cut after the piece's first character.
    return [_cut_at(text, [match.start() + 1 for match in pattern.finditer(text)]) for text in texts]


_MARKER, _INSIDE, _BETWEEN, _OUTSIDE = range(4)


@dataclass(frozen=True)
class _Item:
    id: int
    marker: int
    head: bool
    tail: bool


def _cut_at(text: str, places: Sequence[int]) -> list[str]:
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True) if a < b]


def _items(
    parts: Sequence[Part], pieces: Iterator[list[int]], marker_ids: Sequence[int], unknown_id: int
) -> tuple[list[_Item], bool]:
    """Return one text's pieces and markers, with its stretches from `pieces`, and whether a mention has no piece."""
    items: list[_Item] = []
    for part in parts:
        if part.marker == NO_MARKER:
            items += [_Item(i, NO_MARKER, part.head, part.tail) for i in next(pieces)]
        else:
            items.append(_Item(marker_ids[part.marker], part.marker, False, False))
    without = False
    opened = [item.marker // 2 for item in items if item.marker in (0, 2)]
    for which in reversed(opened):  # the inner one first: what it gets belongs to the outer one as well
        if not any((item.head, item.tail)[which] for item in items):
            without = True
            index_of = {item.marker: i for i, item in enumerate(items) if item.marker != NO_MARKER}
            start = index_of[2 * which]
            inside = [w == which or index_of[2 * w] < start < index_of[2 * w + 1] for w in (0, 1)]
            items.insert(start + 1, _Item(unknown_id, NO_MARKER, *inside))
    return items, without


def _priorities(items: Sequence[_Item]) -> list[tuple[int, int]]:
    """Return (tier, rank) for each item, of which the smallest are kept longest."""
    markers = np.array([i for i, item in enumerate(items) if item.marker != NO_MARKER])
    first, last = markers[0], markers[-1]
    result, seen = [], [0, 0]
    for i, item in enumerate(items):
        if item.marker != NO_MARKER:
            result.append((_MARKER, 0))
        elif item.head or item.tail:
            result.append((_INSIDE, min(seen[w] for w, inside in enumerate((item.head, item.tail)) if inside)))
            seen[0] += item.head
            seen[1] += item.tail
        elif first < i < last:
            result.append((_BETWEEN, int(np.abs(markers - i).min())))
        else:
            result.append((_OUTSIDE, int(max(first - i, i - last))))
    return result
