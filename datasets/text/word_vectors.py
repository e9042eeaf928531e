"""Word vectors, trained and arranged for a vocabulary."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.errors import DataError
from datasets.files import PathLike
from datasets.ranges import require, whole_number
from datasets.seeds import generator
from datasets.text.vocabulary import OUT_OF_VOCABULARY_ID, Vocabulary


@dataclass(frozen=True)
class WordVectors:
    """Vectors of words.

    Attributes:
      words: Unique.
      values: float32 [len(words), width], finite.
      source: Where they come from, for messages: a file, or how they were trained.
      notes: What a report has to say, such as duplicate words.
    """

    words: tuple[str, ...] = field(repr=False)
    values: np.ndarray = field(repr=False)
    source: str
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if self.values.ndim != 2 or len(self.values) != len(self.words) or not self.values.size:
            raise DataError("there is not one vector for each word", path=self.source, remedy="check the file")
        if not np.isfinite(self.values).all():
            raise DataError("a vector holds NaN or infinity", path=self.source, remedy="use another file")

    @property
    def width(self) -> int:
        """Return the number of components of a vector."""
        return self.values.shape[1]

    def coverage(self, vocabulary: Vocabulary) -> float:
        """Return the share of the vocabulary's words that have a vector."""
        known = set(self.words)
        return sum(word in known for word in vocabulary.words) / max(1, len(vocabulary.words))

    def describe(self, source: str, vocabulary: Vocabulary) -> str:
        """Describe the vectors in a few words for a report: their origin, their width, and their share of the words."""
        return f"word vectors ({source}): width {self.width}, {self.coverage(vocabulary):.0%} of the words"

    def matrix_for(self, vocabulary: Vocabulary, width: int | None = None, *, seed: int = 0) -> np.ndarray:
        """Return the embedding matrix, float32 [len(vocabulary), width].

        The row of padding is zero and that of words out of the vocabulary the mean of all vectors. A word of the
        vocabulary without a vector gets one drawn from N(0, s²), s the standard deviation of all components; it depends
        on the word and the seed alone, so that such words differ from each other and stay what they are in another
        vocabulary.

        Raises:
          DataError: the vectors have another width than the one asked for, or no word of the vocabulary.
        """
        if width is not None and width != self.width:
            raise DataError(
                f"its vectors have {self.width} components, not {width}",
                path=self.source,
                remedy=f"ask for a width of {self.width} or use other vectors",
            )
        if not self.coverage(vocabulary):
            raise DataError(
                f"has a vector for none of the {len(vocabulary.words)} words of the vocabulary",
                path=self.source,
                remedy="use vectors of the texts' language, cut and spelled like them, or none (they are learned then)",
            )
        vector_of = dict(zip(self.words, self.values, strict=True))
        result = np.zeros((len(vocabulary), self.width), np.float32)
        result[OUT_OF_VOCABULARY_ID] = self.values.mean(axis=0)
        spread = float(self.values.std())
        for word, number in zip(vocabulary.words, vocabulary.ids(vocabulary.words), strict=True):
            if word in vector_of:
                result[number] = vector_of[word]
            else:
                result[number] = spread * generator(seed, "word vector", word).standard_normal(self.width)
        return result

    def save(self, path: PathLike, *, binary: bool = False) -> None:
        """Write the vectors in word2vec's text or binary format."""
        from gensim.models import KeyedVectors

        vectors = KeyedVectors(self.width)
        vectors.add_vectors(list(self.words), self.values)
        vectors.save_word2vec_format(str(path), binary=binary)


def train_word_vectors(
    sentences: Sequence[Sequence[str]],
    *,
    width: int = 100,
    window: int = 5,
    min_count: int = 1,
    epochs: int = 5,
    skip_gram: bool = False,
    seed: int = 0,
) -> WordVectors:
    """Train Word2Vec (Mikolov et al. 2013) with gensim, so that the same sentences and seed give the same vectors.

    Args:
      sentences: Segmented texts.
      width: Components of a vector.
      window: Words to each side that count as context.
      min_count: Words with fewer occurrences get no vector.
      epochs: Passes over the sentences.
      skip_gram: Skip-gram instead of CBOW.
      seed: Of the initial vectors and of the sampling.

    Raises:
      DataError: no word is left, or an option is smaller than 1.
    """
    from gensim.models import Word2Vec

    require(whole_number(1), width=width, window=window, min_count=min_count, epochs=epochs)
    sentences = [list(sentence) for sentence in sentences]
    model = Word2Vec(
        vector_size=width,
        window=window,
        min_count=min_count,
        sg=int(skip_gram),
        seed=seed,
        workers=1,
        hashfxn=_stable_hash,
    )
    model.build_vocab(sentences)
    if not model.wv.index_to_key:
        raise DataError("no word is left to train vectors for", remedy="lower min_count or give more sentences")
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    return WordVectors(tuple(model.wv.index_to_key), np.array(model.wv.vectors, np.float32), "trained word vectors")


def _stable_hash(word: str) -> int:
    # Python's own hash differs from process to process.
    return zlib.crc32(word.encode("utf-8"))
