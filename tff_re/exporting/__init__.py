"""From a trained model to files that plain TensorFlow loads, without this project: raw text in, probabilities out."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import math
import os
import platform
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re import models
from tff_re.errors import UserError
from tff_re.models.inputs import DenseInput, HiddenRelationInput, RelationInput, TokenInput
from tff_re.models.text_layers import forget_initial_values
from tff_re.version import __version__

FORMAT = "tff-re export"
FORMAT_VERSION = 1
KERAS_FILE = "model.keras"
SAVED_MODEL_FOLDER = "saved_model"
LABELS_FILE = "labels.json"
ENCODING_FILE = "encoding.json"
DESCRIPTION_FILE = "export.json"
CARD_FILE = "README.md"

TOLERANCE = 1e-5
"""The largest difference of a probability between the exported and the trained model."""

_SPLITS = {"words": "whitespace", "characters": "character"}
_RESERVED = ("", "[UNK]")
_PACKAGES = ("tensorflow", "keras", "numpy", "jieba", "tensorflow-federated")


class ExportError(UserError):
    """A model cannot be exported, or its exported form is not the model that was trained."""


def export_model(
    folder: str | os.PathLike,
    *,
    model_name: str,
    model_options: Any,
    inputs: DenseInput | TokenInput,
    label_names: Sequence[str],
    weights: Any,
    encoding: Any,
    details: Mapping[str, Any],
    probe_texts: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Writes a trained model as `model.keras`, as a SavedModel and as the JSON files that explain them.

    The exported model is made of stock Keras layers. A text model takes strings [B] named `text`: words joined by
    blanks for a word encoding (`encoding.prepare`), the untouched text for a character encoding. A model of vectors
    takes `x`, float32 [B, width]. Both return {"probabilities": float32 [B, C]}. The written files are loaded again and
    compared with the trained model before they take their place; a failed export leaves the folder as it was.

    Args:
      folder: Where to write; its parent has to exist.
      model_name: A name of `tff_re.models.NAMES`.
      model_options: The model's `Options`.
      inputs: What the model is fed with.
      label_names: The C classes, in the order of the labels.
      weights: ModelWeights of arrays, or anything else with lists `trainable` and `non_trainable` in the model's order.
      encoding: WordEncoding or CharacterEncoding of the texts; None for DenseInput.
      details: What is to be known of the run, as JSON values: `run` (an id), `recipe`, `algorithm`, `rounds`, `metrics`
        (split to metric to number) and whatever else. No paths: the files are made to be given away.
      probe_texts: Texts whose ids in the exported graph have to be those of `encoding.encode`. They are not written.
      overwrite: Whether an older export may be replaced. One of another `run` never is.

    Returns:
      The folder.

    Raises:
      ExportError: the arguments do not fit each other, the folder is taken or cannot be written, or the exported model
        gives other ids or predictions than the trained one.
    """
    folder = Path(os.path.realpath(folder))
    details = _json_value(details, "details")
    labels = [str(name) for name in label_names]
    _check_arguments(model_name, inputs, labels, encoding)
    _check_place(folder, details, overwrite)

    module = models.module(model_name)
    trained = module.build(model_options, inputs, len(labels))
    plain = module.build_plain(model_options, inputs, len(labels))
    for form, model in (("trained", trained), ("plain", plain)):
        _assign(model, weights, form)
    forget_initial_values(plain)
    if encoding is None:
        exported = _dense_model(plain, inputs)
    else:
        padding = trained({"tokens": tf.zeros([1, inputs.max_length], tf.int32)}, training=False)
        exported = _text_model(plain, encoding, padding["logits"][0].numpy())
    _check_stock_layers(exported)

    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": model_name,
        "model_options": _json_value(_fields(model_options), "model_options"),
        "input": _input_description(inputs, encoding),
        "classes": len(labels),
        "details": details,
        "versions": _versions(),
    }
    with _new_folder(folder) as draft:
        exported.save(draft / KERAS_FILE)
        _write_saved_model(exported, draft / SAVED_MODEL_FOLDER)
        _write(draft / LABELS_FILE, json.dumps(labels, ensure_ascii=False, indent=1))
        _write(draft / ENCODING_FILE, "null" if encoding is None else encoding.to_json())
        _write(draft / DESCRIPTION_FILE, json.dumps(description, ensure_ascii=False, indent=1, allow_nan=False))
        _write(draft / CARD_FILE, _card(description, labels))
        _verify(draft, trained, inputs, encoding, list(probe_texts))
    return folder


