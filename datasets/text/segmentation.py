"""Chinese word segmentation with jieba, with the symptom vocabulary in its dictionary."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from datasets.errors import DataError


@dataclass(frozen=True)
class Segmenter:
    """Segments Chinese text into words.

    A plain value: two segmenters with the same words are equal, and pickling carries the words alone. The dictionary is
    built on first use, one for each set of words, from jieba's own dictionary file; jieba's cache, a file of a known
    name in a folder that all users share, is neither read nor written.

    Attributes:
      words: Words added to jieba's dictionary (the symptom vocabulary), kept sorted and unique.

    Raises:
      DataError: a word is empty or holds a blank.
    """

    words: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self):
        words = tuple(sorted(set(self.words)))
        for number, word in enumerate(words, 1):
            if not isinstance(word, str) or len(word.split()) != 1 or word.split()[0] != word:
                raise DataError(
                    "is empty or holds a blank", record=f"added word number {number} (sorted)", remedy="remove it"
                )
        object.__setattr__(self, "words", words)

    def segment(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the words of each text, none of which contains a blank.

        Characters and their order are kept, and blanks are dropped.
        """
        tokenizer = _tokenizer(self.words)
        return [[word for word in tokenizer.cut(text) if not word.isspace()] for text in texts]


@functools.lru_cache(maxsize=4)
def _tokenizer(words: Sequence[str]):
    frequencies, total = _dictionary()
    tokenizer = _jieba().Tokenizer()
    tokenizer.FREQ, tokenizer.total, tokenizer.initialized = dict(frequencies), total, True
    for word in words:
        tokenizer.add_word(word)
    return tokenizer


@functools.lru_cache(maxsize=1)
def _dictionary() -> tuple[dict[str, int], int]:
    tokenizer = _jieba().Tokenizer()
    return tokenizer.gen_pfdict(tokenizer.get_dict_file())


def _jieba():
    # jieba warns of its own use of pkg_resources and of its regular expressions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    return jieba
