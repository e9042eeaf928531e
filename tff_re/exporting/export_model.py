"""From a trained model to files that plain TensorFlow loads, without this project: raw text in, probabilities out.

An exported model is the trained weights computed in float32, whatever the precision of the training.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from computations.stack import DISTRIBUTION, KERAS
from datasets.errors import DataError
from tff_re import __version__, models
from tff_re.exporting import huggingface as hugging_face
from tff_re.exporting import onnx_form, places
from tff_re.exporting.card import card
from tff_re.exporting.checks import difference_of_precisions, verified
from tff_re.exporting.digests import write_digests
from tff_re.exporting.forms import Form, write_saved_model
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds import kind_of
from tff_re.exporting.layout import (
    CARD_FILE,
    DESCRIPTION_FILE,
    ENCODING_FILE,
    FLOAT16_FOLDER,
    FORMAT,
    FORMAT_VERSION,
    KERAS_FILE,
    LABELS_FILE,
    ONNX_FILE,
    SAVED_MODEL_FOLDER,
    TFLITE_FILE,
)
from tff_re.exporting.places import ExportError
from tff_re.exporting.prediction import FORMS, look_at
from tff_re.exporting.quantised import write_tflite
from tff_re.models.encoders import EncoderModel
from tff_re.models.inputs import pieces_of, trained_in_parts
from tff_re.models.keras_files import forget_layer_names, save_keras
from tff_re.models.pretrained import source_of
from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD

FORMATS = ("both", "keras", "saved_model")
QUANTISED = ("float16",)

EXPORTED_PRECISION = "float32"

_PACKAGES = ("tensorflow", "tensorflow-text", KERAS, "numpy", "jieba", "transformers", DISTRIBUTION)


def in_float32(options: Any) -> Any:
    """The model's options, with the exported precision if it has one."""
    if getattr(options, "precision", EXPORTED_PRECISION) == EXPORTED_PRECISION:
        return options
    return attrs.evolve(options, precision=EXPORTED_PRECISION)


def export_model(
    folder: str | os.PathLike,
    *,
    model_name: str,
    model_options: Any,
    inputs: Any,
    label_names: Sequence[str],
    weights: Any,
    encoding: Any,
    details: Mapping[str, Any],
    probes: Sequence[Any] = (),
    files: Mapping[str, str] | None = None,
    formats: str = "both",
    quantise: str | None = None,
    tflite: bool = False,
    onnx: bool = False,
    huggingface: bool = False,
    overwrite: bool = False,
    trust: bool = False,
) -> Path:
    """Write a trained model as `model.keras`, as a SavedModel and as JSON files that explain them.

    What the SavedModel takes is said by the form of each kind of input (`tff_re.exporting.kinds`). All give
    {"probabilities": float32 [B, C]}, documents [D, P, R], entities [B, L, T]. The written files are loaded again and
    compared with the trained model, in float32, before they take their place. Returns the folder, unchanged on failure.

    Args:
      folder: Where to write; its parent has to exist.
      model_name: A name of `tff_re.models.MODELS`.
      model_options: The model's `Options`. Where their `precision` is another than float32, how far its predictions
        lie from the exported ones is measured and written.
      inputs: What the model is fed with; of a kind in `tff_re.exporting.kinds`.
      label_names: The C classes, in the order of the labels; of documents the R relations.
      weights: ModelWeights of arrays, or anything else with lists `trainable` and `non_trainable` in the model's order.
      encoding: of the texts (WordEncoding, CharacterEncoding, RelationEncoding, DocumentEncoding); None for
        DenseInput.
      details: What is to be known of the run, as JSON values: `run` (an id), `recipe`, `algorithm`, `rounds`, `metrics`
        (split to metric to number), `exported_metrics` (the same of the exported model, where that computes in another
        precision than the training), the card's sections `data`, `training`, `privacy` and `limits` (a dict or a list
        of lines) and whatever else. No paths: the files are made to be given away.
      probes: Texts, or samples with a text, whose ids in the exported graph have to be those of `encoding.encode`, as
        test examples. They are not written. Quantised forms are measured on them where they have labels.
      files: Further files of text to lay beside, name to content.
      formats: `keras`, `saved_model` or `both`.
      quantise: `float16`: a second SavedModel with weights stored in 16 bits; None: none.
      tflite, onnx: whether model.tflite (encoded inputs of one text, weights in 8 bits) and model.onnx (encoded inputs,
        with the tokenizer next to it) are written too.
      huggingface: whether a folder of the encoder is written too, which `transformers` loads with PyTorch.
      overwrite: Whether an older export may be replaced. One of another `run` never is.
      trust: Whether a SavedModel is written whose graph holds operations that `load_export` refuses without `trust`;
        a line on standard error says so.

    Raises:
      ExportError: the arguments do not fit each other, the folder is taken or cannot be written, or the exported model
        gives other ids or predictions than the trained one, or `load_export` would refuse what was written.
    """
    folder = Path(os.path.realpath(folder))
    details = _json_value(details, "details")
    labels = [str(name) for name in label_names]
    kind = _check_arguments(model_name, inputs, labels, formats, quantise, tflite, onnx, huggingface)
    kind.form.check(inputs, encoding)
    places.check_folder(folder, details, overwrite)
    options = in_float32(model_options)
    trained = _Trained(kind.form, model_name, inputs, labels, weights, encoding, probes)
    exported = trained.exported(options)
    with places.new_folder(folder) as draft:
        half = _write_forms(draft, exported, formats, quantise, tflite, model_name if onnx else None)
        labelled = probes if all(hasattr(probe, "label") for probe in probes) else ()
        forms = verified(draft, exported, half, labelled, labels, details.get("threshold", DEFAULT_THRESHOLD))
        description = _description(model_name, options, exported, labels, forms, details)
        if options != model_options:
            description["precision"] = _precision(exported, trained.exported(model_options), model_options, labelled)
        uses = [*kind.uses(description), *([onnx_form.use(description)] if onnx else [])]
        if huggingface:
            trained.write_huggingface(draft, options, exported.probes().arrays, description)
            uses.append(hugging_face.NOTE)
        _write_texts(draft, description, labels, exported.encoding_json, card(description, labels, uses), files or {})
        write_digests(draft)
        _check_written(draft, trust)
    return folder


