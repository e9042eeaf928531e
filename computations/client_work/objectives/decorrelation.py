"""FedDecorr (Shi et al. 2023, "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
Learning", ICLR, Section 4)."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import tensorflow as tf
from attrs.validators import in_

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class Decorrelation(Objective):
    """The model's loss plus beta times a penalty on the correlation matrix K of the batch's `features`, [d, d].

    - `paper`: ||K||_F^2 / d^2, K = Z^T Z / N of N rows Z that are centred and divided by their deviation.
    - `code`: the mean of the squares outside of K's diagonal, times N: the released code squares Z^T Z and divides by N
      once, with deviations whose squares divide by N - 1. It weighs about N times as much, N its batch of 64.

    A feature that does not vary in the batch correlates with nothing; its variance is raised by 1e-8, as in the code.
    A batch of one row has no correlation and no penalty. Where an example makes several rows of the outputs (a
    document's pairs), each is a row here.
    """

    beyond_batch = "the correlation of the features over a batch"

    beta: float = attrs.field(default=0.1, validator=NOT_NEGATIVE)
    form: Literal["paper", "code"] = attrs.field(default="paper", validator=in_(("paper", "code")))

    EPSILON = 1e-8

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        z = tf.cast(batch.outputs["features"], tf.float32)
        rows, width = tf.cast(tf.shape(z)[0], tf.float32), z.shape[-1]
        centred = z - tf.reduce_mean(z, axis=0)
        fewer = 0.0 if self.form == "paper" else 1.0
        variance = tf.math.divide_no_nan(tf.reduce_sum(tf.square(centred), axis=0), rows - fewer)
        z = centred / tf.sqrt(variance + self.EPSILON)
        correlation = tf.math.divide_no_nan(tf.matmul(z, z, transpose_a=True), rows)
        if self.form == "code":
            correlation = tf.linalg.set_diag(correlation, tf.zeros_like(correlation[0]))
            factor = rows / max(width * (width - 1), 1)
        else:
            factor = 1.0 / width**2
        penalty = tf.where(rows > 1.0, factor * tf.reduce_sum(tf.square(correlation)), 0.0)
        return super().loss(client, prepared, batch) + self.beta * penalty
