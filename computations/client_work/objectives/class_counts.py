"""Cross-entropy of logits that are changed by how many examples of each class a client has: FedRS and FedLC."""

from __future__ import annotations

import attrs
import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.ranges import NOT_NEGATIVE, SHARE

COUNTS = "the client's number of examples of each class"


@attrs.frozen
class RestrictedSoftmax(Objective):
    """FedRS (Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax", KDD, Section 4).

    Cross-entropy of the logits s_c * f_c, s_c = 1 where the client has examples of class c and `alpha` elsewhere, in
    [0, 1]; 1 is cross-entropy alone. A client pushes the vectors of its absent classes less, because their logits count
    less. The paper writes exp(s_c w_c^T h) / sum_j exp(s_j w_j^T h), a classifier without bias; where a model has one,
    it is scaled with the rest of the logit.
    """

    beyond_batch = COUNTS

    alpha: float = attrs.field(default=0.5, validator=SHARE)

    def prepare(self, client: Client) -> tf.Tensor:
        """The scales, float32 [C]."""
        return tf.where(client.label_counts() > 0, 1.0, self.alpha)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) * prepared
        return tf.reduce_mean(client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))


@attrs.frozen
class CalibratedLogits(Objective):
    """FedLC (Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration", Section 4).

    Cross-entropy of the logits f_c - tau * n_c^(-1/4), n_c the client's number of examples of class c. The rarer a
    class, the larger the margin that it is trained to keep; tau 0 is cross-entropy alone. The softmax runs over all
    classes, the true one included, so that the loss cannot fall below zero. For n_c = 0 the formula's margin is
    infinite; here it is that of n_c = 1, times `absent_factor`.
    """

    beyond_batch = COUNTS

    tau: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    absent_factor: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)

    def prepare(self, client: Client) -> tf.Tensor:
        """The margins, float32 [C]."""
        counts = client.label_counts()
        present = self.tau * tf.pow(tf.maximum(counts, 1.0), -0.25)
        return tf.where(counts > 0, present, self.tau * self.absent_factor)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) - prepared
        return tf.reduce_mean(client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))
