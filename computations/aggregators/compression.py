"""Sums of compressed tensors.

Clients send codes, and the accumulator decodes each client's code as it is added.

Two steps. A client makes its update such that a code holds it (`lossy`, in `computations.client_work.compression`,
where the client's seed and what it keeps are known); the aggregator may then scale it, e.g. by its weight. The sum
encodes what it gets (`encode`). A code of a scaled tensor loses nothing but rounding of floats: the 256 levels and the
places of the numbers that are not zero are scaled with it.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value
from computations.local_model import zeros


class Code(Protocol):
    """How a tensor of fixed shape is sent."""

    def lossy(self, tensor: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return a tensor that the code represents without loss.

        `seed` is int32 [2].
        """

    def encode(self, tensor: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Return the code of a tensor."""

    def decode(self, sent: Mapping[str, tf.Tensor], shape: Sequence[int]) -> tf.Tensor:
        """Return the tensor of that shape."""


class EightBits:
    """Codes of 8 bits, evenly spaced from a tensor's lowest number to its highest.

    The idea is QSGD's (Alistarh et al. 2017), with the range of Konečný et al. 2016, Section 3.

    A number x between two levels goes to the upper one with the probability of its distance from the lower one, so
    that its expectation is x; the error is below a level's width, (greatest - least) / 255. Sent: uint8 codes, and two
    floats for each tensor.
    """

    def lossy(self, tensor: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        low, width, places = _places(tensor)
        drawn = tf.floor(places + tf.random.stateless_uniform(tf.shape(tensor), seed, dtype=tensor.dtype))
        # The greatest stays the greatest, so that the range is the same when the result is encoded.
        codes = tf.where(tensor >= tf.reduce_max(tensor), 255.0, tf.minimum(drawn, 255.0))
        return low + tf.cast(codes, tensor.dtype) * width

    def encode(self, tensor: tf.Tensor) -> Mapping[str, tf.Tensor]:
        low, width, places = _places(tensor)
        codes = tf.cast(tf.clip_by_value(tf.round(places), 0, 255), tf.uint8)
        return collections.OrderedDict(codes=codes, low=low, width=width)

    def decode(self, sent: Mapping[str, tf.Tensor], shape: Sequence[int]) -> tf.Tensor:
        tensor = sent["low"] + tf.cast(sent["codes"], sent["low"].dtype) * sent["width"]
        # Without the maximum, which changes no number, TensorFlow would add `low` to a sum last, with other digits.
        return tf.maximum(tensor, sent["low"])


def _places(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (lowest number, width of a level, the tensor in widths above the lowest)."""
    low, high = tf.reduce_min(tensor), tf.reduce_max(tensor)
    width = high / 255 - low / 255
    return low, width, tf.math.divide_no_nan(tensor - low, width)


class TopShare:
    """The k numbers of a tensor with the largest absolute values, and their indices (Aji and Heafield 2017).

    k is a share of the numbers, rounded up. The client adds the error feedback (Stich, Cordonnier and Jaggi 2018).

    Of numbers of one size the first are taken. Sent: k floats and k places of 32 bits for each tensor.
    """

    def __init__(self, share: float):
        """Create the code of a `share` above 0 and at most 1."""
        self._share = share

    def lossy(self, tensor: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        return self.decode(self.encode(tensor), tensor.shape)

    def encode(self, tensor: tf.Tensor) -> Mapping[str, tf.Tensor]:
        flat = tf.reshape(tensor, [-1])
        size = tensor.shape.num_elements()
        # Less a little, because 0.1 * 30 is above 3.
        number = min(size, max(1, math.ceil(self._share * size - 1e-9)))
        _, places = tf.math.top_k(tf.abs(flat), number)
        return collections.OrderedDict(values=tf.gather(flat, places), places=places)

    def decode(self, sent: Mapping[str, tf.Tensor], shape: Sequence[int]) -> tf.Tensor:
        size = math.prod(map(int, shape))
        return tf.reshape(tf.scatter_nd(sent["places"][:, tf.newaxis], sent["values"], [size]), shape)


class EncodedSumFactory(tff.aggregators.UnweightedAggregationFactory):
    """The sum of float tensors that are sent as codes.

    The server has one sum, never a list of codes.
    """

    def __init__(self, code: Code):
        """Create the factory with the `code` of every tensor."""
        self._code = code

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a stateless process over a structure of float tensors of fixed shapes, without measurements."""
        value_type, code = tff.types.to_type(value_type), self._code
        skeletons: list[Structure] = []

        @tff.tensorflow.computation(value_type)
        def encode(value: Structure) -> list[Mapping[str, tf.Tensor]]:
            skeletons.append(tf.nest.map_structure(lambda _: 0, value))
            return [code.encode(tensor) for tensor in tf.nest.flatten(value)]

        flatten = tff.tensorflow.computation(lambda value: tf.nest.flatten(value), value_type)
        sums_type = flatten.type_signature.result

        @tff.tensorflow.computation
        def zero() -> list[tf.Tensor]:
            return [zeros(t.shape, t.dtype) for t in sums_type]

        @tff.tensorflow.computation(sums_type, encode.type_signature.result)
        def accumulate(sums: Structure, sent: Structure) -> list[tf.Tensor]:
            return [total + code.decode(tensor, total.shape) for total, tensor in zip(sums, sent, strict=True)]

        @tff.tensorflow.computation(sums_type, sums_type)
        def merge(left: Structure, right: Structure) -> list[tf.Tensor]:
            return [a + b for a, b in zip(left, right, strict=True)]

        @tff.tensorflow.computation(sums_type)
        def report(sums: Structure) -> Structure:
            return tf.nest.pack_sequence_as(skeletons[0], tf.nest.flatten(sums))

        nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

        @tff.federated_computation(nothing.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS))
        def next_fn(state: Value, value: Value) -> tff.templates.MeasuredProcessOutput:
            sent = tff.federated_map(encode, value)
            result = tff.federated_aggregate(sent, zero(), accumulate, merge, report)
            return tff.templates.MeasuredProcessOutput(state, result, tff.federated_value((), tff.SERVER))

        return tff.templates.AggregationProcess(nothing, next_fn)
