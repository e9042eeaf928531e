"""A tokenizer's tables as TensorFlow operations: characters to words to ids."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from datasets.text.tokenizer_tables import ALONE, BLANK, LETTER, NOTHING, PAGE, TokenizerTables


class WordPieces(tf.Module):
    """Ids of the pieces of stretches of text, as the tokenizer of the tables gives them.

    Takes tensorflow-text's `FastWordpieceTokenizer` for the pieces of a word. What comes before, from characters to
    words, is read off the training tokenizer: `FastBertTokenizer` has another version of Unicode and keeps control
    characters, so that it differs on thousands of characters.
    """

    def __init__(self, tables: TokenizerTables):
        super().__init__(name="word_pieces")
        characters = tables.characters
        # Variables, not constants, which every function of a SavedModel would hold for itself.
        self._page_of, self._entry_of, self._shift, self._kind = (
            tf.Variable(table, trainable=False)
            for table in (characters.page_of, characters.entry_of.ravel(), characters.shift, characters.kind)
        )
        self._limit, self._unknown = tables.max_characters, tables.unknown_id
        self._whole = tables.prefix is None
        if self._whole:
            initializer = tf.lookup.KeyValueTensorInitializer(list(tables.pieces), tf.constant(tables.ids))
            self._table = tf.lookup.StaticHashTable(initializer, tables.unknown_id)
            return
        import tensorflow_text

        self._ids = tf.Variable(tables.ids, trainable=False)
        unknown = tables.pieces[int(np.flatnonzero(tables.ids == tables.unknown_id)[0])]
        in_pieces = set().union(*tables.pieces)
        self._foreign = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in in_pieces)
        self._cutter = tensorflow_text.FastWordpieceTokenizer(
            vocab=list(tables.pieces),
            suffix_indicator=tables.prefix,
            max_bytes_per_word=4 * (tables.max_characters or 1 << 20) + 1,
            token_out_type=tf.int32,
            unknown_token=unknown,
            no_pretokenization=True,
        )

    def __call__(self, codes: tf.Tensor, stretch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(ids int32 [p], stretch of each int64 [p]) of characters that stand in stretches tokenized apart.

        Args:
          codes: int32 [n], code points, one stretch after the other.
          stretch: int64 [n], numbers of the stretches, equal in a stretch and different between neighbours.
        """
        words, stretch_of_word = self._words(codes, stretch)
        if self._whole:
            return self._table.lookup(words), stretch_of_word
        pieces = self._cutter.tokenize(words)
        return tf.gather(self._ids, pieces.flat_values), tf.repeat(stretch_of_word, pieces.row_lengths())

    def _words(self, codes, stretch):
        """(words string [w], stretch of each)."""
        entry = tf.gather(self._entry_of, tf.gather(self._page_of, codes // PAGE) * PAGE + codes % PAGE)
        kind = tf.reshape(tf.gather(self._kind, entry), [-1])
        codes = tf.reshape(codes[:, tf.newaxis] + tf.gather(self._shift, entry), [-1])
        there = tf.not_equal(kind, NOTHING)
        kind, codes = tf.boolean_mask(kind, there), tf.boolean_mask(codes, there)
        stretch = tf.boolean_mask(tf.repeat(stretch, self._kind.shape[1]), there)
        goes_on = tf.logical_and(tf.equal(stretch[1:], stretch[:-1]), tf.equal(kind[:-1], LETTER))
        goes_on = tf.concat([tf.zeros_like(kind[:1], tf.bool), goes_on], 0)
        starts = tf.logical_or(tf.logical_not(goes_on), tf.equal(kind, ALONE))
        in_word = tf.not_equal(kind, BLANK)
        kind, codes, starts, stretch = (tf.boolean_mask(part, in_word) for part in (kind, codes, starts, stretch))
        number = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        letters = tf.RaggedTensor.from_value_rowids(codes, number, tf.reduce_sum(tf.cast(starts, tf.int64)))
        words = tf.strings.unicode_encode(letters, "UTF-8")
        if self._limit is not None:
            words = tf.where(letters.row_lengths() > self._limit, self._foreign, words)
        return words, tf.boolean_mask(stretch, starts)
