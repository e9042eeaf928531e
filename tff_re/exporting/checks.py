"""Written forms of a model against the trained model: predictions, sizes, accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re.exporting.forms import Core, Form, Probes
from tff_re.exporting.layout import DEFAULT_SIGNATURE, FLOAT16_FOLDER, KERAS_FILE, SAVED_MODEL_FOLDER, TFLITE_FILE
from tff_re.exporting.places import ExportError
from tff_re.exporting.quantised import tflite_core

MOST_COMPARED = 512
"""Examples on which the precisions of training and export are compared."""


def verified(
    draft: Path, form: Form, half: Core | None, samples: Sequence[Any], labels: Sequence[str], threshold: float
) -> dict[str, dict[str, Any]]:
    """Loads all that was written and compares it with the trained model.

    Args:
      draft: the folder.
      form: of the model.
      half: the core of the SavedModel with weights in float16, if there is one.
      samples: what the form's measure is taken on where there are quantised forms; may be empty.
      labels, threshold: as in `Form.graded`.

    Returns:
      name of a form -> `bytes`, the largest `difference` of a probability on the probes, and with quantised forms
      its measure, such as `accuracy`, on so many `examples` of a `unit`.

    Raises:
      ExportError: a form that is not quantised gives other ids or, beyond its tolerance, other predictions.
    """
    probes = form.probes()
    found, keras_model, signatures = {}, None, None
    predictors: dict[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]] = {}
    if (draft / SAVED_MODEL_FOLDER).exists():
        signatures = tf.saved_model.load(os.fspath(draft / SAVED_MODEL_FOLDER)).signatures
    if (draft / KERAS_FILE).exists():
        keras_model = tf.keras.models.load_model(draft / KERAS_FILE, compile=False)
    form.check_ids(keras_model, signatures)
    if keras_model is not None:
        given = tf.nest.map_structure(tf.constant, probes.keras)
        difference = _difference(keras_model(given, training=False)["probabilities"].numpy(), probes)
        found[KERAS_FILE] = {"difference": _close(difference, KERAS_FILE, form)}
    if signatures is not None:
        difference = max(_difference(output, probes) for output in _answers(signatures, probes))
        found[SAVED_MODEL_FOLDER] = {"difference": _close(difference, SAVED_MODEL_FOLDER, form)}
    predictors.update(dict.fromkeys(found, _batches(form.core, form.at_once)))  # they are the same function
    if (draft / FLOAT16_FOLDER).exists():
        loaded = tf.saved_model.load(os.fspath(draft / FLOAT16_FOLDER)).signatures
        found[FLOAT16_FOLDER] = {"difference": max(_difference(output, probes) for output in _answers(loaded, probes))}
        predictors[FLOAT16_FOLDER] = _batches(half, form.at_once)
    if (draft / TFLITE_FILE).exists():
        run = tflite_core(draft / TFLITE_FILE)
        found[TFLITE_FILE] = {"difference": _difference(run(probes.arrays), probes)}
        predictors[TFLITE_FILE] = run
    for name, about in found.items():
        about["bytes"] = size_of(draft / name)
        if not np.isfinite(about["difference"]):
            raise ExportError(f"{name} gives predictions that are no numbers; leave that form out")
    if samples and {FLOAT16_FOLDER, TFLITE_FILE} & set(found):
        _measure(found, predictors, form, form.measured(samples), labels, threshold)
    return found


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
    exported, mixed = (_batches(one.core, one.at_once)(arrays) for one in (form, trained))
    unit = form.sample_unit if samples else "probes"
    count = len(samples) if samples else len(exported)
    return {"difference": float(np.abs(exported - mixed).max()), "examples": count, "unit": unit}


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _answers(signatures: Mapping[str, Any], probes: Probes):
    for name in (DEFAULT_SIGNATURE, *(name for name in probes.calls if name != DEFAULT_SIGNATURE)):
        inputs = {key: tf.constant(value) for key, value in probes.calls[name].items()}
        yield signatures[name](**inputs)["probabilities"].numpy()


def _difference(found: np.ndarray, probes: Probes) -> float:
    return float(np.abs(found - probes.expected).max())  # NaN stays NaN


def _close(difference: float, name: str, form: Form) -> float:
    # Not `difference > tolerance`: a NaN has to fail.
    if not difference <= form.tolerance:
        raise ExportError(
            f"{name} gives other predictions than the trained model in float32 (by up to {difference:.2g}); "
            "its build_plain is not the same function as its build"
        )
    return difference


def _measure(found, predictors, form: Form, samples: Sequence[Any], labels: Sequence[str], threshold: float) -> None:
    arrays = form.arrays(samples)
    known: dict[int, tuple[float, int]] = {}  # two forms of one function are measured once
    for name, about in found.items():
        predictor = predictors[name]
        if id(predictor) not in known:
            known[id(predictor)] = form.graded(predictor(arrays), samples, labels, threshold)
        value, count = known[id(predictor)]
        about.update({form.measure: value, "examples": count, "unit": form.unit})


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
