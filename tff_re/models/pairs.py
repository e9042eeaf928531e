"""Losses and statistics of models that classify pairs of a document.

Each of R relations holds of a pair or not.

Such a model's outputs have a row per pair, as `LocalModel.rows` says: `logits` and `pair_labels` float32 [N, R]. A
relation is predicted where its logit is above zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


def binary_losses(labels: tf.Tensor, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Binary cross-entropy of every pair, summed over relations (FedLCC, Eq. 11) -> float32 [N]."""
    del labels
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=outputs["pair_labels"], logits=outputs["logits"])
    return tf.reduce_sum(losses, axis=-1)


def adaptive_threshold_losses(labels: tf.Tensor, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """ATLOP's adaptive-thresholding loss of every pair -> float32 [N] (Zhou et al. 2021, Section 4.1).

    `logits` are those of the relations minus that of the threshold class, x_r. The loss depends on nothing else: with
    P the relations that hold and T the others, -sum_P log(e^x_r / (1 + sum_P e^x)) - log(1 / (1 + sum_T e^x)).
    """
    del labels
    positive, logits = outputs["pair_labels"], outputs["logits"]
    of_positive = _log_one_plus_sum(logits, positive > 0)
    of_negative = _log_one_plus_sum(logits, positive <= 0)
    return tf.reduce_sum(positive * (of_positive[:, tf.newaxis] - logits), axis=-1) + of_negative


def _log_one_plus_sum(logits: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """log(1 + sum of e^x over those), [N, R] -> [N]."""
    among = tf.where(which, logits, logits.dtype.min)
    return tf.reduce_logsumexp(tf.pad(among, [[0, 0], [1, 0]]), axis=-1)


def pair_statistics(labels: tf.Tensor, outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Counts over pairs, float32 [R] each: `true_positives`, `predicted`, `actual`."""
    del labels
    predicted = tf.cast(outputs["logits"] > 0, tf.float32)
    actual = tf.cast(outputs["pair_labels"] > 0, tf.float32)
    return {
        "true_positives": tf.reduce_sum(predicted * actual, axis=0),
        "predicted": tf.reduce_sum(predicted, axis=0),
        "actual": tf.reduce_sum(actual, axis=0),
    }
