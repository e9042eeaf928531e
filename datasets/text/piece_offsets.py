"""Word pieces of a text, and their positions in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from datasets.errors import DataError
from datasets.text.relation_encoding import TOKENIZE_ONLY, plain_parts

_AT_ONCE = 1000
"""Texts that are tokenized in one call: the offsets of a whole corpus would take much memory."""


def require_offsets(tokenizer: Any) -> None:
    """Raise DataError unless it is a fast `transformers` tokenizer, which knows offsets."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError("the tokenizer is not a fast one and knows no offsets", remedy="use a fast tokenizer")


def located_pieces(tokenizer: Any, texts: Sequence[str]) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Yield (ids, offsets) of the pieces of each text, one text after the other.

    The ids are those of `tokenized`.

    The offsets (start, end) count code points of the text as it is given, whatever the tokenizer makes of it (accents
    that it strips, carriage returns, letters that it decomposes).

    Args:
      tokenizer: A fast tokenizer of `transformers`; others know no offsets.
      texts: The texts.

    Raises:
      DataError: the tokenizer is not a fast one.
    """
    require_offsets(tokenizer)
    for start in range(0, len(texts), _AT_ONCE):
        parts = plain_parts(tokenizer, texts[start : start + _AT_ONCE])
        flat = [part for pieces in parts for part in pieces]
        made = tokenizer(flat, return_offsets_mapping=True, **TOKENIZE_ONLY) if flat else {}
        of_parts = zip(made.get("input_ids", ()), made.get("offset_mapping", ()), strict=True)
        for pieces in parts:
            ids: list[int] = []
            offsets: list[tuple[int, int]] = []
            before = 0
            for part in pieces:
                part_ids, part_offsets = next(of_parts)
                ids += part_ids
                offsets += [(before + first, before + end) for first, end in part_offsets]
                before += len(part)
            yield ids, offsets