@dataclass(frozen=True)
class _Trained:
    """A trained model: arguments of `export_model` with the form of their kind."""

    form_of: type[Form]
    model_name: str
    inputs: Any
    labels: list[str]
    weights: Any
    encoding: Any
    probes: Sequence[Any]

    def exported(self, options: Any) -> Form:
        """What is written of it, computed with these options of the model."""
        built = _models(self.form_of, self.model_name, options, self.inputs, len(self.labels), self.weights)
        return self.form_of(*built, self.inputs, self.encoding, self.probes)

    def write_huggingface(
        self, draft: Path, options: Any, arrays: Mapping[str, np.ndarray], description: dict[str, Any]
    ) -> None:
        """Writes the folder of an EncoderModel.

        The arguments are those of `huggingface.write_folder`.
        """
        model, inputs = models.MODELS[self.model_name], self.form_of.model_inputs(self.inputs)
        classes, pieces = len(self.labels), pieces_of(inputs)
        if trained_in_parts(inputs):
            whole = model.finished(options, inputs, classes, self.weights)
        else:
            whole = model.build(options, inputs, classes)
            _assign(whole, self.weights, "trained")
        source = source_of(options, pieces)
        hugging_face.write_folder(draft, whole, options, source, self.encoding, self.labels, arrays, description)


def _description(
    model_name: str, options: Any, exported: Form, labels: list[str], forms: Mapping[str, Any], details: Any
) -> dict[str, Any]:
    """The content of export.json.

    `forms`: what was measured on the files.
    """
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": model_name,
        "model_options": _options(options),
        "input": dict(exported.source),
        "arrays": list(exported.core_specs),
        "classes": len(labels),
        "forms": forms,
        "details": details,
        "versions": _versions(),
    }


def _precision(exported: Form, as_trained: Form, model_options: Any, samples: Sequence[Any]) -> dict[str, Any]:
    """What export.json says of a model that was trained in another precision than the exported one."""
    precisions = {"trained": model_options.precision, "exported": EXPORTED_PRECISION}
    return precisions | difference_of_precisions(exported, as_trained, samples)


def _write_forms(
    draft: Path, exported: Form, formats: str, quantise: str | None, tflite: bool, for_onnx: str | None
) -> Any:
    """Writes the models and returns the quantised core, or None.

    `for_onnx`: the model's name; None: without ONNX.
    """
    half, half_weights = exported.halved() if quantise else (None, None)  # first: it refuses weights beyond float16
    if formats != "saved_model":
        save_keras(exported.keras_model, draft / KERAS_FILE)
    if formats != "keras":
        write_saved_model(draft / SAVED_MODEL_FOLDER, exported.endpoints(exported.core), exported.resources)
    if half is not None:
        write_saved_model(draft / FLOAT16_FOLDER, exported.endpoints(half), [half_weights, *exported.tables])
    if tflite:
        write_tflite(draft / TFLITE_FILE, exported.small_core, exported.core_specs)
    if for_onnx is not None:
        onnx_form.write_onnx(draft / ONNX_FILE, exported, for_onnx)
    return half


def _write_texts(
    draft: Path, description: Mapping[str, Any], labels: list[str], encoding: str, card: str, files: Mapping[str, str]
) -> None:
    """Writes the text files next to the models."""
    places.write(draft / LABELS_FILE, json.dumps(labels, ensure_ascii=False, indent=1))
    places.write(draft / ENCODING_FILE, encoding)
    places.write(draft / DESCRIPTION_FILE, json.dumps(description, ensure_ascii=False, indent=1, allow_nan=False))
    places.write(draft / CARD_FILE, card)
    for name, text in files.items():
        places.write(draft / name, text.rstrip("\n"))


