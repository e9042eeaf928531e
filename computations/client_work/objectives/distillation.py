"""Learning from labels and from a teacher's logits (Hinton et al. 2015; FedED, Sui et al. 2020, Eqs. 4 and 6)."""

from __future__ import annotations

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.ranges import NOT_NEGATIVE, POSITIVE, require


class Distillation(Objective):
    """Cross-entropy + weight * KL(q || p), p = softmax(student's logits), q = softmax(teacher's logits / temperature).

    The teacher's logits of all examples, float32 [n, C], are `client.shared`. The paper tempers q alone (Eqs. 4 and 6);
    `temper_student` divides the student's logits in the KL by the temperature too, as Hinton et al. do.
    """

    def __init__(self, temperature: float = 1.0, weight: float = 1.0, temper_student: bool = False):
        """Args:
          temperature: tau, above zero.
          weight: of the divergence; 0 is cross-entropy alone.
          temper_student: see above.

        Raises:
          ValueError: for a value that is not finite or is out of range.
        """
        require(POSITIVE, temperature=temperature)
        require(NOT_NEGATIVE, weight=weight)
        self.temperature, self.weight, self.temper_student = temperature, weight, temper_student

    def loss(self, client: Client, prepared, batch: Batch) -> tf.Tensor:
        del prepared
        teacher = tf.nn.log_softmax(tf.gather(client.shared, batch.rows) / self.temperature)
        logits = tf.cast(batch.outputs["logits"], tf.float32)
        student = tf.nn.log_softmax(logits / self.temperature if self.temper_student else logits)
        # Where q is zero its term is zero, whatever log q is.
        divergence = tf.reduce_sum(tf.math.multiply_no_nan(teacher - student, tf.exp(teacher)), axis=-1)
        return tf.reduce_mean(client.local_model.losses(batch.labels, batch.outputs) + self.weight * divergence)