def is_export(folder: str | os.PathLike) -> bool:
    """Whether the folder holds a model that `export_model` wrote."""
    return _description(Path(folder)) is not None


# What may be exported, and where to


def _check_arguments(model_name, inputs, labels, encoding) -> None:
    if model_name not in models.NAMES:
        raise ExportError(f"there is no model '{model_name}'; valid: {', '.join(sorted(models.NAMES))}")
    if not labels or len(set(labels)) != len(labels):
        raise ExportError("label names are missing or stand twice; give each class a name of its own")
    if isinstance(inputs, (HiddenRelationInput, RelationInput)):
        raise ExportError(
            "a model of sentence relations cannot be exported as a model of raw text yet; the run's model.keras takes "
            "encoded inputs (tff_re.models.inputs.RelationInput)"
        )
    if isinstance(inputs, DenseInput):
        if encoding is not None:
            raise ExportError("a model of feature vectors has no text encoding; pass encoding=None")
        return
    if encoding is None:
        raise ExportError("a model of texts needs its encoding; pass the one it was trained with")
    words = encoding.vocabulary.words
    if inputs.max_length != encoding.max_length or inputs.vocabulary_size != len(words) + 2:
        raise ExportError("the encoding's vocabulary or length is not the model's; pass the one it was trained with")
    # Keras would take '[UNK]' for a word of its own and shift all ids after it.
    if len(set(words)) != len(words) or any(word in _RESERVED for word in words):
        raise ExportError("the vocabulary holds a word twice, an empty one or '[UNK]'; build it without them")
    # Keras keeps its vocabulary in a NumPy array of strings, which drops trailing NULs.
    if any(word.endswith("\x00") for word in words):
        raise ExportError("the vocabulary holds a word that ends with NUL; remove NUL characters from the texts")


def _check_place(folder: Path, details: Mapping[str, Any], overwrite: bool) -> None:
    if not folder.parent.is_dir():
        raise ExportError(f"{folder.parent}: no such folder; create it first")
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    older = _description(folder)
    if older is None:
        raise ExportError(f"{folder}: exists and is not an export of this project; choose another folder")
    if not overwrite:
        raise ExportError(f"{folder}: holds an export already; choose another folder or ask to overwrite it")
    if _run(older.get("details")) != _run(details):
        raise ExportError(f"{folder}: holds the export of another run; choose another folder or remove it")


def _run(details: Any) -> Any:
    return details.get("run") if isinstance(details, Mapping) else None


def _description(folder: Path) -> dict[str, Any] | None:
    try:
        value = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("format") == FORMAT else None


# The exported model


