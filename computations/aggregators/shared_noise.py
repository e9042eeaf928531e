"""Sums over clients with differential privacy of clients, whose noise is added in shares before anything is opened.

Clients send words, as for `SecureSumFactory`. Across sites each site adds its share of the noise to its sum of words,
which it masks (`tff_re.sites.noise_share`); the server gets a total that is noised already, and adds nothing. In a
simulation the server adds the noise, from a seed: as much as is counted, a rounded Gaussian of the same variance.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregators.private_mean import contribution
from computations.aggregators.private_noise import NOISE_SEED
from computations.aggregators.secure import MOST_MODULUS_BITS, as_word, integer_of, packing, word_sums
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.privacy.shares import NoiseShares
from computations.traffic import words_of


class SharedNoiseFactory(tff.aggregators.WeightedAggregationFactory):
    """A result of one noised sum of integers: what clients add is rounded to a grid (see `NoiseShares`).

    Words are all that a client sends. A weight says only whether one counts (> 0), and one that does not sends zeros.
    A subclass says what a client adds, of a norm of at most `shares.clip`, and what the server makes of the sums.

    State: at sites (); in a simulation `noise_seed` and `round`, see `Noise`. Measurements: `privacy/clip`.
    """

    def __init__(self, shares: NoiseShares, clip: float, *, at_sites: bool, modulus_bits: int | None = None):
        """Args:
        shares: the grid and the noise.
        clip: of an update.
        at_sites: whether sites add the noise; else the server of a simulation does.
        modulus_bits: sums are modulo 2^this; None: as few as they need.
        """
        self._shares, self._clip, self._at_sites = shares, clip, at_sites
        self._modulus_bits = modulus_bits

    def numbers(self, value_type: tff.Type) -> int:
        """Return how many numbers a client adds for an update of this type."""
        return sum(math.prod(map(int, t.shape)) for t in tff.structure.flatten(value_type))

    def added(self, update: Structure, weight: tf.Tensor) -> list[tf.Tensor]:
        """Return what a client adds, as TensorFlow."""
        raise NotImplementedError

    def result_of(self, sums: Sequence[tf.Tensor], deviation: float) -> list[tf.Tensor]:
        """Return the tensors of the result, as TensorFlow.

        Args:
          sums: of `added`, with noise, float64.
          deviation: of the noise that is counted, on each number.
        """
        raise NotImplementedError

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float32 tensors and a scalar weight.

        Raises:
          CompositionError: the grid or the modulus does not go with this many numbers; names the key.
        """
        value_type = tff.types.to_type(value_type)
        numbers, shares = self.numbers(value_type), self._shares
        try:
            deviation = math.sqrt(shares.least_variance(numbers))
            bits = _modulus_bits(self._modulus_bits, shares.modulus_bits(numbers))
        except ValueError as error:
            raise CompositionError(str(error)) from None
        encode = tff.tensorflow.computation(_encoder(shares, self.added, numbers, bits), value_type, weight_type)
        sums = _sums(encode.type_signature.result, bits)
        decode = self._decoder(value_type, sums.type_signature.result.member, bits, deviation * shares.step)
        initialize, noise = _nothing_kept(), None
        if not self._at_sites:
            initialize, noise = _noise_at_server(sums.type_signature.result.member, deviation, bits)
        clip = self._clip

        @tff.tensorflow.computation
        def constants() -> tuple[tf.Tensor, Structure]:
            return tf.constant(1.0), collections.OrderedDict([("privacy/clip", tf.constant(clip, tf.float32))])

        @tff.federated_computation(
            initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            total = sums(tff.federated_map(encode, (value, weight)))
            fixed = tff.federated_eval(constants, tff.SERVER)
            factor = fixed[0]
            if noise is not None:
                noised = tff.federated_map(noise, (state, total))
                state, total, factor = noised[0], noised[1], noised[2]
            result = tff.federated_map(decode, (total, factor))
            return tff.templates.MeasuredProcessOutput(state, result, fixed[1])

        return tff.templates.AggregationProcess(initialize, next_fn)

    def share_variance(self, value_type: tff.Type) -> int:
        """Return the variance parameter of a site's share on each number of a sum for such updates."""
        return self._shares.variance(self.numbers(value_type))

    def _decoder(self, value_type: tff.Type, sums_type: tff.Type, bits: int, deviation: float) -> tff.Computation:
        """Return (total, factor) -> the result times the factor, as `value_type`."""
        step, packed = self._shares.step, packing(value_type)

        @tff.tensorflow.computation(sums_type, np.float32)
        def decode(sums: Structure, factor: tf.Tensor) -> Structure:
            totals = [tf.cast(integer_of(word, bits), tf.float64) * step for word in sums]
            factor = tf.cast(factor, tf.float64)
            return packed([factor * tensor for tensor in self.result_of(totals, deviation)])

        return decode


class SharedNoiseMeanFactory(SharedNoiseFactory):
    """(sum_k q_k s + noise) / expected clients, q_k the integers of a client's clipped update (see `NoiseShares`).

    All clients count alike, by their number in expectation.
    """

    def __init__(
        self, shares: NoiseShares, expected_clients: float, *, at_sites: bool, modulus_bits: int | None = None
    ):
        """Args:
        shares, at_sites, modulus_bits: see `SharedNoiseFactory`.
        expected_clients: the fixed denominator.
        """
        super().__init__(shares, shares.clip, at_sites=at_sites, modulus_bits=modulus_bits)
        self._expected = expected_clients

    def added(self, update: Structure, weight: tf.Tensor) -> list[tf.Tensor]:
        """See `SharedNoiseFactory`."""
        return tf.nest.flatten(contribution(update, weight, tf.constant(self._clip, tf.float32))["values"])

    def result_of(self, sums: Sequence[tf.Tensor], deviation: float) -> list[tf.Tensor]:
        """See `SharedNoiseFactory`."""
        return [total / self._expected for total in sums]


def _modulus_bits(chosen: int | None, needed: int) -> int:
    """Return the bits of the modulus.

    Raises ValueError if they are too few, or too many.
    """
    if chosen is not None and chosen < needed:
        raise ValueError(
            f"aggregation.secure_modulus_bits is {chosen}, and the clients' numbers with their noise need {needed}; "
            "raise it, or leave it out"
        )
    if needed > MOST_MODULUS_BITS:
        raise ValueError(
            f"the clients' numbers with their noise need words of {needed} bits, and there are {MOST_MODULUS_BITS}; "
            "lower aggregation.secure_bits"
        )
    return chosen or needed


def _encoder(
    shares: NoiseShares, added: Callable, numbers: int, bits: int
) -> Callable[[Structure, tf.Tensor], Structure]:
    """Return (update, weight) -> the words that a client sends for what it adds, as TensorFlow."""
    bound, norm = shares.bound, shares.norm(numbers)

    def encode(update: Structure, weight: tf.Tensor) -> Structure:
        wide = [tf.clip_by_value(tf.cast(t, tf.float64), -bound, bound) for t in added(update, weight)]
        rounded = [tf.round(t / shares.step) for t in wide]
        size = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(t)) for t in rounded]))
        # Only rounding errors of floating point make it larger than the norm; towards zero, nothing grows.
        shrunk = [tf.sign(t) * tf.floor(tf.abs(t) * (norm / tf.maximum(size, norm))) for t in rounded]
        sent = [tf.where(size > norm, s, t) for s, t in zip(shrunk, rounded, strict=True)]
        return collections.OrderedDict({words_of(bits): [as_word(t, bits) for t in sent]})

    return encode


