"""A tokenizer of whole words for relation encodings, for models that learn word vectors of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from datasets.errors import DataError
from datasets.text.relation_layout import MARKERS
from datasets.text.vocabulary import Vocabulary

SPECIAL = ("[CLS]", "[SEP]", *MARKERS)


def split_words(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text, in lower case and without accents.

    Punctuation marks are words, like in BERT.
    """
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return [[word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))] for text in texts]


def word_vocabulary(clients: Mapping[str, Sequence[str]], **bounds) -> Vocabulary:
    """Return the vocabulary of the clients' training texts (by client id), followed by special words and markers.

    `bounds` are those of `Vocabulary.build`; max_size does not count the special words.
    """
    return of_words(Vocabulary.build({client: split_words(texts) for client, texts in clients.items()}, **bounds).words)


def of_words(words: Sequence[str]) -> Vocabulary:
    """Return the vocabulary of words in this order, followed by special words and markers."""
    return Vocabulary((*(word for word in words if word not in SPECIAL), *SPECIAL))


def word_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return a fast tokenizer with the ids of a `word_vocabulary`.

    0 is padding, and 1 an unknown word.

    Raises:
      DataError: the vocabulary does not end with the special words, which would get ids beyond it.
    """
    if vocabulary.words[-len(SPECIAL) :] != SPECIAL:
        raise DataError("the vocabulary does not end with the special words", remedy="make it with word_vocabulary")
    from transformers import PreTrainedTokenizerFast  # takes a quarter of a second, and few tasks need it

    ids = {"[PAD]": 0, "[UNK]": 1, **dict(zip(vocabulary.words, vocabulary.ids(vocabulary.words), strict=True))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        additional_special_tokens=list(MARKERS),
    )
