"""Attention over clients (FLCMC, Hu and Fang 2024, Eqs. 11-13; after FedAtt, Ji et al. 2019)."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Literal

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value
from computations.named import named_max


class AttentionFactory(tff.aggregators.WeightedAggregationFactory):
    """sum_k a_k D_k with a = softmax over clients of ||D_k||, D_k a client's update.

    Farther clients weigh more; sample counts do not enter. A weight says only whether a client counts (> 0) or not.
    No client's update is ever collected: clients score their own, `federated_max` and a broadcast make the softmax
    stable, and two sums give the numerator and the normaliser. The step size (lambda of Eq. 14) is the finalizer's.

    With a `bound` S, the constant S takes the place of the largest score: a = e^(s_k - S), s_k = min(||D_k||, S), and
    D_k is shrunk to the norm s_k. Where no norm exceeds S this is the same attention, in one aggregation and without a
    maximum over the clients, which secure sums do not have.

    With `weighted` a client's attention is proportional to its weight times exp(||D_k||), for rules that re-weight
    clients, such as `GeometricMedianFactory`.

    Measurements: `attention/effective_clients`, 1 / sum_k a_k^2, the mean over the softmaxes (the number of clients
    that count if all are alike, 1 if one client has all the attention).
    """

    def __init__(
        self,
        granularity: Literal["layer", "model"] = "layer",
        inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        normaliser_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
        weighted: bool = False,
        bound: float | None = None,
    ):
        """Args:
          granularity: `layer`: one softmax per weight tensor (FedAtt's own form); `model`: one over the whole model.
          inner_sum: makes the sum of the attention-weighted updates; tff.aggregators.SumFactory() by default.
          normaliser_sum: makes the sums of the attention and of its squares, numbers from 0 to 1; keeps nothing from
            round to round. A plain sum by default. The largest score leaves the clients in the clear in any case.
          weighted: whether a client's weight is a factor of its attention, see above.
          bound: S of every softmax, above zero, see above; None: the largest score of the clients. Not with `weighted`.

        Raises:
          ValueError: for another granularity, and for `weighted` with a bound.
        """
        if weighted and bound is not None:
            raise ValueError("weights change the scores, so a bound on the norms does not bound them")
        if granularity not in ("layer", "model"):
            raise ValueError(f"granularity must be 'layer' or 'model', got {granularity!r}")
        self.granularity = granularity
        self._inner_sum = inner_sum or tff.aggregators.SumFactory()
        self._normaliser_sum = normaliser_sum or tff.aggregators.SumFactory()
        self.weighted, self.bound = weighted, bound

    def with_sums(
        self,
        value_sum: tff.aggregators.UnweightedAggregationFactory,
        weight_sum: tff.aggregators.UnweightedAggregationFactory | None = None,
    ) -> AttentionFactory:
        """Return the attention with these factories for its sums."""
        return AttentionFactory(self.granularity, value_sum, weight_sum, self.weighted, self.bound)

    def with_bound(self, bound: float) -> AttentionFactory:
        """Return the attention with a constant in place of the largest score."""
        return AttentionFactory(self.granularity, self._inner_sum, self._normaliser_sum, self.weighted, bound)

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over a structure of float tensors, or one tensor (a single layer), and a scalar weight."""
        value_type, weight_type = tff.types.to_type(value_type), tff.types.to_type(weight_type)
        whole = self.granularity == "model"

        @tff.tensorflow.computation(value_type, weight_type)
        def score(update: Structure, weight: tf.Tensor) -> tf.Tensor:
            squares = tf.stack([tf.reduce_sum(tf.square(t)) for t in tf.nest.flatten(update)])
            norms = tf.sqrt(tf.reduce_sum(squares, keepdims=True) if whole else squares)
            # A square may overflow where the update itself is finite; inf - inf would silence the other clients too.
            norms = tf.minimum(norms, norms.dtype.max)
            if self.weighted:
                norms += tf.cast(tf.math.log(weight), norms.dtype)
            return tf.where(weight > 0, norms, tf.constant(-np.inf, norms.dtype))

        named_type = tff.types.to_type(collections.OrderedDict(attended=value_type))
        inner = self._inner_sum.create(named_type)
        score_type = score.type_signature.result

        exponent = tff.tensorflow.computation(_exponent, score_type, score_type)
        if self.bound is not None:
            below_bound = tff.tensorflow.computation(lambda norms: _below_bound(norms, self.bound), score_type)

        @tff.tensorflow.computation(value_type, score_type)
        def scale(update: Structure, factors: tf.Tensor) -> Structure:
            return collections.OrderedDict(attended=_scaled(update, factors))

        @tff.tensorflow.computation(score_type)
        def terms(attention: tf.Tensor) -> Structure:
            return collections.OrderedDict(total=attention, squares=tf.square(attention))

        normaliser = self._normaliser_sum.create(terms.type_signature.result)

        @tff.tensorflow.computation(inner.next.type_signature.result.result.member, terms.type_signature.result)
        def normalise(numerator: Structure, sums: Structure) -> Structure:
            return _normalised(numerator["attended"], sums["total"])

        @tff.tensorflow.computation(terms.type_signature.result)
        def effective_clients(sums: Structure) -> tf.Tensor:
            return _effective(sums["total"], sums["squares"])

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            scores = tff.federated_map(score, (value, weight))
            if self.bound is None:
                largest = tff.federated_broadcast(named_max("scores" if self.weighted else "norms", scores))
                attention = factors = tff.federated_map(exponent, (scores, largest))
            else:
                bounded = tff.federated_map(below_bound, scores)
                attention, factors = bounded["attention"], bounded["factors"]
            summed = inner.next(state, tff.federated_map(scale, (value, factors)))
            sums = normaliser.next(normaliser.initialize(), tff.federated_map(terms, attention)).result
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


def _exponent(score: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """Return exp(score - largest), and zero for the score of a client that does not count."""
    counts = tf.math.is_finite(score)
    return tf.where(counts, tf.exp(tf.where(counts, score - largest, 0.0)), 0.0)


def _below_bound(norms: tf.Tensor, bound: tf.Tensor | float) -> collections.OrderedDict[str, tf.Tensor]:
    """Return the attention e^(s - S) with s = min(norm, S), and this times what shrinks an update to norm s.

    Both are zero for a client that does not count.
    """
    counts, bound = tf.math.is_finite(norms), tf.cast(bound, norms.dtype)
    norms = tf.where(counts, norms, tf.zeros_like(norms))
    attention = tf.where(counts, tf.exp(tf.minimum(norms, bound) - bound), 0.0)
    return collections.OrderedDict(attention=attention, factors=attention * bound / tf.maximum(norms, bound))


def _by_tensor(tensors: Sequence[tf.Tensor], factors: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Return (tensor, its factor), with one factor for each tensor or one for all."""
    return [(t, factors[0 if factors.shape[0] == 1 else i]) for i, t in enumerate(tensors)]


def _scaled(update: Structure, attention: tf.Tensor) -> Structure:
    flat = tf.nest.flatten(update)
    # Not 0 * t, which is NaN where the update of a client that does not count is not finite.
    scaled = [tf.where(a > 0, t * a, tf.zeros_like(t)) for t, a in _by_tensor(flat, attention)]
    return tf.nest.pack_sequence_as(update, scaled)


def _normalised(numerator: Structure, total: tf.Tensor) -> Structure:
    flat = tf.nest.flatten(numerator)
    return tf.nest.pack_sequence_as(numerator, [tf.math.divide_no_nan(t, n) for t, n in _by_tensor(flat, total)])


def _effective(total: tf.Tensor, squares: tf.Tensor) -> tf.Tensor:
    """Return the mean over the softmaxes of 1 / sum_k a_k^2."""
    return tf.reduce_mean(tf.math.divide_no_nan(tf.square(total), squares))
