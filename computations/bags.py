"""What several methods of distant supervision compute from the sentences of a bag.

All of it needs the sentences' logits alone. The classifier is linear, logits_i = (r_k . x_i + d_k)_k, so that a bag's
vector sum_i a_i x_i with sum_i a_i = 1 has the logits sum_i a_i logits_i, and a softmax over a bag's sentences of
r_k . x_i is that of their logits of k: d_k is the same in all of them.

`bags` are int32 [n], the index of every sentence's bag; `num_bags` says how many there are.
"""

from __future__ import annotations

import tensorflow as tf

from computations.errors import CompositionError
from computations.local_model import LocalModel, zero_initialisers

ABSENT = -1.0
"""Marks a missing probability; lower than all others."""


def label_probabilities(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return p(r|s) of every sentence's label (FedDS, Eq. 1).

    [n, C], int32 [n] -> float32 [n]. It is ABSENT if it is not finite.
    """
    p = tf.gather(tf.nn.softmax(tf.cast(logits, tf.float32)), labels, batch_dims=1)
    return tf.where(tf.math.is_finite(p), p, ABSENT)


def first_best(scores: tf.Tensor, bags: tf.Tensor, num_bags) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the best score of every bag and the first row that has it.

    Finite scores float32 [n] -> float32, int32 [num_bags].

    A bag without a row has the lowest score there is and the row n.
    """
    best = tf.math.unsorted_segment_max(scores, bags, num_bags)
    count = tf.size(scores)
    rows = tf.where(tf.equal(scores, tf.gather(best, bags)), tf.range(count), count)
    return best, tf.minimum(tf.math.unsorted_segment_min(rows, bags, num_bags), count)


def segment_softmax(scores: tf.Tensor, bags: tf.Tensor, num_bags) -> tf.Tensor:
    """Return the softmax over every bag's rows, [n, ...] -> [n, ...], stable for scores of any size."""
    largest = tf.math.unsorted_segment_max(tf.stop_gradient(scores), bags, num_bags)
    exponents = tf.exp(scores - tf.gather(largest, bags))
    return exponents / tf.gather(tf.math.unsorted_segment_sum(exponents, bags, num_bags), bags)


def weighted(logits: tf.Tensor, shares: tf.Tensor, bags: tf.Tensor, num_bags) -> tf.Tensor:
    """Return the logits of the bags, sum_i shares_i logits_i: float32 [n, C] -> [num_bags, C].

    The shares of a bag's sentences sum to 1. They are float32 [n], or [n, C] where every relation has its own.
    """
    shares = shares[:, tf.newaxis] if shares.shape.rank == 1 else shares
    return tf.math.unsorted_segment_sum(shares * logits, bags, num_bags)


def attended(logits: tf.Tensor, scores: tf.Tensor, bags: tf.Tensor, num_bags) -> tf.Tensor:
    """Return the attended logits of the bags, sum_i softmax_i(scores) logits_i, for scores float32 [n] or [n, C]."""
    return weighted(logits, segment_softmax(scores, bags, num_bags), bags, num_bags)


def require_linear_classifier(model: LocalModel, who: str) -> None:
    """Raise CompositionError unless the logits are a dense layer of the features without an activation.

    The error names `who`.
    """
    with tf.Graph().as_default(), zero_initialisers():
        layers = {layer.name: layer for layer in model.build().layers}
    layer = layers.get(model.classifier)
    if not isinstance(layer, tf.keras.layers.Dense) or layer.activation is not tf.keras.activations.linear:
        raise CompositionError(
            f"{who} needs a model that names its classifier (LocalModel.classifier), a dense layer without an "
            f"activation, got {model.classifier!r}"
        )
