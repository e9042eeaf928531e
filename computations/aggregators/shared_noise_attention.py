"""Attention over clients with differential privacy of clients, whose noise is added in shares (see `shared_noise`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import attrs
import tensorflow as tf

from computations import federated as tff
from computations.aggregators.private_attention import contribution, softmaxes
from computations.aggregators.shared_noise import SharedNoiseFactory
from computations.errors import CompositionError
from computations.federated.values import Structure
from computations.privacy.shares import NoiseShares


class SharedNoiseAttentionFactory(SharedNoiseFactory):
    """Attention as `PrivateAttentionFactory` has it, with noise in shares.

    It is the quotient of one sum of [e^(s_k - S) D_k ; e^(s_k - S) c]. The constant S is the clip of an update, so that
    no maximum over clients is needed. What a client adds has a norm of at most sqrt(S^2 + c^2), to which the noise is
    scaled; it is rounded to the grid as one vector.

    The normaliser is at least half of what the expected clients would add with updates of zero, and at least one
    standard deviation of the noise that is counted.
    """

    def __init__(
        self,
        shares: NoiseShares,
        expected_clients: float,
        granularity: Literal["layer", "model"],
        normaliser: float | None,
        *,
        at_sites: bool,
        modulus_bits: int | None = None,
    ):
        """Args:
        shares: the grid and the noise, with S as its clip.
        expected_clients: see above.
        granularity: see `PrivateAttentionFactory`.
        normaliser: c, above zero; S if None.
        at_sites, modulus_bits: see `SharedNoiseFactory`.
        """
        clip = shares.clip
        self._whole, self._c, self._expected = granularity == "model", normaliser or clip, expected_clients
        of_both = attrs.evolve(shares, clip=math.hypot(clip, self._c))
        super().__init__(of_both, clip, at_sites=at_sites, modulus_bits=modulus_bits)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """See `SharedNoiseFactory`.

        Raises:
          CompositionError: the bound of the grid would cut a client's part of the normaliser.
        """
        _, part = softmaxes(self._tensors(tff.types.to_type(value_type)), self._whole)
        if self._c * part > self._shares.bound:
            raise CompositionError(
                f"aggregation.secure_bound = {self._shares.bound:g} is below a client's part of the normaliser of "
                f"attention, {self._c * part:.4g}; raise it, or lower privacy.normaliser"
            )
        return super().create(value_type, weight_type)

    def numbers(self, value_type: tff.Type) -> int:
        """See `SharedNoiseFactory`."""
        return super().numbers(value_type) + (1 if self._whole else self._tensors(value_type))

    def added(self, update: Structure, weight: tf.Tensor) -> list[tf.Tensor]:
        """See `SharedNoiseFactory`."""
        clip, c = tf.constant(self._clip, tf.float32), tf.constant(self._c, tf.float32)
        sent = contribution(update, weight, clip, c, self._whole)
        return [*tf.nest.flatten(sent["values"]), sent["normaliser"]]

    def result_of(self, sums: Sequence[tf.Tensor], deviation: float) -> list[tf.Tensor]:
        """See `SharedNoiseFactory`."""
        *values, normaliser = sums
        places, part = softmaxes(len(values), self._whole)
        of_zeros = 0.5 * self._expected * math.exp(-self._clip * part)
        normaliser = tf.maximum(normaliser / (self._c * part), max(of_zeros, deviation / (self._c * part)))
        return [total / normaliser[index] for total, index in zip(values, places, strict=True)]

    @staticmethod
    def _tensors(value_type: tff.Type) -> int:
        return len(tff.structure.flatten(value_type))
