"""Whole texts to arrays in TensorFlow operations: what `PieceEncoding.encode` gives, in a graph."""

from __future__ import annotations

import tensorflow as tf

from datasets.text.piece_encoding import PieceEncoding
from datasets.text.tokenizer_tables import TokenizerTables
from tff_re.exporting.in_graph.word_pieces import WordPieces


class WholeText(tf.Module):
    """From texts, string [B] in UTF-8, to the arrays of a PieceInput, int32."""

    def __init__(self, encoding: PieceEncoding, tables: TokenizerTables):
        super().__init__(name="whole_text")
        self._length = encoding.max_length
        self._cls, self._sep, self._pad = tables.cls_id, tables.sep_id, tables.pad_id
        self._pieces = WordPieces(tables)

    def __call__(self, text) -> dict[str, tf.Tensor]:
        codes = tf.strings.unicode_decode(text, "UTF-8")
        ids, row = self._pieces(codes.flat_values, codes.value_rowids())
        rows = tf.RaggedTensor.from_value_rowids(ids, row, codes.nrows())
        length = tf.minimum(rows.row_lengths(), self._length - 2)[:, tf.newaxis]
        cut = rows.to_tensor(0, shape=[None, self._length - 2])
        position = tf.range(self._length, dtype=tf.int64)[tf.newaxis]
        ids = tf.pad(cut, [[0, 0], [1, 1]], constant_values=self._pad)
        ids = tf.where(position <= length, ids, tf.where(tf.equal(position, length + 1), self._sep, self._pad))
        ids = tf.where(tf.equal(position, 0), self._cls, ids)
        return {
            "input_ids": ids,
            "attention_mask": tf.cast(tf.tile(position, [codes.nrows(), 1]) < length + 2, tf.int32),
        }
