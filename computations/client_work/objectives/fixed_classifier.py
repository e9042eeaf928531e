"""FedETF's classifier, fixed to a simplex, and its loss (Li et al. 2023, "No Fear of Classifier Biases: Neural Collapse
Inspired Federated Learning with Synthetic and Fixed Classifier", ICCV, Section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from computations.client_work.objectives.base import Batch, Client, Objective, row_mean
from computations.client_work.objectives.class_counts import COUNTS, LEFT_OUT
from computations.errors import CompositionError
from computations.federated.values import Weights
from computations.local_model import LocalModel, zero_initialisers


class SimplexClassifier(Objective):
    """-log of n_y^gamma exp(scale * v_y . h/||h||) / sum_c n_c^gamma exp(scale * v_c . h/||h||).

    v_c are the columns of the classifier's kernel, a simplex equiangular tight frame that `start` sets and nobody
    trains; h are the model's `features`, n_c the client's number of examples of class c. With gamma above zero a class
    that the client does not have has no part in its softmax. The classifier's bias is zero.

    Three points of the paper are left out. Its projection layer before the classifier: the `features` take its place.
    Its learned temperature: `scale` is fixed, to what the released code starts from in its small network. Its
    fine-tuning of the frame for single clients. The exported model has the logits v_c . h, whose order is that of the
    loss, so that predictions, accuracy and F1 are FedETF's; probabilities and losses of the evaluation are those of
    these logits.
    """

    def __init__(self, local_model: LocalModel, scale: float = 10.0, gamma: float = 1.0):
        """Create the objective.

        Raises CompositionError unless the logits are a dense, linear, trained layer of `features` of width d >= C >= 2.
        """
        self.scale, self.gamma = scale, gamma
        self.kernel, self.bias = _classifier_indices(local_model)
        if gamma:
            self.beyond_batch = COUNTS

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the indices of the fixed weights among the trainable ones (the kernel, and a bias if there is one)."""
        return (self.kernel,) if self.bias is None else (self.kernel, self.bias)

    def start(self, weights: Weights) -> Weights:
        """Return ModelWeights of tensors with the kernel replaced by its simplex (`simplex`) and a bias of zero."""
        trainable = list(weights.trainable)
        trainable[self.kernel] = simplex(trainable[self.kernel])
        if self.bias is not None:
            trainable[self.bias] = tf.zeros_like(trainable[self.bias])
        return type(weights)(trainable, list(weights.non_trainable))

    def prepare(self, client: Client) -> tf.Tensor:
        """Return gamma log n_c, float32 [C]."""
        counts = client.label_counts()
        if not self.gamma:
            return tf.zeros_like(counts)
        return tf.where(counts > 0, self.gamma * tf.math.log(tf.maximum(counts, 1.0)), -LEFT_OUT)

    def loss(self, client: Client, prepared: tf.Tensor, batch: Batch) -> tf.Tensor:
        h = tf.math.l2_normalize(tf.cast(batch.outputs["features"], tf.float32), axis=-1)
        kernel = tf.cast(client.global_weights[self.kernel], tf.float32)
        logits = self.scale * tf.matmul(h, kernel) + prepared
        return row_mean(client, client.local_model.losses(batch.labels, {**batch.outputs, "logits": logits}))

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence[Any]) -> list[tf.Tensor]:
        """Set the gradient of the classifier to zero, including the noise of private examples."""
        return [tf.zeros_like(g) if index in self.indices else g for index, g in enumerate(gradients)]


def simplex(kernel: tf.Tensor) -> tf.Tensor:
    """Return sqrt(C / (C - 1)) U (I - 1/C 1 1^T), float32 [d, C] -> [d, C].

    U are the orthonormal columns of the kernel's QR factors, R's diagonal positive: the run's seed decides on
    them. The result's columns have length one and the cosine -1/(C - 1) with each other.
    """
    classes = kernel.shape[1]
    orthonormal, triangle = tf.linalg.qr(kernel)
    orthonormal *= tf.where(tf.linalg.diag_part(triangle) < 0, -1.0, 1.0)
    return (classes / (classes - 1)) ** 0.5 * (orthonormal - tf.reduce_mean(orthonormal, axis=1, keepdims=True))


def _classifier_indices(local_model: LocalModel) -> tuple[int, int | None]:
    """Return (kernel, bias or None) among the trainable weights."""
    classes, needs = local_model.num_classes, "fedetf needs a model whose logits are a dense layer of its features"
    with tf.Graph().as_default(), zero_initialisers():
        model = local_model.build()
        layer = {layer.name: layer for layer in model.layers}.get(local_model.classifier)
        if not isinstance(layer, tf.keras.layers.Dense) or layer.activation is not tf.keras.activations.linear:
            raise CompositionError(f"{needs}, without an activation; choose another model.name")
        width, indices = layer.kernel.shape[0], {id(v): i for i, v in enumerate(model.trainable_variables)}
        kernel = indices.get(id(layer.kernel))
        bias = indices.get(id(layer.bias)) if layer.use_bias else None
    if kernel is None:
        raise CompositionError(f"{needs}, and that layer must be trained; choose another model.name")
    if local_model.feature_width != width:
        raise CompositionError(
            f"{needs}: they have width {local_model.feature_width}, but the classifier takes {width}; choose another "
            "model.name"
        )
    if not 2 <= classes <= width:
        raise CompositionError(
            f"fedetf: a simplex of {classes} classes needs at least two classes and features at least as wide as "
            f"their number; they have width {width}"
        )
    return kernel, bias
