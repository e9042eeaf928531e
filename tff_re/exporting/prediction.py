"""Predictions of an exported model on raw text, and the door to those that take files of records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import DataError
from datasets.relations.records import UNKNOWN_TYPE, RelationMention
from datasets.text.encoding import TextEncoding
from datasets.text.relation_layout import from_inline_markers
from tff_re.errors import UserError
from tff_re.exporting.corpus_prediction import BagPredictor, CorpusPredictor, DocumentPredictor
from tff_re.exporting.description import (
    DESCRIPTION_FILE,
    ENCODING_FILE,
    LABELS_FILE,
    MARKED,
    RECORDS,
    REMEDY,
    read_description,
    read_encoding,
    read_labels,
)
from tff_re.exporting.digests import DIGESTS_FILE, check_digests
from tff_re.exporting.graph import check_files, check_graph

BATCH_SIZE = 256
MARKED_BATCH_SIZE = 32

FORMS = ("saved_model", "saved_model_float16")
"""The forms of an export that a Predictor can use."""


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
        return self.kind in MARKED

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


def load_export(
    folder: str | os.PathLike, form: str = "saved_model", *, trust: bool = False
) -> Predictor | CorpusPredictor:
    """The model that `tff_re.export` wrote into the folder: a `Predictor`, of bags a `BagPredictor`, of documents a
    `DocumentPredictor`.

    What is read has to have the digests in SHA256SUMS, and the graph holds no operation that exports of this project
    do not have, such as one that writes a file. Of an export made before there were digests a line on standard error
    says so.

    Args:
      folder: the export's.
      form: `saved_model`, or `saved_model_float16` where the export has one.
      trust: leaves these two checks out. The graph can then do what you can: read, write and send files.

    Raises:
      PredictionError: the folder or a file of it is missing, changed, damaged, or of another version; or the graph
        holds another operation.
    """
    folder, problem = Path(folder), None
    try:
        return _load(folder, form, trust)
    except DataError as error:
        problem = str(error)
    raise PredictionError(problem)


def _load(folder: Path, form: str, trust: bool) -> Predictor | CorpusPredictor:
    # TensorFlow takes seconds to import: the cheap checks come first.
    if form not in FORMS:
        raise PredictionError(f"there is no form '{form}'; valid: {', '.join(FORMS)}")
    if not folder.is_dir():
        raise PredictionError(f"{folder}: no such folder; give the folder of an exported model")
    if not (folder / DESCRIPTION_FILE).exists():
        raise PredictionError(f"{folder}: holds no {DESCRIPTION_FILE}; give the folder of an exported model")
    description = read_description(folder)
    labels = read_labels(folder, description["classes"])
    encoding = read_encoding(folder, description["input"])
    if not (folder / form).is_dir() and form not in (description.get("forms") or {}):
        raise PredictionError(f"{folder / form}: is not there; export the model with it (--format, --quantise)")
    if not trust:
        if description["format_version"] > 1 or (folder / DIGESTS_FILE).exists():
            check_digests(folder, (DESCRIPTION_FILE, LABELS_FILE, ENCODING_FILE, form))
        else:
            what = "was exported without digests, so that nothing tells whether a file was changed"
            print(f"note: {folder}: {what}", file=sys.stderr)
    check_files(folder / form)
    if not trust:
        check_graph(folder / form)
    kind = description["input"]["kind"]
    function = _function(_signature(folder / form, kind), folder / form, description)
    kinds = {"bags": BagPredictor, "documents": DocumentPredictor}
    return kinds.get(kind, Predictor)(function, labels, encoding, description)


def _signature(folder: Path, kind: str) -> Any:
    """The SavedModel's signature for inputs of the kind."""
    import tensorflow as tf

    if kind == "relation_pieces":
        import tensorflow_text  # noqa: F401  (its operations)

    problem = None
    try:
        signatures = tf.saved_model.load(os.fspath(folder)).signatures
        return signatures["spans" if kind in MARKED else "serving_default"]
    except Exception as error:  # whatever a damaged file makes of TensorFlow's loader
        problem = type(error).__name__
    raise PredictionError(f"{folder}: cannot be loaded ({problem}); {REMEDY}")


def _function(signature: Any, folder: Path, description: Mapping[str, Any]) -> Callable[..., np.ndarray]:
    """The signature on arrays and lists by name; its errors are of one line."""
    import tensorflow as tf

    classes = description["classes"]
    wanted, found = set(_names(description)), set(signature.structured_input_signature[1])
    if wanted != found or "probabilities" not in signature.structured_outputs:
        raise PredictionError(
            f"{folder}: takes {', '.join(sorted(found))} where {DESCRIPTION_FILE} says {', '.join(sorted(wanted))}; "
            f"{REMEDY}"
        )

    def run(**inputs) -> np.ndarray:
        result, problem = None, None
        try:
            given = {name: tf.constant(value) for name, value in inputs.items()}
            result = signature(**given)["probabilities"].numpy()
        except Exception as error:  # whatever a graph that does not fit makes of the inputs; it could hold a text
            problem = type(error).__name__
        if problem is None and result.shape[-1:] != (classes,):
            problem = f"{result.shape[-1] if result.ndim else 'no'} probabilities for {classes} labels"
        if problem is not None:
            raise PredictionError(f"{folder}: cannot answer ({problem}); {REMEDY}")
        return result

    return run


def _names(description: Mapping[str, Any]) -> Iterable[str]:
    """The inputs of the signature."""
    source = description["input"]
    if source["kind"] in MARKED:
        return ("text", "head", "tail", *(("head_type", "tail_type") if source["blind"] else ()))
    return description["arrays"] if source["kind"] in RECORDS else (source["name"],)
