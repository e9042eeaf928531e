"""What a client sends to the aggregator in place of the difference of its weights."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.objectives.base import Client
from computations.federated.values import Structure
from computations.inference import outputs_of_all
from computations.local_model import LABEL, LocalModel, features_of


class Predictions:
    """The trained model's predictions on the server's examples (FedED, Sui et al. 2020, Algorithm 1, LocalUpdate).

    The clients get the examples without their labels and send N x C numbers. With `weighting` = `agreement` they get
    the labels too, and a client counts by the likelihood of the labels, exp(-cross-entropy / `agreement_temperature`):
    over clients, the softmax of -cross-entropy / `agreement_temperature`. With `probabilities` the softmax of the
    logits is sent in their place (Eq. 5 as printed).
    """

    def __init__(
        self,
        num_examples: int,
        encoding: Literal["float32", "float16", "label"] = "float32",
        weighting: Literal["uniform", "examples", "agreement"] = "uniform",
        agreement_temperature: float = 1.0,
        probabilities: bool = False,
        num_rows: int | None = None,
        row_labels: str | None = None,
    ):
        """Args:
        num_examples: how many the server holds.
        num_rows: N, rows of the outputs that they make; `num_examples` if not given.
        row_labels: `LocalModel.row_labels`, a feature that clients get only where they get labels.
        encoding: how a prediction is sent: logits in 32 or 16 bits, or only the most likely class.
        weighting: see above; `uniform` and `examples` are set in `LocalTraining`.
        agreement_temperature: above zero.
        probabilities: in place of logits; not of labels.
        """
        self.num_examples, self.encoding = num_examples, encoding
        self.num_rows, self.row_labels = num_examples if num_rows is None else num_rows, row_labels
        self.agrees = weighting == "agreement"
        self.agreement_temperature = agreement_temperature
        self.probabilities = probabilities

    def server_type(self, local_model: LocalModel) -> tff.Type:
        """Return the type of the server's own data, <examples=E, seed=int32[2]>."""
        fixed = [
            (name, tff.TensorType(spec.dtype.as_numpy_dtype, [self.num_examples, *spec.shape[1:]]))
            for name, spec in sorted(local_model.input_spec.items())
        ]
        seed = tff.TensorType(np.int32, [2])
        return tff.types.to_type(collections.OrderedDict(examples=collections.OrderedDict(fixed), seed=seed))

    def for_clients(self, examples: Mapping[str, tf.Tensor]) -> collections.OrderedDict[str, tf.Tensor]:
        """Return the part of the server's examples that is broadcast to the clients."""
        names = {*features_of(examples), *([LABEL] if self.agrees else [])}
        sent = collections.OrderedDict((n, v) for n, v in examples.items() if n in names)
        if self.row_labels is not None and not self.agrees:
            tags = sent[self.row_labels]
            sent[self.row_labels] = tf.minimum(tags, tf.zeros_like(tags))  # where rows are, not their classes
        return sent

    def compute(self, client: Client, examples: Structure, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (update, factor on the client's weight) of a client trained for `steps`, in the training's graph."""
        classes = client.local_model.num_classes
        logits = outputs_of_all(client.local_model, client.model, examples, "logits", classes)
        logits = tf.ensure_shape(logits, [self.num_rows, classes])
        factor = tf.constant(1.0)
        if self.agrees:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(client.local_model.labels_of(examples), logits)
            factor = tf.exp(-tf.reduce_mean(losses) / self.agreement_temperature)
        if self.encoding == "label":
            return tf.cast(tf.argmax(logits, axis=-1), label_type(classes)), factor
        sent = tf.nn.softmax(logits) if self.probabilities else logits
        return tf.cast(sent, tf.dtypes.as_dtype(self.encoding)), factor


class NormalisedDifference:
    """FedNova's update (Wang et al. 2020, Section 4): <direction=(w - w_k) / ||a_k||_1, size=||a_k||_1>.

    `size_of` gives ||a_k||_1 of so many local steps, float32 scalars; see `accumulated`.
    """

    def __init__(self, size_of: Callable[[tf.Tensor], tf.Tensor]):
        self.size_of = size_of

    def server_type(self, local_model: LocalModel) -> None:
        """Return None, because no data of the server are needed."""

    def compute(self, client: Client, examples: Structure, steps: tf.Tensor) -> tuple[Structure, tf.Tensor]:
        """Like `Predictions.compute`."""
        size = self.size_of(tf.cast(steps, tf.float32))
        pairs = zip(client.global_weights, client.model.trainable_variables, strict=True)
        direction = [tf.math.divide_no_nan(start - local, size) for start, local in pairs]
        return collections.OrderedDict(direction=direction, size=size), tf.constant(1.0)


def label_type(num_classes: int) -> tf.DType:
    """Return the smallest integer type that can hold a class index."""
    return tf.uint8 if num_classes <= 256 else tf.uint16 if num_classes <= 65536 else tf.int32
