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
        letters, starts, stretch = self._letters(codes, stretch)
        words, stretch_of_word = self._words(letters), tf.boolean_mask(stretch, starts)
        if self._whole:
            return self._table.lookup(words), stretch_of_word
        pieces = self._cutter.tokenize(words)
        return tf.gather(self._ids, pieces.flat_values), tf.repeat(stretch_of_word, pieces.row_lengths())

    def located(self, codes: tf.Tensor, stretch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `__call__`, with (start, end) of each piece, int64 [p]: indices of `codes`, half-open.

        They are those of the first and of the last character that a piece is made of. Pieces share a character where
        one becomes several letters.
        """
        letters, _, stretch, source = self._letters(codes, stretch, tf.range(tf.size(codes, tf.int64)))
        letters = letters.with_flat_values(_characters(letters.flat_values))
        words, first, end = self._words(letters), letters.row_starts(), letters.row_limits()
        if self._whole:
            ids, last = self._table.lookup(words), end - 1
        else:
            pieces, start_byte, end_byte = self._cutter.tokenize_with_offsets(words)
            ids, word = tf.gather(self._ids, pieces.flat_values), pieces.value_rowids()
            first, last = tf.gather(first, word), tf.gather(end, word) - 1
            size = _bytes(letters.flat_values)
            letter_of_byte = tf.repeat(tf.range(tf.size(size, tf.int64)), size)
            word_byte = tf.gather(tf.cumsum(size, exclusive=True), first)
            begins, ends = (
                tf.gather(letter_of_byte, word_byte + byte)
                for byte in (start_byte.flat_values, end_byte.flat_values - 1)
            )
            # Another word stands for one that is too long: its piece is the whole word.
            whole = tf.gather(self._too_long(letters), word)
            first, last = tf.where(whole, first, begins), tf.where(whole, last, ends)
        return ids, tf.gather(stretch, first), tf.gather(source, first), tf.gather(source, last) + 1

    def _letters(self, codes, stretch, *further):
        """(letters of each word, whether a letter begins a word, `stretch` and `further` of the letters).

        The shapes: ragged int32 [w, None]; bool [m]; [n] each, of the m letters.
        """
        entry = tf.gather(self._entry_of, tf.gather(self._page_of, codes // PAGE) * PAGE + codes % PAGE)
        kind = tf.reshape(tf.gather(self._kind, entry), [-1])
        codes = tf.reshape(codes[:, tf.newaxis] + tf.gather(self._shift, entry), [-1])
        there = tf.not_equal(kind, NOTHING)
        kind, codes = tf.boolean_mask(kind, there), tf.boolean_mask(codes, there)
        stretch, *further = (
            tf.boolean_mask(tf.repeat(values, self._kind.shape[1]), there) for values in (stretch, *further)
        )
        goes_on = tf.logical_and(tf.equal(stretch[1:], stretch[:-1]), tf.equal(kind[:-1], LETTER))
        goes_on = tf.concat([tf.zeros_like(kind[:1], tf.bool), goes_on], 0)
        starts = tf.logical_or(tf.logical_not(goes_on), tf.equal(kind, ALONE))
        in_word = tf.not_equal(kind, BLANK)
        codes, starts, stretch, *further = (
            tf.boolean_mask(part, in_word) for part in (codes, starts, stretch, *further)
        )
        number = tf.cumsum(tf.cast(starts, tf.int64)) - 1
        letters = tf.RaggedTensor.from_value_rowids(codes, number, tf.reduce_sum(tf.cast(starts, tf.int64)))
        return letters, starts, stretch, *further

    def _words(self, letters):
        """string [w]"""
        words = tf.strings.unicode_encode(letters, "UTF-8")
        return words if self._limit is None else tf.where(self._too_long(letters), self._foreign, words)

    def _too_long(self, letters):
        """bool [w]"""
        if self._limit is None:
            return tf.zeros([letters.nrows()], tf.bool)
        return letters.row_lengths() > self._limit


def _bytes(codes: tf.Tensor) -> tf.Tensor:
    """int64 [m]: how many bytes UTF-8 has for each code point."""
    return 1 + sum(tf.cast(codes >= first, tf.int64) for first in (0x80, 0x800, 0x10000))


def _characters(codes: tf.Tensor) -> tf.Tensor:
    """The code points, and U+FFFD for those that are no characters (U+1FFFE, U+1FFFF, U+2FFFE, …).

    Some versions of TensorFlow write that for them, others do not, and the numbers of bytes differ.
    """
    return tf.where(tf.logical_and(codes >= 0x10000, codes % 0x10000 >= 0xFFFE), 0xFFFD, codes)
