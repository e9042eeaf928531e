"""Documents longer than an encoder's positions as overlapping windows, and what was found in them put together."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Windows:
    """V windows of B documents, each of them `[CLS]`, at most window - 2 pieces of its document, `[SEP]`.

    Attributes:
      document: int32 [V], whose it is; a document's windows stand together, from left to right.
      index: int32 [V], its number among its document's windows.
      start: int32 [V], pieces of the document before its first piece, `[CLS]` not counted.
      held: int32 [V], pieces of the document in it, `[CLS]` and `[SEP]` not counted.
      source: int32 [V, w], places in the document of what it holds; 0 on the padding.
      mask: bool [V, w], false on the padding.
      counted: bool [V, w]: also false on a `[CLS]` or `[SEP]` within the document, which the window alone has.
    """

    document: tf.Tensor
    index: tf.Tensor
    start: tf.Tensor
    held: tf.Tensor
    source: tf.Tensor
    mask: tf.Tensor
    counted: tf.Tensor

    def of_documents(self, rows: tf.Tensor) -> tf.Tensor:
        """[B, l, ...] -> [V, w, ...]: what the windows hold of every document's rows."""
        return tf.gather_nd(rows, tf.stack([self._documents(), self.source], axis=-1))

    def places(self, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Places in documents, int32 [B, M] (negative: none) -> (places in windows int32 [V, M], bool [V, M]).

        The second says whether the window holds the place; where it does not the first is 0. `[CLS]` and `[SEP]` are no
        places.
        """
        inside = tf.gather(places, self.document) - self.start[:, tf.newaxis]
        holds = (inside >= 1) & (inside <= self.held[:, tf.newaxis])
        return tf.where(holds, inside, 0), holds

    def summed(self, values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """[V, w, f] -> [B, l, f]: the sum over the windows that hold a place of a document.

        Args:
          values: of the windows.
          like: [B, l], for its shape.
        """
        count, length = tf.shape(like)[0], tf.shape(like)[1]
        to = tf.where(self.counted, self._documents() * length + self.source, -1)  # negative ones are dropped
        width = tf.shape(values)[-1]
        rows = tf.math.unsorted_segment_sum(tf.reshape(values, [-1, width]), tf.reshape(to, [-1]), count * length)
        return tf.ensure_shape(tf.reshape(rows, [count, length, width]), [None, None, values.shape[-1]])

    def mean(self, values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """[V, w, f] -> [B, l, f]: the mean over the windows that hold a position, and zero on the padding."""
        holding = self.summed(tf.cast(self.counted, values.dtype)[..., tf.newaxis], like)
        return self.summed(values, like) / tf.maximum(holding, 1)

    def _documents(self) -> tf.Tensor:
        return tf.broadcast_to(self.document[:, tf.newaxis], tf.shape(self.source))


def cut(attention_mask: tf.Tensor, window: int, overlap: int) -> Windows:
    """Windows of documents int32 [B, l], 1 on `[CLS]`, pieces and `[SEP]`.

    A document that does not fit has windows whose starts lie window - 2 - overlap pieces apart; the last one ends with
    the document, so that it may share more with the one before it. With two windows that is ATLOP's way.

    Args:
      attention_mask: of the documents.
      window: pieces in a window, `[CLS]` and `[SEP]` included.
      overlap: the fewest pieces that two neighbours share, below window - 2.
    """
    room, apart = window - 2, window - 2 - overlap
    lengths = tf.reduce_sum(attention_mask, axis=-1)
    pieces = tf.maximum(lengths - 2, 0)
    counts = 1 + (tf.maximum(pieces - room, 0) + apart - 1) // apart
    document = tf.repeat(tf.range(tf.shape(lengths)[0]), counts)
    index = tf.range(tf.size(document)) - tf.gather(tf.cumsum(counts, exclusive=True), document)
    start = tf.minimum(index * apart, tf.gather(tf.maximum(pieces - room, 0), document))
    held = tf.gather(tf.minimum(pieces, room), document)

    position = tf.range(tf.reduce_max(tf.concat([held, [0]], 0)) + 2)[tf.newaxis]
    separator = tf.equal(position, held[:, tf.newaxis] + 1)
    end = tf.gather(tf.maximum(lengths - 1, 0), document)[:, tf.newaxis]
    mask = position <= held[:, tf.newaxis] + 1
    source = tf.where(separator, end, tf.where(mask & (position > 0), start[:, tf.newaxis] + position, 0))
    first = tf.equal(index, 0)[:, tf.newaxis]
    last = tf.equal(index + 1, tf.gather(counts, document))[:, tf.newaxis]
    counted = mask & (first | (position > 0)) & (last | ~separator)
    return Windows(document, index, start, held, source, mask, counted)


def max_windows(length: int, window: int, overlap: int) -> int:
    """The number of windows of a document of `length` pieces, including `[CLS]` and `[SEP]`.

    The other arguments are those of `cut`.
    """
    room, apart = window - 2, window - 2 - overlap
    return 1 + max(0, -(-(length - 2 - room) // apart))
