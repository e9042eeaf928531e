"""What a coordinator may ask of a run: the form of a stage request, and that a site answers each of them once.

A lying coordinator gains by asking twice: the difference of two answers shows what both sums hide. So the first request
for a round fixes its clients and broadcast values; the same request is answered with the same bytes, and any other is
refused. `Request` and `check` hold a message to the form that an honest coordinator sends, `Record` to the order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tff_re.recipes.reading import Recipe
from tff_re.sites import protocol
from tff_re.sites.messages import Refused
from tff_re.sites.policy import AllowOptions
from tff_re.tasks.at_sites import SPLITS

TRAIN, EVALUATE = "train", "evaluate"

MAX_REPEATS = 8
"""Different requests for a later stage of a round, per attempt of the recipe: sites that leave change the sums."""

MAX_WEIGHTS = 3
"""Different weights that are evaluated on a split in a round: the round's, the chosen ones, more after a fault."""

SPARE_EVALUATIONS = 8
"""Of a split, beyond those that `evaluation.every` asks for: the last round, the chosen one, finished runs, faults."""

KEPT_CHECKPOINTS = 2
"""Rounds whose checkpoints a coordinator keeps: it goes on from one of them."""


class Request:
    """A stage request; `digest` is the SHA-256 of everything in it, in hexadecimal, `arrays` of the broadcast values.

    The other attributes are those of `protocol.Stage`.
    """

    def __init__(self, question: protocol.Stage):
        self.purpose, self.split = question.purpose, question.split
        self.round, self.stage = question.round, question.stage
        self.clients, self.versions = question.clients, question.versions
        content = hashlib.sha256()
        for array in question.arrays:
            content.update(f"{array.dtype.str} {array.shape} ".encode())
            content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self.arrays = content.hexdigest()
        own = [question.run, question.program, self.purpose, self.split, self.round, self.stage, self.clients]
        text = json.dumps([*own, self.versions, self.arrays])
        self.digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check(
    request: Request,
    recipe: Recipe,
    sizes: Mapping[str, tuple[int, int, int]],
    allow: AllowOptions,
    *,
    stages: int,
    keeps_states: bool,
) -> None:
    """Holds a request to the form that an honest coordinator sends.

    Args:
      request: read.
      recipe: of the run.
      sizes: client of this site -> its examples of `SPLITS`.
      allow: of the site's file.
      stages: of the computation.
      keeps_states: whether clients keep a state between rounds.

    Raises:
      Refused: it asks for something else; one line.
    """
    first = 1 if request.purpose == TRAIN else 0  # finished runs are evaluated as round 0
    if not first <= request.round <= recipe.training.rounds:
        raise Refused(f"the recipe has rounds {first} to {recipe.training.rounds}, and not {request.round}")
    if request.stage >= stages:
        raise Refused(f"the computation has {stages} stages, and no stage {request.stage}")
    _check_split(request, recipe, allow)
    place = SPLITS.index(request.split)
    holding = {client for client, counts in sizes.items() if counts[place]}
    clients = set(request.clients)
    if not clients <= holding:
        raise Refused(f"these are not clients of this site with {request.split} examples")
    if request.purpose == EVALUATE and clients != holding:
        raise Refused("it evaluates all of its clients together")
    if request.purpose == TRAIN and len(clients) < allow.least_clients:
        raise Refused(
            f"its sums are over at least {allow.least_clients} of its clients (allow.least_clients), not {len(clients)}"
        )
    wanted = len(request.clients) if request.purpose == TRAIN and keeps_states else 0
    if len(request.versions) != wanted or any(version >= request.round for version in request.versions):
        raise Refused("a client's state is one of a round before, where clients keep states")


def _check_split(request: Request, recipe: Recipe, allow: AllowOptions) -> None:
    if request.purpose == TRAIN:
        possible: Collection[str] = ("train",)
    else:
        if not allow.evaluation:
            raise Refused("it allows no evaluation")
        of_train = recipe.evaluation.train_split and recipe.privacy_unit is None
        there = {"test": True, "train": of_train, "dev": recipe.has_choice}
        possible = [split for split, is_there in there.items() if is_there]
    if request.split not in possible:
        what = "trains" if request.purpose == TRAIN else "evaluates"
        raise Refused(f"the recipe {what} on {' and '.join(possible)} examples only")


