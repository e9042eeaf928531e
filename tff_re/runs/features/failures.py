"""Clients that do not answer, fail or are not needed, and rounds that are repeated.

A round is computed of those whose answers count, and of nobody else: a client that is lost at any moment (never there,
late, crashed after its training, gone between two stages) leaves the round as if it had never been asked. Whoever is
lost on the way, the round is computed anew without it, with the same seeds. What a client keeps changes only where its
answer counts.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from computations.native_form import native_block
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.base import Feature
from tff_re.runs.randomness import entropy
from tff_re.runs.reading import read_answers, read_history
from tff_re.runtime import ComputationFailed, WorkerDied
from tff_re.runtime.compiled_form import compiled_form
from tff_re.runtime.events import CLIENT_FAILED

_log = logging.getLogger(__name__)

COUNTED = "counted"
"""What became of a client that was asked; the others are the keys of [failures] and these:"""
SURPLUS, REPEATED, NOT_FINITE = "surplus", "repeated", "not_finite"
ERROR, OUT_OF_MEMORY, WORKER_DIED = "error", "out_of_memory", "worker_died"


@dataclass(frozen=True)
class Attempt:
    """One try of a round, as far as the seed tells: its number from 1, and what became of each client that is asked.

    `outcomes` is by the client's place among all, in their order; of `COUNTED` a computation may still fail.
    """

    number: int
    outcomes: Mapping[int, str]

    @property
    def answered(self) -> list[int]:
        """The places of the clients whose answers count."""
        return [index for index, outcome in self.outcomes.items() if outcome == COUNTED]


@dataclass(frozen=True)
class Answers:
    """A round that was computed.

    Attributes:
      places: of the clients that it was computed of, among all; some may have an update that is not finite.
      output: of the algorithm; None where there was nothing to compute.
      attempts: all of them with their final outcomes, the last one being that of the round.
    """

    places: list[int]
    output: Any
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def outcomes(self) -> list[tuple[int, int, str]]:
        """(attempt, place, outcome) of all who were asked."""
        return [(attempt.number, *pair) for attempt in self.attempts for pair in attempt.outcomes.items()]

    @property
    def metrics(self) -> dict[str, float]:
        """Of metrics.csv: how often clients were asked and lost in all attempts, and how many attempts there were."""
        outcomes = Counter(outcome for _, _, outcome in self.outcomes)
        lost = sum(number for name, number in outcomes.items() if name not in (COUNTED, SURPLUS, REPEATED))
        asked, attempts = float(outcomes.total()), float(len(self.attempts))
        return {"clients/asked": asked, "clients/lost": float(lost), "clients/attempts": attempts}


class Participation:
    """Who is asked in each round, and whose answers count: from the recipe, the run's seed and the clients' ids."""

    def __init__(
        self, recipe: Recipe, seed: int | bytes, ids: Sequence[str], per_round: int, first: Callable[[int], np.ndarray]
    ):
        """Args:
        recipe: of the run.
        seed: of its sampling.
        ids: of the clients with training examples.
        per_round: how many are to count, or, with Poisson sampling, how many are expected.
        first: round -> places of those who are asked first, see `asked_at_once`.
        """
        self._training, self._seed, self._ids, self._first = recipe.training, seed, ids, first
        self._per_round = per_round if recipe.training.sampling == "fixed" else len(ids)
        self._expected = per_round / len(ids)
        self._shares = {} if recipe.failures is None else recipe.failures.shares

    def attempts(self, round_num: int) -> Iterator[Attempt]:
        """The attempts of a round in order, without deciding whether one of them is enough."""
        before: set[int] = set()
        for number in range(1, self._training.max_attempts + 1):
            asked = self._first(round_num) if number == 1 else self._others(round_num, number, before)
            before.update(map(int, asked))
            yield self._tried(round_num, number, asked)

    def counted(self, round_num: int) -> list[int]:
        """The indices of the clients whose answers count in a round, if no computation fails.

        Raises UserError without a quorum.
        """
        tried = []
        for attempt in self.attempts(round_num):
            if len(attempt.answered) >= self._training.min_clients:
                return attempt.answered
            tried.append(attempt)
        raise self._no_quorum(round_num, tried)

    def asked(self, round_num: int) -> list[str]:
        """Ids of all clients that are asked in a round, including lost ones.

        A client that is asked in several attempts appears several times.
        """
        ids: list[str] = []
        for attempt in self.attempts(round_num):
            ids += [self._ids[index] for index in attempt.outcomes]
            if len(attempt.answered) >= self._training.min_clients:
                break
        return ids

    def of_round(
        self, round_num: int, compute: Callable[[list[int]], Any], not_finite: Callable[[list[int]], Sequence[float]]
    ) -> Answers:
        """Computes a round, as often as it takes.

        Args:
          round_num: the round.
          compute: places -> output of the algorithm, or None; it must not change anything.
          not_finite: places -> 1 for each client whose update is not finite, else 0; asked only if there is any and
            `training.tolerated_failures` is set.

        Raises:
          UserError: the quorum was not reached in any attempt, or more computations failed than are tolerated.
          ComputationFailed, WorkerDied: none is tolerated, or it is not for certain clients that it failed.
        """
        tolerated, done = self._training.tolerated_failures, []
        for attempt in self.attempts(round_num):
            places, outcomes = attempt.answered, dict(attempt.outcomes)
            if len(places) >= self._training.min_clients:
                output, failed = without_failing(compute, places, tolerated or 0)
                places = [index for index in places if index not in failed]
                if tolerated is not None and _non_finite(output):
                    flags = zip(places, not_finite(places), strict=True)
                    failed |= {index: NOT_FINITE for index, flag in flags if flag}
                if len(failed) > (tolerated or 0):
                    named = {self._ids[index]: outcome for index, outcome in sorted(failed.items())}
                    raise UserError(f"round {round_num}: the computations {too_many(named, self._training)}")
                outcomes |= failed
                if len(attempt.answered) - len(failed) >= self._training.min_clients:
                    return Answers(places, output, [*done, Attempt(attempt.number, outcomes)])
            repeated = {index: REPEATED if outcome == COUNTED else outcome for index, outcome in outcomes.items()}
            done.append(Attempt(attempt.number, repeated))
        raise self._no_quorum(round_num, done)

    def _others(self, round_num: int, number: int, before: set[int]) -> np.ndarray:
        """Places of those who are asked in a later attempt: who was not asked yet in this round, and, where these are
        not enough, others again. With Poisson sampling everybody is drawn anew, by itself."""
        if self._training.sampling == "poisson":
            generator = np.random.default_rng(entropy(self._seed, round_num, 3, number))
            return np.flatnonzero(generator.random(len(self._ids)) < self._expected)
        generator = np.random.default_rng(entropy(self._seed, round_num, 1, number))
        count, known = min(asked_at_once(self._training, self._per_round), len(self._ids)), sorted(before)
        rest = np.setdiff1d(np.arange(len(self._ids)), known)
        if len(rest) >= count:
            return np.sort(generator.choice(rest, size=count, replace=False))
        again = generator.choice(known, size=count - len(rest), replace=False)
        return np.sort(np.concatenate([rest, again]))

    def _tried(self, round_num: int, number: int, asked: np.ndarray) -> Attempt:
        outcomes, arrivals = dict.fromkeys(map(int, asked), COUNTED), []
        if self._shares or len(outcomes) > self._per_round:
            for index in outcomes:
                crc = zlib.crc32(self._ids[index].encode())
                drawn, arrival = np.random.default_rng(entropy(self._seed, round_num, crc, 5, number)).random(2)
                outcomes[index] = self._fate(drawn)
                if outcomes[index] == COUNTED:
                    arrivals.append((arrival, index))
            for _, index in sorted(arrivals)[self._per_round :]:
                outcomes[index] = SURPLUS
        return Attempt(number, outcomes)

    def _fate(self, drawn: float) -> str:
        """Of a uniform number: a client that is lost at a small share is lost at a larger one, too."""
        bound = 0.0
        for name, share in self._shares.items():
            bound += share
            if drawn < bound:
                return name
        return COUNTED

    def _no_quorum(self, round_num: int, tried: Sequence[Attempt]) -> UserError:
        answers = [sum(outcome in (COUNTED, REPEATED) for outcome in attempt.outcomes.values()) for attempt in tried]
        asked = [len(attempt.outcomes) for attempt in tried]
        counts = ", ".join(f"{number} of {total}" for number, total in zip(answers, asked, strict=True))
        return UserError(
            f"round {round_num}: too few clients answered in each of {len(tried)} attempts ({counts}; "
            f"training.min_clients is {self._training.min_clients}); lower training.min_clients, or raise "
            "training.attempts or training.over_sampling"
        )


def asked_at_once(training, per_round: int) -> int:
    """The number of clients to ask at once so that `per_round` answers count."""
    return math.ceil(training.over_sampling * per_round - 1e-9)


def max_asked(training, per_round: int, clients: int) -> int:
    """The maximum number of different clients that are asked in the attempts of one round.

    With Poisson sampling, the number of clients that are expected in one attempt.

    With `fixed` sampling all that are asked in a round are one sample without replacement, and which of them count does
    not depend on their data: the amplification of a sample of this size holds for the round.
    """
    return min(clients, training.max_attempts * asked_at_once(training, per_round))


class Failures(Feature):
    """[failures], and what [training] says of clients that are lost or not needed."""

    table = "failures"

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """See `Feature`."""
        return recipe.is_unreliable

    @property
    def is_recorded(self) -> bool:
        """Whether answers.csv says who was asked: amplification by sampling holds only where nobody knows it."""
        return self.recipe.privacy_unit != "client"

    def refuse(self, *, at_sites):
        """See `Feature`."""
        if not at_sites:
            return
        recipe, training = self.recipe, self.recipe.training
        if self.options is not None:
            raise UserError(f"{recipe.source}: [failures] works only in a simulation, not across sites; leave it out")
        if training.tolerated_failures is not None:
            raise UserError(
                f"{recipe.source}: training.tolerated_failures is not for runs across sites, where a site whose sum "
                "is not finite is left out; set training.min_clients"
            )
        if training.min_clients and recipe.privacy_unit is not None:
            raise UserError(
                f"{recipe.source}: training.min_clients cannot be combined with [privacy] across sites: which "
                "clients are asked again depends on which answer, and ε does not count that; leave it out"
            )

    def prepare(self, setting):
        """Raises UserError where that number of clients cannot be asked, or [privacy] could not be counted."""
        recipe, training, clients, per_round = self.recipe, self.recipe.training, setting.clients, setting.per_round
        asked = asked_at_once(training, per_round)
        if asked > clients:
            raise UserError(
                f"{recipe.source}: training.over_sampling is {training.over_sampling:g}, which asks {asked} clients a "
                f"round, but only {clients} have training examples; lower it to at most {clients / per_round:.4g}"
            )
        possible = per_round if training.sampling == "fixed" else clients
        if training.min_clients > possible:
            raise UserError(
                f"{recipe.source}: training.min_clients is {training.min_clients}, but at most {possible} answers "
                "count in a round; lower it"
            )
        if recipe.privacy_unit is not None:
            _require_countable(recipe)

    def check(self, algorithm):
        """Raises UserError for `failures.between_stages` with rounds of one stage."""
        if self.options is None or not self.options.between_stages:
            return
        if compiled_form(native_block(algorithm.next)).stages < 2:
            raise UserError(
                f"{self.recipe.source}: failures.between_stages needs rounds with several stages, but a round of "
                f"{self.recipe.algorithm.name} has one; use failures.crash_after_update"
            )

    def after_round(self, training, metrics):
        """See `Feature`."""
        if self.is_recorded:
            answers, ids = training.answers, training.ids
            metrics |= answers.metrics
            outcomes = [(attempt, ids[index], outcome) for attempt, index, outcome in answers.outcomes]
            training.records.release_answers(training.round, outcomes)

    def start(self, training):
        """See `Feature`."""
        self._folder = training.folder

    def finish(self, training, result):
        """Raises UserError where [failures] let no answer count."""
        if self.options is None:
            return result
        history = read_history(self._folder)
        if history and all(row.get("clients/counted", 1.0) == 0 for row in history):
            raise UserError(
                f"{self.recipe.source}: no client's answer counted in any of {len(history)} rounds, so nothing was "
                "trained; lower [failures], or raise training.clients_per_round"
            )
        return result

    def columns(self, clients):
        """See `Feature`."""
        asked = by_client(read_answers(self._folder))
        rows = {client: asked.get(client, (0, 0, "")) for client in (*clients, *asked)} if asked else {}
        names = ("asked", "counted", "lost") if asked else ()
        return {name: {client: row[index] for client, row in rows.items()} for index, name in enumerate(names)}


def _require_countable(recipe: Recipe) -> None:
    """Raises UserError for what [privacy] could not count."""
    training, of_clients = recipe.training, recipe.privacy_unit == "client"
    if training.tolerated_failures is not None:
        raise UserError(
            f"{recipe.source}: training.tolerated_failures cannot be combined with [privacy]: whether a client's "
            "computation fails depends on its examples, and ε does not count what the run does then; leave it out"
        )
    if of_clients and training.sampling == "poisson" and training.min_clients:
        raise UserError(
            f"{recipe.source}: training.min_clients cannot be combined with Poisson sampling and [privacy] of "
            "clients: which rounds are repeated depends on which clients were drawn, so the remaining rounds are not "
            "Poisson samples; use training.sampling = 'fixed', or leave it out"
        )
    if of_clients and recipe.failures is not None and recipe.failures.between_stages:
        raise UserError(
            f"{recipe.source}: failures.between_stages cannot be combined with [privacy] of clients: ε does not "
            "count what the stages before the loss released; leave it out"
        )


def _non_finite(output) -> float:
    return 0.0 if output is None else float(output["metrics"]["work"]["clients/non_finite"])


def too_many(failed: Mapping[str, str], training) -> str:
    """The end of a line that names clients (id -> outcome) whose computation failed."""
    named = [f"{client} ({outcome})" for client, outcome in failed.items()]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    return (
        f"of {len(failed)} clients failed: {', '.join(named[:5])}{more}; training.tolerated_failures is "
        f"{training.tolerated_failures}"
    )


def without_failing(
    compute: Callable[[list[int]], Any],
    places: list[int],
    max_failed: int,
    borne: tuple = (ComputationFailed, WorkerDied),
) -> tuple[Any, dict[int, str]]:
    """(the output for the places whose computation does not fail, place -> outcome of the others).

    With more than `max_failed` failures there is no output. Only errors of the types in `borne` are handled.
    """
    failed: dict[int, str] = {}
    while True:
        left = [index for index in places if index not in failed]
        try:
            return compute(left), failed
        except borne as error:
            if not max_failed:
                raise
            failing = _failing(compute, left, error, borne)
            failed |= failing
            if not failing or len(failed) == len(places):
                raise  # it is not of single clients
            if len(failed) > max_failed:
                return None, failed


def _failing(
    compute: Callable[[list[int]], Any], places: list[int], error: ComputationFailed | WorkerDied, borne: tuple
) -> dict[int, str]:
    """Place -> outcome of clients that a computation fails for.

    The in-process runtime names the client. A worker does not: then halves are computed, and halves of those that
    fail; seeds are the same, so what a client does depends on the others only as far as the algorithm lets it.
    """
    index = places[error.client] if getattr(error, "client", None) is not None else None
    if index is None and len(places) == 1:
        (index,) = places
    if index is not None:
        outcome = _outcome(error)
        CLIENT_FAILED.log(_log, outcome=outcome, error=error)
        return {index: outcome}
    outcomes: dict[int, str] = {}
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        if half:
            try:
                compute(half)
            except borne as of_half:
                outcomes |= _failing(compute, half, of_half, borne)
    return outcomes


def _outcome(error: ComputationFailed | WorkerDied) -> str:
    if isinstance(error, WorkerDied):
        return WORKER_DIED
    out_of_memory = error.code == "RESOURCE_EXHAUSTED" or "RESOURCE_EXHAUSTED" in str(error)
    return OUT_OF_MEMORY if out_of_memory or "OOM when allocating" in str(error) else ERROR


def by_client(rows: Sequence[Sequence[str]]) -> dict[str, tuple[int, int, str]]:
    """Rows of answers.csv -> client -> (times asked, times counted, what else became of it, with the rounds)."""
    outcomes: dict[str, dict[str, list[str]]] = {}
    for round_num, _, client, outcome in rows:
        outcomes.setdefault(client, {}).setdefault(outcome, []).append(round_num)
    counts = {}
    for client, rounds in outcomes.items():
        counted = len(rounds.pop(COUNTED, ()))
        lost = "; ".join(f"{outcome}: {', '.join(numbers)}" for outcome, numbers in sorted(rounds.items()))
        counts[client] = (counted + sum(map(len, rounds.values())), counted, lost)
    return counts
