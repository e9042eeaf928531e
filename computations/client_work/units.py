"""What the batches of local training are made of: examples or groups of them, of all a client has or a selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from computations.local_model import LABEL


@dataclass(frozen=True)
class Units:
    """Attributes:
    rows: int32 [m], the places of the examples that train, unit after unit.
    lengths: int32 [U], how many rows each unit has; None: every row is a unit.
    """

    rows: tf.Tensor
    lengths: tf.Tensor | None = None

    @property
    def number(self) -> tf.Tensor:
        """int32 scalar, U."""
        return tf.size(self.rows if self.lengths is None else self.lengths)

    def batch(self, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """(rows, the place of each row's unit in the batch, None where every row is one): units int32 [B] -> int32."""
        if self.lengths is None:
            return tf.gather(self.rows, chosen), None
        lengths = tf.gather(self.lengths, chosen)
        starts = tf.gather(tf.cumsum(self.lengths, exclusive=True), chosen)
        places = tf.ragged.range(starts, starts + lengths).values
        return tf.gather(self.rows, places), tf.repeat(tf.range(tf.size(chosen)), lengths)


def units_of(examples: Mapping[str, tf.Tensor], *, by: str | None = None, selected: tf.Tensor | None = None) -> Units:
    """The units of a client.

    Args:
      examples: name -> [n, ...].
      by: name of the integers [n] that make rows with one of them a unit, e.g. the triples, in ascending order, the
        rows in their own; None: every row is a unit.
      selected: bool [n], the rows that train; None: all of them.
    """
    rows = tf.range(tf.shape(examples[LABEL])[0])
    if selected is not None:
        rows = tf.boolean_mask(rows, selected)
    if by is None:
        return Units(rows)
    ids = tf.gather(examples[by], rows)
    order = tf.argsort(ids, stable=True)
    _, _, lengths = tf.unique_with_counts(tf.gather(ids, order))
    return Units(tf.gather(rows, order), lengths)
