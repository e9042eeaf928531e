"""Learning from labels and from a teacher's logits (Hinton et al. 2015; FedED, Sui et al. 2020, Eqs. 4 and 6)."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective, output_rows, row_mean
from computations.ranges import NOT_NEGATIVE, POSITIVE


@attrs.frozen
class Distillation(Objective):
    """Cross-entropy + weight * KL(q || p), p = softmax(student's logits), q = softmax(teacher's logits / temperature).

    The teacher's logits of all rows of the outputs, float32 [N, C], are `client.shared`. The paper tempers q alone
    (Eqs. 4 and 6); `temper_student` divides the student's logits in the KL by the temperature too, as Hinton et al. do.
    """

    temperature: float = attrs.field(default=1.0, validator=POSITIVE)
    weight: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    temper_student: bool = False

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        teacher = tf.nn.log_softmax(tf.gather(client.shared, output_rows(client, batch.rows)) / self.temperature)
        logits = tf.cast(batch.outputs["logits"], tf.float32)
        student = tf.nn.log_softmax(logits / self.temperature if self.temper_student else logits)
        # Where q is zero its term is zero, whatever log q is.
        divergence = tf.reduce_sum(tf.math.multiply_no_nan(teacher - student, tf.exp(teacher)), axis=-1)
        return row_mean(client, client.local_model.losses(batch.labels, batch.outputs) + self.weight * divergence)
