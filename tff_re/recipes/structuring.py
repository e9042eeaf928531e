"""From tables of a TOML file to frozen attrs classes or dataclasses, strictly: no unknown key, no silent conversion."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from dataclasses import dataclass
from typing import Any

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from computations.ranges import FLOAT32_MAX
from tff_re.errors import UserError, nearest


def _exactly(kind: type):
    def hook(value, _):
        accepted = (int, float) if kind is float else kind
        if (isinstance(value, bool) and kind is not bool) or not isinstance(value, accepted):
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
for _kind in _NAMES:
    _converter.register_structure_hook(_kind, _exactly(_kind))


def _tuple(value, kind):
    # cattrs would take a string for a list of letters.
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"must be a list, got {value!r}")
    inner = typing.get_args(kind)[0]
    for item in value:
        if (attrs.has(inner) or dataclasses.is_dataclass(inner)) and not isinstance(item, dict):
            raise TypeError(f"must be a list of tables, got {item!r} in it")
    return tuple(_converter.structure(item, inner) for item in value)


def _truth_or_names(value, kind):
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise TypeError(f"must be true, false or a list, got {value!r}")
    return _tuple(value, tuple[str, ...])


_converter.register_structure_hook_func(lambda kind: kind == bool | tuple[str, ...] | None, _truth_or_names)


def _truth_or_table(value, kind):
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise TypeError(f"must be true, false or a table, got {value!r}")
    return _converter.structure(value, _table_class(kind))


def _table_class(kind) -> type | None:
    """The attrs class of a key that is true, false or a table."""
    inner = typing.get_args(kind)
    return next((kind for kind in inner if attrs.has(kind)), None) if bool in inner else None


_converter.register_structure_hook_func(lambda kind: _table_class(kind) is not None, _truth_or_table)


def _dict(value, kind):
    if not isinstance(value, dict):
        raise TypeError(f"must be a table, got {value!r}")
    inner = typing.get_args(kind)
    return {key: _converter.structure(item, inner[1]) for key, item in value.items()} if inner else dict(value)


def _literal(value, kind):
    choices = typing.get_args(kind)
    if isinstance(value, float) and repr(value) in choices:  # --set attack.kind=nan, a number in TOML's notation
        return repr(value)
    if value not in choices:
        raise TypeError(f"must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


for _origin, _hook in ((tuple, _tuple), (dict, _dict), (typing.Literal, _literal)):
    _converter.register_structure_hook_func(
        lambda kind, origin=_origin: kind is origin or typing.get_origin(kind) is origin, _hook
    )


def structure(cls: type, table, *, section: str, source: str):
    """An instance of a frozen attrs class or dataclass, whose fields are the valid keys, from a TOML table.

    `section` is the table's name in the file, '' for the top level; `source`, the file, is for messages.

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
            return f"unknown key '{prefix}{key}'; {nearest(key, _names(cause.cl))}"
    for cause, note in with_notes:
        if isinstance(cause, ClassValidationError):
            return _first_message(cause, f"{prefix}{note.name}.")
        if isinstance(cause, KeyError):
            return f"the key '{prefix}{note.name}' is missing"
        return f"'{prefix}{note.name}' {_last(cause)}"
    message = _last(without_notes[0])
    if (refused := _REFUSED.match(message)) and refused["key"] in _names(error.cl):
        key, value = refused["key"], refused["number"] or refused["other"]
        (validator,) = (field.validator for field in keys(error.cl) if field.name == key)
        return f"'{prefix}{key}' must be {range_of(validator, value)}, got {value}"
    key, _, rest = message.partition(" ")
    if key in _names(error.cl):
        return f"'{prefix}{key}' {rest}"
    return f"{prefix.rstrip('.') or 'recipe'}: {message}"


# What attrs' validators say: "'mu' must be >= 0: -1", "'unit' must be in ('sample', 'document') (got 'client')".
_REFUSED = re.compile(r"'(?P<key>\w+)' must be .*?(?:: (?P<number>[-+.\w]+)|\(got (?P<other>.*)\))$", re.DOTALL)


def _names(cls: type) -> list[str]:
    return [key.name for key in keys(cls)]


@dataclass(frozen=True)
class Key:
    """A key of a table: a field of its class.

    `type`: as annotated; `default`: `REQUIRED` if it has none.
    """

    name: str
    type: Any
    default: Any
    validator: Any = None


REQUIRED = object()


def keys(cls: type) -> tuple[Key, ...]:
    """The keys of an attrs class or dataclass, in order."""
    fields, missing = (attrs.fields, attrs.NOTHING) if attrs.has(cls) else (dataclasses.fields, dataclasses.MISSING)
    return tuple(
        Key(f.name, f.type, REQUIRED if f.default is missing else f.default, getattr(f, "validator", None))
        for f in fields(cls)
        if f.init
    )


def range_of(validator, value=None) -> str:
    """The range of an attrs validator in words, e.g. `at least 0 and below 1`.

    It is '' if the validator has no range.

    That float32 must hold the number is named only where the text of a `value` is too large for it.
    """
    bounds, choices = {}, ()
    for part in _parts(validator):
        choices = getattr(part, "options", choices)
        if getattr(part, "bound", None) == FLOAT32_MAX:
            if value is not None and float(value) > FLOAT32_MAX:
                bounds[part.compare_op] = f"{FLOAT32_MAX:.1e} (float32)"
        elif hasattr(part, "bound"):
            bounds[part.compare_op] = f"{part.bound:.7g}" if isinstance(part.bound, float) else str(part.bound)
    if choices:
        return f"one of {', '.join(map(repr, choices))}"
    if bounds.keys() == {">=", "<="}:
        return f"from {bounds['>=']} to {bounds['<=']}"
    return " and ".join(f"{_BOUNDS[sign]} {bounds[sign]}" for sign in _BOUNDS if sign in bounds)


_BOUNDS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}


def _parts(validator) -> list:
    """The validators that one is composed of by `and_` and `optional`."""
    inner = getattr(validator, "_validators", None) or (getattr(validator, "validator", None),)
    return [validator] if inner == (None,) else [part for member in inner for part in _parts(member)]


def _last(cause: BaseException) -> str:
    """The message of the innermost exception of a group."""
    while getattr(cause, "exceptions", None):
        cause = cause.exceptions[0]
    return str(cause.args[0] if len(cause.args) > 1 else cause)  # attrs' errors have the value and more after the text


def to_table(value) -> dict:
    """A TOML table of an attrs class or dataclass.

    Fields that are None are left out, as TOML has no null.
    """
    return _without_none(_converter.unstructure(value))


def _without_none(value):
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value
