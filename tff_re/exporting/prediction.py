"""Exported models loaded again, after a look at what is loaded: people edit its files, and they come from elsewhere."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.errors import DataError
from datasets.files import read_json
from datasets.json_values import field, optional_string, require
from tff_re.exporting.digests import DIGESTS_FILE, check_digests
from tff_re.exporting.graph import check_files, check_graph
from tff_re.exporting.kinds import KINDS
from tff_re.exporting.layout import (
    DESCRIPTION_FILE,
    ENCODING_FILE,
    FLOAT16_FOLDER,
    FORMAT,
    FORMAT_VERSION,
    LABELS_FILE,
    REMEDY,
    SAVED_MODEL_FOLDER,
)
from tff_re.exporting.predictors import ExportedModel, PredictionError

if TYPE_CHECKING:
    from tff_re.exporting.kind import Kind
    from tff_re.exporting.training_digests import TrainingDigests

FORMS = (SAVED_MODEL_FOLDER, FLOAT16_FOLDER)
"""The forms of an export that a predictor can use."""


def load_export(folder: str | os.PathLike, form: str = SAVED_MODEL_FOLDER, *, trust: bool = False) -> ExportedModel:
    """The model that `tff_re.export` wrote into the folder: a `Predictor`, of bags a `BagPredictor`, of documents a
    `DocumentPredictor`, of entity recognition an `EntityPredictor`.

    What is read has to have the digests in SHA256SUMS, and the graph holds no operation that exports of this project
    do not have, such as one that writes a file.

    Args:
      folder: the export's.
      form: `saved_model`, or `saved_model_float16` where the export has one.
      trust: leaves these two checks out. The graph can then do what you can: read, write and send files. A line on
        standard error says so of an export without SHA256SUMS.

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


def _load(folder: Path, form: str, trust: bool) -> ExportedModel:
    # TensorFlow takes seconds to import: the checks that need none come first.
    looked_at = look_at(folder, form, trust)
    description, kind = looked_at.description, looked_at.kind
    signature = _signature(folder / form, kind, description["input"])
    names = kind.signature_inputs(description)
    function = _function(signature, folder / form, names, kind.outputs, description["classes"])
    predictor = kind.predictor(function, looked_at.labels, looked_at.encoding, description)
    predictor.training_digests = functools.partial(_training_digests, folder, trust)
    return predictor


def _training_digests(folder: Path, trust: bool) -> TrainingDigests | None:
    from tff_re.exporting.training_digests import read_training_digests

    return read_training_digests(folder, trust)


@dataclass(frozen=True)
class Checked:
    """What the JSON files of an export hold, every value checked: `export.json`, its kind of input, the labels and the
    encoding of the kind's predictor."""

    description: dict[str, Any]
    kind: Kind
    labels: list[str]
    encoding: Any


def require_export(folder: Path) -> None:
    """Raise PredictionError unless the folder exists and holds the description of an export."""
    if not folder.is_dir():
        raise PredictionError(f"{folder}: no such folder; give the folder of an exported model")
    if not (folder / DESCRIPTION_FILE).exists():
        raise PredictionError(f"{folder}: holds no {DESCRIPTION_FILE}; give the folder of an exported model")


def look_at(folder: Path, form: str, trust: bool = False) -> Checked:
    """Runs all checks of an export before TensorFlow loads its graph.

    `export` runs them on its own files, too.

    Args:
      folder, form, trust: as in `load_export`.

    Raises:
      PredictionError, DataError: as in `load_export`.
    """
    if form not in FORMS:
        raise PredictionError(f"there is no form '{form}'; valid: {', '.join(FORMS)}")
    require_export(folder)
    description = _description(folder)
    kind = KINDS[description["input"]["kind"]]
    labels = _labels(folder, kind, description)
    path = folder / ENCODING_FILE
    fail = functools.partial(DataError, path=path, remedy=REMEDY)
    encoding = kind.encoding(read_json(path), description["input"], fail)
    if not (folder / form).is_dir() and form not in (description.get("forms") or {}):
        raise PredictionError(f"{folder / form}: is missing; export the model in this form (--format, --quantise)")
    if not trust:
        check_digests(folder, (DESCRIPTION_FILE, LABELS_FILE, ENCODING_FILE, form))
    elif not (folder / DIGESTS_FILE).is_file():
        print(f"note: {folder}: has no {DIGESTS_FILE}, so changed files cannot be detected", file=sys.stderr)
    check_files(folder / form)
    if not trust:
        check_graph(folder / form)
    return Checked(description, kind, labels, encoding)


