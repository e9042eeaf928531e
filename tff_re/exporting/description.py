"""What an export's JSON files say of it, checked: people edit them by hand, and they come from elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.errors import DataError
from datasets.files import read_json
from datasets.json_values import field, optional_string, require
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds import kinds
from tff_re.exporting.layout import DESCRIPTION_FILE, ENCODING_FILE, FORMAT, FORMAT_VERSIONS, LABELS_FILE, REMEDY


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
    source, known = field(value, "input", dict, fail), kinds()
    if field(source, "kind", str, fail) not in known:
        raise fail(f'"input.kind" is none of {", ".join(known)}', remedy=REMEDY)
    field(source, "name", str, fail)
    if source.get("max_length") is not None:
        require(source["max_length"], int, '"input.max_length"', fail)
    for key in ("forms", "details"):
        if value.get(key) is not None:
            require(value[key], dict, f'"{key}"', fail)
    for key in ("dataset", "label"):
        optional_string(value.get("details") or {}, key, fail)
    known[source["kind"]].check(value, fail)
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


def read_encoding(folder: Path, kind: Kind, source: Mapping[str, Any]) -> Any:
    """What the predictor of the kind encodes its inputs with, see `Kind.encoding`.

    Args:
      folder: the export's.
      kind: of its inputs.
      source: `input` of its export.json.

    Raises:
      DataError: encoding.json is missing, damaged, or of another kind or length than export.json says.
    """
    path = folder / ENCODING_FILE
    return kind.encoding(read_json(path), source, functools.partial(DataError, path=path, remedy=REMEDY))
