"""Messages between a coordinator and a site, packed as bytes: a JSON table and arrays.

Neither TensorFlow nor pickle is used.

A message has the form of a safetensors file, so that any reader of these shows what was sent or is kept:

    8 bytes: length of the head, little endian | the head, JSON | the arrays' bytes, one after the other

The table is in the head's metadata; the arrays are called "0", "1", … in their order. They are in C order and little
endian, and views of the message once it is read. (The safetensors package copies them, and gives no metadata of bytes.)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAX_HEAD = 1 << 28
"""Bytes of a head that are read."""

MAX_DIMENSIONS = 32
"""Of an array, as in NumPy."""

_DTYPES = {
    **{f"{sign.upper()}{8 * size}": f"<{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)},
    **{"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1"},
}
"""Safetensors' names of the types of numbers that travel, with NumPy's."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


class Malformed(Exception):
    """Bytes that are not a valid message, described in one line."""


class Refused(Exception):
    """The site refuses to answer.

    Its text is sent to the coordinator, so it contains nothing from the data.
    """


class Lost(Exception):
    """The result of an earlier stage or round is no longer there."""


def pack(table: Mapping[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """Pack a message.

    Raises ValueError for an array that contains anything but numbers and truth values.
    """
    text = json.dumps(table, ensure_ascii=False, allow_nan=False)
    text = _SURROGATE.sub(lambda letter: f"\\u{ord(letter[0]):04x}", text)  # no UTF-8, but texts may hold them
    head: dict[str, Any] = {"__metadata__": {"table": text}}
    parts, end = [], 0
    for number, array in enumerate(arrays):
        array = np.asarray(array, order="C")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype not in _NAMES:
            raise ValueError(f"an array of {array.dtype} does not travel")
        begin, end = end, end + array.nbytes
        head[str(number)] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
        parts.append(array.reshape(-1).view(np.uint8))
    content = json.dumps(head, ensure_ascii=False).encode()
    content += b" " * (-len(content) % 8)  # so that the first array is aligned
    return b"".join([len(content).to_bytes(8, "little"), content, *parts])


def unpack(message: bytes | memoryview) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return (table, arrays) of a message.

    The arrays are read-only views of it. Raises Malformed.
    """
    message = memoryview(message)
    length = int.from_bytes(message[:8], "little")
    if len(message) < 8 or length > min(MAX_HEAD, len(message) - 8):
        raise Malformed("the message is cut off")
    try:
        head = json.loads(bytes(message[8 : 8 + length]))
        metadata = head.pop("__metadata__")
        table = json.loads(metadata.pop("table"))
        forms = [(form["dtype"], form["shape"], form["data_offsets"], len(form)) for form in head.values()]
        content, numbers = message[8 + length :], [str(number) for number in range(len(forms))]
        if type(table) is not dict or metadata or list(head) != numbers or any(size != 3 for *_, size in forms):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Malformed("the head of the message is no JSON of a table and forms of arrays") from None
    arrays, end = [], 0
    for dtype, shape, offsets, _ in forms:
        if type(dtype) is not str or dtype not in _DTYPES or not _is_shape(shape):
            raise Malformed("the head of the message names arrays that do not travel")
        begin, end = end, end + math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
        if offsets != [begin, end] or end > len(content):
            raise Malformed("the arrays of the message are cut off, or not one after the other")
        try:
            arrays.append(np.frombuffer(content[begin:end], _DTYPES[dtype]).reshape(shape))
        except ValueError:  # no numbers, and a dimension beyond NumPy's
            raise Malformed("the head of the message names arrays that do not travel") from None
    if end != len(content):
        raise Malformed("the message is longer than its head says")
    return table, arrays


def _is_shape(shape: Any) -> bool:
    numbers = type(shape) is list and len(shape) <= MAX_DIMENSIONS
    return numbers and all(type(size) is int and size >= 0 for size in shape)
