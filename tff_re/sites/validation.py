"""The signed result of evaluating an export at a site: numbers, digests and names, and no text.

The signature (Ed25519) is of the canonical JSON of everything in the file except `signature`: sorted keys, no blanks,
UTF-8. The file has the same values with an indent, so that a person can read what leaves the site.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from datasets.errors import DataError
from datasets.files import parse_json
from tff_re.errors import UserError
from tff_re.sites.keys import SIGNATURE_BYTES, is_public_key, public_key, public_text

FORMAT = "tff-re validation"
FORMAT_VERSION = 1

MAX_BYTES = 16_000_000
"""The largest file that is read."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Of a site, as in site.toml."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_VERSION = re.compile(r"[0-9A-Za-z.+!-]{1,60}")
_MEASURE = re.compile(r"[a-z0-9_]{1,60}")
_SIGNATURE = "signature"


def canonical(content: Mapping[str, Any]) -> bytes:
    """What is signed: the JSON of a result without its signature."""
    unsigned = {key: value for key, value in content.items() if key != _SIGNATURE}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def signed_file(content: Mapping[str, Any], key: Ed25519PrivateKey) -> bytes:
    """The file of a result.

    Args:
      content: `name`, `export`, `file`, `time`, `tff_re` and what `Score.facts` gives.
      key: the site's.

    Raises:
      UserError: a value is not what `read_result` takes.
    """
    whole = {**content, "format": FORMAT, "format_version": FORMAT_VERSION, "public_key": public_text(key)}
    whole[_SIGNATURE] = base64.b64encode(key.sign(canonical(whole))).decode()
    problem = _malformed(whole)
    if problem:
        raise UserError(f"the result cannot be signed: {problem}")
    return _rendered(whole)


def read_result(path: Path) -> dict[str, Any]:
    """A result whose form is checked, and whose signature is that of the public key in it.

    Raises:
      UserError, DataError: it is missing, malformed, or its signature does not fit.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    problem, whole = None, None
    if len(data) > MAX_BYTES:
        problem = f"has more than {MAX_BYTES} bytes"
    else:
        try:
            whole = parse_json(data, path)
        except DataError as error:
            raise UserError(f"{error}; ask the site for the file again") from None
        problem = _malformed(whole)
    if problem or not isinstance(whole, dict):
        raise UserError(f"{path}: is not a result of `validate` ({problem}); ask the site for the file again")
    if not _is_signed(whole):
        raise UserError(f"{path}: its signature does not fit: it was changed after signing; ask the site for it again")
    # Two spellings of a number can be one value, so the signature alone would let a changed digit pass.
    if data != _rendered(whole):
        raise UserError(f"{path}: is not written as `validate` writes it: it was changed; ask the site for it again")
    return whole


def _is_signed(whole: Mapping[str, Any]) -> bool:
    try:
        public_key(whole["public_key"]).verify(base64.b64decode(whole[_SIGNATURE]), canonical(whole))
    except (InvalidSignature, ValueError):
        return False
    return True


def _rendered(whole: Mapping[str, Any]) -> bytes:
    return (json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _malformed(whole: Any) -> str | None:
    """What is wrong with the values of a result, or None."""
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        return f'"format" is not "{FORMAT}"'
    if type(whole.get("format_version")) is not int or whole["format_version"] != FORMAT_VERSION:
        return f'"format_version" is not {FORMAT_VERSION}; another version of tff-re wrote it'
    other = sorted(set(whole) ^ set(_CHECKS))
    if other:
        return f"a key is missing or unknown: {other[0][:40]!r}"
    wrong = [key for key, is_valid in _CHECKS.items() if not is_valid(whole[key])]
    if wrong:
        return f'"{wrong[0]}" is not valid'
    return None if _sizes_fit(whole) else "its counts do not fit each other"


def _sizes_fit(whole: Mapping[str, Any]) -> bool:
    """Whether what is by class has one entry for each label, and the confusion matrix counts the examples."""
    labels, positive, confusion, by_class = (
        whole[key] for key in ("labels", "positive_labels", "confusion", "by_class")
    )
    size = len(labels or ())
    if any(rows is not None and len(rows) != size for rows in (confusion, by_class)):
        return False
    if any(index >= size for index in positive or ()):
        return False
    if confusion is None:
        return True
    if any(len(row) != size for row in confusion):
        return False
    return bool(sum(map(sum, confusion)) == whole["counts"].get("examples"))


def _matches(pattern: re.Pattern[str]) -> Any:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return value is None or (type(value) is float and math.isfinite(value))


def _is_mapping(value: Any, is_valid: Any) -> bool:
    return isinstance(value, dict) and all(_MEASURE.fullmatch(key) and is_valid(entry) for key, entry in value.items())


def _is_list(value: Any, is_valid: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(is_valid, value)))


def _is_signature(value: Any) -> bool:
    try:
        raw = base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        return False
    return len(raw) == SIGNATURE_BYTES and base64.b64encode(raw).decode() == value


_CHECKS: dict[str, Any] = {
    "by_class": lambda value: _is_list(value, lambda row: isinstance(row, list) and _is_list(row, _is_number)),
    "confusion": lambda value: _is_list(value, lambda row: isinstance(row, list) and _is_list(row, _is_count)),
    "counts": lambda value: _is_mapping(value, _is_count),
    "export": _matches(_DIGEST),
    "file": _matches(_DIGEST),
    "format": lambda value: True,
    "format_version": lambda value: True,
    "labels": lambda value: _is_list(value, lambda label: isinstance(label, str) and label.isprintable()),
    "metrics": lambda value: _is_mapping(value, _is_number),
    "name": lambda value: value is None or _matches(NAME)(value),
    "positive_labels": lambda value: _is_list(value, _is_count),
    "public_key": lambda value: isinstance(value, str) and is_public_key(value),
    "signature": _is_signature,
    "tff_re": _matches(_VERSION),
    "time": _matches(_TIME),
}