def _sums(sent_type: tff.Type, bits: int) -> tff.Computation:
    """Return the sum of words at clients modulo 2^bits, as a list at the server."""
    zero, add, report = word_sums(sent_type, bits)

    @tff.federated_computation(tff.FederatedType(sent_type, tff.CLIENTS))
    def sums(sent: Value) -> Value:
        return tff.federated_aggregate(sent, zero(), add, add, report)

    return sums


def _nothing_kept() -> tff.Computation:
    """Return what gives the state of a server that adds no noise, ()."""
    return tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))


def _noise_at_server(sums_type: tff.Type, deviation: float, bits: int) -> tuple[tff.Computation, tff.Computation]:
    """Return what gives the first state, and (state, sums) -> (the next state, noised sums, 1, or NaN without a seed).

    The noise is a rounded Gaussian.
    """

    @tff.tensorflow.computation
    def first() -> Structure:
        return _state(tf.constant(0))

    @tff.tensorflow.computation(first.type_signature.result, sums_type)
    def noise(state: Structure, sums: Structure) -> tuple[Structure, list[tf.Tensor], tf.Tensor]:
        totals, known = _noised(state, [tf.cast(words, tf.int64) for words in sums], deviation)
        return _state(state["round"] + 1), [as_word(t, bits) for t in totals], known

    @tff.federated_computation
    def initialize() -> Value:
        return tff.federated_eval(first, tff.SERVER)

    return initialize, noise


def _state(round_num: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
    return collections.OrderedDict([(NOISE_SEED, tf.zeros([2], tf.int32)), ("round", round_num)])


def _noised(state: Structure, totals: Sequence[tf.Tensor], deviation: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return integers (int64) with noise, and float32 1, or NaN if the state has no seed."""
    seed, noised = state[NOISE_SEED], []
    for index, total in enumerate(totals):
        stream = tf.random.experimental.stateless_fold_in(seed, index)
        stream = tf.random.experimental.stateless_fold_in(stream, state["round"])
        noise = tf.round(deviation * tf.random.stateless_normal(total.shape, stream, dtype=tf.float64))
        noised.append(total + tf.cast(noise, tf.int64))
    return noised, tf.where(tf.reduce_any(tf.not_equal(seed, 0)), 1.0, np.nan)
