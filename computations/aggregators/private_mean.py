"""The mean over clients with differential privacy of clients (DP-FedAvg, McMahan et al. 2018, with flat clipping)."""

from __future__ import annotations

import collections

import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators.private_noise import Noise, norms_of, shrinking


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
        """Process over a structure of float tensors, or one tensor, and a scalar weight."""
        noise = self._noise
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        state_type = noise.initial_state().type_signature.result
        follows = noise.quantile is not None

        def sums_of(update, weight, clip):
            sums = contribution(update, weight, clip)
            if not follows:
                del sums["within"]
            return sums

        if follows:
            at_client = tff.tensorflow.computation(sums_of, value_type, weight_type, state_type["clip"])
        else:  # all know the bound: nothing to broadcast
            fixed = lambda update, weight: sums_of(update, weight, noise.clip)  # noqa: E731
            at_client = tff.tensorflow.computation(fixed, value_type, weight_type)

        @tff.tensorflow.computation(state_type, at_client.type_signature.result)
        def release(state, sums):
            flat = noise.added(state, tf.nest.flatten(sums["values"]), state["clip"])
            result = [s / tf.cast(noise.expected_clients, s.dtype) for s in flat]
            next_state, measured = noise.next_state(state, sums.get("within"))
            return next_state, tf.nest.pack_sequence_as(sums["values"], result), measured

        clip_of = tff.tensorflow.computation(lambda state: state["clip"], state_type)

        @tff.federated_computation
        def initialize():
            return tff.federated_eval(noise.initial_state(), tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            clip = (tff.federated_broadcast(tff.federated_map(clip_of, state)),) if follows else ()
            sums = tff.federated_sum(tff.federated_map(at_client, (value, weight, *clip)))
            released = tff.federated_map(release, (state, sums))
            return tff.templates.MeasuredProcessOutput(released[0], released[1], released[2])

        return tff.templates.AggregationProcess(initialize, next_fn)


def contribution(update, weight, clip):
    """What a client adds to the sums, as TensorFlow: <values, within>, the clipped update and 1/2 or -1/2 for a norm
    within the bound or not. A client of weight zero adds zeros."""
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