def _check_written(draft: Path, trust: bool) -> None:
    """Raises ExportError if `load_export` would refuse the draft.

    If `load_export` would accept it with `trust`, and `trust` is set, it only prints a note.

    An encoder of a new kind can hold operations that no export had before.
    """
    for form in FORMS:
        if not (draft / form).exists():
            continue
        reason = _refusal(draft, form, False)
        if reason is None:
            continue
        if not trust or _refusal(draft, form, True) is not None:
            remedy = "pass --trust (trust=True) to write it for use with --trust, or write another --format"
            raise ExportError(f"predict and evaluate would refuse {form}: it {reason}; {remedy}")
        print(f"note: {form} {reason}; predict and evaluate load it only with --trust", file=sys.stderr)


def _refusal(draft: Path, form: str, trust: bool) -> str | None:
    """Why `load_export` refuses the draft, without the draft's path, or None if it accepts it."""
    try:
        look_at(draft, form, trust)
    except DataError as error:
        return error.reason
    return None


def _check_arguments(model_name, inputs, labels, formats, quantise, tflite, onnx, huggingface) -> Kind:
    """The kind of the inputs."""
    kind = kind_of(inputs)
    if model_name not in models.MODELS:
        raise ExportError(f"there is no model '{model_name}'; valid: {', '.join(models.MODELS)}")
    if not labels or len(set(labels)) != len(labels):
        raise ExportError("label names are missing or duplicate; give each class a different name")
    if formats not in FORMATS:
        raise ExportError(f"there is no format '{formats}'; valid: {', '.join(FORMATS)}")
    if quantise is not None and quantise not in QUANTISED:
        raise ExportError(f"there is no quantised form '{quantise}'; valid: {', '.join(QUANTISED)}")
    if kind is None:
        raise ExportError(
            f"models of {type(inputs).__name__} cannot be exported yet; the run's model.keras takes encoded inputs"
        )
    if tflite and not kind.form.for_tflite:
        raise ExportError(
            "TFLite takes one text of a fixed size and gives one answer, so it cannot take bags, documents or texts "
            "with entities; leave --tflite out"
        )
    if onnx and not kind.form.for_onnx:
        raise ExportError(
            f"{ONNX_FILE} takes single texts or vectors, not the bags or documents of this {model_name} model; leave "
            "--onnx out"
        )
    if onnx:
        onnx_form.require_packages()
    if huggingface and not isinstance(models.MODELS[model_name], EncoderModel):
        raise ExportError(f"this {model_name} model has no encoder for transformers to load; leave --huggingface out")
    return kind


def _models(form_of: type[Form], model_name, options, inputs, classes: int, weights) -> list[tf.keras.Model]:
    """[the model as it was trained, its plain form].

    Both take encoded texts.
    """
    model, inputs = models.MODELS[model_name], form_of.model_inputs(inputs)
    forget_layer_names()
    trained = model.build(options, inputs, classes)
    _assign(trained, weights, "trained")
    if trained_in_parts(inputs):
        plain = form_of.plain_whole(model, options, inputs, trained, weights)
        return [model.whole_form(options, inputs, trained), plain]
    plain = form_of.plain(model, options, inputs, classes)
    _assign(plain, weights, "plain")
    return [trained, plain]


def _assign(model: tf.keras.Model, weights, form: str) -> None:
    for group in ("trainable", "non_trainable"):
        variables, values = getattr(model, f"{group}_variables"), list(getattr(weights, group))
        if len(variables) != len(values):
            raise ExportError(
                f"got {len(values)} {group.replace('_', '-')} weights, but the {form} model has {len(variables)}; "
                "pass this model's weights"
            )
        for variable, value in zip(variables, map(np.asarray, values), strict=True):
            name = variable.name.removesuffix(":0")
            if value.shape != tuple(variable.shape):
                raise ExportError(
                    f"weight {name} has shape {value.shape}, but the {form} model needs {tuple(variable.shape)}; "
                    "pass this model's weights"
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ExportError(f"weight {name} is not finite: training has diverged; export an earlier round")
            variable.assign(value)


def _options(options: Any) -> Any:
    """The model's options as JSON values.

    A path to an encoder's folder is cut to its last part.
    """
    fields = attrs.asdict(options) if attrs.has(type(options)) else options
    if isinstance(fields, dict) and isinstance(fields.get("encoder"), str) and os.path.exists(fields["encoder"]):
        fields["encoder"] = Path(fields["encoder"]).name
    return _json_value(fields, "model_options")


def _json_value(value: Any, name: str) -> Any:
    """The value as JSON has it: NumPy numbers become numbers, numbers that are not finite become null."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, f"{name}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ExportError(
        f"{name} is a {type(value).__name__}, which JSON cannot hold; give a string, number, list or dict"
    )


def _versions() -> dict[str, str]:
    versions = {"tff-re": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
