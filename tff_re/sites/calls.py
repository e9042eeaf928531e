"""One call of a computation over clients at sites, stage by stage: what is sent, who takes part, and the result."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Sequence

import numpy as np

from computations import federated as tff
from tff_re.errors import UserError
from tff_re.runs.features.failures import SURPLUS
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import WorkerDied
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values
from tff_re.sites import protocol
from tff_re.sites.agreement import Agreement
from tff_re.sites.asking import SiteLost, SiteRefused, Sites
from tff_re.sites.participation import NO_ANSWER, TooFewAnswers
from tff_re.sites.prepared import Reference
from tff_re.sites.program import Program, SiteStage, arrays_of, merged
from tff_re.sites.sums import BadSums, Bounds, Limits, checked

_log = logging.getLogger("tff_re.runtime")


class Call:
    """One call of a computation over clients at sites.

    Attributes:
      split: of the clients' examples.
      asked: how many sites have clients of the call.
      took_part: the sites whose sums are in the result.
      not_counted: client -> what became of it, of those that are not in the result.
    """

    def __init__(
        self,
        sites: Sites,
        agreement: Agreement,
        limits: Limits,
        program: Program,
        argument,
        *,
        purpose: str,
        round_num: int,
        first: int | None = None,
        least: int = 0,
    ):
        """Prepares.

        Args:
          sites: asks them.
          agreement, limits: of the run.
          program, argument: what is called.
          purpose: `TRAIN` or `EVALUATE`.
          round_num: the round.
          first: stop waiting after this many clients' answers; None: wait for all.
          least: fewest clients' answers that a round needs, or it is repeated with other clients; 0: `Patience.quorum`
            decides.
        """
        self._sites, self._agreement, self._limits = sites, agreement, limits
        self._program, self._argument, self._purpose, self._round = program, argument, purpose, round_num
        self._first, self._least = first, least
        self._values = Values()
        self._number_of = {client.client_id: number for number, client in enumerate(agreement.clients)}
        site_of = {client.client_id: client.site for client in agreement.clients}
        references = self._references()
        self._ids = [reference.client_id for reference in references]
        (self.split,) = {reference.split for reference in references} or {"train"}
        self._clients_at: OrderedDict[str, list[int]] = OrderedDict()
        for site in agreement.sites:
            numbers = [number for number, client in enumerate(self._ids) if site_of[client] == site]
            if numbers:
                self._clients_at[site] = numbers
        self.asked, self.took_part, self.not_counted = len(self._clients_at), [], {}

    def run(self):
        """The result; what stays at clients is the number of the round that it is of.

        Raises:
          SiteRefused, UserError: a site does not do it.
          WorkerDied: sites were lost, and the call has to be repeated; TooFewAnswers: with other clients.
        """
        left_out = self._lost()
        while True:
            taking_part = OrderedDict((s, n) for s, n in self._clients_at.items() if s not in left_out)
            try:
                result = self._attempt(taking_part)
                self._note_who_counts(taking_part, left_out)
                self.took_part = list(taking_part)
                return result
            except _Failed as failed:
                left_out |= failed.sites.keys()
                lines = "; ".join(failed.sites.values())
                if self._are_enough(self._clients_at.keys() - left_out):
                    self._sites.say(f"{lines}; round {self._round} goes on without")
                elif self._least:
                    _log.warning("%s; round %d is repeated with others", lines, self._round)
                    self._note_who_counts(self._clients_at.keys() - left_out, left_out)
                    raise TooFewAnswers(lines) from None
                else:
                    raise WorkerDied(lines, pid=None, log_path=None) from None

    def _lost(self) -> set[str]:
        """Sites that were lost in an earlier call and are left out of this one at once, if the others are enough."""
        lost = self._sites.still_lost(self._clients_at, self._agreement.run)
        if not lost or not self._are_enough(self._clients_at.keys() - lost.keys()):
            return set()  # the call needs them
        _log.warning("%s; round %d goes on without", "; ".join(lost.values()), self._round)
        return set(lost)

    def _are_enough(self, sites: Collection[str]) -> bool:
        expected = min(len(self._ids), self._first or len(self._ids))
        left, quorum = self._clients_of(sites), self._sites.patience.quorum
        return bool(left) and left >= (self._least or quorum * expected)

    def _note_who_counts(self, taking_part: Collection[str], left_out: set[str]) -> None:
        why = {s: NO_ANSWER if s in left_out else SURPLUS for s in self._clients_at if s not in taking_part}
        self.not_counted = {self._ids[number]: why[s] for s in why for number in self._clients_at[s]}

    def _clients_of(self, sites: Collection[str]) -> int:
        return sum(len(self._clients_at[site]) for site in sites)

    def _attempt(self, sites: OrderedDict[str, list[int]]):
        """The result over these sites, of which those are taken off that are left out; raises _Failed."""
        server: dict[object, object] = {CANCELLATION: Cancellation()}

        def argument(step: Step):
            return self._values.take(self._part(step.name), step.type_signature)

        def result(step: Step):
            if not step.per_client:
                return self._values.give(server[step.name], step.type_signature)
            there, states = {n for numbers in sites.values() for n in numbers}, self._part(self._state_path)
            return [np.int64(self._round) if n in there else states[n] for n in range(len(self._ids))]

        self._program.run(server, argument, lambda stage, scope: self._stage(stage, sites, scope))
        return self._program.result(result, self._program.result_type)

    def _stage(self, stage: SiteStage, sites: OrderedDict[str, list[int]], scope: Scope) -> list[object]:
        """The stage's sums over the sites; takes sites off `sites` whose answers to the first stage are late.

        Raises _Failed.
        """
        index = self._program.stages.index(stage)
        sent = tuple(array for step in stage.sent for array in arrays_of(scope[step.name]))
        versions = () if self._state_path is None else self._part(self._state_path)
        questions = {
            site: protocol.Stage(
                run=self._agreement.run,
                round=self._round,
                purpose=self._purpose,
                program=self._program.digest,
                stage=index,
                split=self.split,
                clients=tuple(self._ids[number] for number in numbers),
                versions=tuple(int(versions[number]) for number in numbers) if len(versions) else (),
                arrays=sent,
            )
            for site, numbers in sites.items()
        }
        picks = self._first is not None and index == 0
        enough = (lambda answered: self._clients_of(answered) >= self._first) if picks else (lambda answered: False)
        answers = self._sites.ask_all(questions, enough)
        failed, partials = {}, []
        for site, answer in answers.items():
            if isinstance(answer, SiteRefused):
                raise UserError(str(answer))
            problem = str(answer) if isinstance(answer, SiteLost) else None
            if problem is None:
                try:
                    partials.append(checked(scope, stage, answer.arrays, self._bounds(sites[site])))
                except BadSums as error:
                    problem = f"site {site}: {error}"
            if problem is not None:
                failed[site] = problem
        if failed and not (picks and enough(answers.keys() - failed.keys())):
            raise _Failed(failed)
        for site in sites.keys() - answers.keys() | failed.keys():
            del sites[site]
        return [merged(scope, aggregation, [sums[n] for sums in partials]) for n, aggregation in enumerate(stage.sums)]

    def _bounds(self, in_call: Sequence[int]) -> Bounds:
        """Of the sums over these clients of the call."""
        numbers = [self._number_of[self._ids[number]] for number in in_call]
        sizes = [getattr(self._agreement.clients[number], self.split) or 0 for number in numbers]
        return self._limits.bounds(sizes, numbers, self.asked)

    @property
    def _state_path(self):
        names = [name for name, _ in tff.structure.iter_elements(self._program.form.parameter.type_signature)]
        return (names.index("client_state"),) if "client_state" in names else None

    def _part(self, path: Sequence[int]):
        value = self._argument
        for index in path:
            value = tff.structure.from_container(value)[index]
        return value

    def _references(self) -> list[Reference]:
        """In place of the examples of the call's clients, in their order."""
        parts = [self._part(s.name) for s in self._program.form.steps.values() if s.is_argument and s.per_client]
        for values in parts:
            references = [_reference(value) for value in values]
            if all(references):
                return references
        raise SiteRefused("a computation over sites needs examples that are held there")


class _Failed(Exception):
    """Sites that have to be left out, with the reason of each."""

    def __init__(self, sites: dict[str, str]):
        super().__init__("; ".join(sites.values()))
        self.sites = sites


def _reference(value) -> Reference | None:
    """The one in a client's part of an argument."""
    if isinstance(value, Reference):
        return value
    if isinstance(value, dict):
        return next((held for part in value.values() if (held := _reference(part)) is not None), None)
    return None
