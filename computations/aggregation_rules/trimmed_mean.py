"""The rule `trimmed_mean` (Yin et al. 2018, "Byzantine-Robust Distributed Learning", Definition 2)."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf
from attrs import field
from attrs.validators import and_, gt, lt

from computations.aggregation_rules.registry import NOBODY_SEES, rule
from computations.aggregators.collected import CollectedFactory
from computations.errors import CompositionError
from computations.ranges import Validator, options_class

_BELOW_HALF: Validator = and_(gt(0), lt(0.5))


@options_class
class TrimmedMeanOptions:
    """Attributes:
    trimmed_share: with `trimmed_mean`, the share of a round's clients that is left out on either side, rounded down.
    """

    trimmed_share: float = field(default=0.2, validator=_BELOW_HALF)


def _leaves_out_somebody(options: TrimmedMeanOptions, expected: float) -> None:
    if options.trimmed_share * expected < 1 - 1e-9:
        raise CompositionError(
            f"aggregation.trimmed_share = {options.trimmed_share:g} of {expected:g} clients per round leaves out no "
            "client; raise it, or training.clients_per_round"
        )


@rule(
    "trimmed_mean",
    title="the trimmed mean of every number",
    options=TrimmedMeanOptions,
    collects=True,
    not_secure=NOBODY_SEES,
    require_round=_leaves_out_somebody,
)
def trimmed_mean(options: TrimmedMeanOptions) -> CollectedFactory:
    """of every number the mean without the lowest and the highest"""
    return collected_trimmed_mean(options.trimmed_share)


def collected_trimmed_mean(share: float) -> CollectedFactory:
    """Return the mean of every coordinate without the lowest and the highest floor(share * k) of k clients.

    See Yin et al. 2018, Definition 2.

    Args:
      share: at least 0 and below one half; of one side. Bad clients have to be fewer than that.

    Raises:
      ValueError: for another share.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share must be at least 0 and below 0.5, got {share}")

    def combine(rows: list[tf.Tensor], number: tf.Tensor) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        # So that 0.29 of 100 are 29, not 28.999999999999996.
        cut = tf.cast(tf.floor(share * tf.cast(number, tf.float64) + 1e-9), tf.int32)
        ordered = (tf.sort(r, axis=0) for r in rows)
        return [tf.reduce_mean(r[cut : number - cut], axis=0) for r in ordered], {}

    return CollectedFactory(combine)
