"""The error that every bad input raises."""

from __future__ import annotations

import os
import re

_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:/#-]{1,64}")


class DataError(ValueError):
    """A file, record or option cannot be used.

    `str()` is one line, ``path: line 3: byte 120: record: reason; remedy``, with the parts that are known. It names
    places and ids, never the text of a record: the texts are patients'.

    Args:
      reason: What is wrong, in a few words.
      path: The file, as the caller gave it.
      line: Line in the file, from 1.
      byte: Offset into the file's (decompressed) bytes, from 0.
      record: What is wrong and its id, e.g. ``dialogue 10001003``.
      remedy: What to do about it.
    """

    def __init__(self, reason, *, path=None, line=None, byte=None, record=None, remedy=None):
        super().__init__(reason)
        self.reason = reason
        self.path = None if path is None else os.fspath(path)
        self.line = line
        self.byte = byte
        self.record = record
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [
            self.path,
            None if self.line is None else f"line {self.line}",
            None if self.byte is None else f"byte {self.byte}",
            self.record,
            self.reason,
        ]
        message = ": ".join(str(part) for part in parts if part is not None)
        if self.remedy is not None:
            message += f"; {self.remedy}"
        return "".join(c if c.isprintable() else " " for c in message)


def named(kind: str, identifier: object, position: int | None = None) -> str:
    """Name a record in a message, by its id if that is a plain one, else by its position (from 1).

    An id taken from a broken file may be a piece of text; only ids of ASCII letters, digits and ``_.:/#-`` are shown.
    """
    if _PLAIN_ID.fullmatch(str(identifier)):
        return f"{kind} {identifier}"
    return kind if position is None else f"{kind} number {position}"


def counted(count: int, noun: str, rest: str = "") -> str:
    """Return a number with its noun, such as ``1 document``, ``2 entities``, ``3 documents without text``."""
    nouns = noun if count == 1 else f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {nouns}{rest}"


def nearest(name: str, valid) -> str:
    """Return "did you mean 'x'?" for the nearest valid name, else the list of the valid names."""
    import difflib

    valid = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "valid: " + ", ".join(valid)
