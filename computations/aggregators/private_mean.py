"""The mean over clients with differential privacy of clients (DP-FedAvg, McMahan et al. 2018, with flat clipping)."""

from __future__ import annotations

import collections

import tensorflow as tf

from computations import federated as tff
from computations.aggregators.private_noise import Noise, noised_sum, norms_of, shrinking
from computations.federated.values import Structure


class PrivateMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """(sum_k min(1, clip / ||D_k||) D_k + noise) / expected clients, D_k a client's update.

    The norm is that over all tensors, the noise Gaussian of standard deviation z clip. All clients count alike, by
    their number in expectation and not in fact; a weight says only whether one counts (> 0), and one that does not adds
    zero. A round without clients has its noise, too.

    State: `noise_seed`, `round` and `clip`, see `Noise`. Measurements: `privacy/clip`, and with a quantile
    `privacy/clipped_share`, the noisy share of updates that were clipped; neither tells more than the models do.
    """

    def __init__(self, noise: Noise):
        """Args:
        noise: the bound and the mechanism.
        """
        self._noise = noise

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor, and a scalar weight."""
        noise = self._noise

        def report(state: Structure, sums: Structure) -> Structure:
            flat = noise.added(state, tf.nest.flatten(sums["values"]), state["clip"])
            result = [s / tf.cast(noise.expected_clients, s.dtype) for s in flat]
            return tf.nest.pack_sequence_as(sums["values"], result)

        types = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        return noised_sum(noise, *types, contribution, report)


def contribution(update: Structure, weight: tf.Tensor, clip: tf.Tensor) -> collections.OrderedDict[str, Structure]:
    """Return what a client adds to the sums, <values, within>, as TensorFlow.

    It is the clipped update, and 1/2 or -1/2 for a norm within the bound or not. A client of weight zero adds zeros.
    """
    norms = norms_of(update, whole=True)
    norms = tf.where(weight > 0, norms, tf.zeros_like(norms))  # which may not be finite where a client does not count
    counts = tf.cast(weight > 0, tf.float32)
    factor = counts * shrinking(norms, clip)[0]
    return collections.OrderedDict(
        # Not 0 * t, which is NaN where the update of a client that does not count is not finite.
        values=tf.nest.map_structure(
            lambda t: tf.where(factor > 0, t * tf.cast(factor, t.dtype), tf.zeros_like(t)), update
        ),
        within=counts * (tf.cast(norms[0] <= clip, tf.float32) - 0.5),
    )
