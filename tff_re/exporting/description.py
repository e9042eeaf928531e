"""What an export's JSON files say of it, checked: people edit them by hand, and they come from elsewhere."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.encoding_files import document_encoding_from_json, relation_encoding_from_json
from datasets.errors import DataError
from datasets.files import read_json
from datasets.json_values import Fail, field, optional_string, require
from datasets.text.encoding import encoding_from_json

FORMAT = "tff-re export"
FORMAT_VERSIONS = (1, 2)
"""Version 2 has digests of its files beside it."""

DESCRIPTION_FILE, LABELS_FILE, ENCODING_FILE = "export.json", "labels.json", "encoding.json"

TEXTS = ("words", "characters")
MARKED = ("relation_pieces", "relation_words")
RECORDS = {"bags": relation_encoding_from_json, "documents": document_encoding_from_json}
KINDS = (*TEXTS, "vectors", *MARKED, *RECORDS)
"""Kinds of inputs: `input.kind` of export.json."""

REMEDY = "export the model again or copy the whole folder"

_READING = ("misplaced", "head_kind", "tail_kind")
_MARKERS = 4


def read_description(folder: Path) -> dict[str, Any]:
    """export.json, every value in it that is used being of its type.

    Raises:
      DataError: it is missing, not JSON, of another version, or a value is not what it has to be; names the key.
    """
    path = folder / DESCRIPTION_FILE
    value, fail = read_json(path), functools.partial(DataError, path=path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise fail("is not the description of an export", remedy=REMEDY)
    if type(value.get("format_version")) is not int or value["format_version"] not in FORMAT_VERSIONS:
        raise fail("is of another version of the format", remedy="load it with the tff-re that wrote it")
    if field(value, "classes", int, fail) < 1:
        raise fail('"classes" is not at least 1', remedy=REMEDY)
    kind = _check_input(field(value, "input", dict, fail), fail)
    for key in ("forms", "details"):
        if value.get(key) is not None:
            require(value[key], dict, f'"{key}"', fail)
    if kind in RECORDS:
        _strings(field(value, "arrays", list, fail), '"arrays"', fail)
    _check_details(value.get("details") or {}, kind, fail)
    return value


def _check_input(source: Mapping[str, Any], fail: Fail) -> str:
    """The kind of input."""
    kind = field(source, "kind", str, fail)
    if kind not in KINDS:
        raise fail(f'"input.kind" is none of {", ".join(KINDS)}', remedy=REMEDY)
    field(source, "name", str, fail)
    if kind == "vectors" and field(source, "width", int, fail) < 1:
        raise fail('"input.width" is not at least 1', remedy=REMEDY)
    if kind in MARKED:
        _strings(field(source, "markers", list, fail), '"input.markers"', fail, count=_MARKERS)
        if not isinstance(source.get("blind"), bool):
            raise fail('"input.blind" is neither true nor false', remedy=REMEDY)
    if source.get("max_length") is not None:
        require(source["max_length"], int, '"input.max_length"', fail)
    return kind


def _check_details(details: Mapping[str, Any], kind: str, fail: Fail) -> None:
    for key in ("dataset", "label"):
        optional_string(details, key, fail)
    if kind == "documents":
        if "threshold" not in details:
            raise fail('has no "details.threshold"', remedy=REMEDY)
        value = details["threshold"]  # null is infinity, which JSON has not: no relation is predicted
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value)):
            raise fail('"details.threshold" is no number', remedy=REMEDY)
    reading = details.get("reading")
    if reading is not None:
        require(reading, dict, '"details.reading"', fail)
        for key in reading:
            if key not in _READING or not isinstance(reading[key], str):
                raise fail(f'"details.reading" has more than strings at {", ".join(_READING)}', remedy=REMEDY)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _strings(value: list, what: str, fail: Fail, count: int | None = None) -> list[str]:
    """The list, if its values are different strings that are not empty, so many if `count` is given."""
    good = all(isinstance(item, str) and item for item in value)
    if not good or not value or len(set(value)) != len(value) or count not in (None, len(value)):
        which = "" if count is None else f"{count} "
        raise fail(f"{what} is not a list of {which}different strings", remedy=REMEDY)
    return value


def read_labels(folder: Path, classes: int) -> list[str]:
    """labels.json: a name for each class. Raises DataError."""
    path = folder / LABELS_FILE
    value, fail = read_json(path), functools.partial(DataError, path=path)
    if not isinstance(value, list) or not value or not all(isinstance(label, str) and label for label in value):
        raise fail("is not a list of labels", remedy=REMEDY)
    if len(value) != classes:
        raise fail(f"has not one label for each class ({len(value)} for {classes})", remedy=REMEDY)
    if len(set(value)) != len(value):
        raise fail("has a label twice", remedy=REMEDY)
    return value


def read_encoding(folder: Path, source: Mapping[str, Any]) -> Any:
    """The encoding of a model of texts, bags or documents; of the others it is in the graph, or there is none.

    Args:
      folder: the export's.
      source: `input` of its export.json.

    Raises:
      DataError: encoding.json is missing, damaged, or of another kind or length than export.json says.
    """
    path, kind = folder / ENCODING_FILE, source["kind"]
    value, fail = read_json(path), functools.partial(DataError, path=path, remedy=REMEDY)
    if kind in MARKED:
        if not isinstance(value, dict):
            raise fail("is not the JSON of an encoding")
        if value.get("encoding") != kind:
            raise fail(f"does not fit {DESCRIPTION_FILE}")
        return None
    if kind == "vectors" or value is None:
        if kind != "vectors" or value is not None:
            raise fail(f"does not fit {DESCRIPTION_FILE}")
        return None
    problem = None
    try:
        encoding = RECORDS.get(kind, encoding_from_json)(json.dumps(value, ensure_ascii=False))
    except DataError as error:
        problem = error.reason
    if problem is not None:
        raise fail(problem)
    if kind in TEXTS and value["encoding"] != kind:
        raise fail(f"does not fit {DESCRIPTION_FILE}")
    length = source.get("max_length")
    if length is not None and length != getattr(encoding, "max_length", length):
        raise fail(f'does not fit {DESCRIPTION_FILE}: "max_length" is another one')
    return encoding
