"""What a coordinator asks of a run, and what it asked before; whether it is answered is in `decisions`."""

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
    """A stage request; `digest` is the SHA-256 of everything in it, in hexadecimal, `arrays` of the broadcast values.

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
        """The clients and their states, as a `Record` has them."""
        return {"digest": self.digest, "clients": list(self.clients), "versions": list(self.versions)}


class Record:
    """What a run was asked for, and how many bytes left for it; as plain values for JSON.

    Attributes:
      rounds: how many rounds of training were begun.
      newest: the newest of them.
      bytes_up: of the sums that left.
      trained: round -> digest of its broadcast values, its sets of clients, digests of the requests for later stages.
      evaluated: split -> round -> digests of requests.
    """

    def __init__(self, content: bytes | None = None):
        """Of `to_json`; None: nothing was asked for."""
        table = {} if content is None else json.loads(content)
        self.rounds: int = table.get("rounds", 0)
        self.newest: int = table.get("newest", 0)
        self.bytes_up: int = table.get("bytes_up", 0)
        self.trained: dict[str, dict] = table.get("trained", {})
        self.evaluated: dict[str, dict[str, list[str]]] = table.get("evaluated", {})

    def to_json(self) -> bytes:
        """For `Record`."""
        return json.dumps(vars(self)).encode()

    def is_new_round(self, request: Request) -> bool:
        """Whether a round of training begins."""
        return request.purpose == TRAIN and str(request.round) not in self.trained

    def begin_round(self, request: Request, *, oldest: int) -> None:
        """The first request of a round; rounds up to `oldest` are forgotten."""
        self.rounds, self.newest = self.rounds + 1, request.round
        self.trained = {number: asked for number, asked in self.trained.items() if int(number) > oldest}
        self.trained[str(request.round)] = {
            "arrays": request.arrays,
            "sets": [request.asked_clients],
            "stages": {},
        }

    def first_of(self, request: Request) -> str | None:
        """The digest of the round's request for stage 0 with the same clients and states; None: there was none."""
        sets = self.trained.get(str(request.round), {"sets": ()})["sets"]
        wanted = (list(request.clients), list(request.versions))
        return next((asked["digest"] for asked in sets if (asked["clients"], asked["versions"]) == wanted), None)


def groups(sets: Sequence[Collection[str]]) -> list[set[str]]:
    """The clients of several sets, together where they are in the same sets.

    Every difference, and every other linear combination, of the sums over these sets is over whole groups.
    """
    together: dict[tuple[bool, ...], set[str]] = {}
    for client in {client for clients in sets for client in clients}:
        together.setdefault(tuple(client in clients for clients in sets), set()).add(client)
    return list(together.values())
