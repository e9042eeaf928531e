"""From tables of a TOML file to frozen dataclasses, strictly: no unknown key, no silent conversion."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from tff_re.errors import UserError, nearest


@dataclass(frozen=True)
class Choice:
    """Something chosen by name, with its options (the dataclass that belongs to the name)."""

    name: str
    options: Any


def _exactly(kind: type, *accepted: type):
    def hook(value, _):
        if (isinstance(value, bool) and kind is not bool) or not isinstance(value, (kind, *accepted)):
            raise TypeError(f"must be {_NAMES[kind]}, got {value!r}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TypeError("must be a number of at most 64 bits")
        value = kind(value)
        if kind is float and not math.isfinite(value):
            raise TypeError(f"must be a finite number, got {value!r}")
        return value

    return hook


_NAMES = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}
_converter = cattrs.Converter(forbid_extra_keys=True)
for _kind, _accepted in ((int, ()), (float, (int,)), (str, ()), (bool, ())):
    _converter.register_structure_hook(_kind, _exactly(_kind, *_accepted))
_converter.register_structure_hook_func(
    lambda kind: typing.get_origin(kind) is typing.Literal,
    lambda value, kind: _literal(value, kind),
)


def _tuple(value, kind):
    # cattrs would take a string for a list of letters.
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"must be a list, got {value!r}")
    inner = typing.get_args(kind)[0]
    for item in value:
        if dataclasses.is_dataclass(inner) and not isinstance(item, dict):
            raise TypeError(f"must be a list of tables, got {item!r} in it")
    return tuple(_converter.structure(item, inner) for item in value)


def _dict(value, kind):
    if not isinstance(value, dict):
        raise TypeError(f"must be a table, got {value!r}")
    inner = typing.get_args(kind)
    return {key: _converter.structure(item, inner[1]) for key, item in value.items()} if inner else dict(value)


for _origin, _hook in ((tuple, _tuple), (dict, _dict)):
    _converter.register_structure_hook_func(
        lambda kind, origin=_origin: kind is origin or typing.get_origin(kind) is origin, _hook
    )


def _literal(value, kind):
    choices = typing.get_args(kind)
    if value not in choices:
        raise TypeError(f"must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def structure(cls: type, table, *, section: str, source: str):
    """An instance of the dataclass `cls` from a TOML table.

    Args:
      cls: a frozen dataclass whose fields are the valid keys.
      table: what stands in the file.
      section: the name of the table in the file, '' for the top level.
      source: the file, for messages.

    Raises:
      UserError: unknown key (with the nearest valid one), wrong type, impossible value.
    """
    prefix = f"{section}." if section else ""
    if not isinstance(table, dict):
        raise UserError(f"{source}: [{section}] must be a table of keys and values, got {table!r}")
    try:
        return _converter.structure(table, cls)
    except ClassValidationError as error:
        raise UserError(f"{source}: {_first_message(error, prefix)}") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{source}: {prefix.rstrip('.') or 'recipe'}: {error}") from None


def _first_message(error: ClassValidationError, prefix: str) -> str:
    with_notes, without_notes = error.group_exceptions()
    for cause in without_notes:
        if isinstance(cause, ForbiddenExtraKeysError):
            key = sorted(cause.extra_fields)[0]
            return f"unknown key '{prefix}{key}'; {nearest(key, _keys(cause.cl))}"
    for cause, note in with_notes:
        if isinstance(cause, ClassValidationError):
            return _first_message(cause, f"{prefix}{note.name}.")
        if isinstance(cause, KeyError):
            return f"the key '{prefix}{note.name}' is missing"
        return f"'{prefix}{note.name}' {_last(cause)}"
    message = _last(without_notes[0])
    key, _, rest = message.partition(" ")
    if key in _keys(error.cl):
        return f"'{prefix}{key}' {rest}"
    return f"{prefix.rstrip('.') or 'recipe'}: {message}"


def _keys(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.init]


def _last(cause: BaseException) -> str:
    """The message of the innermost exception of a group."""
    while getattr(cause, "exceptions", None):
        cause = cause.exceptions[0]
    return str(cause)


def refuse_unread(options, needs: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
    """Refuses keys that are set and would not be read, because of the choice made by another key.

    Args:
      options: a dataclass, in its `__post_init__`.
      needs: key to (another key, the choices of that one with which it is read). A key is set if its value is not the
        default one.

    Raises:
      ValueError: names the key and what it needs.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name, (chooser, choices) in needs.items():
        if getattr(options, name) != defaults[name] and getattr(options, chooser) not in choices:
            raise ValueError(f"{name} needs {chooser} = {' or '.join(map(repr, choices))}")


def to_table(value) -> dict:
    """A TOML table of a dataclass; fields that are None are left out, as TOML has no null."""
    return _without_none(_converter.unstructure(value))


def _without_none(value):
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value
