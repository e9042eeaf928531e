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

    With `one_pass` there is a single aggregation, for platforms that allow no more in a round (TFF's mergeable form).
    Its accumulator holds the largest score m so far, and sums to which a client of score s adds exp(s - m). Where m
    grows, they shrink by exp(m_old - m_new); where two accumulators meet, each shrinks towards the larger m. The
    results are those of the two passes up to rounding. A client then sends its update as it is, without its attention.

    Measurements: `attention/effective_clients`, 1 / sum_k a_k^2, the mean over the softmaxes (the number of clients
    that count if all are alike, 1 if one client has all the attention).
    """

    def __init__(
        self,
        granularity: Literal["layer", "model"] = "layer",
        inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        one_pass: bool = False,
    ):
        """Args:
          granularity: `layer`: one softmax per weight tensor (FedAtt's own form); `model`: one over the whole model.
          inner_sum: makes the sum of the attention-weighted updates; tff.aggregators.SumFactory() by default.
          one_pass: a single aggregation, see above; without an inner sum.

        Raises:
          ValueError: for another granularity, or an inner sum with one_pass.
        """
        if granularity not in ("layer", "model"):
            raise ValueError(f"granularity must be 'layer' or 'model', got {granularity!r}")
        if one_pass and inner_sum is not None:
            raise ValueError("inner_sum cannot be used with one_pass, which aggregates once without an inner sum")
        self.granularity, self._one_pass = granularity, one_pass
        self._inner_sum = inner_sum or tff.aggregators.SumFactory()

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Process over a structure of float tensors, or one tensor (a single layer), and a scalar weight."""
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        whole = self.granularity == "model"

        @tff.tensorflow.computation(value_type, weight_type)
        def score(update, weight):
            squares = tf.stack([tf.reduce_sum(tf.square(t)) for t in tf.nest.flatten(update)])
            norms = tf.sqrt(tf.reduce_sum(squares, keepdims=True) if whole else squares)
            # A square may overflow where the update itself is finite; inf - inf would silence the other clients too.
            norms = tf.minimum(norms, norms.dtype.max)
            return tf.where(weight > 0, norms, tf.constant(-np.inf, norms.dtype))

        if self._one_pass:
            return _in_one_pass(value_type, weight_type, score)
        return self._in_two_passes(value_type, weight_type, score)

    def _in_two_passes(self, value_type, weight_type, score) -> tff.templates.AggregationProcess:
        inner = self._inner_sum.create(value_type)
        score_type = score.type_signature.result

        exponent = tff.tensorflow.computation(_exponent, score_type, score_type)
        scale = tff.tensorflow.computation(_scaled, value_type, score_type)

        @tff.tensorflow.computation(score_type)
        def terms(attention):
            return collections.OrderedDict(total=attention, squares=tf.square(attention))

        @tff.tensorflow.computation(inner.next.type_signature.result.result.member, terms.type_signature.result)
        def normalise(numerator, sums):
            return _normalised(numerator, sums["total"])

        @tff.tensorflow.computation(terms.type_signature.result)
        def effective_clients(sums):
            return _effective(sums["total"], sums["squares"])

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


def _in_one_pass(value_type, weight_type, score) -> tff.templates.AggregationProcess:
    score_type = score.type_signature.result
    sums_type = tff.types.to_type(
        collections.OrderedDict(largest=score_type, total=score_type, squares=score_type, numerator=value_type)
    )
    scored_type = tff.types.to_type(collections.OrderedDict(update=value_type, score=score_type))

    @tff.tensorflow.computation
    def zero():
        blank = tf.zeros(score_type.shape, score_type.dtype)
        tensors = tff.types.structure_from_tensor_type_tree(lambda t: tf.zeros(t.shape, t.dtype), value_type)
        return collections.OrderedDict(largest=blank - np.inf, total=blank, squares=blank, numerator=tensors)

    def shrunk(sums, largest):
        factor = _exponent(sums["largest"], largest)
        return collections.OrderedDict(
            largest=largest,
            total=sums["total"] * factor,
            squares=sums["squares"] * tf.square(factor),
            numerator=_scaled(sums["numerator"], factor),
        )

    @tff.tensorflow.computation(sums_type, sums_type)
    def merge(one, other):
        largest = tf.maximum(one["largest"], other["largest"])
        added = tf.nest.map_structure(tf.add, shrunk(one, largest), shrunk(other, largest))
        return collections.OrderedDict(added, largest=largest)

    @tff.tensorflow.computation(sums_type, scored_type)
    def accumulate(sums, client):
        largest = tf.maximum(sums["largest"], client["score"])
        weight = _exponent(client["score"], largest)
        before = shrunk(sums, largest)
        return collections.OrderedDict(
            largest=largest,
            total=before["total"] + weight,
            squares=before["squares"] + tf.square(weight),
            numerator=tf.nest.map_structure(tf.add, before["numerator"], _scaled(client["update"], weight)),
        )

    @tff.tensorflow.computation(sums_type)
    def report(sums):
        return _normalised(sums["numerator"], sums["total"]), _effective(sums["total"], sums["squares"])

    nothing = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

    @tff.federated_computation(
        nothing.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
        tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
        own = tff.federated_map(score, (value, weight))
        scored = tff.federated_zip(collections.OrderedDict(update=value, score=own))
        output = tff.federated_aggregate(scored, zero(), accumulate, merge, report)
        measured = collections.OrderedDict(
            [("attention/effective_clients", output[1]), ("sum", tff.federated_value((), tff.SERVER))]
        )
        return tff.templates.MeasuredProcessOutput(state, output[0], tff.federated_zip(measured))

    return tff.templates.AggregationProcess(nothing, next_fn)


def _exponent(score, largest):
    """exp(score - largest), and zero for the score of a client that does not count."""
    counts = tf.math.is_finite(score)
    return tf.where(counts, tf.exp(tf.where(counts, score - largest, 0.0)), 0.0)


def _by_tensor(tensors, factors):
    """(tensor, its factor): one for each, or one for all."""
    return [(t, factors[0 if factors.shape[0] == 1 else i]) for i, t in enumerate(tensors)]


def _scaled(update, attention):
    flat = tf.nest.flatten(update)
    # Not 0 * t, which is NaN where the update of a client that does not count is not finite.
    scaled = [tf.where(a > 0, t * a, tf.zeros_like(t)) for t, a in _by_tensor(flat, attention)]
    return tf.nest.pack_sequence_as(update, scaled)


def _normalised(numerator, total):
    flat = tf.nest.flatten(numerator)
    return tf.nest.pack_sequence_as(numerator, [tf.math.divide_no_nan(t, n) for t, n in _by_tensor(flat, total)])


def _effective(total, squares):
    """Mean over the softmaxes of 1 / sum_k a_k^2."""
    return tf.reduce_mean(tf.math.divide_no_nan(tf.square(total), squares))
