"""Attention over clients (FLCMC, Eqs. 11-13) with differential privacy of clients, in one aggregation."""

from __future__ import annotations

import collections
import math
from typing import Literal

import tensorflow as tf

from computations import federated as tff
from computations.aggregators.private_noise import Noise, noised_sum, norms_of, shrinking
from computations.federated.values import Structure


class PrivateAttentionFactory(tff.aggregators.WeightedAggregationFactory):
    """sum_k e^(s_k - S) D_k / sum_k e^(s_k - S), both sums with noise; s_k = min(||D_k||, S), D_k shrunk to norm s_k.

    The softmax of `AttentionFactory` has the largest score in the exponent and divides in the clear, which one client
    moves for all. With the constant S in its place every client adds u_k = [e^(s_k - S) D_k ; e^(s_k - S) c] to one
    sum, whose L2 sensitivity is sqrt(S^2 + c^2): the exponent is at most 1, and at its largest for ||D_k|| >= S. Where
    no update is clipped and there is no noise, the result is that of `AttentionFactory`. The noise has the standard
    deviation z sqrt(S^2 + c^2) on every number of the sum; the quotient is made of what was released.

    With one softmax per tensor (`layer`), each of L tensors has the bound S / sqrt(L) and the constant c / sqrt(L):
    S bounds the whole update as it does for `model` (the equal shares of McMahan et al. 2018, Section 3), and the
    sensitivity of all sums together is sqrt(sum_l (S^2 + c^2) / L) = sqrt(S^2 + c^2) again.

    The quotient is guarded where noise may bring the normaliser near zero or below: with noise, it is at least
    half of what the expected clients would add with updates of zero, (expected / 2) e^-S, and at least one standard
    deviation of its noise, z sqrt(S^2 + c^2) / c. Both are known without the data, so this spends nothing; a round
    below the guard makes a shorter step. A weight says only whether a client counts (> 0).

    State: `noise_seed`, `round` and `clip` (S), see `Noise`; with a quantile S follows it (with `layer`, the quantile
    of all norms of tensors beside S / sqrt(L)). Measurements as `PrivateMeanFactory`.
    """

    def __init__(self, noise: Noise, granularity: Literal["layer", "model"] = "layer", normaliser: float | None = None):
        """Args:
          noise: the bound S and the mechanism; not a tree.
          granularity: `layer`: one softmax per weight tensor; `model`: one over the whole model.
          normaliser: c, above zero; S if None.

        Raises:
          ValueError: for tree aggregation: it makes sums of all rounds so far private, and the quotient needs those of
            one round, whose noise the difference of two such sums does not shrink.
        """
        if noise.tree:
            raise ValueError(
                "tree aggregation adds up the sums of all rounds, but attention divides the sum of each round by "
                "that round's normaliser; use independent noise"
            )
        if granularity not in ("layer", "model"):
            raise ValueError(f"granularity must be 'layer' or 'model', got {granularity!r}")
        self._noise, self._whole, self._normaliser = noise, granularity == "model", normaliser

    def _c(self, clip: tf.Tensor) -> tf.Tensor:
        return clip if self._normaliser is None else tf.constant(self._normaliser, tf.float32)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor (a single layer), and a scalar weight."""
        noise, whole = self._noise, self._whole

        def report(state: Structure, sums: Structure) -> Structure:
            clip, c = state["clip"], self._c(state["clip"])
            places, part = softmaxes(len(tf.nest.flatten(sums["values"])), whole)
            sensitivity = tf.sqrt(tf.square(clip) + tf.square(c))
            flat = [*tf.nest.flatten(sums["values"]), sums["normaliser"]]
            *values, normaliser = noise.added(state, flat, sensitivity)
            normaliser /= c * part
            if noise.noise_multiplier > 0:
                of_zeros = 0.5 * noise.expected_clients * tf.exp(-clip * part)
                normaliser = tf.maximum(
                    normaliser, tf.maximum(of_zeros, noise.multiplier_of_values * sensitivity / (c * part))
                )
            result = [
                tf.math.divide_no_nan(t, tf.cast(normaliser[i], t.dtype)) for t, i in zip(values, places, strict=True)
            ]
            return tf.nest.pack_sequence_as(sums["values"], result)

        return noised_sum(
            noise,
            tff.types.to_type(value_type),
            tff.types.to_type(weight_type),
            lambda update, weight, clip: contribution(update, weight, clip, self._c(clip), whole),
            report,
        )


def contribution(
    update: Structure, weight: tf.Tensor, clip: tf.Tensor, c: tf.Tensor, whole: bool
) -> collections.OrderedDict[str, Structure]:
    """Return what a client adds to the sums, <values, normaliser, within>, as TensorFlow.

    Args:
      update: structure of float tensors; `values` has the same.
      weight: of the client; 0: it adds zeros.
      clip, c: S and c of all softmaxes together.
      whole: one softmax over all tensors; else one for each, which has the part 1 / sqrt(L) of S and c.

    Returns:
      OrderedDict; `normaliser` float32 [L] are the e^(s - S) c, `within` the share of norms within S less a half.
    """
    flat = tf.nest.flatten(update)
    places, part = softmaxes(len(flat), whole)
    bound = clip * part
    norms = norms_of(update, whole)
    norms = tf.where(weight > 0, norms, tf.zeros_like(norms))  # which may not be finite where a client does not count
    counts = tf.cast(weight > 0, tf.float32)
    attention = counts * tf.exp(tf.minimum(norms, bound) - bound)
    factors = attention * shrinking(norms, bound)
    scaled = [
        # Not 0 * t, which is NaN where the update of a client that does not count is not finite.
        tf.where(factors[i] > 0, t * tf.cast(factors[i], t.dtype), tf.zeros_like(t))
        for t, i in zip(flat, places, strict=True)
    ]
    return collections.OrderedDict(
        values=tf.nest.pack_sequence_as(update, scaled),
        normaliser=attention * c * part,
        within=counts * (tf.reduce_mean(tf.cast(norms <= bound, tf.float32)) - 0.5),
    )


def softmaxes(tensors: int, whole: bool) -> tuple[list[int], float]:
    """Return each tensor's softmax, and each softmax's share of an L2 bound on all (equal shares of the square)."""
    return ([0] * tensors, 1.0) if whole else (list(range(tensors)), 1 / math.sqrt(tensors))
