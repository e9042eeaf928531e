"""Predictions of an exported model on raw text, and the door to those that take files of records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.documents.encoding import DocumentEncoding
from datasets.errors import DataError
from datasets.files import read_json
from datasets.relation_records import UNKNOWN_TYPE, RelationMention
from datasets.text.encoding import TextEncoding, encoding_from_json
from datasets.text.encoding_files import document_encoding_from_json, relation_encoding_from_json
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.relation_layout import from_inline_markers
from tff_re.corpus_prediction import BagPredictor, CorpusPredictor, DocumentPredictor
from tff_re.errors import UserError

BATCH_SIZE = 256
MARKED_BATCH_SIZE = 32

FORMS = ("saved_model", "saved_model_float16")
"""The forms of an export that a Predictor can use."""

_REMEDY = "export the model again or copy the whole folder"
_MARKED = ("relation_pieces", "relation_words")
_RECORDS = {"bags": relation_encoding_from_json, "documents": document_encoding_from_json}


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

    def __init__(
        self,
        function: Callable[..., np.ndarray],
        labels: Sequence[str],
        encoding: TextEncoding | None,
        description: dict[str, Any],
    ):
        """`function` maps a batch, by the names of the model's inputs, to probabilities [B, C]."""
        self.labels = tuple(labels)
        self.encoding = encoding
        self.description = description
        self._function = function

    def __repr__(self) -> str:
        return f"Predictor({self.description.get('model')}, {len(self.labels)} classes)"

    @property
    def kind(self) -> str:
        """What the model takes: `words`, `characters`, `vectors`, `relation_pieces` or `relation_words`."""
        return self.description["input"]["kind"]

    @property
    def takes_relations(self) -> bool:
        """Whether it classifies the relation of two mentions in a text."""
        return self.kind in _MARKED

    @property
    def blind(self) -> bool:
        """Whether it reads the mentions' types in place of the mentions."""
        return bool(self.description["input"].get("blind"))

    def predict(self, texts: Sequence[Any]) -> list[Prediction]:
        """The prediction for each raw text; an empty text is answered too, by what the model says about no words.

        A text is a string, or a mapping with `text`. For relations the string has the markers in it (``<e1>…</e1>``,
        ``<e2>…</e2>``), a mapping may have `head` and `tail` (start and end in characters, the end exclusive) in their
        place, and `head_type` and `tail_type`, which a blinded model needs; a RelationMention does as well.

        Raises:
          PredictionError: `texts` is not a list, or holds a text that cannot be read: the first one is named by its
            number; or the model takes feature vectors.
        """
        results = self.predict_each(texts)
        for number, result in enumerate(results, 1):
            if isinstance(result, PredictionError):
                raise PredictionError(f"text number {number} {result}")
        return results

    def predict_each(self, texts: Sequence[Any]) -> list[Prediction | PredictionError]:
        """As `predict`, with an error in the place of each text that cannot be read; none stops the others.

        Raises:
          PredictionError: `texts` is not a list, or the model takes feature vectors.
        """
        if self.kind == "vectors":
            raise PredictionError("the model takes feature vectors, not texts; use predict_vectors")
        if isinstance(texts, str | bytes | Mapping):
            raise PredictionError("one text was given in place of a list; put it into a list")
        results: list[Any] = [self._read(text) for text in texts]
        good = [i for i, result in enumerate(results) if not isinstance(result, PredictionError)]
        for i, prediction in zip(good, self._predictions([results[i] for i in good]), strict=True):
            results[i] = prediction
        return results

    def predict_vectors(self, x: np.ndarray) -> list[Prediction]:
        """The prediction for each feature vector of `x`, float32 [n, width].

        Raises:
          PredictionError: the model takes texts, or `x` has another shape.
        """
        if self.kind != "vectors":
            raise PredictionError("the model takes texts, not feature vectors; use predict")
        x, width = np.asarray(x, np.float32), self.description["input"]["width"]
        if x.ndim != 2 or x.shape[1] != width:
            raise PredictionError(f"the vectors have shape {x.shape}; the model takes [n, {width}]")
        return self._predictions(x)

    def probabilities(self, texts: Sequence[Any]) -> np.ndarray:
        """The probabilities of texts that `predict` takes, float32 [n, C]."""
        rows = [list(prediction.probabilities.values()) for prediction in self.predict(texts)]
        return np.array(rows, np.float32).reshape(-1, len(self.labels))

    def _read(self, text: Any) -> Any:
        """What the model takes for a text, or the error; without the text's number, which the caller knows."""
        try:
            return self._mention(text) if self.takes_relations else self.encoding.prepare(_string(text))
        except PredictionError as error:
            return PredictionError(str(error))  # without the text in its traceback

    def _mention(self, text: Any) -> RelationMention:
        if isinstance(text, RelationMention):
            return text
        given = text if isinstance(text, Mapping) else {}
        plain = _string(text)
        types = tuple(given.get(name) for name in ("head_type", "tail_type"))
        if self.blind and not all(isinstance(kind, str) and kind.strip() for kind in types):
            raise PredictionError("has no head_type and tail_type, which the model reads for the mentions; give them")
        types = [kind if isinstance(kind, str) and kind.strip() else UNKNOWN_TYPE for kind in types]
        if not any(name in given for name in ("head", "tail")):
            problem = None
            try:
                return from_inline_markers(plain, *types, markers=tuple(self.description["input"]["markers"]))
            except DataError as error:
                problem = _reason(error)
            raise PredictionError(problem)
        spans = [_span(given.get(name), name, len(plain)) for name in ("head", "tail")]
        return RelationMention("text", "text", plain, *spans, *types, "", 0)

    def _predictions(self, values) -> list[Prediction]:
        predictions = []
        size = MARKED_BATCH_SIZE if self.takes_relations else BATCH_SIZE
        # Texts of like length side by side: a batch is as wide as its longest.
        order = sorted(range(len(values)), key=lambda i: len(values[i].text)) if self.takes_relations else None
        rows: list[Any] = [None] * len(values)
        for start in range(0, len(values), size):
            chosen = range(start, min(start + size, len(values))) if order is None else order[start : start + size]
            for i, row in zip(chosen, self._function(**self._inputs([values[i] for i in chosen])), strict=True):
                rows[i] = row
        for row in rows:
            best = int(np.argmax(row))
            probabilities = {label: float(value) for label, value in zip(self.labels, row, strict=True)}
            predictions.append(Prediction(self.labels[best], float(row[best]), probabilities))
        return predictions

    def _inputs(self, values) -> dict[str, Any]:
        if not self.takes_relations:
            return {self.description["input"]["name"]: np.stack(values) if self.kind == "vectors" else values}
        inputs = {
            "text": [mention.text for mention in values],
            "head": np.array([mention.head for mention in values], np.int32),
            "tail": np.array([mention.tail for mention in values], np.int32),
        }
        if self.blind:
            inputs["head_type"] = [mention.head_type for mention in values]
            inputs["tail_type"] = [mention.tail_type for mention in values]
        return inputs


