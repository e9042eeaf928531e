"""FedRS' restricted softmax (Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax", KDD, Section 4)."""

from __future__ import annotations

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.ranges import SHARE, require


class RestrictedSoftmax(Objective):
    """Cross-entropy of the logits s_c * f_c, s_c = 1 where the client has examples of class c and `alpha` elsewhere.

    A client pushes the vectors of its absent classes less, because their logits count less. The paper writes
    exp(s_c w_c^T h) / sum_j exp(s_j w_j^T h), a classifier without bias; where a model has one, it is scaled with the
    rest of the logit.
    """

    def __init__(self, alpha: float = 0.5):
        """Args:
          alpha: scale of the absent classes' logits in [0, 1]; 1 is cross-entropy alone.

        Raises:
          ValueError: for an alpha outside of [0, 1].
        """
        require(SHARE, alpha=alpha)
        self.alpha = alpha

    def prepare(self, client: Client) -> tf.Tensor:
        """The scales, float32 [C]."""
        return tf.where(client.label_counts() > 0, 1.0, self.alpha)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) * prepared
        return tf.reduce_mean(client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))
