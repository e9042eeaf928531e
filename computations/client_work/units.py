"""What the batches of local training consist of: examples or groups of examples, all of a client's or a selection."""

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
        """Return U, an int32 scalar."""
        return tf.size(self.rows if self.lengths is None else self.lengths)

    def batch(self, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the rows of units int32 [B], and each row's unit in the batch (int32, None if every row is one)."""
        if self.lengths is None:
            return tf.gather(self.rows, chosen), None
        lengths = tf.gather(self.lengths, chosen)
        starts = tf.gather(tf.cumsum(self.lengths, exclusive=True), chosen)
        places = tf.ragged.range(starts, starts + lengths).values
        return tf.gather(self.rows, places), tf.repeat(tf.range(tf.size(chosen)), lengths)


def units_of(examples: Mapping[str, tf.Tensor], *, by: str | None = None, selected: tf.Tensor | None = None) -> Units:
    """Return the units of a client.

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