def _string(text: Any) -> str:
    if isinstance(text, Mapping):
        if "text" not in text:
            raise PredictionError('has no "text"; give it one')
        text = text["text"]
    if not isinstance(text, str):
        raise PredictionError(f"is a {type(text).__name__}; give a string")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PredictionError("holds half of a surrogate pair; decode it as UTF-8")
    return text


def _span(value: Any, name: str, length: int) -> tuple[int, int]:
    good = (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(place, int) and not isinstance(place, bool) for place in value)
        and 0 <= value[0] < value[1] <= length
    )
    if not good:
        raise PredictionError(
            f'has no span "{name}" in its {length} characters; give [start, end] with 0 <= start < end <= length'
        )
    return value[0], value[1]


def _reason(error: DataError) -> str:
    reason = "has a mention that is empty" if error.record else error.reason
    return f"{reason}; {error.remedy}" if error.remedy else reason


def load_export(folder: str | os.PathLike, form: str = "saved_model") -> Predictor | CorpusPredictor:
    """The model that `tff_re.export` wrote into the folder: a `Predictor`, of bags a `BagPredictor`, of documents a
    `DocumentPredictor`. Load none from people that you do not trust.

    Args:
      folder: the export's.
      form: `saved_model`, or `saved_model_float16` where the export has one.

    Raises:
      PredictionError: the folder or a file of it is missing, damaged, or of another version.
    """
    # TensorFlow takes seconds to import: the cheap checks come first.
    folder = Path(folder)
    if form not in FORMS:
        raise PredictionError(f"there is no form '{form}'; valid: {', '.join(FORMS)}")
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
    encoding = _encoding(folder / "encoding.json", kind)
    known = kind in ("words", "characters", "vectors", *_MARKED, *_RECORDS)
    if not known or (encoding is None) == (kind in ("words", "characters", *_RECORDS)):
        raise PredictionError(f"{folder / 'encoding.json'}: does not fit export.json; {_REMEDY}")
    if not (folder / form).is_dir() and form not in (description.get("forms") or {}):
        raise PredictionError(f"{folder / form}: is not there; export the model with it (--format, --quantise)")
    kinds = {"bags": BagPredictor, "documents": DocumentPredictor}
    return kinds.get(kind, Predictor)(_function(folder / form, kind), labels, encoding, description)


def _read(path: Path) -> Any:
    problem = None
    try:
        return read_json(path)
    except DataError as error:
        problem = str(error)
    raise PredictionError(problem)


def _encoding(path: Path, kind: str | None) -> TextEncoding | RelationEncoding | DocumentEncoding | None:
    """The encoding of a model of texts, bags or documents; of the others it is in the graph, or there is none."""
    value, problem = _read(path), None
    if kind in _MARKED and isinstance(value, dict) and value.get("encoding") == kind:
        return None
    if value is None and kind not in _MARKED:
        return None
    try:
        return _RECORDS.get(kind, encoding_from_json)(json.dumps(value, ensure_ascii=False))
    except DataError as error:
        problem = error.reason
    raise PredictionError(f"{path}: {problem}; {_REMEDY}")


def _function(folder: Path, kind: str) -> Callable[..., np.ndarray]:
    if not (folder / "saved_model.pb").is_file():
        raise PredictionError(f"{folder}: holds no saved_model.pb; {_REMEDY}")
    import tensorflow as tf

    if kind == "relation_pieces":
        import tensorflow_text  # noqa: F401  (its operations)

    problem = None
    try:
        signatures = tf.saved_model.load(os.fspath(folder)).signatures
        signature = signatures["spans" if kind in _MARKED else "serving_default"]
    except Exception as error:  # whatever a damaged file makes of TensorFlow's loader
        problem = type(error).__name__
    if problem is not None:
        raise PredictionError(f"{folder}: cannot be loaded ({problem}); {_REMEDY}")

    def run(**inputs) -> np.ndarray:
        return signature(**{name: tf.constant(value) for name, value in inputs.items()})["probabilities"].numpy()

    return run
