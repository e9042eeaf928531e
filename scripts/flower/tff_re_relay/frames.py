"""A message, which is a list of pieces, as Flower carries it.

A long one is an array of bytes a piece, which Flower cuts into chunks of 5 MB; a short one is a value of a record,
which travels whole. Each chunk, array and record is a request of its own at every hop.
"""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

WHOLE = 5_000_000


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
