"""Ranges of options as attrs validators that carry their limits, and the decorator of options classes."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs.validators import and_, ge, gt, in_, le, lt

Validator = Callable[[Any, Any, Any], Any]
"""Called with the options, the field and the value, as attrs calls it."""

FLOAT32_MAX = 2.0**128 - 2.0**104

MOST_STEPS = 1_000_000
"""Bound of epochs, steps and batch sizes: beyond it the numbers of examples would not fit into 32 bits."""

NOT_NEGATIVE: Validator = and_(ge(0), le(FLOAT32_MAX))
POSITIVE: Validator = and_(gt(0), le(FLOAT32_MAX))
SHARE: Validator = and_(ge(0), le(1))
BELOW_ONE: Validator = and_(ge(0), lt(1 - 2**-25))
"""In [0, 1) in float32, too: what is nearer to 1 is rounded to it."""
BOUND: Validator = and_(ge(1e-6), le(FLOAT32_MAX))
"""What an update or a gradient is clipped to. Less is lost in float32: 6e-8 does not change a weight of 1."""
NOISE: Validator = and_(ge(1e-3), le(FLOAT32_MAX))
"""A noise multiplier. Less is no protection, and of none a run must not call itself private."""
COUNT: Validator = ge(1)
STEPS: Validator = and_(ge(1), le(MOST_STEPS))


def require(validator: Validator, **values: Any) -> None:
    """Raise ValueError that names the first value outside the validator's range."""
    for name, value in values.items():
        validator(None, types.SimpleNamespace(name=name), value)


def refuse_unread(options: Any, needs: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
    """Raise an error for keys that are set (not at their default) but not read, because of another key's choice.

    Args:
      options: an attrs class, at the end of its `__init__`.
      needs: key -> (another key, the choices of that key with which the first one is read).

    Raises:
      ValueError: names the key and what it needs.
    """
    fields = attrs.fields_dict(type(options))
    for key, (chooser, choices) in needs.items():
        if getattr(options, key) != fields[key].default and getattr(options, chooser) not in choices:
            raise ValueError(f"{key} needs {chooser} = {' or '.join(map(repr, choices))}")


def options_class(cls: type) -> type:
    """Make a frozen attrs class of keyword-only options.

    Use it on subclasses, too.

    A field that a subclass gives another default keeps its place among the fields and its validator. A field annotated
    as a `Literal` takes its choices alone.
    """
    # Without slots, so that a class may have several of them as bases.
    return attrs.frozen(cls, kw_only=True, slots=False, field_transformer=_as_in_bases)


def _as_in_bases(cls: type, fields: list[attrs.Attribute]) -> list[attrs.Attribute]:
    known: dict[str, attrs.Attribute] = {}
    for base in reversed(cls.__mro__[1:]):
        known |= {field.name: field for field in getattr(base, "__attrs_attrs__", ())}
    hints = typing.get_type_hints(cls)
    for field in fields:
        validator = field.validator
        if typing.get_origin(hints[field.name]) is typing.Literal:
            validator = in_(typing.get_args(hints[field.name]))
        elif validator is None and field.name in known:
            validator = known[field.name].validator
        known[field.name] = field.evolve(validator=validator)
    return list(known.values())
