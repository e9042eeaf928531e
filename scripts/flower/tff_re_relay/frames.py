"""Messages on a Unix socket: 8 bytes of their length, little endian, and the message; as in tff_re/sites/engines.py."""

from __future__ import annotations

import socket

MOST_BYTES = 1 << 40


def send(connection: socket.socket, message: bytes) -> None:
    """Sends a message."""
    connection.sendall(len(message).to_bytes(8, "little"))
    connection.sendall(message)


def receive(connection: socket.socket) -> bytes:
    """Receives a message. Raises EOFError where it is cut off."""
    length = int.from_bytes(_exactly(connection, 8), "little")
    if length > MOST_BYTES:
        raise EOFError
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    chunks = []
    while length:
        chunk = connection.recv(min(length, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        length -= len(chunk)
    return b"".join(chunks)
