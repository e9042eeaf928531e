"""FedLC's calibrated logits (Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits
Calibration", ICML, Section 4)."""

from __future__ import annotations

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.ranges import NOT_NEGATIVE, require


class CalibratedLogits(Objective):
    """Cross-entropy of the logits f_c - tau * n_c^(-1/4), n_c the client's number of examples of class c.

    The rarer a class, the larger the margin that it is trained to keep. The softmax runs over all classes, the true one
    included, so that the loss cannot fall below zero. For n_c = 0 the formula's margin is infinite; here it is that of
    n_c = 1, times `absent_factor`.
    """

    def __init__(self, tau: float = 1.0, absent_factor: float = 1.0):
        """Args:
          tau: weight of the margins; 0 is cross-entropy alone.
          absent_factor: margin of a class that the client does not have, in margins of a class with one example.

        Raises:
          ValueError: for a value that is not finite or is negative.
        """
        require(NOT_NEGATIVE, tau=tau, absent_factor=absent_factor)
        self.tau, self.absent_factor = tau, absent_factor

    def prepare(self, client: Client) -> tf.Tensor:
        """The margins, float32 [C]."""
        counts = client.label_counts()
        present = self.tau * tf.pow(tf.maximum(counts, 1.0), -0.25)
        return tf.where(counts > 0, present, self.tau * self.absent_factor)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) - prepared
        return tf.reduce_mean(client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))
