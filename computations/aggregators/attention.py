"""Attention over clients (FLCMC, Hu and Fang 2024, Eqs. 11-13; after FedAtt, Ji et al. 2019)."""

from __future__ import annotations

import collections
from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class AttentionFactory(tff.aggregators.WeightedAggregationFactory):
    """sum_k a_k D_k with a = softmax over clients of ||D_k||, D_k a client's update.

    Farther clients weigh more; sample counts do not enter. A weight says only whether a client counts (> 0) or not.
    No client's update is ever collected: clients score their own, `federated_max` and a broadcast make the softmax
    stable, and two sums give the numerator and the normaliser. The step size (lambda of Eq. 14) is the finalizer's.

    Measurements: `attention/effective_clients`, 1 / sum_k a_k^2, the mean over the softmaxes (the number of clients
    that count if all are alike, 1 if one client has all the attention).
    """

    def __init__(
        self,
        granularity: Literal["layer", "model"] = "layer",
        inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    ):
        """Args:
          granularity: `layer`: one softmax per weight tensor (FedAtt's own form); `model`: one over the whole model.
          inner_sum: makes the sum of the attention-weighted updates; tff.aggregators.SumFactory() by default.

        Raises:
          ValueError: for another granularity.
        """
        if granularity not in ("layer", "model"):
            raise ValueError(f"granularity must be 'layer' or 'model', got {granularity!r}")
        self._granularity = granularity
        self._inner_sum = inner_sum or tff.aggregators.SumFactory()

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over a structure of float tensors and a scalar weight."""
        inner = self._inner_sum.create(value_type)
        groups = 1 if self._granularity == "model" else len(tff.types.to_type(value_type))

        @tff.tensorflow.computation(value_type, weight_type)
        def score(update, weight):
            squares = tf.stack([tf.reduce_sum(tf.square(t)) for t in tf.nest.flatten(update)])
            norms = tf.sqrt(tf.reduce_sum(squares, keepdims=True) if groups == 1 else squares)
            # A square may overflow where the update itself is finite; inf - inf would silence the other clients too.
            norms = tf.minimum(norms, norms.dtype.max)
            return tf.where(weight > 0, norms, tf.constant(-np.inf, norms.dtype))

        score_type = score.type_signature.result

        @tff.tensorflow.computation(score_type, score_type)
        def exponent(score, largest):
            counts = tf.math.is_finite(score)
            return tf.where(counts, tf.exp(tf.where(counts, score - largest, 0.0)), 0.0)

        @tff.tensorflow.computation(value_type, score_type)
        def scale(update, attention):
            flat = tf.nest.flatten(update)
            parts = [attention[0 if groups == 1 else i] for i in range(len(flat))]
            # Not 0 * t, which is NaN where the update of a client that does not count is not finite.
            scaled = [tf.where(a > 0, t * a, tf.zeros_like(t)) for t, a in zip(flat, parts, strict=True)]
            return tf.nest.pack_sequence_as(update, scaled)

        @tff.tensorflow.computation(score_type)
        def terms(attention):
            return collections.OrderedDict(total=attention, squares=tf.square(attention))

        @tff.tensorflow.computation(inner.next.type_signature.result.result.member, terms.type_signature.result)
        def normalise(numerator, sums):
            flat = tf.nest.flatten(numerator)
            normaliser = [sums["total"][0 if groups == 1 else i] for i in range(len(flat))]
            return tf.nest.pack_sequence_as(
                numerator, [tf.math.divide_no_nan(t, n) for t, n in zip(flat, normaliser, strict=True)]
            )

        @tff.tensorflow.computation(terms.type_signature.result)
        def effective_clients(sums):
            return tf.reduce_mean(tf.math.divide_no_nan(tf.square(sums["total"]), sums["squares"]))

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            scores = tff.federated_map(score, (value, weight))
            largest = tff.federated_broadcast(tff.federated_max(scores))
            attention = tff.federated_map(exponent, (scores, largest))
            summed = inner.next(state, tff.federated_map(scale, (value, attention)))
            sums = tff.federated_sum(tff.federated_map(terms, attention))
            return tff.templates.MeasuredProcessOutput(
                state=summed.state,
                result=tff.federated_map(normalise, (summed.result, sums)),
                measurements=tff.federated_zip(
                    collections.OrderedDict(
                        [
                            ("attention/effective_clients", tff.federated_map(effective_clients, sums)),
                            ("sum", summed.measurements),
                        ]
                    )
                ),
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
