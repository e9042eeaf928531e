"""From texts with entities to arrays of tokens and tags.

The tokens are words, characters or word pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from datasets.entities.records import EntitySample, label_of
from datasets.entities.tags import NO_TOKEN, Token, tag_names, tags_of
from datasets.errors import DataError, named
from datasets.federated import Examples
from datasets.ranges import require, whole_number
from datasets.text.encoding import TextEncoding
from datasets.text.piece_encoding import MIN_LENGTH
from datasets.text.piece_offsets import located_pieces, require_offsets
from datasets.text.relation_encoding import Tokenizer, check_tokenizer
from datasets.text.vocabulary import OUT_OF_VOCABULARY_ID


@dataclass(frozen=True)
class EntityReport:
    """What became of the texts and their entities.

    Attributes:
      texts: Texts encoded.
      cut: Texts that lost tokens at their end.
      entities: Entities of all texts, without those of types that a text is not annotated with.
      cut_off: Entities that reach into what was cut.
      inside: Entities that begin or end inside of a token, or where no token is.
      tokens: Tokens of all texts, before they were cut.
      unknown: Of these, tokens that the vocabulary does not have.
    """

    texts: int = 0
    cut: int = 0
    entities: int = 0
    cut_off: int = 0
    inside: int = 0
    tokens: int = 0
    unknown: int = 0

    @property
    def unrepresented(self) -> int:
        """Return the number of entities that the tags do not represent."""
        return self.cut_off + self.inside

    def notes(self) -> tuple[str, ...]:
        """Return the report in sentences, or none if nothing happened."""
        notes = []
        if self.cut:
            notes.append(f"{self.cut} of {self.texts} texts cut to the length limit, at their end")
        if self.unrepresented:
            notes.append(
                f"{self.unrepresented} of {self.entities} entities are not represented by tags: "
                f"{self.cut_off} reach into what was cut, {self.inside} begin or end inside of a token"
            )
        if self.unknown:
            notes.append(f"{self.unknown / self.tokens:.2%} of the tokens of all texts are unknown")
        return tuple(notes)


@dataclass(frozen=True)
class EncodedEntities:
    """The arrays and the report of an encoding (see `TaggedEncoding.encode`)."""

    arrays: Examples = field(repr=False)
    report: EntityReport


@dataclass(frozen=True)
class _Row:
    """A text in the arrays, with its tokens, their columns, and what `EntityReport` counts."""

    tokens: list[Token]
    columns: list[int]
    cut: bool
    total: int
    unknown: int


class TaggedEncoding:
    """What the two encodings share.

    A token has one tag, and the tags represent the entities.
    """

    entity_types: tuple[str, ...]
    scheme: str

    @property
    def tag_names(self) -> tuple[str, ...]:
        """Return the name of each tag (see `datasets.entities.tags.tag_names`)."""
        return tag_names(self.entity_types, self.scheme)

    def encode(self, samples: Sequence[EntitySample], annotated: np.ndarray | None = None) -> EncodedEntities:
        """Return the arrays of n texts, all int32, with L columns of tokens and K types.

        - what `encode_texts` gives the model;
        - ``tags`` [n, L]: the tag of each token, -1 where there is none;
        - ``unrepresented`` [n, K]: entities of each type that the tags do not represent, because they begin or end
          inside of a token or reach into what was cut; their tokens are outside (``O``);
        - ``annotated`` [n, K]: 1 where the text is annotated with entities of this type;
        - ``y`` [n]: the text's label (`datasets.entities.records.label_of`).

        Args:
          samples: The texts. Their entities are of this encoding's types.
          annotated: int [n, K], all ones if it is None. Entities of a type that a text is not annotated with are left
            out of all arrays.

        Raises:
          DataError: an entity of another type, or `annotated` of another shape.
        """
        shape = (len(samples), len(self.entity_types))
        annotated = np.ones(shape, np.int32) if annotated is None else np.asarray(annotated, np.int32)
        if annotated.shape != shape:
            raise DataError(
                f"annotated has the shape {list(annotated.shape)}, not {list(shape)}", remedy="give texts × types"
            )
        inputs, rows, width = self._rows([sample.text for sample in samples])
        tags = np.full((len(samples), width), NO_TOKEN, np.int32)
        unrepresented, labels = np.zeros(shape, np.int32), np.zeros(len(samples), np.int32)
        entities = cut_off = 0
        for index, (sample, row) in enumerate(zip(samples, rows, strict=True)):
            spans = self._annotated_spans(sample, annotated[index])
            tags[index, row.columns], missing = tags_of(spans, row.tokens, self.entity_types, self.scheme)
            labels[index] = label_of(spans, self.entity_types)
            for span in missing:
                unrepresented[index, self.entity_types.index(span.type)] += 1
            entities += len(spans)
            cut_off += row.cut and sum(span.end > max((end for _, end in row.tokens), default=0) for span in missing)
        arrays = {**inputs, "tags": tags, "unrepresented": unrepresented, "annotated": annotated, "y": labels}
        report = EntityReport(
            texts=len(samples),
            cut=sum(row.cut for row in rows),
            entities=entities,
            cut_off=cut_off,
            inside=int(unrepresented.sum()) - cut_off,
            tokens=sum(row.total for row in rows),
            unknown=sum(row.unknown for row in rows),
        )
        return EncodedEntities(arrays, report)

    def encode_texts(self, texts: Sequence[str]) -> tuple[Examples, np.ndarray]:
        """Return what the model reads of n texts, and the offsets of their tokens.

        Offsets are int32 [n, L, 2], -1 where there is no token.

        The offsets (start, end) are code points of the text, half-open.
        """
        inputs, rows, width = self._rows(texts)
        offsets = np.full((len(texts), width, 2), NO_TOKEN, np.int32)
        for index, row in enumerate(rows):
            offsets[index, row.columns] = np.array(row.tokens, np.int32).reshape(-1, 2)
        return inputs, offsets

    def token_ids(self, samples: Sequence[EntitySample]) -> list[list[int]]:
        """The ids of each text before it is cut; of pieces, [CLS] and [SEP] included."""
        raise NotImplementedError

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return f"{self._unit()}, {self.scheme} tags of {', '.join(self.entity_types)}"

    def _unit(self) -> str:
        raise NotImplementedError

    def _rows(self, texts: Sequence[str]) -> tuple[Examples, list[_Row], int]:
        """Return the model's inputs, a row for each text, and their number of columns."""
        raise NotImplementedError

    def _annotated_spans(self, sample: EntitySample, annotated: np.ndarray) -> tuple:
        for span in sample.spans:
            if span.type not in self.entity_types:
                raise DataError(
                    f"the entity {span.start}:{span.end} has a type that is not one of {', '.join(self.entity_types)}",
                    record=named("sample", sample.sample_id),
                    remedy="encode with the corpus's entity_types",
                )
        return tuple(span for span in sample.spans if annotated[self.entity_types.index(span.type)])


