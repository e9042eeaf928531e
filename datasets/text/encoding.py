"""From texts to arrays of ids, and back to the same encoding in an exported model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from datasets.errors import DataError
from datasets.files import parse_json
from datasets.ranges import require, whole_number
from datasets.text.segmentation import Segmenter
from datasets.text.vocabulary import Vocabulary

_VERSION = 1


@dataclass(frozen=True)
class TextEncoding:
    """Encodes texts as rows of ids, of at most `max_length` pieces each.

    Raises:
      DataError: max_length is smaller than 1, or the vocabulary has a word that is no piece of this encoding.
    """

    vocabulary: Vocabulary
    max_length: int
    kind: ClassVar[str]
    no_piece: ClassVar[tuple[str, str]]
    """What is wrong with a word that is no piece, and the remedy."""

    def __post_init__(self):
        require(whole_number(1), max_length=self.max_length)
        for number, word in enumerate(self.vocabulary.words, 2):
            if not self.is_piece(word):
                raise DataError(self.no_piece[0], record=f"word with id {number}", remedy=self.no_piece[1])

    @staticmethod
    def is_piece(word: str) -> bool:
        """Return whether a text may have the word as a piece."""
        raise NotImplementedError

    def pieces(self, texts: Iterable[str]) -> Iterable[Sequence[str]]:
        """Return the pieces of each text."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the ids of each text, int32 [n, max_length], padded with 0 and cut on the right."""
        rows = [self.vocabulary.ids(pieces)[: self.max_length] for pieces in self.pieces(texts)]
        return np.array([ids + [0] * (self.max_length - len(ids)) for ids in rows], np.int32).reshape(
            len(rows), self.max_length
        )

    def prepare(self, text: str) -> str:
        """Return the string for the exported model, whose pieces have the ids that `encode` returns."""
        raise NotImplementedError

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return f"{self.kind}: {len(self.vocabulary.words)} in the vocabulary, {self.max_length} a text"

    def to_json(self) -> str:
        """Return all that `encoding_from_json` needs to make the same encoding."""
        return json.dumps(self._stored(), ensure_ascii=False)

    def _stored(self) -> dict[str, Any]:
        words = list(self.vocabulary.words)
        return {"encoding": self.kind, "version": _VERSION, "max_length": self.max_length, "vocabulary": words}


@dataclass(frozen=True)
class WordEncoding(TextEncoding):
    """Ids of the words that a segmenter finds, where no word of the vocabulary contains a blank."""

    segmenter: Segmenter = field(default_factory=Segmenter)
    kind: ClassVar[str] = "words"
    no_piece: ClassVar[tuple[str, str]] = ("holds a blank", "segment the texts first")

    @classmethod
    def build(
        cls, clients: Mapping[str, Sequence[str]], *, max_length: int, segmenter: Segmenter | None = None, **options
    ) -> WordEncoding:
        """Build the encoding from the clients' training texts (by client id).

        `options` are those of Vocabulary.build.
        """
        segmenter = Segmenter() if segmenter is None else segmenter
        words = {client: segmenter.segment(texts) for client, texts in clients.items()}
        return cls(Vocabulary.build(words, **options), max_length, segmenter)

    @staticmethod
    def is_piece(word: str) -> bool:
        return not any(c.isspace() for c in word)

    def pieces(self, texts: Iterable[str]) -> Iterable[Sequence[str]]:
        return self.segmenter.segment(texts)

    def prepare(self, text: str) -> str:
        """Return the words of the text, joined by single blanks."""
        return " ".join(self.segmenter.segment([text])[0])

    def describe(self) -> str:
        return f"{super().describe()}, {len(self.segmenter.words)} added to the dictionary"

    def _stored(self) -> dict[str, Any]:
        return {**super()._stored(), "added_words": list(self.segmenter.words)}


@dataclass(frozen=True)
class CharacterEncoding(TextEncoding):
    """Ids of the code points of a text, including blanks and line feeds, without any normalisation.

    These are the pieces that TensorFlow's `unicode_split` finds in the same text.
    """

    kind: ClassVar[str] = "characters"
    no_piece: ClassVar[tuple[str, str]] = ("is not one character", "build it from characters")

    @classmethod
    def build(cls, clients: Mapping[str, Sequence[str]], *, max_length: int, **options) -> CharacterEncoding:
        """Build the encoding from the clients' training texts (by client id).

        `options` are those of Vocabulary.build.
        """
        return cls(Vocabulary.build(clients, **options), max_length)

    @staticmethod
    def is_piece(word: str) -> bool:
        return len(word) == 1

    def pieces(self, texts: Iterable[str]) -> Iterable[Sequence[str]]:
        return texts

    def prepare(self, text: str) -> str:
        """Return the text itself."""
        return text


def encoding_from_json(text: str) -> TextEncoding:
    """Return the encoding of either kind that `to_json` wrote.

    Raises DataError for anything else.
    """
    value = parse_json(text.encode("utf-8", "surrogatepass"))
    remedy = "write it with to_json"
    if not isinstance(value, dict) or value.get("encoding") not in ("words", "characters"):
        raise DataError("is not the JSON of an encoding", remedy=remedy)
    if value.get("version") != _VERSION:
        raise DataError("the encoding is written in another version of the format", remedy=remedy)
    if not isinstance(value.get("vocabulary"), list) or "max_length" not in value:
        raise DataError("the encoding has no vocabulary or max_length", remedy=remedy)
    vocabulary, max_length = Vocabulary(tuple(value["vocabulary"])), value["max_length"]
    if value["encoding"] == "characters":
        return CharacterEncoding(vocabulary, max_length)
    added = value.get("added_words")
    if not isinstance(added, list) or not all(isinstance(word, str) for word in added):
        raise DataError('an encoding of words has no list of strings "added_words"', remedy=remedy)
    return WordEncoding(vocabulary, max_length, Segmenter(tuple(added)))
