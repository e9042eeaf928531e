"""Texts with two mentions to arrays in TensorFlow operations: what `RelationEncoding.encode` gives, in a graph."""

from __future__ import annotations

import tensorflow as tf

from datasets.text.relation_encoding import RelationEncoding
from datasets.text.tokenizer_tables import TokenizerTables
from tff_re.exporting.in_graph.word_pieces import WordPieces

STRETCHES = 5
"""Four markers cut a text into as many at most; stretch s stands behind s markers."""

_HEAD, _TAIL = 8, 16
_FAR = 1 << 30


class MarkedText(tf.Module):
    """From texts with spans, or with the markers in them, to the arrays of a RelationInput.

    A batch with a text that cannot be encoded is refused with an InvalidArgumentError that gives the texts' numbers in
    the batch, from 0, and none of their content.
    """

    def __init__(self, encoding: RelationEncoding, tables: TokenizerTables):
        super().__init__(name="marked_text")
        self._length, self._blind, self._markers = encoding.max_length, encoding.blind, encoding.markers
        self._type_texts = dict(encoding.type_texts or {})
        self._cls, self._sep, self._pad = tables.cls_id, tables.sep_id, tables.pad_id
        self._unknown, self._marker_ids = tables.unknown_id, tables.marker_ids
        self._pieces = WordPieces(tables)

    def from_markers(self, text, types=None) -> dict[str, tf.Tensor]:
        """The arrays of texts that hold each marker once, string [B].

        `types` as `from_spans` takes them.
        """
        codes = _wide(tf.strings.unicode_decode(text, "UTF-8"), -1)
        removed, positions, good = tf.zeros_like(codes, tf.bool), [], True
        for marker in self._markers:
            occurs = _occurrences(codes, [ord(c) for c in marker])
            good = tf.logical_and(good, tf.equal(tf.reduce_sum(tf.cast(occurs, tf.int32), 1), 1))
            positions.append(_first(occurs))
            inside = [tf.pad(occurs, [[0, 0], [i, 0]])[:, : tf.shape(codes)[1]] for i in range(len(marker))]
            removed = tf.logical_or(removed, tf.reduce_any(tf.stack(inside), 0))
        _require(good, "a marker of <e1> </e1> <e2> </e2> that is missing or repeated")
        stays = tf.logical_and(tf.logical_not(removed), codes >= 0)
        before = tf.cumsum(tf.cast(stays, tf.int32), axis=1, exclusive=True)
        head_start, head_end, tail_start, tail_end = (
            tf.gather(before, position, batch_dims=1) for position in positions
        )
        spans = tf.stack([head_start, head_end], 1), tf.stack([tail_start, tail_end], 1)
        return self._encode(tf.ragged.boolean_mask(codes, stays), *spans, types)

    def from_spans(self, text, head, tail, types=None) -> dict[str, tf.Tensor]:
        """The arrays of a RelationInput, int32.

        See `RelationEncoding.encode`.

        Args:
          text: string [B], UTF-8.
          head, tail: int32 [B, 2], start and end in code points, half-open.
          types: with blinding, (types of the heads, types of the tails), string [B] each.
        """
        return self._encode(tf.strings.unicode_decode(text, "UTF-8"), head, tail, types)

    def _encode(self, codes: tf.RaggedTensor, head, tail, types):
        rows, lengths = codes.nrows(), codes.row_lengths()
        starts, ends = (tf.cast(tf.stack([head[:, i], tail[:, i]], 1), tf.int64) for i in (0, 1))
        fits = tf.logical_and(starts >= 0, tf.logical_and(starts < ends, ends <= lengths[:, tf.newaxis]))
        _require(tf.reduce_all(fits, 1), "a mention that is empty, ends before it starts, or lies beyond the text")
        row = codes.value_rowids()
        position = tf.range(tf.size(row, tf.int64)) - tf.gather(codes.row_starts(), row)
        if self._blind:
            ranks, stretch, stays = _blinded_layout(starts, ends, row, position)
            characters = tf.boolean_mask(codes.flat_values, stays), tf.boolean_mask(row * STRETCHES + stretch, stays)
        else:
            ranks, stretch = _marked_layout(starts, ends, row, position)
            characters = codes.flat_values, row * STRETCHES + stretch
        ids, where = self._pieces(*characters)
        if self._blind:
            type_ids, type_where = self._type_pieces(types, ranks)
            ids, where = tf.concat([ids, type_ids], 0), tf.concat([where, type_where], 0)
        # [B, stretch, mention]: a stretch lies in a mention if it stands behind the opening marker alone.
        number = tf.range(STRETCHES, dtype=tf.int64)[tf.newaxis, :, tf.newaxis]
        inside = tf.logical_and(ranks[:, tf.newaxis, 0::2] < number, number <= ranks[:, tf.newaxis, 1::2])
        missing = self._missing(inside, ranks, where)
        ids = tf.concat([ids, tf.fill(tf.shape(missing), self._unknown)], 0)
        where = tf.concat([where, missing], 0)
        flags = tf.cast(tf.gather(tf.reshape(inside, [-1, 2]), where), tf.int32)
        marker_where = tf.range(rows)[:, tf.newaxis] * STRETCHES + ranks
        # A marker of rank r stands behind stretch r.
        order = tf.argsort(tf.concat([2 * where, tf.reshape(2 * marker_where + 1, [-1])], 0), stable=True)
        marker_numbers = tf.tile(tf.range(1, 5)[tf.newaxis], [rows, 1])
        about = tf.concat([flags[:, 0] * _HEAD + flags[:, 1] * _TAIL, tf.reshape(marker_numbers, [-1])], 0)
        marker_ids = tf.tile(tf.constant(self._marker_ids)[tf.newaxis], [rows, 1])
        ids = tf.gather(tf.concat([ids, tf.reshape(marker_ids, [-1])], 0), order)
        row = tf.gather(tf.concat([where, tf.reshape(marker_where, [-1])], 0), order) // STRETCHES
        ids, about = (tf.RaggedTensor.from_value_rowids(values, row, rows) for values in (ids, tf.gather(about, order)))
        return self._arrays(ids, _wide(about, -1))

    def _type_pieces(self, types, ranks):
        """(ids, stretches) of the types in place of the mentions: between their markers."""
        values, wheres = [], []
        for which, kind in enumerate(types):
            _require(tf.not_equal(tf.strings.strip(kind), ""), "a mention without a type")
            text = kind
            for name, replacement in self._type_texts.items():
                text = tf.where(tf.equal(kind, name), replacement, text)
            codes = tf.strings.unicode_decode(text, "UTF-8")
            row = codes.value_rowids()
            values.append(codes.flat_values)
            wheres.append(row * STRETCHES + tf.gather(ranks[:, 2 * which], row) + 1)
        return self._pieces(tf.concat(values, 0), tf.concat(wheres, 0))

    def _missing(self, inside, ranks, where):
        """The stretches [m] that get an unknown piece: those of a mention that has no piece of its own."""
        rows = tf.shape(ranks, tf.int64)[0]
        counts = tf.math.unsorted_segment_sum(tf.ones_like(where), where, rows * STRETCHES)
        counts = tf.reshape(counts, [-1, STRETCHES, 1])
        has = tf.reduce_any(tf.logical_and(inside, counts > 0), 1)  # [B, mention]
        opening = ranks[:, 0::2]
        # The one that opens last first: its unknown piece belongs to a mention around it as well.
        last = tf.argmax(opening, 1)
        stretch = tf.reduce_max(opening, 1) + 1
        last_lacks = tf.logical_not(tf.gather(has, last, batch_dims=1))
        enclosed = tf.gather(tf.gather(inside, stretch, batch_dims=1), 1 - last, batch_dims=1)
        first_has = tf.logical_or(tf.gather(has, 1 - last, batch_dims=1), tf.logical_and(last_lacks, enclosed))
        base = tf.range(rows) * STRETCHES
        return tf.concat(
            [
                tf.boolean_mask(base + stretch, last_lacks),
                tf.boolean_mask(base + tf.reduce_min(opening, 1) + 1, tf.logical_not(first_has)),
            ],
            0,
        )

    def _arrays(self, ids: tf.RaggedTensor, about):
        """Cuts the items and adds [CLS] and [SEP] at the ends.

        `about` [B, N]: a marker's number from 1, the mentions' flags, -1.
        """
        remains = _remaining(about, self._length - 2)
        positions = [_first(tf.equal(about, number)) for number in (1, 3)]
        before = tf.cumsum(tf.cast(remains, tf.int32), axis=1, exclusive=True)
        arrays = {
            f"{which}_start": tf.gather(before, position, batch_dims=1) + 1
            for which, position in zip(("head", "tail"), positions, strict=True)
        }
        ids = tf.ragged.boolean_mask(_wide(ids, self._pad), remains)
        about = tf.ragged.boolean_mask(about, remains)
        ends = tf.ones([ids.nrows(), 1], tf.int32)
        shape = [None, self._length]
        ids = tf.concat([ends * self._cls, ids, ends * self._sep], 1)
        about = tf.concat([ends * 0, about, ends * 0], 1).to_tensor(0, shape=shape)
        arrays["attention_mask"] = tf.sequence_mask(ids.row_lengths(), self._length, tf.int32)
        arrays["input_ids"] = ids.to_tensor(self._pad, shape=shape)
        for which, flag in (("head", _HEAD), ("tail", _TAIL)):
            arrays[f"{which}_mask"] = tf.cast(tf.bitwise.bitwise_and(about, flag) > 0, tf.int32)
        return arrays


