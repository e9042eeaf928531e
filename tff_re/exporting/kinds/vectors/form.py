"""What is written of models of feature vectors, from stock Keras layers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tff_re.exporting.forms import Form, Probes, logits_of, softmax_of, stock
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import ExportError
from tff_re.models.inputs import DenseInput


class VectorForm(Form):
    """A model of feature vectors: `x`, float32 [B, width]."""

    inputs = (DenseInput,)

    def __init__(self, trained, plain, inputs, encoding, probes):
        self._width, self._trained = inputs.width, trained
        self.source = {"name": "x", "kind": "vectors", "width": inputs.width}
        self.encoding_json = "null"
        x = tf.keras.Input([inputs.width], name="x")
        probabilities = tf.keras.layers.Softmax(name="probabilities")(plain({"x": x})["logits"])
        self.keras_model = stock(tf.keras.Model(x, {"probabilities": probabilities}, name=plain.name + "_of_vectors"))
        self.core = self.small_core = softmax_of(plain)
        self.logits = logits_of(plain)
        self.core_specs, self.resources = inputs.specs, [plain]

    @staticmethod
    def check(inputs: DenseInput, encoding) -> None:
        if encoding is not None:
            raise ExportError("a model of feature vectors has no text encoding; pass encoding=None")

    def probes(self) -> Probes:
        x = np.random.default_rng(0).standard_normal([16, self._width]).astype(np.float32)
        expected = softmax_of(self._trained)({"x": tf.constant(x)}).numpy()
        return Probes({"x": x}, x, {DEFAULT_SIGNATURE: {"x": x}}, expected)
