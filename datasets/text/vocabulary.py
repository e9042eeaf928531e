"""Words and their ids."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from datasets.errors import DataError
from datasets.ranges import require, whole_number

OUT_OF_VOCABULARY_ID = 1
FIRST_WORD_ID = 2

RESERVED = ("", "[UNK]")
"""The words that Keras' lookup layers use for padding and for words out of the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """Ids of words, like Keras' TextVectorization with a mask.

    0 is padding, 1 out of vocabulary, and words start at 2.

    Attributes:
      words: Unique, in the order of their ids; `len()` of the vocabulary is len(words) + 2.

    Raises:
      DataError: a word is no string, is reserved or a duplicate.
    """

    words: tuple[str, ...] = field(repr=False)

    def __post_init__(self):
        seen = set()
        for number, word in enumerate(self.words, FIRST_WORD_ID):
            if not isinstance(word, str) or word in RESERVED or word in seen:
                raise DataError(
                    "is not a string, is reserved, or is a duplicate",
                    record=f"word with id {number}",
                    remedy="remove it",
                )
            seen.add(word)

    @classmethod
    def build(
        cls,
        clients: Mapping[str, Iterable[Sequence[str]]],
        *,
        min_count: int = 1,
        min_clients: int = 1,
        max_size: int | None = None,
    ) -> Vocabulary:
        """Build from the words of the clients' texts, most frequent first, ties in the order of code points.

        The vocabulary leaves the clients: a word that fewer than `min_clients` of them hold does not enter it.

        Args:
          clients: Client id to its segmented texts.
          min_count: The least number of occurrences over all clients.
          min_clients: The least number of clients that hold the word.
          max_size: At most this many ids, the two reserved ones included (Keras' `max_tokens`).

        Raises:
          DataError: an impossible option, or no word is left.
        """
        require(whole_number(1), min_count=min_count, min_clients=min_clients)
        if max_size is not None:
            require(whole_number(FIRST_WORD_ID + 1), max_size=max_size)
        counts, holders = Counter(), Counter()
        for texts in clients.values():
            of_client = Counter(word for words in texts for word in words)
            counts.update(of_client)
            holders.update(of_client.keys())
        selected = [
            word
            for word, count in counts.items()
            if count >= min_count and holders[word] >= min_clients and word not in RESERVED
        ]
        if not selected:
            raise DataError("no word is left for the vocabulary", remedy="lower min_count or min_clients")
        selected.sort(key=lambda word: (-counts[word], word))
        return cls(tuple(selected if max_size is None else selected[: max_size - FIRST_WORD_ID]))

    def __len__(self) -> int:
        return len(self.words) + FIRST_WORD_ID

    def ids(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word, or 1 if it is not in the vocabulary."""
        table = self._table
        return [table.get(word, OUT_OF_VOCABULARY_ID) for word in words]

    @functools.cached_property
    def _table(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD_ID)}

    def __getstate__(self):
        return {"words": self.words}