def _wide(ragged: tf.RaggedTensor, filler: int):
    """The rows padded at the end, [B, N + 1].

    The width is never 0, since an empty row has no first or last item.
    """
    return tf.pad(ragged.to_tensor(filler), [[0, 0], [0, 1]], constant_values=filler)


def _require(good, problem: str) -> None:
    """Refuses the batch where `good` [B] is not true of all."""
    numbers = tf.squeeze(tf.where(tf.logical_not(good)), -1)
    tf.debugging.Assert(tf.reduce_all(good), [f"texts with {problem}; their numbers in the batch, from 0:", numbers])


def _occurrences(codes, wanted: list[int]):
    """Where the wanted code points begin in a row of [B, T], as bool [B, T]."""
    length = tf.shape(codes)[1]
    padded = tf.pad(codes, [[0, 0], [0, len(wanted)]], constant_values=-1)
    return tf.reduce_all(tf.stack([tf.equal(padded[:, i : i + length], c) for i, c in enumerate(wanted)]), 0)


def _first(mask):
    """The index of the first true value of each row, int32 [B].

    It is 0 if there is none.
    """
    return tf.argmax(tf.cast(mask, tf.int32), 1, output_type=tf.int32)


def _marked_layout(starts, ends, row, position):
    """(ranks int64 [B, 4] of the markers, stretch int64 [n] of each character).

    See `relation_layout.marked`.
    """
    wide = tf.maximum(tf.reduce_max(ends), 0) + 1  # no batch: the least number
    keys = []
    for which in (0, 1):
        start, end = starts[:, which], ends[:, which]
        # At one place: what closes, the inner one first; then what opens, the outer one first.
        keys.append(((start * 2 + 1) * wide + wide - 1 - end) * 2 + which)
        keys.append((end * 2 * wide + wide - 1 - start) * 2 + 1 - which)
    keys = tf.stack(keys, 1)
    ranks = tf.reduce_sum(tf.cast(keys[:, tf.newaxis] < keys[:, :, tf.newaxis], tf.int64), 2)
    borders = tf.gather(tf.concat([starts, ends], 1), row)
    return ranks, tf.reduce_sum(tf.cast(borders <= position[:, tf.newaxis], tf.int64), 1)


