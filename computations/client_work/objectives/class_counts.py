"""Cross-entropy of logits that are adjusted by a client's number of examples of each class (FedRS and FedLC)."""

from __future__ import annotations

from typing import Literal

import attrs
import tensorflow as tf
from attrs.validators import in_

from computations.client_work.objectives.base import Batch, Client, Objective, row_mean
from computations.ranges import NOT_NEGATIVE, SHARE

COUNTS = "the client's number of examples of each class"

LEFT_OUT = 1e9
"""What is taken from a logit that is to have no part in a softmax; infinity times zero would be no number."""


@attrs.frozen
class RestrictedSoftmax(Objective):
    """FedRS (Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax", KDD, Section 4).

    Cross-entropy of the logits s_c * f_c, s_c = 1 where the client has examples of class c and `alpha` elsewhere, in
    [0, 1]; 1 is cross-entropy alone. A client pushes the vectors of its absent classes less, because their logits count
    less. The paper writes exp(s_c w_c^T h) / sum_j exp(s_j w_j^T h), a classifier without bias; where a model has one,
    it is scaled with the rest of the logit.

    With `graded` s_c = alpha + (1 - alpha) * n_c / max_j n_j, n_c the client's number of examples of class c: code in
    circulation grades the scales by the class shares where the paper tells present from absent. A class that is as
    frequent as the most frequent one has the scale 1 in both, an absent one alpha.
    """

    beyond_batch = COUNTS

    alpha: float = attrs.field(default=0.5, validator=SHARE)
    graded: bool = False

    def prepare(self, client: Client) -> tf.Tensor:
        """The scales, float32 [C]."""
        counts = client.label_counts()
        if self.graded:
            return self.alpha + (1.0 - self.alpha) * tf.math.divide_no_nan(counts, tf.reduce_max(counts))
        return tf.where(counts > 0, 1.0, self.alpha)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) * prepared
        return row_mean(client, client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))


@attrs.frozen
class CalibratedLogits(Objective):
    """FedLC (Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration", Section 4).

    Cross-entropy of the logits f_c - tau * n_c^(-1/4), n_c the client's number of examples of class c. The rarer a
    class, the larger the margin that it is trained to keep; tau 0 is cross-entropy alone.

    For n_c = 0 the formula's margin is infinite. With `absent` = `margin` it is that of n_c = 1, times `absent_factor`;
    code in circulation takes n_c as 1e-8 there, which is a factor of 100. With `left_out` the class has no part in the
    softmax, which is the formula's limit.

    The softmax runs over all classes, as in code in circulation, so that the loss cannot fall below zero. With
    `over_others` its sum leaves out the true class, as the paper prints it: the loss is the log of a ratio and
    falls without bound where a class is far ahead of the others.
    """

    beyond_batch = COUNTS

    tau: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    absent_factor: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    absent: Literal["margin", "left_out"] = attrs.field(default="margin", validator=in_(("margin", "left_out")))
    over_others: bool = False

    def prepare(self, client: Client) -> tf.Tensor:
        """The margins, float32 [C]."""
        counts = client.label_counts()
        present = self.tau * tf.pow(tf.maximum(counts, 1.0), -0.25)
        absent = LEFT_OUT if self.absent == "left_out" else self.tau * self.absent_factor
        return tf.where(counts > 0, present, absent)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        logits = tf.cast(batch.outputs["logits"], tf.float32) - prepared
        if self.over_others:
            true = tf.one_hot(batch.labels, logits.shape[-1])
            others = tf.reduce_logsumexp(logits - LEFT_OUT * true, axis=-1)
            return row_mean(client, others - tf.reduce_sum(logits * true, axis=-1))
        return row_mean(client, client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))