@dataclass(frozen=True)
class TaggedTokenEncoding(TaggedEncoding):
    """Words or characters with their own vectors.

    The model reads ``tokens`` int32 [n, L], where 0 is padding.

    Attributes:
      text_encoding: Of words or characters; L is its `max_length`, longer texts are cut at their end. Blanks are no
        words; they are characters.
      entity_types: The types, in the order of their tags.
      scheme: ``BIO`` or ``BIOES``.

    Raises:
      DataError: what `tag_names` refuses.
    """

    text_encoding: TextEncoding
    entity_types: tuple[str, ...]
    scheme: str = "BIO"

    def __post_init__(self):
        tag_names(self.entity_types, self.scheme)

    def token_ids(self, samples: Sequence[EntitySample]) -> list[list[int]]:
        return self.text_encoding.token_ids(samples)

    def _unit(self) -> str:
        return self.text_encoding.describe()

    def _rows(self, texts: Sequence[str]) -> tuple[Examples, list[_Row], int]:
        width, rows = self.text_encoding.max_length, []
        tokens = np.zeros((len(texts), width), np.int32)
        for index, (text, pieces) in enumerate(zip(texts, self.text_encoding.pieces(texts), strict=True)):
            ids = self.text_encoding.vocabulary.ids(pieces)
            offsets, length = _located(text, pieces)[:width], min(len(ids), width)
            tokens[index, :length] = ids[:width]
            unknown = ids.count(OUT_OF_VOCABULARY_ID)
            rows.append(_Row(offsets, list(range(length)), len(ids) > width, len(ids), unknown))
        return {"tokens": tokens}, rows, width


