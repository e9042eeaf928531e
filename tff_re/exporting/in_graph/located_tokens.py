"""Texts to tokens with their offsets in TensorFlow operations: what the encodings of entities give, in a graph."""

from __future__ import annotations

import functools
import sys

import numpy as np
import tensorflow as tf

from datasets.entities.encoding import TaggedPieceEncoding
from datasets.entities.tags import NO_TOKEN
from datasets.text.encoding import TextEncoding
from datasets.text.tokenizer_tables import TokenizerTables
from datasets.text.vocabulary import FIRST_WORD_ID, OUT_OF_VOCABULARY_ID
from tff_re.exporting.in_graph.word_pieces import WordPieces

TOKEN_MASK = "token_mask"
"""1 where a piece is a token, which has a tag."""


@functools.cache
def _blanks() -> tuple[int, ...]:
    """The code points that Python takes for blanks.

    They are collected only when a graph of words is made, which few exports have.
    """
    return tuple(code for code in range(sys.maxunicode + 1) if chr(code).isspace())


class LocatedWords(tf.Module):
    """From texts, string [B] in UTF-8, to `tokens`, `starts` and `ends`, int32 [B, L].

    Tokens are the words between blanks, or all characters. L is the number of tokens of the longest text, at least 1
    and at most `max_length`; offsets are code points of the text, -1 behind a text's last token.
    """

    def __init__(self, encoding: TextEncoding, *, characters: bool):
        super().__init__(name="located_words")
        self._length, self._characters = encoding.max_length, characters
        words = encoding.vocabulary.words
        keys = np.array([ord(word) for word in words], np.int64) if characters else [word.encode() for word in words]
        ids = np.arange(FIRST_WORD_ID, FIRST_WORD_ID + len(words), dtype=np.int32)
        initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(ids))
        self._table = tf.lookup.StaticHashTable(initializer, OUT_OF_VOCABULARY_ID)

    def __call__(self, text) -> dict[str, tf.Tensor]:
        codes = tf.strings.unicode_decode(text, "UTF-8")
        row = codes.value_rowids()
        start = tf.range(tf.size(row, tf.int64)) - tf.gather(codes.row_starts(), row)
        if self._characters:
            words, end = tf.cast(codes.flat_values, tf.int64), start + 1
        else:
            words, row, start, end = _between_blanks(codes.flat_values, row, start)
        stays = _index_in_row(row, codes.nrows()) < self._length
        words, row, start, end = (tf.boolean_mask(part, stays) for part in (words, row, start, end))
        values = {"tokens": self._table.lookup(words), "starts": start, "ends": end}
        fillers = {"tokens": 0, "starts": NO_TOKEN, "ends": NO_TOKEN}
        arrays = {}
        for name, value in values.items():
            array = _rows(value, row, codes.nrows()).to_tensor(fillers[name])
            missing = tf.maximum(1 - tf.shape(array)[1], 0)
            arrays[name] = tf.pad(array, [[0, 0], [0, missing]], constant_values=fillers[name])
        return arrays


class LocatedPieces(tf.Module):
    """From texts, string [B] in UTF-8, to `input_ids`, `attention_mask`, `token_mask`, `starts`, `ends`, int32 [B, L].

    As `TaggedPieceEncoding.encode_texts`; L is the number of pieces of the longest text, [CLS] and [SEP] included.
    `token_mask` is 1 on pieces that are tokens; offsets are code points of the text, -1 where there is no token.
    """

    def __init__(self, encoding: TaggedPieceEncoding, tables: TokenizerTables):
        super().__init__(name="located_pieces")
        self._length = encoding.max_length
        self._cls, self._sep, self._pad = tables.cls_id, tables.sep_id, tables.pad_id
        self._pieces = WordPieces(tables)

    def __call__(self, text) -> dict[str, tf.Tensor]:
        codes = tf.strings.unicode_decode(text, "UTF-8")
        count = codes.nrows()
        ids, row, start, end = self._pieces.located(codes.flat_values, codes.value_rowids())
        before = tf.gather(codes.row_starts(), row)
        start, end = start - before, end - before
        if self._length is not None:
            stays = _index_in_row(row, count) < self._length - 2
            ids, row, start, end = (tf.boolean_mask(part, stays) for part in (ids, row, start, end))
        # A piece that shares a character with the one before it is no token; that one ends where it ends.
        shares = tf.logical_and(tf.equal(row[1:], row[:-1]), start[1:] < end[:-1])
        is_token = tf.concat([tf.ones_like(row[:1], tf.bool), tf.logical_not(shares)], 0)
        token = tf.cumsum(tf.cast(is_token, tf.int64)) - 1
        token_end = tf.math.unsorted_segment_max(end, token, tf.size(token))
        starts = tf.where(is_token, tf.cast(start, tf.int32), NO_TOKEN)
        ends = tf.where(is_token, tf.cast(tf.gather(token_end, token), tf.int32), NO_TOKEN)
        starts, ends = (_padded(_rows(value, row, count).to_tensor(NO_TOKEN), NO_TOKEN) for value in (starts, ends))
        lengths = tf.math.unsorted_segment_sum(tf.ones_like(row), row, count)[:, tf.newaxis]
        position = tf.range(tf.shape(starts, tf.int64)[1])[tf.newaxis]
        ids = _padded(_rows(ids, row, count).to_tensor(self._pad), self._pad)
        ids = tf.where(tf.equal(position, lengths + 1), self._sep, ids)
        return {
            "input_ids": tf.where(tf.equal(position, 0), self._cls, ids),
            "attention_mask": tf.cast(position < lengths + 2, tf.int32),
            TOKEN_MASK: tf.cast(starts >= 0, tf.int32),
            "starts": starts,
            "ends": ends,
        }


def _between_blanks(codes, row, position):
    """(words string [w], text of each, start, end) of what stands between blanks.

    Args:
      codes, row, position: [n], of all characters; of which text, and where in it.
    """
    in_word = tf.logical_not(tf.reduce_any(tf.equal(codes[:, tf.newaxis], tf.constant(_blanks())), 1))
    goes_on = tf.logical_and(in_word[:-1], tf.equal(row[1:], row[:-1]))
    starts = tf.logical_and(in_word, tf.concat([tf.ones_like(in_word[:1]), tf.logical_not(goes_on)], 0))
    codes, row, position, starts = (tf.boolean_mask(part, in_word) for part in (codes, row, position, starts))
    count = tf.reduce_sum(tf.cast(starts, tf.int64))
    letters = tf.RaggedTensor.from_value_rowids(codes, tf.cumsum(tf.cast(starts, tf.int64)) - 1, count)
    first, last = letters.row_starts(), letters.row_limits() - 1
    words = tf.strings.unicode_encode(letters, "UTF-8")
    return words, tf.gather(row, first), tf.gather(position, first), tf.gather(position, last) + 1


def _rows(values, row, count) -> tf.RaggedTensor:
    """[n] -> ragged int32 [B, None]."""
    return tf.RaggedTensor.from_value_rowids(tf.cast(values, tf.int32), row, count)


def _padded(values, filler: int):
    """[B, n] -> [B, n + 2], with one more column before and one after."""
    return tf.pad(values, [[0, 0], [1, 1]], constant_values=filler)


def _index_in_row(row, count):
    """int64 [n]: how many of the same row come before."""
    starts = tf.cumsum(tf.math.unsorted_segment_sum(tf.ones_like(row), row, count), exclusive=True)
    return tf.range(tf.size(row, tf.int64)) - tf.gather(starts, row)