class Record:
    """What a run was asked for, and how many bytes left for it; as plain values for JSON.

    Attributes:
      rounds: how many rounds of training were begun.
      newest: the newest of them.
      bytes_up: of the sums that left.
    """

    def __init__(self, content: bytes | None = None):
        """Of `to_json`; None: nothing was asked for."""
        table = {} if content is None else json.loads(content)
        self.rounds: int = table.get("rounds", 0)
        self.newest: int = table.get("newest", 0)
        self.bytes_up: int = table.get("bytes_up", 0)
        self._trained: dict[str, dict] = table.get("trained", {})
        self._evaluated: dict[str, dict[str, list[str]]] = table.get("evaluated", {})

    def to_json(self) -> bytes:
        """For `Record`."""
        own = {"rounds": self.rounds, "newest": self.newest, "bytes_up": self.bytes_up}
        return json.dumps({**own, "trained": self._trained, "evaluated": self._evaluated}).encode()

    def is_new_round(self, request: Request) -> bool:
        """Whether a round of training begins."""
        return request.purpose == TRAIN and str(request.round) not in self._trained

    def admit(self, request: Request, recipe: Recipe, allow: AllowOptions, size: int) -> str:
        """Takes a request down, before it is computed; the record has to be written then.

        Args:
          request: of the form that `check` asks for.
          recipe: of the run.
          allow: of the site's file.
          size: bytes of the answer.

        Returns:
          the digest of the round's request for stage 0 with these clients

        Raises:
          Refused: another request was answered in its place, or too much was asked for; nothing is changed.
        """
        if self.bytes_up + size > allow.most_bytes_up:
            raise Refused(f"{allow.most_bytes_up} bytes have left for this run (allow.most_bytes_up), and no more may")
        if request.purpose == EVALUATE:
            first = self._admit_evaluation(request, recipe)
        elif request.stage == 0:
            first = self._admit_round(request, recipe, allow)
        else:
            first = self._admit_stage(request, recipe)
        self.bytes_up += size
        return first

    def _admit_evaluation(self, request: Request, recipe: Recipe) -> str:
        of_split = self._evaluated.get(request.split, {})
        known = of_split.get(str(request.round), [])
        if request.digest not in known:
            limit = -(-recipe.training.rounds // recipe.evaluation.every) + SPARE_EVALUATIONS
            if len(known) >= MAX_WEIGHTS:
                raise Refused(f"it evaluates {MAX_WEIGHTS} weights on {request.split} examples in a round, and no more")
            if sum(map(len, of_split.values())) >= limit:
                raise Refused(f"it evaluates {limit} weights on {request.split} examples in this run, and no more")
            self._evaluated.setdefault(request.split, {})[str(request.round)] = [*known, request.digest]
        return request.digest

    def _admit_round(self, request: Request, recipe: Recipe, allow: AllowOptions) -> str:
        known = self._trained.get(str(request.round))
        if known is None:
            if request.round < self.newest:
                raise Refused(f"round {request.round} comes after round {self.newest}; rounds only grow")
            if self.rounds >= allow.most_rounds:
                raise Refused(f"it answers {allow.most_rounds} rounds of a run (allow.most_rounds), and no more")
            self.rounds, self.newest = self.rounds + 1, request.round
            oldest = self.newest - KEPT_CHECKPOINTS
            self._trained = {number: own for number, own in self._trained.items() if int(number) > oldest}
            self._trained[str(request.round)] = {"arrays": request.arrays, "sets": [_set_of(request)], "stages": {}}
            return request.digest
        again = f"round {request.round} was asked for with other"
        if known["arrays"] != request.arrays:
            raise Refused(f"{again} weights before; a round is answered once")
        if _set_of(request) not in known["sets"]:
            sets = [*(own["clients"] for own in known["sets"]), request.clients]
            if len(sets) > _attempts(recipe):
                raise Refused(f"{again} clients before; a round is answered once")
            if min(map(len, groups(sets))) < allow.least_clients:
                raise Refused(f"{again} clients before, and few of these would tell both sums apart")
            known["sets"].append(_set_of(request))
        return request.digest

    def _admit_stage(self, request: Request, recipe: Recipe) -> str:
        known = self._trained.get(str(request.round))
        first = next((own["digest"] for own in known["sets"] if _is_of(own, request)), None) if known else None
        if first is None:
            raise Refused(f"stage {request.stage} of round {request.round} comes without the stages before it")
        digests = known["stages"].setdefault(str(request.stage), [])
        if request.digest not in digests:
            if len(digests) >= MAX_REPEATS * _attempts(recipe):
                raise Refused(f"stage {request.stage} of round {request.round} was asked for too often with other sums")
            digests.append(request.digest)
        return first


def groups(sets: Sequence[Collection[str]]) -> list[set[str]]:
    """The clients of several sets, together where they are in the same sets.

    Every difference, and every other linear combination, of the sums over these sets is over whole groups.
    """
    found: dict[tuple[bool, ...], set[str]] = {}
    for client in {client for own in sets for client in own}:
        found.setdefault(tuple(client in own for own in sets), set()).add(client)
    return list(found.values())


def _attempts(recipe: Recipe) -> int:
    """How many sets of clients a round may be tried with."""
    return recipe.training.most_attempts if recipe.privacy_unit is None else 1


def _set_of(request: Request) -> dict[str, Any]:
    return {"digest": request.digest, "clients": list(request.clients), "versions": list(request.versions)}


def _is_of(own: Mapping[str, Any], request: Request) -> bool:
    return (own["clients"], own["versions"]) == (list(request.clients), list(request.versions))