@dataclass(frozen=True)
class TaggedPieceEncoding(TaggedEncoding):
    """Word pieces of a pretrained encoder's tokenizer.

    The model reads ``input_ids``, ``attention_mask`` int32 [n, L]: [CLS], the pieces, [SEP], padding; the mask is 1 on
    all but the padding. A piece is a token, with three exceptions, which have no tag:

    - [CLS] and [SEP];
    - a piece that shares a character with the one before it, as where the tokenizer decomposes a letter (한) or cuts
      its bytes; the token before it then ends where it ends;
    - a piece without a character of the text, blanks not counted.

    A special piece that the text itself spells out (``[SEP]``) is read as plain text. Characters that the tokenizer
    drops (an accent that is a character of its own, a control character) belong to no token.

    Attributes:
      tokenizer: A fast tokenizer of `transformers`.
      entity_types: The types, in the order of their tags.
      scheme: ``BIO`` or ``BIOES``.
      max_length: L, [CLS] and [SEP] included, at least 3; longer texts are cut at their end. None: L is the longest of
        the texts that are encoded together, and none is cut.

    Raises:
      DataError: the tokenizer is not a fast one or lacks a special piece, max_length is too small, or what `tag_names`
        refuses.
    """

    tokenizer: Tokenizer = field(repr=False)
    entity_types: tuple[str, ...]
    scheme: str = "BIO"
    max_length: int | None = None
    markers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        tag_names(self.entity_types, self.scheme)
        check_tokenizer(self.tokenizer, {}, "")
        if self.max_length is not None:
            require(whole_number(MIN_LENGTH), max_length=self.max_length)
        require_offsets(self.tokenizer)

    def token_ids(self, samples: Sequence[EntitySample]) -> list[list[int]]:
        first, last = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        texts = [sample.text for sample in samples]
        return [[first, *ids, last] for ids, _ in located_pieces(self.tokenizer, texts)]

    def _unit(self) -> str:
        length = "of whole texts" if self.max_length is None else f"{self.max_length} a text"
        return f"word pieces: {length}"

    def _rows(self, texts: Sequence[str]) -> tuple[Examples, list[_Row], int]:
        pieces = list(located_pieces(self.tokenizer, texts))
        longest = max((len(ids) + 2 for ids, _ in pieces), default=MIN_LENGTH)
        width, rows = longest if self.max_length is None else self.max_length, []
        input_ids = np.full((len(texts), width), self.tokenizer.pad_token_id, np.int32)
        mask = np.zeros((len(texts), width), np.int32)
        for index, (text, (ids, offsets)) in enumerate(zip(texts, pieces, strict=True)):
            length = min(len(ids), width - 2)
            end = length + 2
            input_ids[index, :end] = [self.tokenizer.cls_token_id, *ids[:length], self.tokenizer.sep_token_id]
            mask[index, :end] = 1
            tokens, columns = _tokens_of_pieces(text, offsets[:length])
            unknown = ids.count(self.tokenizer.unk_token_id)
            rows.append(_Row(tokens, [1 + column for column in columns], len(ids) > length, len(ids), unknown))
        return {"input_ids": input_ids, "attention_mask": mask}, rows, width


def _located(text: str, pieces: Iterable[str]) -> list[Token]:
    """Return the positions of pieces in a text, between which there are only blanks."""
    tokens, position = [], 0
    for piece in pieces:
        position = text.index(piece, position)
        tokens.append((position, position + len(piece)))
        position += len(piece)
    return tokens


def _tokens_of_pieces(text: str, offsets: Iterable[Token]) -> tuple[list[Token], list[int]]:
    """Return the tokens that pieces make, and the index of each token's piece (see `TaggedPieceEncoding`)."""
    tokens: list[Token] = []
    indices = []
    for index, (start, end) in enumerate(offsets):
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        if start == end:
            continue
        if tokens and start < tokens[-1][1]:
            tokens[-1] = (tokens[-1][0], max(end, tokens[-1][1]))
        else:
            tokens.append((start, end))
            indices.append(index)
    return tokens, indices
