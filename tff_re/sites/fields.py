"""What the fields of messages may contain: limits, and the attrs validators that check them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import attrs
import numpy as np
from attrs.validators import and_

from tff_re.sites.keys import is_public_key
from tff_re.sites.masks import MAX_SITES

ARRAY, REST = "array", "rest"
"""Metadata of a field that travels as an array, and of the one that has all further arrays."""

DIGEST_BYTES = 16
"""Of the keyed digest of a word or a fact."""

MAX_CLASSES = 10_000
"""Classes of a site and of all sites: a confusion matrix has this number squared of cells."""

MAX_CLIENTS = 100_000
"""Clients of a site."""

MAX_EXAMPLES = 1 << 31
"""Examples of a client."""

MAX_ROWS = 1 << 22
"""Words or facts of a site."""

MAX_EVIDENCE = 1 << 24
"""Signatures of words in a message."""

MAX_OCCURRENCES = 1 << 48
"""Of a word at a site: sums over all sites stay far below 2^63."""

MAX_NAME = 200
"""Characters of the name of a class, a relation or a client."""

MAX_WORD = 10_000
"""Characters of a word: a text without a gap is one."""

MAX_SIZE = 100_000
"""Of each dimension of a document: the coordinator pads its own documents to the largest."""

MAX_TEXT = 1 << 22
"""Characters of a recipe."""

MAX_ROUND = 1 << 31

MAX_ATTEMPT = 1 << 62
"""The clock in milliseconds is far below."""

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
RUN = re.compile("[0-9a-f]{32}")

_TAG = re.compile("<[A-Za-z/!?]")


def check(holds: Callable[[object], bool], what: str) -> Callable:
    """Return a validator of a field."""

    def validator(instance, attribute, value):
        if not holds(value):
            raise ValueError(f"'{attribute.name}' must {what}")

    return validator


def each(*validators: Callable) -> Callable:
    """Return a validator for each element of a tuple."""

    def validator(instance, attribute, value):
        for element in value:
            for check in validators:
                check(instance, attribute, element)

    return validator


def length(lowest: int, highest: int) -> Callable:
    return check(lambda value: lowest <= len(value) <= highest, f"have a length of {lowest} to {highest}")


def number(lowest: int, highest: int) -> Callable:
    return check(lambda value: lowest <= value <= highest, f"be from {lowest} to {highest}")


def matches(pattern: str | re.Pattern, what: str) -> Callable:
    return check(lambda value: re.fullmatch(pattern, value) is not None, f"be {what}")


def _is_printable(text: str) -> bool:
    # A space of another script can be printed, though str.isprintable says no.
    return all(letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in text)


NAME = and_(
    check(lambda value: value.strip() and len(value) <= MAX_NAME, f"be 1 to {MAX_NAME} characters"),
    check(_is_printable, "be one line of printable characters"),
    check(lambda value: _TAG.search(value) is None, "have no HTML"),
)
WORD = and_(
    check(lambda value: 1 <= len(value) <= MAX_WORD, f"be 1 to {MAX_WORD} characters"),
    check(lambda value: len(value.splitlines()) == 1 and "\0" not in value, "be one line"),
)
UNIQUE = check(lambda value: len(set(value)) == len(value), "not hold the same twice")
NAMES = and_(length(1, MAX_CLASSES), each(NAME), UNIQUE)
WORDS = and_(length(0, MAX_ROWS), each(WORD), UNIQUE)
HEX = matches("[0-9a-f]{64}", "64 hexadecimal digits")
RUN_ID = matches(RUN, "32 hexadecimal digits")
SITE = matches(SITE_NAME, "the name of a site")
KEY = check(is_public_key, "be the public key of a site")
KEYS = check(
    lambda value: all(re.fullmatch(SITE_NAME, name) and is_public_key(key) for name, key in value.items()),
    "be the public keys of sites",
)
ATTEMPT = number(1, MAX_ATTEMPT)
ROSTER = and_(length(2, MAX_SITES), each(SITE), UNIQUE)
REASON = attrs.validators.optional(length(0, MAX_TEXT))


def array(
    dtype: str, *shape: int | None, optional: bool = False, highest: int | None = None, rows: int = MAX_ROWS
) -> dict:
    """Return an `attrs.field` that is sent as an array.

    Args:
      dtype, shape: its own; None for any number of rows.
      optional: whether it may be left out, and is None then.
      highest: numbers are from 1 to this one.
      rows: there are at most this many.
    """
    wanted = ", ".join("n" if n is None else str(n) for n in shape)

    def fits(value) -> bool:
        known = value.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        return value.dtype == np.dtype(dtype) and known and value.shape[0] <= rows

    is_array = check(fits, f"be {np.dtype(dtype)} [{wanted}] with n at most {rows}")
    in_range = check(
        lambda value: highest is None or not value.size or 1 <= value.min() <= value.max() <= highest,
        f"be from 1 to {highest}",
    )
    validator = and_(is_array, in_range)
    field = {"validator": validator, "metadata": {ARRAY: True}, "repr": False}
    return {**field, "validator": attrs.validators.optional(validator), "default": None} if optional else field


def arrays() -> dict:
    """Return an `attrs.field` for all arrays that no other field names."""
    return {"default": (), "metadata": {REST: True}, "repr": False}
