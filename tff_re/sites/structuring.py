"""Strict conversion between attrs classes and a table with arrays.

Types must be exact, and no key may be unknown or missing.
"""

from __future__ import annotations

import typing
from typing import Any, Literal, TypeVar

import attrs
import cattrs
import numpy as np
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from tff_re.sites.fields import ARRAY, REST
from tff_re.sites.messages import Malformed

M = TypeVar("M")


def unstructured(message) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return (table, arrays) of an attrs class.

    Fields that are None by default are left out, and an array is replaced by its number.
    """
    table, arrays = {}, []
    for field in attrs.fields(type(message)):
        value = getattr(message, field.name)
        if value is None and field.default is None:
            continue
        if REST in field.metadata:
            arrays += value
        elif ARRAY in field.metadata:
            table[field.name] = len(arrays)
            arrays.append(value)
        else:
            table[field.name] = converter.unstructure(value)
    return table, arrays


def structured(cls: type[M], table: dict[str, Any], arrays: list[np.ndarray]) -> M:
    """Return an instance of an attrs class.

    Raises Malformed, with a line that names the field and repeats no value.
    """
    used = 0
    for field in attrs.fields(cls):
        if REST in field.metadata:
            if field.name in table:
                raise Malformed(f"unknown key '{field.name}'")
            table[field.name], used = arrays[used:], len(arrays)
        elif ARRAY in field.metadata and field.name in table:
            if type(table[field.name]) is not int or table[field.name] != used or used >= len(arrays):
                raise Malformed(f"'{field.name}' must be the number of its array, {used}")
            table[field.name], used = arrays[used], used + 1
    if used < len(arrays):
        raise Malformed("there are more arrays than the message has")
    try:
        return converter.structure(table, cls)
    except ClassValidationError as error:
        raise Malformed(_first(error, "")) from None
    except (TypeError, ValueError) as error:
        raise Malformed(_line(str(error))) from None


def _first(error: ClassValidationError, prefix: str) -> str:
    """Return a message's first error as one line, which names the field and repeats no value."""
    with_notes, without_notes = error.group_exceptions()
    for cause in without_notes:
        if isinstance(cause, ForbiddenExtraKeysError):
            return _line(f"unknown key '{prefix}{min(cause.extra_fields)}'")
    for cause, note in with_notes:
        if isinstance(cause, ClassValidationError):
            return _first(cause, f"{prefix}{note.name}.")
        if isinstance(cause, KeyError):
            return f"the key '{prefix}{note.name}' is missing"
        return f"'{prefix}{note.name}' {_line(str(cause))}"
    return _line(str(without_notes[0]))


def _line(text: str) -> str:
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:200]


def _exactly(kind: type, what: str):
    def hook(value, _):
        if type(value) is not kind:
            raise TypeError(f"must be {what}")
        if kind is int and not -(2**63) <= value < 2**63:
            raise TypeError("must be a number of at most 64 bits")
        return value

    return hook


def _tuple(value, kind):
    if type(value) is not list:
        raise TypeError("must be a list")
    inner = typing.get_args(kind)
    if attrs.has(inner[0]) and any(type(element) is not dict for element in value):
        raise TypeError("must be a list of tables")
    if inner[-1] is Ellipsis:
        return tuple(converter.structure(element, inner[0]) for element in value)
    if len(value) != len(inner):
        raise TypeError(f"must be lists of {len(inner)}")
    return tuple(converter.structure(element, element_kind) for element, element_kind in zip(value, inner, strict=True))


def _dict(value, kind):
    if type(value) is not dict:
        raise TypeError("must be a table")
    of_key, of_value = typing.get_args(kind)
    return {converter.structure(k, of_key): converter.structure(v, of_value) for k, v in value.items()}


def _literal(value, kind):
    choices = typing.get_args(kind)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise TypeError(f"must be {' or '.join(map(repr, choices))}")
    return value


converter = cattrs.Converter(forbid_extra_keys=True)
for _kind, _what in (
    *((int, "a whole number"), (float, "a number with a point"), (str, "a text")),
    *((bool, "true or false"), (np.ndarray, "an array")),
):
    converter.register_structure_hook(_kind, _exactly(_kind, _what))
for _origin, _hook in ((tuple, _tuple), (dict, _dict), (Literal, _literal)):
    converter.register_structure_hook_func(lambda kind, origin=_origin: typing.get_origin(kind) is origin, _hook)
