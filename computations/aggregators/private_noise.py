"""Gaussian noise on a sum at the server, drawn only from a seed, and the bound on what one client adds to it.

The seed of a run's noise is a secret where the run is private: who knows it takes the noise off again. It stands in the
server's state under `NOISE_SEED` while a round is computed and at no other time: the caller puts it there before each
round (`with_noise_seed`), and the round returns it as zeros, so that no checkpoint holds it. What differs between the
rounds is their number, which is kept in the state. The generators are TensorFlow's (Philox), whose numbers look random
to statistics, not to cryptanalysis, and noise in floating point has gaps (Mironov 2012): for studies and for people who
do not attack the numbers' last bits.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from attrs.validators import gt, lt, optional

from computations import federated as tff
from computations.federated.values import Structure, Value
from computations.ranges import NOT_NEGATIVE, POSITIVE

NOISE_SEED = "noise_seed"

QUANTILE_RATE = 0.2
"""Of the geometric steps of a bound that follows a quantile (Andrew et al. 2021, Section 3: eta_C)."""

_STREAM_OF_COUNT = 2**30
"""A stream of random numbers that no tensor has."""


def with_noise_seed(state: Structure, seed: Sequence[int] | np.ndarray) -> Structure:
    """Return the server's state with the seed set in every `noise_seed`.

    This is a plain function of values.

    Args:
      state: of `FederatedAlgorithm.initialize` or `next`: mappings, tuples and lists within each other.
      seed: int32 [2], of the noise of the **run**, the same in every round: the round's number is folded in by the
        aggregator, and tree aggregation draws the same noise again in later rounds. Not zeros, which mark its absence.

    Raises:
      ValueError: for another shape or a seed of zeros.
    """
    seed = np.asarray(seed, np.int32)
    if seed.shape != (2,) or not seed.any():
        raise ValueError(f"the seed of the noise must be two int32 that are not both zero, got shape {seed.shape}")

    def put(part: Any) -> Any:
        container: Any = type(part)
        if isinstance(part, Mapping):
            return container((name, seed if name == NOISE_SEED else put(value)) for name, value in part.items())
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return container(
                *(seed if n == NOISE_SEED else put(v) for n, v in zip(part._fields, part, strict=True)),
            )
        if container in (tuple, list):
            return container(put(value) for value in part)
        return part

    return put(state)


def has_noise(algorithm: Any) -> bool:
    """Return whether a FederatedAlgorithm's state has a noise seed, which must be set in every round."""

    def holds_seed(part: tff.Type) -> bool:
        if not isinstance(part, tff.StructType):
            return False
        return any(name == NOISE_SEED or holds_seed(member) for name, member in tff.structure.to_elements(part))

    return holds_seed(algorithm.initialize.type_signature.result.member)


