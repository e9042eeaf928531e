"""Predictions of an exported model on raw text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import DataError
from datasets.files import read_json
from datasets.text.encoding import TextEncoding, encoding_from_json
from tff_re.errors import UserError

BATCH_SIZE = 256

_REMEDY = "export the model again or copy the whole folder"


class PredictionError(UserError):
    """An export cannot be loaded or a text cannot be classified. One line, without any of the text."""


@dataclass(frozen=True)
class Prediction:
    """What the model says about a text.

    Attributes:
      label: The most probable class.
      probability: Its probability.
      probabilities: Class to probability, in the order of the labels.
    """

    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)


class Predictor:
    """An exported model with its labels and its encoding; made by `load_export`."""

    def __init__(self, function, labels: Sequence[str], encoding: TextEncoding | None, description: dict[str, Any]):
        """`function` maps a batch, strings [B] or float32 [B, width], to probabilities [B, C]."""
        self.labels = tuple(labels)
        self.encoding = encoding
        self.description = description
        self._function = function

    def __repr__(self) -> str:
        return f"Predictor({self.description.get('model')}, {len(self.labels)} classes)"

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """The prediction for each raw text; an empty text is answered too, by what the model says about no words.

        Raises:
          PredictionError: `texts` is not a list of strings, a string holds half of a surrogate pair, or the model takes
            feature vectors.
        """
        if self.encoding is None:
            raise PredictionError("the model takes feature vectors, not texts; use predict_vectors")
        if isinstance(texts, str | bytes):
            raise PredictionError("one text was given in place of a list; put it into a list")
        texts = list(texts)
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise PredictionError(f"text number {number} is a {type(text).__name__}; give a string")
            if any("\ud800" <= c <= "\udfff" for c in text):
                raise PredictionError(f"text number {number} holds half of a surrogate pair; decode it as UTF-8")
        return self._predictions([self.encoding.prepare(text) for text in texts])

    def predict_vectors(self, x: np.ndarray) -> list[Prediction]:
        """The prediction for each feature vector of `x`, float32 [n, width].

        Raises:
          PredictionError: the model takes texts, or `x` has another shape.
        """
        if self.encoding is not None:
            raise PredictionError("the model takes texts, not feature vectors; use predict")
        x, width = np.asarray(x, np.float32), self.description["input"]["width"]
        if x.ndim != 2 or x.shape[1] != width:
            raise PredictionError(f"the vectors have shape {x.shape}; the model takes [n, {width}]")
        return self._predictions(x)

    def _predictions(self, values) -> list[Prediction]:
        predictions = []
        for start in range(0, len(values), BATCH_SIZE):
            for row in self._function(values[start : start + BATCH_SIZE]):
                best = int(np.argmax(row))
                probabilities = {label: float(value) for label, value in zip(self.labels, row, strict=True)}
                predictions.append(Prediction(self.labels[best], float(row[best]), probabilities))
        return predictions


def load_export(folder: str | os.PathLike) -> Predictor:
    """The model that `tff_re.export.export_model` wrote into the folder. Load none from people that you do not trust.

    Raises:
      PredictionError: the folder or a file of it is missing, damaged, or of another version.
    """
    # TensorFlow takes seconds to import: the cheap checks come first.
    folder = Path(folder)
    if not folder.is_dir():
        raise PredictionError(f"{folder}: no such folder; give the folder of an exported model")
    path = folder / "export.json"
    if not path.exists():
        raise PredictionError(f"{folder}: holds no export.json; give the folder of an exported model")
    description = _read(path)
    if not isinstance(description, dict) or description.get("format") != "tff-re export":
        raise PredictionError(f"{path}: is not the description of an export; {_REMEDY}")
    if description.get("format_version") != 1:
        raise PredictionError(f"{path}: is of another version of the format; load it with the tff-re that wrote it")
    labels = _read(folder / "labels.json")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise PredictionError(f"{folder / 'labels.json'}: is not a list of labels; {_REMEDY}")
    if description.get("classes") != len(labels):
        raise PredictionError(f"{folder / 'labels.json'}: has not one label for each class; {_REMEDY}")
    source = description.get("input")
    kind = source.get("kind") if isinstance(source, dict) else None
    encoding = _encoding(folder / "encoding.json")
    if kind not in ("words", "characters", "vectors") or (kind == "vectors") != (encoding is None):
        raise PredictionError(f"{folder / 'encoding.json'}: does not fit export.json; {_REMEDY}")
    return Predictor(_function(folder / "saved_model", source["name"]), labels, encoding, description)


def _read(path: Path) -> Any:
    problem = None
    try:
        return read_json(path)
    except DataError as error:
        problem = str(error)
    raise PredictionError(problem)


def _encoding(path: Path) -> TextEncoding | None:
    value, problem = _read(path), None
    if value is None:
        return None
    try:
        return encoding_from_json(json.dumps(value, ensure_ascii=False))
    except DataError as error:
        problem = error.reason
    raise PredictionError(f"{path}: {problem}; {_REMEDY}")


def _function(folder: Path, name: str):
    if not (folder / "saved_model.pb").is_file():
        raise PredictionError(f"{folder}: holds no saved_model.pb; {_REMEDY}")
    import tensorflow as tf

    problem = None
    try:
        signature = tf.saved_model.load(os.fspath(folder)).signatures["serving_default"]
    except Exception as error:  # whatever a damaged file makes of TensorFlow's loader
        problem = type(error).__name__
    if problem is not None:
        raise PredictionError(f"{folder}: cannot be loaded ({problem}); {_REMEDY}")
    return lambda values: signature(**{name: tf.constant(values)})["probabilities"].numpy()
