"""Long messages in parts: an engine carries messages of a bounded size, and a site puts them together.

What comes, and what goes back, begins with 48 bytes (`HEAD`), little endian:

    8 bytes   PART: more of a message; REST: the rest of an answer is asked for
    16 bytes  the name of the message, which its answer has too
    8 bytes   where this part begins, in the message or in its answer
    8 bytes   how long the whole of it is; of the answer 0 as long as the message is not whole
    8 bytes   how much of the answer may go at once

`scripts/flower/tff_re_relay/parts.py` is the other side.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable

HEAD = struct.Struct("<8s16sQQQ")
PART, REST = b"tff-part", b"tff-rest"

MOST_KEPT = 2
"""Messages that are under way at once; the oldest goes, as those do whose coordinator is gone."""

_log = logging.getLogger("tff_re.sites")


class _Message:
    """One that comes, and then its answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.received = bytearray()
        self.answer: memoryview | None = None


class Parts:
    """Answers messages that come whole or in parts."""

    def __init__(self, answer: Callable[[bytes], bytes]):
        self._answer = answer
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _Message] = OrderedDict()

    def answer(self, message: bytes | bytearray) -> bytes:
        """The answer to a message, or what goes back for a part; nothing where what came before it is not there.

        A part that comes again changes nothing.
        """
        if len(message) < HEAD.size or bytes(message[:8]) not in (PART, REST):
            return self._answer(message)
        kind, name, begin, total, most = HEAD.unpack_from(message)
        with self._lock:
            if kind == PART and not begin:
                self._kept.setdefault(name, _Message())
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            one = self._kept.get(name)
        if one is not None:
            with one.lock:
                if kind == PART and one.answer is None:
                    if begin == len(one.received):
                        one.received += memoryview(message)[HEAD.size :]
                    if len(one.received) < total:
                        return HEAD.pack(PART, name, 0, 0, 0)
                    received, one.received = one.received, bytearray()
                    one.answer = memoryview(self._answer(received))
                if one.answer is not None:
                    return self._part_of(name, one.answer, begin if kind == REST else 0, most)
        _log.warning("a part of a message whose beginning is not there was not answered")
        return b""

    def _part_of(self, name: bytes, answer: memoryview, begin: int, most: int) -> bytes:
        part = answer[begin : begin + most]
        if begin + len(part) >= len(answer):
            with self._lock:
                self._kept.pop(name, None)
        return b"".join([HEAD.pack(PART, name, begin, len(answer), 0), part])