@attrs.frozen(kw_only=True)
class Noise:
    """How a sum over clients is made private.

    A client adds values of L2 norm at most `clip` times a factor of the aggregator's. With a `quantile` the bound
    follows that quantile of the clients' norms (Andrew et al. 2021, Algorithm 1): C <- C exp(-0.2 (b - quantile)), b
    the noisy share of clients within the bound. A client sends 1/2 or -1/2 for that, with noise of standard deviation
    sigma_b, and the noise on the values gets the multiplier (z^-2 - (2 sigma_b)^-2)^(-1/2), so that both together are
    one Gaussian mechanism of multiplier z (their Theorem 1). sigma_b is a twentieth of the expected clients, and at
    least z: then the values' noise grows by a factor 1.16 at most.

    Attributes:
      clip: bound of a client's L2 norm over all tensors; with a quantile that of the first round.
      noise_multiplier: z; 0: no noise, and no privacy.
      expected_clients: the fixed denominator: how many clients count in a round, in expectation.
      quantile: see above; None: a fixed bound.
      tree: the noise of tree aggregation (Kairouz et al. 2021, Algorithm 1) without restarts: the sum of all rounds so
        far has the noise of the nodes of a binary tree that make it up, and a round the difference of two such.
    """

    clip: float = attrs.field(validator=POSITIVE)
    noise_multiplier: float = attrs.field(validator=NOT_NEGATIVE)
    expected_clients: float = attrs.field(validator=POSITIVE)
    quantile: float | None = attrs.field(default=None, validator=optional([gt(0), lt(1)]))
    tree: bool = False

    def __attrs_post_init__(self) -> None:
        if self.tree and self.quantile is not None:
            raise ValueError("tree aggregation needs the same bound in all rounds; leave out clip_quantile or the tree")

    @property
    def count_stddev(self) -> float:
        """Return sigma_b."""
        return max(self.expected_clients / 20, self.noise_multiplier) if self.noise_multiplier > 0 else 0.0

    @property
    def multiplier_of_values(self) -> float:
        """Return the multiplier of the noise on the values."""
        z = self.noise_multiplier
        if self.quantile is None or z == 0:
            return z
        return (z**-2 - (2 * self.count_stddev) ** -2) ** -0.5

    def initial_state(self) -> tff.Computation:
        """Return ( -> state) with `noise_seed` int32 [2], `round` int32 and `clip` float32."""

        @tff.tensorflow.computation
        def initial() -> Structure:
            return self._state(tf.constant(0), tf.constant(self.clip, tf.float32))

        return initial

    def _state(self, round_num: tf.Tensor, clip: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
        return collections.OrderedDict([(NOISE_SEED, tf.zeros([2], tf.int32)), ("round", round_num), ("clip", clip)])

    def added(self, state: Structure, sums: Sequence[tf.Tensor], sensitivity: tf.Tensor) -> list[tf.Tensor]:
        """Return a flat list of sums with noise, or NaN if the state has no seed.

        For the server's TensorFlow.

        Args:
          state: of the round.
          sums: float tensors.
          sensitivity: of all of them together, in L2.
        """
        if self.noise_multiplier == 0:
            return list(sums)
        seed, known = _seed_of(state)
        stddev, number = known * self.multiplier_of_values * sensitivity, state["round"]
        draw = _of_tree if self.tree else _of_round
        streams = (tf.random.experimental.stateless_fold_in(seed, index) for index in range(len(sums)))
        return [
            s + tf.cast(stddev * draw(s.shape, stream, number), s.dtype)
            for s, stream in zip(sums, streams, strict=True)
        ]

    def next_state(
        self, state: Structure, within: Any = None
    ) -> tuple[Structure, collections.OrderedDict[str, tf.Tensor]]:
        """Return (the next round's state, measurements), in the TensorFlow of the server's step.

        Args:
          state: of the round.
          within: with a quantile, the sum over the clients that count of their share of norms within the bound, less a
            half.
        """
        clip, measured = state["clip"], collections.OrderedDict([("privacy/clip", state["clip"])])
        if self.quantile is not None:
            if self.count_stddev > 0:
                seed, known = _seed_of(state)
                stream = tf.random.experimental.stateless_fold_in(seed, _STREAM_OF_COUNT)
                within += known * self.count_stddev * _of_round([], stream, state["round"])
            share = tf.clip_by_value(within / self.expected_clients + 0.5, 0.0, 1.0)
            clip *= tf.exp(-QUANTILE_RATE * (share - self.quantile))
            clip = tf.clip_by_value(clip, 1e-12, 1e12)
            measured["privacy/clipped_share"] = 1.0 - share
        return self._state(state["round"] + 1, clip), measured


def _seed_of(state: Structure) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the seed, and 1, or NaN without a seed.

    Anyone could predict noise from a seed of zeros, and an error could not say how to fix it.

    Along an update of NaN the finalizer takes no step.
    """
    seed = state[NOISE_SEED]
    return seed, tf.where(tf.reduce_any(tf.not_equal(seed, 0)), 1.0, np.nan)


def _of_round(shape: Any, stream: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_normal(shape, tf.random.experimental.stateless_fold_in(stream, number))


def _of_tree(shape: Any, stream: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return the noise of the sum of rounds 0..number minus that of rounds 0..number-1, standard normal for each node.

    The sum of the first t rounds consists of a node for every bit of t; that of bit l is the (t >> l)-th of its level,
    counted from 1. From t to t + 1 the nodes of the trailing ones of t go, and one a level above them comes.
    """

    def node(level: tf.Tensor, rounds: tf.Tensor) -> tf.Tensor:
        of_level = tf.random.experimental.stateless_fold_in(stream, level)
        return _of_round(shape, of_level, tf.bitwise.right_shift(rounds, level))

    def is_one(level: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_and(tf.bitwise.right_shift(number, level), 1) > 0

    level, gone = tf.while_loop(
        is_one, lambda level, total: (level + 1, total + node(level, number)), [tf.constant(0), tf.zeros(shape)]
    )
    return node(level, number + 1) - gone


def norms_of(update: Structure, whole: bool) -> tf.Tensor:
    """Return norms, float32 [number of tensors], or [1] over all of them.

    They are infinite if a square overflows.
    """
    squares = tf.stack([tf.reduce_sum(tf.square(tf.cast(t, tf.float32))) for t in tf.nest.flatten(update)])
    return tf.sqrt(tf.reduce_sum(squares, keepdims=True) if whole else squares)


def shrinking(norms: tf.Tensor, bound: tf.Tensor | float) -> tf.Tensor:
    """Return factors that shrink norms to the bound, and 0 for an infinite norm."""
    return bound / tf.maximum(norms, bound)


def noised_sum(
    noise: Noise, value_type: tff.Type, weight_type: tff.Type, contribution: Callable, report: Callable
) -> tff.templates.AggregationProcess:
    """Add up the clients' contributions and compute the server's result from the noised sum.

    Args:
      noise: the bound and the mechanism; its state is the process's.
      value_type, weight_type: of a client's update and its weight.
      contribution: (update, weight, clip) -> OrderedDict of what a client adds, `within` among it, as TensorFlow.
      report: (state, sums) -> the result, of the value's type, as TensorFlow; it adds the noise.
    """
    state_type = noise.initial_state().type_signature.result
    follows = noise.quantile is not None

    def sums_of(update: Structure, weight: tf.Tensor, clip: tf.Tensor) -> collections.OrderedDict[str, Structure]:
        sums = contribution(update, weight, clip)
        if not follows:
            del sums["within"]
        return sums

    if follows:
        at_client = tff.tensorflow.computation(sums_of, value_type, weight_type, state_type["clip"])
        clip_of = tff.tensorflow.computation(lambda state: state["clip"], state_type)
    else:  # all know the bound: nothing to broadcast
        at_client = tff.tensorflow.computation(
            lambda update, weight: sums_of(update, weight, tf.constant(noise.clip, tf.float32)), value_type, weight_type
        )

    @tff.tensorflow.computation(state_type, at_client.type_signature.result)
    def release(state: Structure, sums: Structure) -> Structure:
        result = report(state, sums)
        next_state, measured = noise.next_state(state, sums.get("within"))
        return next_state, result, measured

    @tff.federated_computation
    def initialize() -> Value:
        return tff.federated_eval(noise.initial_state(), tff.SERVER)

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
        clip = (tff.federated_broadcast(tff.federated_map(clip_of, state)),) if follows else ()
        sums = tff.federated_sum(tff.federated_map(at_client, (value, weight, *clip)))
        released = tff.federated_map(release, (state, sums))
        return tff.templates.MeasuredProcessOutput(released[0], released[1], released[2])

    return tff.templates.AggregationProcess(initialize, next_fn)
