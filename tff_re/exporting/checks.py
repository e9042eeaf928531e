"""Written forms of a model against the trained model: predictions, sizes, accuracy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re.exporting.forms import Core, Form
from tff_re.exporting.layout import FLOAT16_FOLDER, KERAS_FILE, ONNX_FILE, SAVED_MODEL_FOLDER, TFLITE_FILE
from tff_re.exporting.onnx_form import onnx_core
from tff_re.exporting.places import ExportError
from tff_re.exporting.quantised import tflite_core

MOST_COMPARED = 512
"""Examples on which the precisions of training and export are compared."""


def verified(
    draft: Path, form: Form, half: Core | None, samples: Sequence[Any], labels: Sequence[str], threshold: float
) -> dict[str, dict[str, Any]]:
    """Loads all that was written and compares it with the trained model.

    Args:
      draft, form: the folder, and the form of the model.
      half: the core of the SavedModel with weights in float16, if there is one.
      samples: what the form's measure is taken on where there are quantised forms; may be empty.
      labels, threshold: as in `Form.graded`.

    Returns:
      name of a form -> `bytes`, the largest `difference` of a probability on the probes, and with quantised forms
      its measure, such as `accuracy`, on so many `examples` of a `unit`.

    Raises:
      ExportError: a form that is not quantised gives other ids or, beyond its tolerance, other predictions.
    """
    probes, keras_model, saved = form.probes(), None, {}
    for name in (SAVED_MODEL_FOLDER, FLOAT16_FOLDER):
        if (draft / name).exists():
            saved[name] = tf.saved_model.load(os.fspath(draft / name)).signatures
    if (draft / KERAS_FILE).exists():
        keras_model = tf.keras.models.load_model(draft / KERAS_FILE, compile=False)
    form.check_ids(keras_model, saved.get(SAVED_MODEL_FOLDER))
    answers, whole = {}, _batches(form.core, form.at_once)
    if keras_model is not None:
        keras_inputs = tf.nest.map_structure(tf.constant, probes.keras)
        answers[KERAS_FILE] = [keras_model(keras_inputs, training=False)["probabilities"].numpy()]
    for name, signatures in saved.items():
        answers[name] = [_answer(signatures[call], inputs) for call, inputs in probes.calls.items()]
    if (draft / ONNX_FILE).exists():
        answers[ONNX_FILE] = [onnx_core(draft / ONNX_FILE, form.at_once)(probes.arrays)["probabilities"]]
    runs = dict.fromkeys(answers, whole)  # they are the same function
    if FLOAT16_FOLDER in answers:
        runs[FLOAT16_FOLDER] = _batches(half, form.at_once)
    if (draft / TFLITE_FILE).exists():
        runs[TFLITE_FILE] = tflite_core(draft / TFLITE_FILE)
        answers[TFLITE_FILE] = [runs[TFLITE_FILE](probes.arrays)]
    results = {}
    for name, outputs in answers.items():
        difference = float(np.max([np.abs(output - probes.expected).max() for output in outputs]))  # NaN stays NaN
        if name in (KERAS_FILE, SAVED_MODEL_FOLDER) and not difference <= form.tolerance:  # a NaN has to fail
            raise ExportError(
                f"{name} predicts differently from the trained model in float32 (by up to {difference:.2g}); its "
                "build_plain must compute the same function as its build"
            )
        if not np.isfinite(difference):
            raise ExportError(f"{name} gives predictions that are not finite; leave that form out")
        files = [file for file in (draft / name, *(draft / name).rglob("*")) if file.is_file()]
        results[name] = {"difference": difference, "bytes": sum(file.stat().st_size for file in files)}
    if samples and {FLOAT16_FOLDER, TFLITE_FILE} & set(results):
        samples = form.measured(samples)
        arrays = form.arrays(samples)
        graded = functools.cache(lambda run: form.graded(run(arrays), samples, labels, threshold))
        for name, about in results.items():
            value, count = graded(runs[name])
            about.update({form.measure: value, "examples": count, "unit": form.unit})
    return results


def difference_of_precisions(form: Form, trained: Form, samples: Sequence[Any]) -> dict[str, Any]:
    """How far the precision of the training moves probabilities from those of the exported one.

    Args:
      form: the exported model's.
      trained: the same model's in the precision of its training.
      samples: the run's test examples; the form's probes where there are none.

    Returns:
      `difference`: the largest of a probability; `examples`, `unit`: of so many examples of the run, or probes.
    """
    samples = form.measured(samples)[:MOST_COMPARED]
    arrays = form.arrays(samples) if samples else form.probes().arrays
    exported, mixed = (_batches(item.core, item.at_once)(arrays) for item in (form, trained))
    unit = form.sample_unit if samples else "probes"
    count = len(samples) if samples else len(exported)
    return {"difference": float(np.abs(exported - mixed).max()), "examples": count, "unit": unit}


def _answer(signature: Callable, inputs: Mapping[str, Any]) -> np.ndarray:
    return signature(**{key: tf.constant(value) for key, value in inputs.items()})["probabilities"].numpy()


def _batches(core, at_once: int | None) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    function = tf.function(core, reduce_retracing=True, autograph=False)

    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        count = len(next(iter(arrays.values())))
        size = at_once or count
        parts = [
            function({name: tf.constant(array[start : start + size]) for name, array in arrays.items()}).numpy()
            for start in range(0, count, size)
        ]
        return np.concatenate(parts)

    return run
