"""Checks of the types of JSON values, for readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from datasets.errors import DataError

Fail = Callable[..., DataError]
"""Builds the error for a place: ``functools.partial(DataError, path=…, record=…)``."""

_KINDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}


def require(value: Any, kind: type, what: str, fail: Fail, *, remedy: str | None = None) -> Any:
    """Return the value itself if it is of the required JSON kind, else raise `fail`'s error.

    A boolean is not a number.
    """
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise fail(f"{what} is not {_KINDS[kind]}", remedy=remedy or f"make it {_KINDS[kind]}")
    return value


def field(record: Mapping[str, Any], key: str, kind: type, fail: Fail) -> Any:
    """Return the value of a required key.

    Raises `fail`'s error otherwise.
    """
    if key not in record:
        raise fail(f'has no "{key}"', remedy=f'add the key "{key}"')
    return require(record[key], kind, f'"{key}"', fail)


def within(where: str, fail: Fail) -> Fail:
    """Return `fail` with the place within its record before the reason."""
    return lambda reason, **more: fail(f"{where}: {reason}", **more)


def optional_string(record: Mapping[str, Any], key: str, fail: Fail) -> str | None:
    """Return the string of a key, or None if it is absent, null or empty."""
    value = record.get(key)
    return None if value is None else require(value, str, f'"{key}"', fail) or None


def identifier(record: Mapping[str, Any], key: str, fail: Fail) -> str:
    """Return the id at a key as a string.

    It is a non-empty string or an integer.
    """
    if key not in record:
        raise fail(f'has no "{key}"', remedy=f'add the key "{key}"')
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise fail(f'"{key}" is not an id', remedy="make it a string that is not empty")
    return str(value)
