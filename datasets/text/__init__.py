"""From text to ids: segmentation, vocabulary, word vectors, encodings."""

from datasets.text.encoding import CharacterEncoding, TextEncoding, WordEncoding, encoding_from_json
from datasets.text.segmentation import Segmenter
from datasets.text.vocabulary import Vocabulary
from datasets.text.word_vector_files import load_word_vectors
from datasets.text.word_vectors import WordVectors, train_word_vectors

__all__ = [
    "CharacterEncoding",
    "Segmenter",
    "TextEncoding",
    "Vocabulary",
    "WordEncoding",
    "WordVectors",
    "encoding_from_json",
    "load_word_vectors",
    "train_word_vectors",
]