def _blinded_layout(starts, ends, row, position):
    """(ranks, stretch, whether the character stays) if mentions are blinded.

    See `relation_layout.blinded`.
    """
    tail_first = starts[:, 1] < starts[:, 0]
    head_first_ranks, tail_first_ranks = (tf.constant([r], tf.int64) for r in ([0, 1, 2, 3], [2, 3, 0, 1]))
    ranks = tf.where(tail_first[:, tf.newaxis], tail_first_ranks, head_first_ranks)
    first_end = tf.where(tail_first, ends[:, 1], ends[:, 0])
    begins, resumes = tf.reduce_min(starts, 1), tf.reduce_max(ends, 1)
    before, between, after = (
        position < tf.gather(begins, row),
        tf.logical_and(tf.gather(first_end, row) <= position, position < tf.gather(tf.reduce_max(starts, 1), row)),
        position >= tf.gather(resumes, row),
    )
    stretch = 2 * tf.cast(between, tf.int64) + 4 * tf.cast(after, tf.int64)
    return ranks, stretch, tf.reduce_any(tf.stack([before, between, after]), 0)


def _remaining(about, limit: int):
    """Which items [B, N] remain if there are more than `limit`.

    See `RelationEncoding.encode`.
    """
    there = about >= 0
    count = tf.shape(about)[1]
    index = tf.range(count)[tf.newaxis]
    is_marker = tf.logical_and(about >= 1, about <= 4)
    rank = tf.fill(tf.shape(about), _FAR)
    for flag in (_HEAD, _TAIL):
        mine = tf.logical_and(there, tf.bitwise.bitwise_and(about, flag) > 0)
        seen = tf.cumsum(tf.cast(mine, tf.int32), axis=1, exclusive=True)
        rank = tf.where(mine, tf.minimum(rank, seen), rank)
    is_inside = rank < _FAR
    markers = tf.stack([_first(tf.equal(about, number)) for number in range(1, 5)], 1)
    nearest = tf.reduce_min(tf.abs(markers[:, tf.newaxis] - index[..., tf.newaxis]), 2)
    first, last = tf.reduce_min(markers, 1)[:, tf.newaxis], tf.reduce_max(markers, 1)[:, tf.newaxis]
    is_between = tf.logical_and(first < index, index < last)
    tier = tf.where(is_marker, 0, tf.where(is_inside, 1, tf.where(is_between, 2, 3)))
    outside = tf.maximum(first - index, index - last)
    rank = tf.where(is_marker, 0, tf.where(is_inside, rank, tf.where(is_between, nearest, outside)))
    wide = tf.cast(count, tf.int64) + 1
    key = (tf.cast(tier, tf.int64) * wide + tf.cast(rank, tf.int64)) * wide + tf.cast(index, tf.int64)
    key = tf.where(there, key, tf.int64.max)
    least = tf.sort(key, axis=1)[:, : tf.minimum(limit, count)]
    return tf.logical_and(there, key <= tf.reduce_max(least, 1, keepdims=True))
