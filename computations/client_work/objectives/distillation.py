"""Learning from labels and from a teacher's logits (Hinton et al. 2015; FedED, Sui et al. 2020, Eqs. 4 and 6)."""

from __future__ import annotations

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective


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
        check_distillation(temperature, weight)
        self.temperature, self.weight, self.temper_student = temperature, weight, temper_student

    def loss(self, client: Client, prepared, batch: Batch) -> tf.Tensor:
        del prepared
        teacher = tf.nn.log_softmax(tf.gather(client.shared, batch.rows) / self.temperature)
        logits = tf.cast(batch.outputs["logits"], tf.float32)
        student = tf.nn.log_softmax(logits / self.temperature if self.temper_student else logits)
        # Where q is zero its term is zero, whatever log q is.
        divergence = tf.reduce_sum(tf.math.multiply_no_nan(teacher - student, tf.exp(teacher)), axis=-1)
        return tf.reduce_mean(client.local_model.losses(batch.labels, batch.outputs) + self.weight * divergence)


def check_distillation(temperature: float, weight: float) -> None:
    """ValueError unless the temperature is above zero, the weight not negative, and both finite."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be finite and above zero, got {temperature}")
    if not 0 <= weight < float("inf"):
        raise ValueError(f"distillation_weight must be finite and not negative, got {weight}")
