"""From whole texts to word pieces of a pretrained encoder's tokenizer, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from datasets.errors import DataError
from datasets.text.relation_encoding import Tokenizer, check_tokenizer, tokenized

MIN_LENGTH = 3
"""[CLS], a piece, [SEP]."""


@dataclass(frozen=True)
class PieceReport:
    """What happened to the texts in an encoding.

    Attributes:
      texts: Texts encoded.
      cut: Texts that lost pieces at their end.
      pieces: Pieces of all texts, before they were cut; [CLS] and [SEP] do not count.
      unknown: Of these, pieces that the vocabulary does not have.
    """

    texts: int = 0
    cut: int = 0
    pieces: int = 0
    unknown: int = 0

    @property
    def unknown_share(self) -> float:
        """Return the share of the pieces that are unknown, or 0 if there are no pieces."""
        return self.unknown / max(1, self.pieces)

    def notes(self) -> tuple[str, ...]:
        """Return the report in sentences, or none if nothing happened."""
        cut = (f"{self.cut} of {self.texts} texts cut to the length limit, at their end",) if self.cut else ()
        unknown = (f"{self.unknown_share:.2%} of the pieces of all texts are unknown",) if self.unknown else ()
        return cut + unknown


@dataclass(frozen=True)
class EncodedPieces:
    """The arrays and the report of an encoding (see `PieceEncoding.encode`)."""

    arrays: dict[str, np.ndarray] = field(repr=False)
    report: PieceReport


@dataclass(frozen=True)
class PieceEncoding:
    """Word pieces of a text.

    A special piece that the text itself spells out (``[SEP]``) is read as plain text.

    Attributes:
      tokenizer: Of the encoder.
      max_length: Pieces of a row, [CLS] and [SEP] included, at least 3; longer texts are cut at their end.
      markers: Pieces that the encoding adds to the tokenizer's; none.

    Raises:
      DataError: max_length is too small, or the tokenizer lacks a special piece.
    """

    tokenizer: Tokenizer = field(repr=False)
    max_length: int
    markers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        length = self.max_length
        if isinstance(length, bool) or not isinstance(length, int) or length < MIN_LENGTH:
            raise DataError(f"max_length is not a whole number of at least {MIN_LENGTH}", remedy="use e.g. 128")
        check_tokenizer(self.tokenizer, {}, "")

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return f"word pieces: {self.max_length} a text"

    def prepare(self, text: str) -> str:
        """Return the text itself, which an exported model takes unchanged."""
        return text

    def encode(self, texts: Sequence[str]) -> EncodedPieces:
        """Return the arrays of n texts: ``[CLS]``, the pieces, ``[SEP]``, padding.

        These are ``input_ids``, ``attention_mask`` int32 [n, max_length]; the mask is 1 on all but the padding.
        """
        shape = (len(texts), self.max_length)
        ids = np.full(shape, self.tokenizer.pad_token_id, np.int32)
        mask = np.zeros(shape, np.int32)
        cut = pieces = unknown = 0
        for row, text_pieces in enumerate(tokenized(self.tokenizer, texts)):
            piece_ids = text_pieces[: self.max_length - 2]
            ids[row, : len(piece_ids) + 2] = [self.tokenizer.cls_token_id, *piece_ids, self.tokenizer.sep_token_id]
            mask[row, : len(piece_ids) + 2] = 1
            cut += len(piece_ids) < len(text_pieces)
            pieces += len(text_pieces)
            unknown += text_pieces.count(self.tokenizer.unk_token_id)
        return EncodedPieces({"input_ids": ids, "attention_mask": mask}, PieceReport(len(texts), cut, pieces, unknown))
