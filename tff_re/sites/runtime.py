"""The runtime of a run across sites, which computes the server's part here and the clients' part at the sites.

The coordinator never has an example. Its set-up is in `set_up`, how it asks sites in `asking`, and a call of a
computation over their clients in `calls`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from computations import federated as tff
from computations.errors import CompositionError
from tff_re.errors import UserError
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.shares import sums_are_masked
from tff_re.runtime.base import Runtime
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.events import EVALUATION_CHANGED, SITE_NOT_FINISHED
from tff_re.runtime.in_process.interpreter import InProcessContext
from tff_re.sites import protocol
from tff_re.sites.agreement import Agreement
from tff_re.sites.asking import Patience, SiteLost, SiteRefused, Sites
from tff_re.sites.calls import Call
from tff_re.sites.masked_layout import require_sums
from tff_re.sites.opening import Opening
from tff_re.sites.participation import ParticipationOfSites
from tff_re.sites.program import Program
from tff_re.sites.requests import EVALUATE, TRAIN
from tff_re.sites.set_up import Numbers
from tff_re.sites.sums import Limits
from tff_re.sites.transport import Engine


class SitesRuntime(Runtime):
    """A runtime whose clients are at sites.

    The server's part is computed in this process.
    """

    name = "sites"

    def __init__(
        self,
        log_path,
        *,
        engine: Engine,
        patience: Patience | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ):
        """Prepare a runtime (see `Runtime`).

        Call `agree` and `take` before the first round.

        `on_line`: see `Sites`.
        """
        super().__init__(log_path)
        self.sites = Sites(engine, patience or Patience(), on_line=on_line)
        self._answered, self._own_results = (0, 0), {}
        self._evaluated: dict[str, int] = {}
        self.evaluations: dict[tuple[int, str], dict[str, object]] = {}
        self.took_part: dict[int, list[str]] = {}
        self.not_counted: dict[str, str] = {}
        self.limits: Limits | None = None
        self._round = 0
        self._first: int | None = None
        self._least = 0
        self._agreement: Agreement | None = None
        self._programs: dict[str, Program] = {}
        self._purposes: dict[tff.Computation, str] = {}
        self._opening: Opening | None = None

    def take(self, agreement: Agreement, numbers: Numbers, experiment: Experiment) -> None:
        """Set the run of `agree` as the one to compute, and ask all sites whether they compute the same.

        Raises:
          UserError: one does not.
        """
        training = experiment.recipe.training
        self._least, self._first = training.min_clients, None
        if training.over_sampling > 1:
            self._first = experiment.clients_per_round
        computations = {TRAIN: experiment.algorithm.next}
        if experiment.recipe.evaluation.train_split or any(client.test or client.dev for client in agreement.clients):
            computations[EVALUATE] = experiment.evaluation
        self._compile(agreement, experiment, computations)
        digests = {purpose: program.digest for purpose, program in self._programs.items()}
        ways = {"run": agreement.run, "programs": digests}
        questions = {
            site: protocol.Agree(agreement=agreement.for_site(site).to_json(), numbers=numbers.get(site), **ways)
            for site in agreement.sites
        }
        try:
            self.sites.ask_every(questions)
        except (SiteRefused, SiteLost) as error:
            raise UserError(str(error)) from None

    def take_again(self, agreement: Agreement, experiment: Experiment) -> None:
        """Set a run that sites have agreed to before, to evaluate it.

        They compare its computation when they are asked.

        Raises:
          UserError: the evaluation cannot be taken apart.
        """
        self._compile(agreement, experiment, {EVALUATE: experiment.evaluation})

    def _compile(self, agreement: Agreement, experiment: Experiment, computations: dict[str, tff.Computation]) -> None:
        self._agreement, self.limits = agreement, Limits.of(experiment)
        try:
            self._programs = {purpose: Program(computation) for purpose, computation in computations.items()}
            self._opening = None
            if sums_are_masked(experiment.recipe):
                self._opening = Opening(self.sites, agreement.run)
                for program in self._programs.values():
                    require_sums(program)
        except CompositionError as error:
            raise UserError(f"{experiment.recipe.source}: {error}") from None
        self._purposes = {computation: purpose for purpose, computation in computations.items()}

    def begin_round(self, number: int) -> None:
        """Set the number of the next round."""
        self._round, self._answered = number, (0, 0)

    def participation(self, usual):
        """See `Runtime.participation`."""
        return functools.partial(ParticipationOfSites, runtime=self)

    @property
    def answered(self) -> tuple[int, int]:
        """See `Runtime.answered`."""
        return self._answered

    @property
    def run(self) -> str:
        """Return the run's id."""
        return self._agreement.run

    @property
    def own_results(self):
        """See `Runtime.own_results`."""
        return self._own_results

    @property
    def sites_with_rows(self) -> tuple[str, ...]:
        """Return the sites whose own evaluations are kept.

        There are none with masked sums: a site's sums would tell those of the others.
        """
        return () if self._opening is not None else self._agreement.sites_that_allow("own")

    def finish(self) -> None:
        """End the run, so that sites delete what they stored for it."""
        lost = self.sites.still_lost(self._agreement.sites, self._agreement.run)
        there = [site for site in self._agreement.sites if site not in lost]
        answers = self.sites.ask_all(dict.fromkeys(there, protocol.Finish(run=self._agreement.run)))
        for line in (
            *lost.values(),
            *(str(answer) for answer in answers.values() if isinstance(answer, RuntimeProblem)),
        ):
            self.sites.say(SITE_NOT_FINISHED, reason=line)

    def _open(self):
        return SitesContext(self)

    def _close(self) -> None:
        self.sites.close()
        for program in self._programs.values():
            program.close()

    def _restart(self) -> None:
        """Repeat the round with the same seeds.

        The sites start it anew.
        """

    def _details(self) -> dict:
        return {"sites": list(self.sites.engine.sites)}

    def program(self, computation: tff.Computation) -> tuple[str, Program] | None:
        """Return (purpose, program) of an agreed computation over clients."""
        purpose = self._purposes.get(computation)
        return None if purpose is None else (purpose, self._programs[purpose])

    def call(self, purpose: str, program: Program, argument) -> object:
        """Return the result of a computation over the sites' clients (see `Call`).

        Of training, `not_counted` says what became of the clients that are not in it. A line says when an evaluation is
        over fewer sites than before, or over all again.
        """
        trains = purpose == TRAIN
        ways = {"first": self._first, "least": self._least} if trains else {}
        ways |= {"purpose": purpose, "round_num": self._round, "opening": self._opening}
        if not trains:
            ways |= {"silent": self._agreement.sites_that_allow("none"), "separate": self.sites_with_rows}
        call = Call(self.sites, self._agreement, self.limits, program, argument, **ways)
        try:
            result = call.run()
        finally:
            if trains:
                self.not_counted = call.not_counted
        answered = len(call.took_part)
        if trains:
            self.took_part[self._round] = call.took_part
        else:
            self.evaluations[self._round, call.split] = call.own_results
        self._own_results = call.own_results
        if not trains and self._evaluated.get(call.split, call.asked) != answered:
            self._evaluated[call.split] = answered
            self.sites.say(EVALUATION_CHANGED, split=call.split, answered=answered, asked=call.asked)
        self._answered = answered, call.asked
        return result


class SitesContext(InProcessContext):
    """Computes what is at the server here, and asks sites for the rest."""

    def __init__(self, runtime: SitesRuntime):
        super().__init__(threads=1, default_num_clients=0)
        self._runtime = runtime

    def invoke(self, comp: tff.Computation, arg):
        """See tff.framework.SyncContext.

        Raises:
          SiteRefused: a site does not do it; WorkerDied: sites were lost, and the round has to be repeated;
            TooFewAnswers: it has to be repeated with other clients.
        """
        agreed = self._runtime.program(comp)
        if agreed is not None:
            return self._runtime.call(*agreed, arg)
        if arg is not None and tff.infer_cardinalities(arg, comp.type_signature.parameter).get(tff.CLIENTS):
            raise SiteRefused("the sites have not agreed to this computation over their clients")
        return super().invoke(comp, arg)
