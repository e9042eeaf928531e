"""The rule `krum` (Blanchard et al. 2017, "Machine Learning with Adversaries")."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from attrs import field
from attrs.validators import ge

from computations.aggregation_rules.registry import NOBODY_SEES, rule
from computations.aggregators.collected import CollectedFactory
from computations.errors import CompositionError
from computations.ranges import COUNT, NOT_NEGATIVE, options_class, require


@options_class
class KrumOptions:
    """Attributes:
    krum_bad: with `krum`, f, how many clients of a round are bad at the most; a round needs 2 f + 3 clients.
    krum_chosen: with `krum`, of how many updates the mean is taken; 1 is Krum itself.
    """

    krum_bad: int = field(default=1, validator=ge(0))
    krum_chosen: int = field(default=1, validator=ge(1))


def _enough_clients(options: KrumOptions, expected: float) -> None:
    bad, chosen = options.krum_bad, options.krum_chosen
    needed = 2 * bad + 3
    if expected < needed:
        raise CompositionError(
            f"aggregation.krum_bad = {bad} needs {needed} clients per round, but {expected:g} take part; lower it, "
            "or raise training.clients_per_round"
        )
    if chosen > expected - bad - 2:
        raise CompositionError(
            f"aggregation.krum_chosen is {chosen}, but of {expected:g} clients with {bad} bad ones only "
            f"{expected - bad - 2:g} can be chosen; lower it"
        )


@rule("krum", title="Krum", options=KrumOptions, collects=True, not_secure=NOBODY_SEES, require_round=_enough_clients)
def krum(options: KrumOptions) -> CollectedFactory:
    """the updates nearest to their neighbours"""
    return collected_krum(options.krum_bad, options.krum_chosen)


def collected_krum(bad: int, chosen: int = 1) -> CollectedFactory:
    """Return Multi-Krum, the mean of the `chosen` updates with the lowest scores.

    A score is the sum of the squared distances to the k - bad - 2 nearest other updates (Blanchard et al. 2017,
    "Machine Learning with Adversaries", Section 4).

    It needs k >= 2 bad + 3 clients. In a round with fewer the result is zero, and the measurement `robust/too_few` 1.

    Args:
      bad: f, how many clients are bad at the most.
      chosen: m, 1 for Krum itself; in [1, k - bad - 2] for the guarantee, of which fewer than there are clients are
        taken as they are.

    Raises:
      ValueError: for a negative `bad` or a `chosen` below 1.
    """
    require(NOT_NEGATIVE, bad=bad)
    require(COUNT, chosen=chosen)

    def combine(rows: list[tf.Tensor], number: tf.Tensor) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        enough = number >= 2 * bad + 3
        squares = tf.add_n([_square_distances(r) for r in rows])
        # The least of a row is the distance 0 to itself.
        nearest = tf.sort(squares, axis=1)[:, 1 : tf.maximum(number - bad - 1, 2)]
        best = tf.argsort(tf.reduce_sum(nearest, axis=1), stable=True)[:chosen]
        means = [tf.reduce_mean(tf.gather(r, best), axis=0) for r in rows]
        result = [tf.where(enough, m, tf.zeros_like(m)) for m in means]
        return result, {"robust/too_few": 1.0 - tf.cast(enough, tf.float32)}

    return CollectedFactory(combine)


def _square_distances(rows: tf.Tensor) -> tf.Tensor:
    """Return squared distances, float32 [k, k], of updates [k, ...].

    A product of matrices would cancel for long and nearly equal updates.
    """
    flat = tf.reshape(tf.cast(rows, tf.float32), [tf.shape(rows)[0], int(np.prod(rows.shape[1:]))])
    return tf.map_fn(lambda row: tf.reduce_sum(tf.square(flat - row), axis=1), flat)
