"""MOON's model-contrastive term (Li, He and Song 2021, "Model-Contrastive Federated Learning", CVPR, Eqs. 3-4)."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.client_work.objectives.base import Batch, Client, Objective
from computations.inference import forward
from computations.local_model import LocalModel


class ModelContrast(Objective):
    """Cross-entropy plus weight * mean of -log(e^p / (e^p + e^n)), p = cos(z, z_glob) / tau, n = cos(z, z_prev) / tau.

    z is the model's `features` of an example in the step, z_glob that of the global model at the start of the round,
    z_prev that of the client's own model at the end of its last round; the latter two are constants. MOON puts a
    projection head of two layers before z; here z is what the classifier sees, so that methods are compared on one
    model.

    A client keeps z_prev of its own examples (n * d numbers) instead of its previous model: the loss is the same, as
    both are computed without dropout. A client that has not been trained yet has no previous model and no contrast.
    """

    def __init__(self, weight: float = 1.0, tau: float = 0.5):
        """Args:
          weight: of the contrast (the paper's mu).
          tau: temperature.

        Raises:
          ValueError: for a negative weight, a temperature that is not positive, values that are not finite.
        """
        check_contrast(weight, tau)
        self.weight, self.tau = weight, tau

    def memory_type(self, local_model: LocalModel) -> tff.Type:
        """<representations=float32[?,d], trained=bool>."""
        representations = tff.TensorType(np.float32, [None, local_model.feature_width])
        return tff.types.to_type(collections.OrderedDict(representations=representations, trained=np.bool_))

    def blank_memory(self, local_model: LocalModel, num_examples: int):
        representations = np.zeros([num_examples, local_model.feature_width], np.float32)
        return collections.OrderedDict(representations=representations, trained=np.bool_(False))

    def prepare(self, client: Client):
        """Directions of z_glob and z_prev, float32 [n, d] each."""
        return collections.OrderedDict(
            globally=direction(representations(client)), previously=direction(client.memory["representations"])
        )

    def loss(self, client: Client, prepared, batch: Batch) -> tf.Tensor:
        z = direction(tf.cast(batch.outputs["features"], tf.float32))
        similar = tf.reduce_sum(z * tf.gather(prepared["globally"], batch.rows), axis=-1) / self.tau
        dissimilar = tf.reduce_sum(z * tf.gather(prepared["previously"], batch.rows), axis=-1) / self.tau
        contrast = tf.reduce_mean(tf.math.softplus(dissimilar - similar))
        plain = super().loss(client, prepared, batch)
        return plain + self.weight * tf.where(client.memory["trained"], contrast, 0.0)

    def remember(self, client: Client, prepared, steps):
        return collections.OrderedDict(representations=representations(client), trained=tf.constant(True))


def direction(vectors: tf.Tensor) -> tf.Tensor:
    """float32 [n, d] -> rows of length one; a row of zeros stays, so that its cosine with anything is zero."""
    return tf.math.l2_normalize(vectors, axis=-1)


def representations(client: Client) -> tf.Tensor:
    """float32 [n, d]: the `features` of all of the client's examples under the model as it is now, without dropout."""
    return forward(client.model, client.examples, "features", client.local_model.feature_width)


def check_contrast(weight: float, tau: float) -> None:
    """ValueError unless the weight is finite and not negative and the temperature finite and positive."""
    if not 0 <= weight < float("inf"):
        raise ValueError(f"weight must be finite and not negative, got {weight}")
    if not 0 < tau < float("inf"):
        raise ValueError(f"tau must be finite and positive, got {tau}")
