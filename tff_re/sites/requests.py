"""The requests of a coordinator for a run, now and before.

Whether a request is answered is decided in `decisions`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tff_re.sites import protocol

TRAIN, EVALUATE = "train", "evaluate"

REQUESTS = "requests.json"
"""The file of a run's `Record`."""


class Request:
    """A stage request.

    `digest` is the SHA-256 (hexadecimal) of everything in it, and `arrays` are the broadcast values.

    The other attributes are those of `protocol.Stage`.
    """

    def __init__(self, question: protocol.Stage):
        self.run, self.purpose, self.split = question.run, question.purpose, question.split
        self.round, self.stage = question.round, question.stage
        self.clients, self.versions = question.clients, question.versions
        content = hashlib.sha256()
        for array in question.arrays:
            content.update(f"{array.dtype.str} {array.shape} ".encode())
            content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.arrays = content.hexdigest()
        what = [self.run, question.program, self.purpose, self.split, self.round, self.stage, self.clients]
        text = json.dumps([*what, self.versions, self.arrays])
        self.digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def asked_clients(self) -> dict[str, Any]:
        """Return the clients and their states, as a `Record` has them."""
        return {"digest": self.digest, "clients": list(self.clients), "versions": list(self.versions)}


class Record:
    """What was requested for a run and how many bytes were sent, as plain values for JSON.

    Attributes:
      rounds: how many rounds of training were begun.
      newest: the newest of them.
      bytes_up: of the sums that left.
      trained: round -> digest of its broadcast values, its sets of clients, digests of the requests for later stages.
      evaluated: split -> round -> digests of requests.
    """

    def __init__(self, content: bytes | None = None):
        """Read `to_json`, or start without requests if it is None."""
        table = {} if content is None else json.loads(content)
        self.rounds: int = table.get("rounds", 0)
        self.newest: int = table.get("newest", 0)
        self.bytes_up: int = table.get("bytes_up", 0)
        self.trained: dict[str, dict] = table.get("trained", {})
        self.evaluated: dict[str, dict[str, list[str]]] = table.get("evaluated", {})

    def to_json(self) -> bytes:
        """Return the table that `Record` reads."""
        return json.dumps(vars(self)).encode()

    def is_new_round(self, request: Request) -> bool:
        """Return whether a training round begins."""
        return request.purpose == TRAIN and str(request.round) not in self.trained

    def begin_round(self, request: Request, *, oldest: int) -> None:
        """Record the first request of a round, and forget rounds up to `oldest`."""
        self.rounds, self.newest = self.rounds + 1, request.round
        self.trained = {number: asked for number, asked in self.trained.items() if int(number) > oldest}
        self.trained[str(request.round)] = {
            "arrays": request.arrays,
            "sets": [request.asked_clients],
            "stages": {},
        }

    def first_of(self, request: Request) -> str | None:
        """Return the digest of the round's stage-0 request with the same clients and states, or None."""
        sets = self.trained.get(str(request.round), {"sets": ()})["sets"]
        wanted = (list(request.clients), list(request.versions))
        return next((asked["digest"] for asked in sets if (asked["clients"], asked["versions"]) == wanted), None)


def groups(sets: Sequence[Collection[str]]) -> list[set[str]]:
    """Group the clients of several sets so that clients in the same sets are together.

    Every difference, and every other linear combination, of the sums over these sets is over whole groups.
    """
    together: dict[tuple[bool, ...], set[str]] = {}
    for client in {client for clients in sets for client in clients}:
        together.setdefault(tuple(client in clients for clients in sets), set()).add(client)
    return list(together.values())
