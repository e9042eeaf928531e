"""Messages on a Unix socket: 8 bytes of their length, little endian, and the message; as in tff_re/sites/engines.py.

Here a message is a list of pieces, which are never put together: one of 3 GB is in memory once. In Flower a long
message is an array of bytes a piece, which Flower cuts into chunks of 5 MB; a short one is a value of a record, which
travels whole. Each chunk, array and record is a request of its own at every hop.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

MOST_BYTES = 1 << 40
PIECE = 1 << 26
WHOLE = 5_000_000


def send(connection: socket.socket, message: Sequence[bytes]) -> None:
    """Sends a message."""
    connection.sendall(sum(map(len, message)).to_bytes(8, "little"))
    for piece in message:
        connection.sendall(piece)


def receive(connection: socket.socket) -> list[bytes]:
    """Receives a message. Raises EOFError where it is cut off."""
    left = int.from_bytes(_exactly(connection, 8), "little")
    if left > MOST_BYTES:
        raise EOFError
    message = []
    while left:
        message.append(_exactly(connection, min(left, PIECE)))
        left -= len(message[-1])
    return message


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        chunk = connection.recv(min(length - len(found), 1 << 20))
        if not chunk:
            raise EOFError
        found += chunk
    return bytes(found)


def carried(message: Sequence[bytes], seconds: float = 0.0) -> RecordDict:
    """A message as Flower carries it, with the time that its answer may take."""
    if sum(map(len, message)) <= WHOLE:
        return RecordDict({"message": ConfigRecord({"bytes": b"".join(message), "seconds": seconds})})
    pieces = {f"{number:06}": Array("uint8", (len(piece),), "bytes", piece) for number, piece in enumerate(message)}
    about = ConfigRecord({"bytes": b"", "seconds": seconds})
    return RecordDict({"message": about, "pieces": ArrayRecord(pieces)})


def taken(content: RecordDict) -> tuple[list[bytes], float]:
    """(message, seconds) of `carried`."""
    record = content["message"]
    if "pieces" not in content:
        return [record["bytes"]], float(record["seconds"])
    pieces = content["pieces"]
    return [pieces[name].data for name in sorted(pieces)], float(record["seconds"])
