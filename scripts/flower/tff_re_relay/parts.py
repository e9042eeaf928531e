"""Long messages in parts, of which Flower carries one after the other; as in tff_re/sites/transport.py.

Flower has a message several times in memory at every hop, and its SuperLink deletes one in a single write to its
database, which gives up after 5 s. So a message of Flower's is bounded, and ours is not. Nothing of Flower is in here.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

HEAD = struct.Struct("<8s16sQQQ")
PART, REST = b"tff-part", b"tff-rest"
MOST_BYTES = 1 << 40
PIECE = 1 << 26
"""Bytes that are in one piece at most, of the pieces that a message is a list of."""


def receive(connection: socket.socket) -> list[bytes]:
    """A message: 8 bytes of its length, little endian, and the message. Raises EOFError where it is cut off."""
    return _pieces(connection, _length(connection))


def send(connection: socket.socket, message: list[bytes]) -> None:
    """Sends a message."""
    connection.sendall(sum(map(len, message)).to_bytes(8, "little"))
    for piece in message:
        connection.sendall(piece)


def exchange(connection: socket.socket, ask: Callable[[list[bytes]], list[bytes]], most: int) -> None:
    """Reads a message, has it carried in parts of so many bytes, and writes the answer, or nothing where there is none.

    Neither is ever whole in memory. `ask`: carries a part; what comes back for it, no bytes if nothing does.

    Raises:
      EOFError, OSError: the connection ended, or the answer ended in the middle.
    """
    name, begin, total = os.urandom(16), 0, _length(connection)
    while True:
        part = _pieces(connection, min(most, total - begin))
        head = HEAD.pack(PART, name, begin, total, most)
        begin += sum(map(len, part))
        back = ask([head + b"".join(part[:1]), *part[1:]])
        found = _taken(back, name)
        if found is None or begin == total:
            break
    del part
    if found is None:
        while begin < total:  # it is sent whole before the answer is waited for
            begin += sum(map(len, _pieces(connection, min(PIECE, total - begin))))
    begin, total, part = found or (0, 0, [])
    connection.sendall(total.to_bytes(8, "little"))
    while total:
        for piece in part:
            connection.sendall(piece)
            begin += len(piece)
        if begin >= total:
            return
        there, again, part = _taken(ask([HEAD.pack(REST, name, begin, total, most)]), name) or (-1, 0, [])
        if (there, again) != (begin, total) or not any(part):
            raise EOFError


def _taken(back: list[bytes], name: bytes) -> tuple[int, int, list[bytes]] | None:
    """(where it begins, length of the whole answer, the part of it) of what came back; None: nothing did."""
    if not back:
        return None
    if len(back[0]) < HEAD.size or HEAD.unpack_from(back[0])[:2] != (PART, name):
        print("the site's process has another version of tff-re, and does not know messages in parts", flush=True)
        return None
    _, _, begin, total, _ = HEAD.unpack_from(back[0])
    return begin, total, [back[0][HEAD.size :], *back[1:]]


def _length(connection: socket.socket) -> int:
    length = int.from_bytes(_exactly(connection, 8), "little")
    if length > MOST_BYTES:
        raise EOFError
    return length


def _pieces(connection: socket.socket, length: int) -> list[bytes]:
    sizes = [PIECE] * (length // PIECE) + ([length % PIECE] if length % PIECE else [])
    return [_exactly(connection, size) for size in sizes]


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        chunk = connection.recv(min(length - len(found), 1 << 20))
        if not chunk:
            raise EOFError
        found += chunk
    return bytes(found)
