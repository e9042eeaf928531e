"""Messages between a coordinator and a site: a table of JSON and arrays, as bytes. Neither TensorFlow nor pickle.

    8 bytes: length of the head, little endian | the head, JSON in UTF-8 | the arrays' bytes, one after the other

The head is [table, [[dtype, shape], …]]. Arrays are in C order and little endian. There is no limit of 2·10^9 bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST_HEAD = 1 << 28
"""Bytes of a head that are read."""

MAX_DIMENSIONS = 32
"""Of an array, as in NumPy."""

_DTYPES = frozenset(
    np.dtype(name).newbyteorder("<").str
    for name in (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), *("f2", "f4", "f8", "?"))
)


class Malformed(Exception):
    """Bytes that are no message; one line."""


class Refused(Exception):
    """The site does not answer; its text goes to the coordinator, so it holds nothing of the data."""


class Lost(Exception):
    """What an earlier stage or round left is not there any more."""


def pack(table: Mapping[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """A message. Raises ValueError for an array of another kind than numbers and truth values."""
    arrays = [np.asarray(array, order="C") for array in arrays]
    arrays = [array.astype(array.dtype.newbyteorder("<"), copy=False) for array in arrays]
    for array in arrays:
        if array.dtype.str not in _DTYPES:
            raise ValueError(f"an array of {array.dtype} does not travel")
    forms = [[array.dtype.str, array.shape] for array in arrays]
    head = json.dumps([table, forms], ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    return b"".join([len(head).to_bytes(8, "little"), head, *(array.reshape(-1).view(np.uint8) for array in arrays)])


def unpack(message: bytes | memoryview) -> tuple[dict[str, Any], list[np.ndarray]]:
    """(table, arrays) of a message; the arrays are read-only views of it. Raises Malformed."""
    message = memoryview(message)
    length = int.from_bytes(message[:8], "little")
    if len(message) < 8 or length > min(MOST_HEAD, len(message) - 8):
        raise Malformed("the message is cut off")
    try:
        table, forms = json.loads(bytes(message[8 : 8 + length]).decode("utf-8", "surrogatepass"))
        forms = [(dtype, list(shape)) for dtype, shape in forms]
    except (ValueError, TypeError, RecursionError):
        raise Malformed("the head of the message is no JSON of a table and forms of arrays") from None
    known = all(type(d) is str and d in _DTYPES and len(shape) <= MAX_DIMENSIONS for d, shape in forms)
    if (
        not isinstance(table, dict)
        or not known
        or any(type(s) is not int or s < 0 for _, shape in forms for s in shape)
    ):
        raise Malformed("the head of the message names no table, or arrays that do not travel")
    arrays, place = [], 8 + length
    for dtype, shape in forms:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if place + size > len(message):
            raise Malformed("the arrays of the message are cut off")
        arrays.append(np.frombuffer(message[place : place + size], dtype).reshape(shape))
        place += size
    if place != len(message):
        raise Malformed("the message is longer than its head says")
    return table, arrays


def payload(arrays: Sequence[np.ndarray]) -> int:
    """Bytes of arrays, without the head."""
    return sum(array.nbytes for array in arrays)
