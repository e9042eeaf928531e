"""From texts to arrays of ids, and back to the same encoding in an exported model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from datasets.errors import DataError
from datasets.files import parse_json
from datasets.text.segmentation import Segmenter
from datasets.text.vocabulary import Vocabulary

_VERSION = 1


class TextEncoding(Protocol):
    """What turns texts into rows of ids."""

    vocabulary: Vocabulary
    max_length: int

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """The ids of each text, int32 [n, max_length], padded with 0 and cut on the right."""

    def prepare(self, text: str) -> str:
        """The text as the exported model takes it: the string whose pieces have the ids that `encode` gives."""

    def describe(self) -> str:
        """The encoding in a few words."""

    def to_json(self) -> str:
        """All that `encoding_from_json` needs to make the same encoding."""


@dataclass(frozen=True)
class WordEncoding:
    """Ids of the words that a segmenter finds. At most `max_length` words of a text are kept.

    Raises:
      DataError: max_length is smaller than 1, or the vocabulary has a word with a blank.
    """

    vocabulary: Vocabulary
    max_length: int
    segmenter: Segmenter = field(default_factory=Segmenter)

    def __post_init__(self):
        _check_length(self.max_length)
        for number, word in enumerate(self.vocabulary.words, 2):
            if any(c.isspace() for c in word):
                raise DataError("holds a blank", record=f"word with id {number}", remedy="segment the texts first")

    @classmethod
    def build(
        cls, clients: Mapping[str, Sequence[str]], *, max_length: int, segmenter: Segmenter | None = None, **options
    ) -> WordEncoding:
        """The encoding of the clients' training texts (client id to texts); `options` are those of Vocabulary.build."""
        segmenter = Segmenter() if segmenter is None else segmenter
        words = {client: segmenter.segment(texts) for client, texts in clients.items()}
        return cls(Vocabulary.build(words, **options), max_length, segmenter)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """int32 [n, max_length]; see TextEncoding."""
        return _padded((self.vocabulary.ids(words) for words in self.segmenter.segment(texts)), self.max_length)

    def prepare(self, text: str) -> str:
        """The words of the text, joined by single blanks."""
        return " ".join(self.segmenter.segment([text])[0])

    def describe(self) -> str:
        """The encoding in a few words."""
        return (
            f"words: {len(self.vocabulary.words)} in the vocabulary, {self.max_length} a text, "
            f"{len(self.segmenter.words)} added to the dictionary"
        )

    def to_json(self) -> str:
        """See TextEncoding."""
        return _dump("words", self, added_words=list(self.segmenter.words))

    @classmethod
    def from_json(cls, text: str) -> WordEncoding:
        """The encoding that `to_json` wrote. Raises DataError for anything else."""
        value = _load(text, "words")
        added = value.get("added_words")
        if not isinstance(added, list) or not all(isinstance(word, str) for word in added):
            raise DataError('an encoding of words has no list of strings "added_words"', remedy="write it with to_json")
        return cls(Vocabulary.from_value(value["vocabulary"]), value["max_length"], Segmenter(tuple(added)))


@dataclass(frozen=True)
class CharacterEncoding:
    """Ids of the code points of a text, blanks and line feeds included, without any normalisation.

    These are the pieces that TensorFlow's `unicode_split` finds in the same text. At most `max_length` are kept.

    Raises:
      DataError: max_length is smaller than 1, or the vocabulary has a word of several code points.
    """

    vocabulary: Vocabulary
    max_length: int

    def __post_init__(self):
        _check_length(self.max_length)
        for number, word in enumerate(self.vocabulary.words, 2):
            if len(word) != 1:
                raise DataError(
                    "is not one character", record=f"word with id {number}", remedy="build it from characters"
                )

    @classmethod
    def build(cls, clients: Mapping[str, Sequence[str]], *, max_length: int, **options) -> CharacterEncoding:
        """The encoding of the clients' training texts (client id to texts); `options` are those of Vocabulary.build."""
        characters = {client: [list(text) for text in texts] for client, texts in clients.items()}
        return cls(Vocabulary.build(characters, **options), max_length)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """int32 [n, max_length]; see TextEncoding."""
        return _padded((self.vocabulary.ids(text) for text in texts), self.max_length)

    def prepare(self, text: str) -> str:
        """The text itself."""
        return text

    def describe(self) -> str:
        """The encoding in a few words."""
        return f"characters: {len(self.vocabulary.words)} in the vocabulary, {self.max_length} a text"

    def to_json(self) -> str:
        """See TextEncoding."""
        return _dump("characters", self)

    @classmethod
    def from_json(cls, text: str) -> CharacterEncoding:
        """The encoding that `to_json` wrote. Raises DataError for anything else."""
        value = _load(text, "characters")
        return cls(Vocabulary.from_value(value["vocabulary"]), value["max_length"])


def encoding_from_json(text: str) -> TextEncoding:
    """The encoding of either kind that `to_json` wrote. Raises DataError for anything else."""
    kind = _load(text)["encoding"]
    return {"words": WordEncoding, "characters": CharacterEncoding}[kind].from_json(text)


def _check_length(max_length: Any) -> None:
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise DataError("max_length is not a whole number of at least 1", remedy="use e.g. 40")


def _padded(rows: Iterable[list[int]], max_length: int) -> np.ndarray:
    rows = list(rows)
    result = np.zeros((len(rows), max_length), np.int32)
    for row, ids in zip(result, rows, strict=True):
        kept = ids[:max_length]
        row[: len(kept)] = kept
    return result


def _dump(kind: str, encoding: TextEncoding, **more) -> str:
    value = {
        "encoding": kind,
        "version": _VERSION,
        "max_length": encoding.max_length,
        "vocabulary": list(encoding.vocabulary.words),
        **more,
    }
    return json.dumps(value, ensure_ascii=False)


def _load(text: str, kind: str | None = None) -> dict[str, Any]:
    value = parse_json(text.encode("utf-8", "surrogatepass"))
    remedy = "write it with to_json"
    if not isinstance(value, dict) or value.get("encoding") not in ("words", "characters"):
        raise DataError("is not the JSON of an encoding", remedy=remedy)
    if value.get("version") != _VERSION:
        raise DataError("the encoding is written in another version of the format", remedy=remedy)
    if kind is not None and value["encoding"] != kind:
        raise DataError(f"the encoding is not one of {kind}", remedy="use encoding_from_json")
    if "vocabulary" not in value or "max_length" not in value:
        raise DataError("the encoding has no vocabulary or max_length", remedy=remedy)
    return value