def _assign(model: tf.keras.Model, weights, form: str) -> None:
    for group, variables, values in (
        ("trainable", model.trainable_variables, list(weights.trainable)),
        ("non-trainable", model.non_trainable_variables, list(weights.non_trainable)),
    ):
        if len(variables) != len(values):
            raise ExportError(
                f"{len(values)} {group} weights for {len(variables)} of the {form} model; pass this model's weights"
            )
        for variable, value in zip(variables, values, strict=True):
            value, name = np.asarray(value), variable.name.removesuffix(":0")
            if value.shape != tuple(variable.shape):
                raise ExportError(
                    f"weight {name} has shape {value.shape}, the {form} model needs {tuple(variable.shape)}; "
                    "pass the weights of this model"
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ExportError(f"weight {name} is not finite: training has diverged; export an earlier round")
            variable.assign(value)


def _dense_model(plain: tf.keras.Model, inputs: DenseInput) -> tf.keras.Model:
    x = tf.keras.Input([inputs.width], name="x")
    probabilities = tf.keras.layers.Softmax(name="probabilities")(plain({"x": x})["logits"])
    return tf.keras.Model(x, {"probabilities": probabilities}, name=plain.name + "_of_vectors")


def _text_model(plain: tf.keras.Model, encoding, logits_without_words: np.ndarray) -> tf.keras.Model:
    text = tf.keras.Input([], dtype=tf.string, name="text")
    ids = tf.keras.layers.TextVectorization(
        standardize=None,
        split=_SPLITS[_kind(encoding)],
        vocabulary=list(encoding.vocabulary.words),
        output_sequence_length=encoding.max_length,
        name="ids",
    )(text)
    logits = plain({"tokens": ids})["logits"]
    # Keras' own mean under a mask divides by zero for a text without words; the answer to it is a constant.
    has_words = tf.reduce_any(tf.not_equal(ids, 0), axis=-1, keepdims=True)
    logits = tf.where(has_words, logits, [float(value) for value in logits_without_words])
    probabilities = tf.keras.layers.Softmax(name="probabilities")(logits)
    return tf.keras.Model(text, {"probabilities": probabilities}, name=plain.name + "_of_text")


def _check_stock_layers(model: tf.keras.Model) -> None:
    for layer in model._flatten_layers():
        if type(layer).__module__.split(".")[0] != "keras":
            raise ExportError(
                f"layer {layer.name} is a {type(layer).__name__}, which Keras alone cannot load; "
                "the model's build_plain has to use stock layers"
            )


def _kind(encoding) -> str:
    kind = json.loads(encoding.to_json()).get("encoding")
    if kind not in _SPLITS:
        raise ExportError(f"an encoding of kind {kind!r} cannot be exported; valid: {', '.join(sorted(_SPLITS))}")
    return kind


# Files


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A draft beside `folder` that takes its place when the block ends well, and is removed when it does not."""
    mark = uuid.uuid4().hex
    draft, replaced = (folder.parent / f".{folder.name}.{mark}.{end}" for end in ("part", "old"))
    problem = None
    try:
        draft.mkdir()
        yield draft
        _flush(draft)
        moved = folder.exists() and any(folder.iterdir())
        if moved:
            os.replace(folder, replaced)
        try:
            os.replace(draft, folder)
        except OSError:
            if moved:
                os.replace(replaced, folder)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except tf.errors.OpError as error:
        problem = type(error).__name__
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if problem is not None:
        raise ExportError(f"{folder}: cannot be written ({problem}); check the disk's space and the permissions")


def _flush(folder: Path) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(place, name), "rb") as file:
                os.fsync(file.fileno())


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")


def _write_saved_model(model: tf.keras.Model, folder: Path) -> None:
    """Through Keras' export archive: it keeps the function alone, without the training graph of every layer."""
    source = model.input
    signature = tf.TensorSpec([None, *source.shape[1:]], source.dtype, name=source.name.split(":")[0])
    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", lambda value: model(value, training=False), input_signature=[signature])
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the endpoints, and where it wrote them
        archive.write_out(os.fspath(folder))


# The description


def _input_description(inputs, encoding) -> dict[str, Any]:
    if encoding is None:
        return {"name": "x", "kind": "vectors", "width": inputs.width}
    return {
        "name": "text",
        "kind": _kind(encoding),
        "max_length": inputs.max_length,
        "vocabulary": len(encoding.vocabulary),
    }


def _fields(options: Any) -> Any:
    return dataclasses.asdict(options) if dataclasses.is_dataclass(options) else options


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


_CARD = """# {title}

A text classifier trained by federated learning with tff-re {version}. For research; not a medical device, and not to be
used for decisions about patients.

{facts}

## Use with plain TensorFlow

```python
import json
import tensorflow as tf
model = tf.keras.models.load_model("{keras_file}")
labels = json.load(open("{labels_file}", encoding="utf-8"))
probabilities = model({example})["probabilities"].numpy()
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

{input}

`{saved_model}/` is the same model as a SavedModel: `tf.saved_model.load("{saved_model}").signatures["serving_default"]`
takes `{name}` and returns `probabilities`.

## Classes

{labels}
"""
_INPUTS = {
    "words": (
        'tf.constant(["肚子 疼"])',
        "The model takes texts of words joined by blanks: segment them with jieba, after adding each word of "
        "`added_words` in "
        f"`{ENCODING_FILE}` to its dictionary (`jieba.add_word`), and leave out words that are blanks. "
        "`tff_re.prediction.load_export` does this.",
    ),
    "characters": ('tf.constant(["肚子疼"])', "The model takes raw text and reads it character by character."),
    "vectors": ("tf.zeros([1, {width}])", "The model takes feature vectors, float32 [n, {width}]."),
}


def _card(description: Mapping[str, Any], labels: Sequence[str]) -> str:
    details, source = description["details"], description["input"]
    metrics = details.get("metrics") if isinstance(details.get("metrics"), Mapping) else {}
    facts = [("model", description["model"])]
    facts += [(key, value) for key, value in details.items() if isinstance(value, str | int | float)]
    for split, values in metrics.items():
        values = values if isinstance(values, Mapping) else {"": values}
        facts += [(f"{split} {name}".strip(), value) for name, value in values.items()]
    example, explanation = (part.format(**source) for part in _INPUTS[source["kind"]])
    return _CARD.format(
        title=_plain(details.get("recipe") or description["model"]),
        version=description["versions"]["tff-re"],
        facts="\n".join(f"- {_plain(key)}: {_plain(value)}" for key, value in facts),
        keras_file=KERAS_FILE,
        labels_file=LABELS_FILE,
        saved_model=SAVED_MODEL_FOLDER,
        example=example,
        input=explanation,
        name=source["name"],
        labels="\n".join(f"{number}. {_plain(label)}" for number, label in enumerate(labels)),
    ).rstrip("\n")


def _plain(value: Any) -> str:
    """One line of Markdown without markup."""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return "".join("\\" + c if c in r"\`*_[]<>#|" else c for c in " ".join(text.split()))


# Verification


def _verify(folder: Path, trained: tf.keras.Model, inputs, encoding, probe_texts: list[str]) -> None:
    """Loads what was written and compares it with the trained model."""
    keras_model = tf.keras.models.load_model(folder / KERAS_FILE, compile=False)
    signature = tf.saved_model.load(os.fspath(folder / SAVED_MODEL_FOLDER)).signatures["serving_default"]
    if encoding is None:
        name, probes = "x", np.random.default_rng(0).standard_normal([16, inputs.width]).astype(np.float32)
        examples = {"x": probes}
    else:
        name = "text"
        texts, ids = _known_texts(encoding)
        if probe_texts:
            texts += [encoding.prepare(text) for text in probe_texts]
            ids = np.concatenate([ids, encoding.encode(probe_texts)])
        probes, examples = tf.constant(texts), {"tokens": ids}
        _verify_ids(keras_model.get_layer("ids"), encoding, probes, ids)
    expected = tf.nn.softmax(trained(examples, training=False)["logits"]).numpy()
    for form, outputs in (
        (KERAS_FILE, keras_model(probes, training=False)),
        (SAVED_MODEL_FOLDER, signature(**{name: tf.constant(probes)})),
    ):
        # Not `difference > TOLERANCE`: a NaN has to fail.
        difference = np.abs(outputs["probabilities"].numpy() - expected)
        if not (difference <= TOLERANCE).all():
            raise ExportError(
                f"{form} gives other predictions than the trained model (by up to {difference.max():.2g}); "
                "its build_plain is not the same function as its build"
            )


def _verify_ids(layer, encoding, texts: tf.Tensor, ids: np.ndarray) -> None:
    problem = None
    if not np.array_equal(layer(texts).numpy(), ids):
        problem = "a probe text"
    words = encoding.vocabulary.words
    for start in range(0, len(words), 2048):
        part = words[start : start + 2048]
        if not np.array_equal(layer(tf.constant(part)).numpy()[:, 0], np.arange(start + 2, start + 2 + len(part))):
            problem = "a word of the vocabulary"
    if problem is not None:
        raise ExportError(
            f"the exported graph gives {problem} other ids than the encoding; the encoding is not exportable"
        )


def _known_texts(encoding) -> tuple[list[str], np.ndarray]:
    """Prepared texts of the vocabulary's words and their ids, int32 [n, max_length]: empty, short, full, too long."""
    words, length = encoding.vocabulary.words, encoding.max_length
    unknown = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in words)  # private use: in no text
    blank = {"words": " ", "characters": ""}[_kind(encoding)]
    random = np.random.default_rng(0)
    texts, ids = [], np.zeros([12, length], np.int32)
    for row, count in zip(ids, [0, 1, length, length + 1, 4 * length, *random.integers(1, length + 1, 7)], strict=True):
        drawn = random.integers(1, len(words) + 2, count)
        texts.append(blank.join(unknown if i == 1 else words[i - 2] for i in drawn))
        row[: min(count, length)] = drawn[:length]
    return texts, ids
