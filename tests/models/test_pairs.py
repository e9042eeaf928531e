"""Losses and counts of models of pairs, against the papers' formulas in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_re.models.pairs import adaptive_threshold_losses, binary_losses, pair_statistics


def outputs(logits, labels):
    return {"logits": tf.constant(logits, tf.float32), "pair_labels": tf.constant(labels, tf.float32)}


def test_binary_losses_by_hand():
    """Probabilities 3/4 and 1/2: -log(3/4) - log(1/2) = 0.9808293; and -log(1/4) - log(1/2) = 2.0794415."""
    losses = binary_losses(None, outputs([[np.log(3), 0.0]] * 2, [[1, 0], [0, 0]]))
    np.testing.assert_allclose(losses, [0.9808293, 2.0794415], rtol=1e-6)


def with_threshold_class(scores, labels):
    """ATLOP's L1 + L2 of one pair as printed; scores [R + 1], the threshold's first."""
    e, positive = np.exp(scores), np.flatnonzero(labels) + 1
    negative = np.flatnonzero(np.asarray(labels) == 0) + 1
    first = -sum(np.log(e[r] / (e[positive].sum() + e[0])) for r in positive)
    return first - np.log(e[0] / (e[negative].sum() + e[0]))


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]])
def test_the_adaptive_threshold_is_atlops(labels):
    scores = np.random.default_rng(sum(labels)).normal(0, 3, [4, 4])
    losses = adaptive_threshold_losses(None, outputs(scores[:, 1:] - scores[:, :1], [labels] * 4))
    np.testing.assert_allclose(losses, [with_threshold_class(s, labels) for s in scores], rtol=1e-5)


def test_the_adaptive_threshold_of_large_scores_is_finite_and_so_is_its_gradient():
    logits = tf.constant([[300.0, -300.0, 300.0], [-300.0, 300.0, -300.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = adaptive_threshold_losses(
            None, {"logits": logits, "pair_labels": tf.constant([[1.0, 0, 0], [1, 0, 0]])}
        )
    np.testing.assert_allclose(losses, [300.0, 600.0], rtol=1e-5)
    assert np.isfinite(tape.gradient(losses, logits)).all()


def test_counts_by_relation():
    counts = pair_statistics(None, outputs([[1, -1], [2, 3], [-1, 1]], [[1, 0], [0, 1], [1, 1]]))
    assert {name: list(value.numpy()) for name, value in counts.items()} == {
        "true_positives": [1, 2],
        "predicted": [2, 2],
        "actual": [2, 2],
    }
