"""Ranges of options as attrs validators, which carry their limits and raise DataError."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from attrs.validators import ge, in_, instance_of, le, lt, not_

from datasets.errors import DataError

_NO_BOOL = not_(instance_of(bool))


@attrs.frozen
class Range:
    """An attrs validator that combines several, and raises a DataError that names the range."""

    words: str
    _validators: tuple[Callable, ...]

    def __call__(self, instance: Any, attribute: Any, value: Any) -> None:
        try:
            for validator in self._validators:
                validator(instance, attribute, value)
        except (TypeError, ValueError):
            raise DataError(f"{attribute.name} must be {self.words}, got {value!r}") from None


def whole_number(least: int) -> Range:
    """Return a validator of integers of at least `least`."""
    return Range(f"a whole number of at least {least}", (instance_of(int), _NO_BOOL, ge(least)))


def in_range(minimum: float, maximum: float) -> Range:
    """Return a validator of numbers in [minimum, maximum]."""
    return Range(
        f"a number from {minimum} to {maximum}", (instance_of((int, float)), _NO_BOOL, ge(minimum), le(maximum))
    )


def one_of(choices: Iterable[str]) -> Range:
    """Return a validator of one of these strings."""
    choices = tuple(choices)
    return Range(f"one of {', '.join(map(repr, choices))}", (in_(choices),))


SHARE = in_range(0, 1)
TRUE_OR_FALSE = Range("true or false", (instance_of(bool),))
NOT_NEGATIVE = Range("a finite number of at least 0", (instance_of((int, float)), _NO_BOOL, ge(0), lt(float("inf"))))


def require(validator: Range, **values: Any) -> None:
    """Raise DataError that names the first value outside the range."""
    for name, value in values.items():
        validator(None, types.SimpleNamespace(name=name), value)
