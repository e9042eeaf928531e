"""What secure sums do to numbers: they clip, round, and add modulo a power of two.

Secure aggregation (Bonawitz et al. 2017) adds integers modulo 2^m, so a client clips its numbers, rounds them and sends
words of m bits. TFF's own secure intrinsics run on neither of the runtimes here. In a simulation the words are added in
the clear, which protects nothing. Across sites, each site's sum of words is masked before it leaves.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value
from computations.local_model import zeros
from computations.ranges import POSITIVE, require
from computations.traffic import words_of

MOST_BITS, MOST_MODULUS_BITS = 32, 62
"""A total and a client's word are added before the remainder is taken."""


class SecureSumFactory(tff.aggregators.UnweightedAggregationFactory):
    """Sums of float tensors as integers modulo 2^m.

    With b bits and the bound B, a number x becomes the integer q = round(clip(x, -B, B) / s), s = B / (2^(b-1) - 1),
    to the nearest (of two, the even one): |q s - x| <= s / 2 for |x| <= B, and zero stays zero. Clients send q mod 2^m,
    the sum is modulo 2^m, and the server reads it as a number from -2^(m-1) to 2^(m-1) - 1, times s. The sum of n
    clients cannot wrap around if m >= b + log2(n); with a smaller m it does, as it would in a deployment.

    With a quantile, B is an estimate of that quantile of the clients' largest numbers (Andrew et al. 2021, without
    noise): every client says whether its own lies below B, and B grows or shrinks by at most a factor of e a round.

    Measurements: `secure/clipped`, the share of a client's numbers that were clipped, its mean over clients, and with a
    quantile `secure/bound`. They are not secured either.
    """

    def __init__(
        self, bits: int, modulus_bits: int, bound: float, quantile: float | None = None, *, measured: bool = True
    ):
        """Args:
          bits: b, from 2 to 32.
          modulus_bits: m, from 2 to 62.
          bound: B, above zero; with a quantile that of the first round.
          quantile: between 0 and 1, or None: B is fixed.
          measured: whether there are measurements, see above.

        Raises:
          ValueError: for bits or a bound out of range.
        """
        if not 2 <= bits <= MOST_BITS or not 2 <= modulus_bits <= MOST_MODULUS_BITS:
            raise ValueError(
                f"bits must lie between 2 and {MOST_BITS} and modulus_bits between 2 and {MOST_MODULUS_BITS}, got "
                f"{bits} and {modulus_bits}"
            )
        require(POSITIVE, bound=bound)
        self._levels, self._modulus_bits, self._measured = 2 ** (bits - 1) - 1, modulus_bits, measured
        self._bound, self._quantile = float(bound), quantile

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor.

        Its state is that of the estimate, or ().
        """
        value_type = tff.types.to_type(value_type)
        encode = self._with_bound(self._encode, value_type)
        sent_type = encode.type_signature.result.sent
        decode = self._decoder(value_type, sent_type[0])
        zero, add, report = word_sums(sent_type, self._modulus_bits)
        counted = collections.OrderedDict(clipped=np.float32, clients=np.float32)
        share = tff.tensorflow.computation(
            lambda sums: tf.math.divide_no_nan(sums["clipped"], sums["clients"]), tff.types.to_type(counted)
        )
        estimate = None
        initialize = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))
        if self._quantile is not None:
            estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
                initial_estimate=self._bound, target_quantile=self._quantile, learning_rate=1.0
            )
            initialize = estimate.initialize

        @tff.federated_computation(initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS))
        def next_fn(state: Value, value: Value) -> tff.templates.MeasuredProcessOutput:
            measured = collections.OrderedDict()
            if estimate is None:
                encoded = tff.federated_map(encode, value)
            else:
                bound = estimate.report(state)
                encoded = tff.federated_map(encode, (value, tff.federated_broadcast(bound)))
                measured["secure/bound"] = bound
                state = estimate.next(state, encoded["largest"])
            sums = tff.federated_aggregate(encoded["sent"], zero(), add, add, report)
            result = tff.federated_map(decode, sums if estimate is None else (sums, bound))
            if not self._measured:
                return tff.templates.MeasuredProcessOutput(state, result, tff.federated_value((), tff.SERVER))
            counts = collections.OrderedDict((name, encoded[name]) for name in counted)
            measured["secure/clipped"] = tff.federated_map(share, tff.federated_sum(tff.federated_zip(counts)))
            return tff.templates.MeasuredProcessOutput(state, result, tff.federated_zip(measured))

        return tff.templates.AggregationProcess(initialize, next_fn)

    def _with_bound(
        self, function: Callable[[Any, tf.Tensor | float], Structure], type_spec: tff.Type
    ) -> tff.Computation:
        """Return a computation of (value, bound), or of only the value if the bound is fixed."""
        if self._quantile is not None:
            return tff.tensorflow.computation(function, type_spec, np.float32)
        return tff.tensorflow.computation(lambda value: function(value, self._bound), type_spec)

    def _encode(self, value: Structure, bound: tf.Tensor | float) -> collections.OrderedDict[str, Structure]:
        """Return what a client sends, and its statistics."""
        tensors, bound = tf.nest.flatten(value), tf.cast(bound, tf.float64)
        sent, clipped, largest = [], [], []
        for tensor in tensors:
            wide = tf.cast(tensor, tf.float64)
            rounded = tf.round(tf.clip_by_value(wide, -bound, bound) / (bound / self._levels))
            sent.append(as_word(rounded, self._modulus_bits))
            clipped.append(tf.reduce_sum(tf.cast(tf.abs(wide) > bound, tf.float64)))
            largest.append(tf.reduce_max(tf.abs(wide)))
        numbers = sum(tensor.shape.num_elements() for tensor in tensors)
        return collections.OrderedDict(
            sent=collections.OrderedDict({words_of(self._modulus_bits): sent}),
            clipped=tf.cast(tf.add_n(clipped) / numbers, tf.float32),
            largest=tf.cast(tf.reduce_max(largest), tf.float32),
            clients=tf.constant(1.0),
        )

    def _decoder(self, value_type: tff.Type, sums_type: tff.Type) -> tff.Computation:
        """Return (integers[, bound]) -> the sum, as `value_type`."""
        packed = packing(value_type)

        def decode(sums: Sequence[tf.Tensor], bound: tf.Tensor | float) -> Structure:
            step = tf.cast(bound, tf.float64) / self._levels
            return packed([tf.cast(integer_of(word, self._modulus_bits), tf.float64) * step for word in sums])

        return self._with_bound(decode, sums_type)


def packing(value_type: tff.Type) -> Callable[[Sequence[tf.Tensor]], object]:
    """Return what makes a value of a type of its tensors, which are cast to its dtypes."""
    skeletons: list[Structure] = []

    @tff.tensorflow.computation(value_type)
    def flatten(value: Structure) -> list[tf.Tensor]:
        skeletons.append(tf.nest.map_structure(lambda _: 0, value))
        return tf.nest.flatten(value)

    dtypes = [t.dtype for t in flatten.type_signature.result]

    def packed(tensors: Sequence[tf.Tensor]) -> Structure:
        cast = [tf.cast(tensor, dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
        return tf.nest.pack_sequence_as(skeletons[0], cast)

    return packed


def as_word(integer: tf.Tensor, modulus_bits: int) -> tf.Tensor:
    """Return an integer modulo 2^m, int32, or int64 if a sum of two would not fit."""
    word = tf.math.floormod(tf.cast(integer, tf.int64), 2**modulus_bits)
    return tf.cast(word, tf.int32 if modulus_bits <= 30 else tf.int64)


def integer_of(word: tf.Tensor, modulus_bits: int) -> tf.Tensor:
    """Return the integer from -2^(m-1) to 2^(m-1) - 1 that a word stands for, int64."""
    word, modulus = tf.cast(word, tf.int64), 2**modulus_bits
    return tf.where(word >= modulus // 2, word - modulus, word)


def word_sums(sent_type: tff.Type, modulus_bits: int) -> tuple[tff.Computation, tff.Computation, tff.Computation]:
    """Return what `federated_aggregate` needs to add what clients send: zero, the sum of two, the words of a sum.

    `sent_type`: of what a client sends, the words under their name (`words_of`).
    """
    words, modulus = words_of(modulus_bits), 2**modulus_bits

    @tff.tensorflow.computation
    def zero() -> Structure:
        return collections.OrderedDict({words: [zeros(t.shape, t.dtype) for t in sent_type[0]]})

    @tff.tensorflow.computation(sent_type, sent_type)
    def add(left: Structure, right: Structure) -> Structure:
        pairs = zip(left[words], right[words], strict=True)
        return collections.OrderedDict({words: [tf.math.floormod(a + b, modulus) for a, b in pairs]})

    return zero, add, tff.tensorflow.computation(lambda sums: sums[words], sent_type)


def modulus_bits_for(bits: int, clients: int) -> int:
    """Return the smallest m for which a sum of this many clients' b-bit numbers cannot wrap around.

    It is b + log2(clients), rounded up.
    """
    return bits + (clients - 1).bit_length()