def _description(folder: Path) -> dict[str, Any]:
    """export.json, every value in it that is used being of its type."""
    path = folder / DESCRIPTION_FILE
    value, fail = read_json(path), functools.partial(DataError, path=path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise fail("is not the description of an export", remedy=REMEDY)
    if type(value.get("format_version")) is not int or value["format_version"] != FORMAT_VERSION:
        raise fail("has another version of the format", remedy="load it with the tff-re that wrote it")
    if field(value, "classes", int, fail) < 1:
        raise fail('"classes" is not at least 1', remedy=REMEDY)
    source = field(value, "input", dict, fail)
    if field(source, "kind", str, fail) not in KINDS:
        raise fail(f'"input.kind" is not one of {", ".join(KINDS)}', remedy=REMEDY)
    field(source, "name", str, fail)
    if source.get("max_length") is not None:
        require(source["max_length"], int, '"input.max_length"', fail)
    for key in ("forms", "details"):
        if value.get(key) is not None:
            require(value[key], dict, f'"{key}"', fail)
    for key in ("dataset", "label"):
        optional_string(value.get("details") or {}, key, fail)
    KINDS[source["kind"]].check(value, fail)
    return value


def _labels(folder: Path, kind: Kind, description: dict[str, Any]) -> list[str]:
    """labels.json: a name for each class."""
    path, classes = folder / LABELS_FILE, description["classes"]
    value, fail = read_json(path), functools.partial(DataError, path=path, remedy=REMEDY)
    if not isinstance(value, list) or not value or not all(isinstance(label, str) and label for label in value):
        raise fail("is not a list of labels")
    if len(value) != classes:
        raise fail(f"has {len(value)} labels for {classes} classes")
    if len(set(value)) != len(value):
        raise fail("has a label twice")
    kind.check_labels(value, description, fail)
    return value


def _signature(folder: Path, kind: Kind, source: dict[str, Any]) -> Any:
    """The signature of a SavedModel that the kind's predictor calls."""
    import tensorflow as tf

    kind.import_operations(source)
    problem = None
    try:
        return tf.saved_model.load(os.fspath(folder)).signatures[kind.signature]
    except Exception as error:  # whatever a damaged file makes of TensorFlow's loader
        problem = type(error).__name__
    raise PredictionError(f"{folder}: cannot be loaded ({problem}); {REMEDY}")


def _function(
    signature: Any, folder: Path, names: Iterable[str], outputs: Sequence[str], classes: int
) -> Callable[..., Any]:
    """The signature as a function of named arrays and lists, see `Kind.outputs`.

    Its errors are one line long.
    """
    import tensorflow as tf

    wanted, available = set(names), set(signature.structured_input_signature[1])
    if wanted != available or not set(outputs) <= set(signature.structured_outputs):
        raise PredictionError(
            f"{folder}: takes {', '.join(sorted(available))}, but {DESCRIPTION_FILE} says "
            f"{', '.join(sorted(wanted))}; {REMEDY}"
        )

    def run(**inputs) -> Any:
        result, results, problem = None, {}, None
        try:
            tensors = {name: tf.constant(value) for name, value in inputs.items()}
            answer = signature(**tensors)
            results = {name: answer[name].numpy() for name in outputs}
            result = results["probabilities"]
        except Exception as error:  # whatever a graph that does not fit makes of the inputs; it could hold a text
            problem = type(error).__name__
        if problem is None and result.shape[-1:] != (classes,):
            problem = f"{result.shape[-1] if result.ndim else 'no'} probabilities for {classes} labels"
        if problem is not None:
            raise PredictionError(f"{folder}: cannot answer ({problem}); {REMEDY}")
        return results if len(results) > 1 else result

    return run
