"""One call of a computation over clients at sites, stage by stage."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from computations import federated as tff
from tff_re.errors import UserError
from tff_re.runs.features.failures import SURPLUS
from tff_re.runtime import events
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import WorkerDied
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values
from tff_re.sites import protocol
from tff_re.sites.agreement import Agreement
from tff_re.sites.asking import SiteLost, SiteRefused, Sites
from tff_re.sites.opening import Opening, SitesFailed
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
      own_results: site -> the result over this site only, of the sites that are `separate`.
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
        opening: Opening | None = None,
        silent: Collection[str] = (),
        separate: Collection[str] = (),
    ):
        """Prepare the call.

        Args:
          sites: asks them.
          agreement, limits: of the run.
          program, argument: what is called.
          purpose: `TRAIN` or `EVALUATE`.
          round_num: the round.
          first: stop waiting after this many clients' answers; None: wait for all.
          least: fewest clients' answers that a round needs, or it is repeated with other clients; 0: `Patience.quorum`
            decides.
          opening: opens the totals of masked sums; None: sums are not masked.
          silent: sites that are not asked.
          separate: sites whose own results are kept; there are none of masked sums.
        """
        self._sites, self._agreement, self._limits = sites, agreement, limits
        self._program, self._argument, self._purpose, self._round = program, argument, purpose, round_num
        self._first, self._least, self._opening = first, least, opening
        self._left_out: set[str] = set()
        self._values = Values()
        self._number_of = {client.client_id: number for number, client in enumerate(agreement.clients)}
        site_of = {client.client_id: client.site for client in agreement.clients}
        references = self._references()
        self.asked = len({site_of[reference.client_id] for reference in references})
        references = [reference for reference in references if site_of[reference.client_id] not in silent]
        self._ids = [reference.client_id for reference in references]
        (self.split,) = {reference.split for reference in references} or {"train"}
        self._clients_at: OrderedDict[str, list[int]] = OrderedDict()
        for site in agreement.sites:
            numbers = [number for number, client in enumerate(self._ids) if site_of[client] == site]
            if numbers:
                self._clients_at[site] = numbers
        self.took_part, self.not_counted, self.own_results = [], {}, {}
        self._separate, self._sums_by_site = separate, {}

    def run(self):
        """Run the call and return its result.

        In place of what stays at clients, the result has the number of its round.

        Raises:
          SiteRefused, UserError: a site does not do it.
          WorkerDied: sites were lost, and the call has to be repeated; TooFewAnswers: with other clients.
        """
        self._left_out = self._lost()
        if self._opening is not None and (roster := self._opening.roster_of(self._sums)):
            self._left_out |= self._clients_at.keys() - set(roster)
        while True:
            taking_part = OrderedDict((s, n) for s, n in self._clients_at.items() if s not in self._left_out)
            try:
                result = self._attempt(taking_part)
                self._note_who_counts(taking_part)
                self.took_part = list(taking_part)
                self._keep_own(taking_part)
                return result
            except SitesFailed as failed:
                lines = str(failed)
                if self._go_on_without(failed.sites):
                    continue
                if self._least:
                    events.ROUND_REPEATED.log(_log, reason=lines, round=self._round)
                    self._note_who_counts(self._clients_at.keys() - self._left_out)
                    raise TooFewAnswers(lines) from None
                raise WorkerDied(lines, pid=None, log_path=None) from None

    def _go_on_without(self, failed: dict[str, str]) -> bool:
        """Exclude sites from the call, each with a reason, and return whether the others are enough."""
        self._left_out |= failed.keys()
        enough = self._are_enough(self._clients_at.keys() - self._left_out)
        if enough:
            self._sites.say(events.SITES_LEFT_OUT, **self._left(failed))
        return enough

    def _left(self, failed: Mapping[str, str]) -> dict[str, object]:
        return {"reason": "; ".join(failed.values()), "round": self._round, "sites": list(failed)}

    def _lost(self) -> set[str]:
        """Return the sites lost in an earlier call, which this one excludes at once if the others are enough."""
        lost = self._sites.still_lost(self._clients_at, self._agreement.run)
        if not lost or not self._are_enough(self._clients_at.keys() - lost.keys()):
            return set()  # the call needs them
        events.SITES_LEFT_OUT.log(_log, **self._left(lost))
        return set(lost)

    def _are_enough(self, sites: Collection[str]) -> bool:
        expected = min(len(self._ids), self._first or len(self._ids))
        left, quorum = self._clients_of(sites), self._sites.patience.quorum
        return bool(left) and left >= (self._least or quorum * expected)

    def _note_who_counts(self, taking_part: Collection[str]) -> None:
        why = {s: NO_ANSWER if s in self._left_out else SURPLUS for s in self._clients_at if s not in taking_part}
        self.not_counted = {self._ids[number]: why[s] for s in why for number in self._clients_at[s]}

    def _clients_of(self, sites: Collection[str]) -> int:
        return sum(len(self._clients_at[site]) for site in sites)

    def _attempt(self, sites: OrderedDict[str, list[int]]):
        """Compute the result over these sites without the excluded ones.

        Raises SitesFailed.
        """
        return self._computed(sites, lambda stage, scope: self._stage(stage, sites, scope))

    def _keep_own(self, sites: OrderedDict[str, list[int]]) -> None:
        """Compute the results over single sites from the sums that they sent."""
        stages = self._program.stages
        for site in (site for site in sites if site in self._separate):
            sums = {id(stage): self._sums_by_site[index][site] for index, stage in enumerate(stages)}
            alone = OrderedDict({site: sites[site]})
            self.own_results[site] = self._computed(alone, lambda stage, scope, sums=sums: sums[id(stage)])

    def _computed(self, sites: OrderedDict[str, list[int]], sums: Callable[[SiteStage, Scope], list[object]]):
        """Return the result of the program, given each stage's sums over the sites."""
        server: dict[object, object] = {CANCELLATION: Cancellation()}

        def argument(step: Step):
            return self._values.take(self._part(step.name), step.type_signature)

        def result(step: Step):
            if not step.per_client:
                return self._values.give(server[step.name], step.type_signature)
            there, states = {n for numbers in sites.values() for n in numbers}, self._part(self._state_path)
            return [np.int64(self._round) if n in there else states[n] for n in range(len(self._ids))]

        self._program.run(server, argument, sums)
        return self._program.result(result, self._program.result_type)

    def _stage(self, stage: SiteStage, sites: OrderedDict[str, list[int]], scope: Scope) -> list[object]:
        """Return the stage's sums over the sites.

        Takes sites off `sites` whose answers to the first stage are late, and, if sums are masked, those that are lost
        in it: their masks are opened.

        Raises SitesFailed.
        """
        index = self._program.stages.index(stage)
        questions = self._questions(stage, index, sites, scope)
        asked = list(sites)
        picks = self._first is not None and index == 0
        enough = (lambda answered: self._clients_of(answered) >= self._first) if picks else (lambda answered: False)
        began = time.perf_counter()
        answers = self._sites.ask_all(questions, enough)
        self._log_stage(index, questions, answers, time.perf_counter() - began)
        failed, partials = self._read(scope, stage, sites, answers)
        if failed and not (picks and enough(answers.keys() - failed.keys())):
            goes_on = self._opening is not None and index == 0 and len(partials) > 1
            if not goes_on or not self._go_on_without(failed):
                raise SitesFailed(failed)
        for site in sites.keys() - answers.keys() | failed.keys():
            del sites[site]
        if self._opening is not None:
            return self._opened(scope, stage, next(iter(questions.values())).attempt, asked, partials)
        sums = list(partials.values())
        self._sums_by_site[index] = {site: partials[site] for site in partials if site in self._separate}
        return [merged(scope, aggregation, [s[n] for s in sums]) for n, aggregation in enumerate(stage.sums)]

    def _log_stage(self, index: int, questions: Mapping, answers: Mapping, seconds: float) -> None:
        answered = [answer for answer in answers.values() if not isinstance(answer, Exception)]
        events.STAGE_FINISHED.log(
            _log,
            purpose=self._purpose,
            round=self._round,
            stage=index,
            answered=len(answered),
            asked=len(questions),
            bytes_down=sum(map(protocol.payload, questions.values())),
            bytes_up=sum(map(protocol.payload, answered)),
            seconds=seconds,
        )

    def _questions(
        self, stage: SiteStage, index: int, sites: OrderedDict[str, list[int]], scope: Scope
    ) -> dict[str, protocol.Stage]:
        sent = tuple(array for step in stage.sent for array in arrays_of(scope[step.name]))
        versions = () if self._state_path is None else self._part(self._state_path)
        question, masks = protocol.Stage, {}
        if self._opening is not None:
            self._require_two(sites)
            question, masks = protocol.Masked, {"attempt": self._opening.next_attempt(), "sites": tuple(sites)}
        return {
            site: question(
                run=self._agreement.run,
                round=self._round,
                purpose=self._purpose,
                program=self._program.digest,
                stage=index,
                split=self.split,
                clients=tuple(self._ids[number] for number in numbers),
                versions=tuple(int(versions[number]) for number in numbers) if len(versions) else (),
                arrays=sent,
                **masks,
            )
            for site, numbers in sites.items()
        }

    def _read(self, scope: Scope, stage: SiteStage, sites: OrderedDict[str, list[int]], answers: Mapping) -> tuple:
        """Return why sites failed, and the other sites' sums as values, or their answers if these are masked."""
        failed, partials = {}, {}
        for site, answer in answers.items():
            if isinstance(answer, SiteRefused):
                raise UserError(str(answer))
            if isinstance(answer, SiteLost):
                failed[site] = str(answer)
            elif self._opening is None:
                try:
                    partials[site] = checked(scope, stage, answer.arrays, self._bounds(sites[site]))
                except BadSums as error:
                    failed[site] = f"site {site}: {error}"
            elif self._opening.fits(stage, answer):
                partials[site] = answer
            else:
                failed[site] = f"site {site}: its masked sums are not of their type"
        return failed, partials

    def _opened(
        self, scope: Scope, stage: SiteStage, attempt: int, asked: Sequence[str], answers: Mapping
    ) -> list[object]:
        """Return the total of masked sums, as values."""
        self._require_two(answers)
        arrays = self._opening.total(stage, attempt, asked, answers, self._sums)
        numbers = [number for site in answers for number in self._clients_at[site]]
        try:
            return checked(scope, stage, arrays, dataclasses.replace(self._bounds(numbers), sites=1))
        except BadSums as error:
            raise UserError(
                f"round {self._round}: the total over {', '.join(answers)} cannot be: {error}; masks hide which site "
                "sent what, so look at each site's log"
            ) from None

    @property
    def _sums(self) -> tuple:
        """See `Opening.roster_of`."""
        return self._purpose, self.split, self._round

    def _require_two(self, sites: Collection[str]) -> None:
        if len(sites) < 2:
            raise UserError(
                f"round {self._round}: masked sums need clients at two sites or more, and there is only "
                f"{', '.join(sites)}; ask more clients (training.clients_per_round), or set aggregation.secure = 'none'"
            )

    def _bounds(self, in_call: Sequence[int]) -> Bounds:
        """Return the bounds of the sums over these clients of the call."""
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
        """Return what stands for the examples of the call's clients, in their order."""
        parts = [self._part(s.name) for s in self._program.form.steps.values() if s.is_argument and s.per_client]
        for values in parts:
            references = [_reference(value) for value in values]
            if all(references):
                return references
        raise SiteRefused("a computation over sites needs examples that are held there")


def _reference(value) -> Reference | None:
    """Return the reference in a client's part of an argument."""
    if isinstance(value, Reference):
        return value
    if isinstance(value, dict):
        return next((held for part in value.values() if (held := _reference(part)) is not None), None)
    return None
