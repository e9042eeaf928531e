"""What is written of an exported model, for every kind of input."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import ExportError
from tff_re.exporting.quantised import Core, HalfCore, signature_of
from tff_re.models.inputs import HiddenInput, pieces_of
from tff_re.models.keras_private import is_of_keras, layers_in
from tff_re.models.model import Model
from tff_re.models.text_layers import forget_initial_values

TOLERANCE = 1e-5
"""The largest difference of a probability between the exported and the trained model."""

HALF_TOLERANCE = 1e-3
"""The same behind frozen layers: training rounds their outputs to float16, and where a value lies between two of these,
the rounding error of a sum, which depends on the batch, decides for one of them."""


@dataclass(frozen=True)
class Probes:
    """Inputs as a core takes them (`arrays`), as model.keras does (`keras`), for each signature by name (`calls`), and
    the trained model's probabilities for them, float32 [n, C] (`expected`)."""

    arrays: Mapping[str, np.ndarray] = field(repr=False)
    keras: Any = field(repr=False)
    calls: Mapping[str, Mapping[str, Any]] = field(repr=False)
    expected: np.ndarray = field(repr=False)


class Form:
    """A model's exported form. A kind of input has a subclass (`Kind.form`), which is made of two Keras models with the
    trained weights, as it was trained and its plain form; the model's inputs; their encoding; and samples, or none.

    Attributes:
      inputs: the classes of `tff_re.models.inputs` whose models it takes.
      source: what export.json says of the inputs; `name` and `kind` at least.
      encoding_json: from raw inputs to ids, for people who want to do it by themselves.
      keras_model: what model.keras holds.
      core: encoded inputs -> probabilities, in the SavedModel.
      core_specs: its inputs.
      small_core: the same function for TFLite, which wants few kinds of operations.
      logits: the same function without the softmax, for ONNX.
      tokenizer: of a model of texts that are tokenized, as `transformers` has it; None: there is none.
      for_onnx: whether ONNX can take models of this kind; they have `logits` then.
      no_onnx: why it cannot take this one all the same, in words; empty: it can.
      for_tflite: whether TFLite, which takes one text of a fixed size, can take the model.
      measure: what quantised forms are measured by, a key of `card.MEASURES`.
      unit: what it is measured on, in words; `sample_unit`: what its samples are.
      at_once: so many of these are read at once; None: all.
      tolerance: of the difference between a written form's probabilities and the trained model's.
      resources: what the signatures use: the core's weights, and
      tables: what stands between raw inputs and the core.
    """

    inputs: tuple[type, ...] = ()
    source: Mapping[str, Any]
    encoding_json: str
    keras_model: tf.keras.Model
    core: Core
    core_specs: Mapping[str, tf.TensorSpec]
    small_core: Core
    logits: Core
    tokenizer: Any = None
    resources: Sequence[Any]
    tables: Sequence[Any] = ()
    tolerance: float = TOLERANCE
    for_onnx: bool = True
    no_onnx: str = ""
    for_tflite: bool = True
    measure: str = "accuracy"
    unit: str = "examples"
    sample_unit: str = "examples"
    at_once: int | None = 64

    @staticmethod
    def check(inputs: Any, encoding: Any) -> None:
        """Raises ExportError where the encoding is not that of the model's inputs."""

    @classmethod
    def takes(cls, inputs: Any) -> bool:
        """Whether it is of models of these inputs, or of what frozen layers made of them."""
        return type(pieces_of(inputs)) in cls.inputs

    @staticmethod
    def model_inputs(inputs: Any) -> Any:
        """The inputs of the model alone."""
        return inputs

    @staticmethod
    def plain(model: Model, options: Any, inputs: Any, classes: int) -> tf.keras.Model:
        """The model in the form that Keras loads best."""
        return model.build_plain(options, inputs, classes)

    @staticmethod
    def plain_whole(model: Model, options: Any, inputs: Any, trained: tf.keras.Model, weights: Any) -> tf.keras.Model:
        """The same for a model with frozen layers in front of it, or with fixed weights, including its weights."""
        if isinstance(inputs, HiddenInput):
            return model.whole_form(options, inputs, trained, merged=True)
        return model.finished(options, inputs, trained.output["logits"].shape[-1], weights)

    def endpoints(self, core: Core) -> dict[str, Callable]:
        """The signatures of a SavedModel around a core, the default one first: one of the core's arrays."""
        return {DEFAULT_SIGNATURE: signature_of(core, self.core_specs)}

    def halved(self) -> tuple[Core, tf.Module]:
        """The core with weights in float16, and what holds these. Raises ExportError where a weight is too large."""
        half = HalfCore(self.core, self.core_specs)
        return traced_once(half), half

    def with_logits(self, arrays: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What model.onnx gives for encoded inputs: `logits` and `probabilities`."""
        logits = self.logits(arrays)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    def probes(self) -> Probes:
        """Inputs to compare the written forms on."""
        raise NotImplementedError

    def check_ids(self, keras_model: tf.keras.Model | None, signatures: Mapping[str, Any] | None) -> None:
        """Raises ExportError where what was written encodes otherwise than in training."""

    def arrays(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """The encoded inputs of samples of the task's corpora, as in training."""
        raise ExportError("the model's inputs are not samples of a corpus")

    def measured(self, samples: Sequence[Any]) -> Sequence[Any]:
        """The samples that quantised forms are measured on."""
        return samples

    def graded(
        self, probabilities: np.ndarray, samples: Sequence[Any], labels: Sequence[str], threshold: float
    ) -> tuple[float, int]:
        """(the measure of what a form says of the measured samples, the number of units).

        Args:
          probabilities: as `core` gives them.
          labels: the classes' names.
          threshold: from which on a relation of a document's pair counts as predicted.
        """
        true = np.array([sample.label for sample in samples])
        return float((probabilities.argmax(axis=-1) == true).mean()), len(true)


def softmax_of(model: tf.keras.Model) -> Core:
    """The core of a model with `logits`."""
    return traced_once(lambda arrays: tf.nn.softmax(model(arrays, training=False)["logits"]))


def logits_of(model: tf.keras.Model) -> Core:
    """The model up to its logits."""
    return traced_once(lambda arrays: model(arrays, training=False)["logits"])


def traced_once(core: Core) -> Core:
    """The core as a function that all signatures share."""
    return tf.function(core, autograph=False, reduce_retracing=True)


def stock(model: tf.keras.Model) -> tf.keras.Model:
    """The model, if Keras alone can load it.

    Its initialisers are dropped.

    Raises:
      ExportError: a layer is not Keras' own.
    """
    forget_initial_values(model)
    for layer in layers_in(model):
        if not is_of_keras(layer):
            raise ExportError(
                f"layer {layer.name} is a {type(layer).__name__}, which plain Keras cannot load; the model's "
                "build_plain must use Keras' own layers"
            )
    return model


def require_same(exported: Mapping[str, Any], trained: Mapping[str, np.ndarray], what: str) -> None:
    """Raises ExportError where an encoding that was written gives other arrays than that of the training."""
    for name, array in trained.items():
        if not np.array_equal(exported[name], array):
            raise ExportError(
                f"{what} encodes a probe text differently from the training tokenizer ({name}), so the tokenizer "
                "cannot be exported"
            )


def write_saved_model(folder: Path, signatures: Mapping[str, Callable], resources: Sequence[Any]) -> None:
    """A SavedModel of the signatures' functions alone, without the training graph of every layer."""
    module = tf.Module()
    module.resources = [part for resource in resources for part in _parts(resource)]
    # Without gradients: nobody trains these, and a HalfCore's graph lacks the weights that custom gradients captured.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    functions = {name: function.get_concrete_function() for name, function in signatures.items()}
    tf.saved_model.save(module, os.fspath(folder), signatures=functions, options=options)


def _parts(resource: Any) -> list[Any]:
    """The variables and tables of a Keras layer.

    A module is returned unchanged.
    """
    if not isinstance(resource, tf.keras.layers.Layer):
        return [resource]
    tables = [
        part
        for layer in layers_in(resource)
        for part in vars(layer).values()
        if isinstance(part, tf.lookup.StaticHashTable | tf.lookup.experimental.MutableHashTable)
    ]
    return [*resource.variables, *tables]
