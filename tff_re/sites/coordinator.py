"""The coordinator: federated set-up, and a runtime whose clients are at sites. It never has an example."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

import numpy as np
import tensorflow_federated as tff
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import infer_cardinalities

from computations.errors import CompositionError
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.at_sites import (
    NO_ANSWER,
    CoordinatorBuilder,
    TooFewAnswers,
    coordinated,
    require_possible_at_sites,
)
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.failures import SURPLUS
from tff_re.runs.warm_start import WarmStart
from tff_re.runtime.base import Runtime
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import RuntimeProblem, WorkerDied
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.interpreter import InProcessContext
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.values import Values
from tff_re.sites import protocol
from tff_re.sites.asking import Patience, SiteLost, SiteRefused, Sites
from tff_re.sites.engines import Engine
from tff_re.sites.fields import DIGEST_BYTES, MAX_CLASSES
from tff_re.sites.policy import for_sites, recipe_digest
from tff_re.sites.program import Program, SiteStage, arrays_of, merged
from tff_re.sites.requests import EVALUATE, TRAIN
from tff_re.sites.sums import BadSums, Bounds, Limits, checked
from tff_re.sites.words import agree_on_words, require_one_secret
from tff_re.tasks import TASKS
from tff_re.tasks.at_sites import Agreement, Client, Reference, encoding_of, require_task
from tff_re.tasks.data_paths import DataPaths

_log = logging.getLogger("tff_re.runtime")


# Federated set-up


Numbers = dict[str, np.ndarray]
"""Site -> int32 [n], the numbers of its facts among all, in the order in which it named them."""


def agree(
    sites: Sites, recipe: Recipe, data_paths: DataPaths, run: str | None = None, start: WarmStart | None = None
) -> tuple[Agreement, Numbers, Experiment]:
    """What all parties know before the first round, what each site knows of bags beside, and the experiment of it.

    Args:
      sites: all that take part.
      recipe: resolved.
      data_paths: of the coordinator; no examples of clients are read.
      run: the id of the run that is continued; None: a new one.
      start: the run that this one starts from, whose vocabulary and classes are taken over; no words are asked for.

    Raises:
      UserError: what the sites hold does not fit together, or a site refuses the recipe.
    """
    require_task(recipe.task)
    require_possible_at_sites(recipe)
    run = run or secrets.token_hex(16)
    try:
        agreement, numbers = _agree(sites, recipe, data_paths, run, start)
        return agreement, numbers, CoordinatorBuilder(coordinated(recipe, data_paths, agreement)).build(recipe)
    except (SiteRefused, SiteLost) as error:
        raise UserError(str(error)) from None


def _agree(
    sites: Sites, recipe: Recipe, data_paths: DataPaths, run: str, start: WarmStart | None = None
) -> tuple[Agreement, Numbers]:
    names, task, chosen = sites.engine.sites, recipe.task, TASKS[recipe.task.name]
    at_server = chosen.server_corpus(task.options, data_paths)
    hello = protocol.Hello(run=run, recipe=for_sites(recipe))
    said: dict[str, protocol.HelloAnswer] = sites.ask_every(dict.fromkeys(names, hello))
    for key, what in (
        *(("label", "label choices"), ("recipe", "recipes"), ("vocabulary", "ways to count words")),
        ("relations", "relations of pairs"),
    ):
        if len(kinds := {str(getattr(answer, key)) for answer in said.values()}) > 1:
            raise UserError(f"the sites differ in their {what}: {', '.join(sorted(kinds))}; agree on one")
    first = next(iter(said.values()))
    if first.recipe != recipe_digest(recipe):
        raise UserError(
            "the sites read another recipe than the coordinator's; use the same version of tff-re everywhere"
        )
    _require_whole([answer.share for answer in said.values()])
    clients = [Client(c, site, *sizes) for site, answer in said.items() for c, *sizes in answer.clients]
    if len({client.client_id for client in clients}) < len(clients):
        raise UserError("two sites name the same client; give the sites other names")
    lists = [answer.label_names for answer in said.values()]
    labels = _union(lists if at_server is None else [*lists, at_server.label_names])
    if len(labels) > MAX_CLASSES:
        raise UserError(f"the sites name {len(labels)} classes together, and {MAX_CLASSES} are possible; merge some")
    positive = {name for answer in said.values() for name in answer.positive_labels or ()}
    none_positive = all(answer.positive_labels is None for answer in said.values())
    if start is None:
        words = agree_on_words(sites.ask_every, run, names, first.vocabulary, task.options)
    else:
        labels, words = _classes_of(start, labels), start.words
        positive |= set(start.positive or ())
    numbers, facts = _facts(sites, run, names) if chosen.numbers_facts else ({}, b"")
    relations, form = first.relations, None
    if relations is not None:
        forms = [answer.document_form for answer in said.values()]
        form = tuple(map(max, *forms, chosen.largest_at_server(task.options, data_paths)))
    agreement = Agreement(
        run=run,
        clients=tuple(clients),
        label_names=labels,
        words=words,
        positive_labels=None if none_positive else tuple(n for n, name in enumerate(labels) if name in positive),
        encoding="",
        server=0 if at_server is None else len(at_server.samples),
        triples=len(facts) // DIGEST_BYTES if numbers else None,
        facts=hashlib.sha256(facts).hexdigest(),
        relations=relations,
        document_form=form,
    )
    _, inputs, _, digest = encoding_of(task, recipe.seed, agreement.paths(data_paths, at_site=False))
    vectors = getattr(inputs, "vectors", None)
    width = None if vectors is None else vectors.shape[1]
    return dataclasses.replace(agreement, encoding=digest, vectors_width=width), numbers


def _classes_of(start: WarmStart, labels: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of the run that a run starts from; UserError where a site has others."""
    if more := [name for name in labels if name not in start.form["classes"]]:
        raise UserError(
            f"cannot start from {start.run}: the sites hold classes that it does not have ({', '.join(more[:5])}); "
            "train without --from, or leave their examples out"
        )
    return tuple(start.form["classes"])


def _require_whole(shares: Sequence[tuple[int, int] | None]) -> None:
    """Raises UserError where some sites have shares of a simulation, but not all parts take part in their order."""
    if any(shares) and shares != [(number + 1, len(shares)) for number in range(len(shares))]:
        told = ", ".join("none" if share is None else "{}/{}".format(*share) for share in shares)
        raise UserError(
            f"the sites' shares (clients.share) are {told}; name sites that have 1/{len(shares)} to "
            f"{len(shares)}/{len(shares)}, in this order"
        )


def _union(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The classes of all: in the order of their files, where they have the same ones, else of their names, but for a
    first one that is the first of all, as what stands for no relation."""
    if len(set(lists)) == 1:
        return lists[0]
    first = lists[0][:1] if len({names[:1] for names in lists}) == 1 else ()
    return (*first, *sorted({name for names in lists for name in names} - {*first}))


def _facts(sites: Sites, run: str, names: Sequence[str]) -> tuple[Numbers, bytes]:
    """(the numbers of each site's facts, the digests of all facts in the order of their numbers)."""
    found: dict[str, protocol.FactsAnswer] = sites.ask_every(dict.fromkeys(names, protocol.Facts(run=run)))
    require_one_secret({site: answer.check for site, answer in found.items()})
    rows = {site: [row.tobytes() for row in answer.digests] for site, answer in found.items()}
    number_of = {digest: number for number, digest in enumerate(sorted({d for own in rows.values() for d in own}))}
    return {site: np.array([number_of[d] for d in own], np.int32) for site, own in rows.items()}, b"".join(number_of)


# The runtime


class SitesRuntime(Runtime):
    """Clients are at sites; the server's part is computed in this process."""

    name = "sites"

    def __init__(
        self,
        log_path,
        *,
        engine: Engine,
        patience: Patience | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ):
        """Prepares a runtime; see `Runtime`. `agree` and `take` come before the first round.

        `on_line`: see `Sites`.
        """
        super().__init__(log_path)
        self.sites = Sites(engine, patience or Patience(), on_line=on_line)
        self._answered = 0, 0
        self._evaluated: dict[str, int] = {}
        self.took_part: dict[int, list[str]] = {}
        self.not_counted: dict[str, str] = {}
        self.limits: Limits | None = None
        self._round = 0
        self._first: int | None = None
        self._least = 0
        self._agreement: Agreement | None = None
        self._programs: dict[str, Program] = {}
        self._purposes: dict[tff.Computation, str] = {}

    def take(self, agreement: Agreement, numbers: Numbers, experiment: Experiment) -> None:
        """The run that is computed, of `agree`; asks all sites whether they compute the same.

        Raises:
          UserError: one does not.
        """
        self._agreement, self.limits = agreement, Limits.of(experiment)
        training = experiment.recipe.training
        self._least, self._first = training.min_clients, None
        if training.over_sampling > 1:
            self._first = experiment.clients_per_round
        computations = {TRAIN: experiment.algorithm.next}
        if experiment.recipe.evaluation.train_split or any(client.test or client.dev for client in agreement.clients):
            computations[EVALUATE] = experiment.evaluation
        try:
            self._programs = {purpose: Program(made) for purpose, made in computations.items()}
            digests = {purpose: program.digest for purpose, program in self._programs.items()}
            self._purposes = {made: purpose for purpose, made in computations.items()}
            questions = {
                site: protocol.Agree(
                    run=agreement.run,
                    agreement=agreement.for_site(site).to_json(),
                    programs=digests,
                    numbers=numbers.get(site),
                )
                for site in agreement.sites
            }
            self.sites.ask_every(questions)
        except (SiteRefused, SiteLost, CompositionError) as error:
            raise UserError(str(error)) from None

    def take_again(self, agreement: Agreement, experiment: Experiment) -> None:
        """A run that sites have agreed to before, to evaluate it; they compare its computation when they are asked.

        Raises:
          UserError: the evaluation cannot be taken apart.
        """
        self._agreement, self.limits = agreement, Limits.of(experiment)
        try:
            self._programs = {EVALUATE: Program(experiment.evaluation)}
        except CompositionError as error:
            raise UserError(str(error)) from None
        self._purposes = {experiment.evaluation: EVALUATE}

    def begin_round(self, number: int) -> None:
        """The number of the round that is computed next."""
        self._round, self._answered = number, (0, 0)

    @property
    def answered(self) -> tuple[int, int]:
        """See `Runtime.answered`."""
        return self._answered

    def finish(self) -> None:
        """The run is over: sites forget what they kept for it."""
        lost = self.sites.still_lost(self._agreement.sites, self._agreement.run)
        there = [site for site in self._agreement.sites if site not in lost]
        answers = self.sites.ask_all(dict.fromkeys(there, protocol.Finish(run=self._agreement.run)))
        for line in (*lost.values(), *(str(one) for one in answers.values() if isinstance(one, RuntimeProblem))):
            self.sites.say(f"{line}; what it kept of the run stays there")

    def _open(self):
        return SitesContext(self)

    def _close(self) -> None:
        self.sites.close()
        for program in self._programs.values():
            program.close()

    def _restart(self) -> None:
        """The round is repeated with the same seeds; sites begin it anew."""

    def _details(self) -> dict:
        return {"sites": list(self.sites.engine.sites)}

    def program(self, computation: tff.Computation) -> tuple[str, Program] | None:
        """(purpose, program) of a computation over clients that was agreed upon."""
        purpose = self._purposes.get(computation)
        return None if purpose is None else (purpose, self._programs[purpose])

    def has_answered(self, split: str | None, answered: int, asked: int) -> None:
        """How many sites the latest call has sums of, for `answered`; `split`: of an evaluation.

        A line says when an evaluation is over fewer sites than before, or over all again.
        """
        self._answered = answered, asked
        if split is not None and self._evaluated.get(split, asked) != answered:
            self._evaluated[split] = answered
            self.sites.say(f"{split} over {answered} of {asked} sites")

    def call(self, purpose: str, program: Program, argument) -> object:
        """The result of a computation over the sites' clients. Of training, `not_counted` says what became of the
        clients that are not in it: id -> outcome."""
        first, least = (self._first, self._least) if purpose == TRAIN else (None, 0)
        return _Call(self, self._agreement, purpose, program, argument, self._round, first, least).run()


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
        found = self._runtime.program(comp)
        if found is not None:
            return self._runtime.call(*found, arg)
        if arg is not None and infer_cardinalities(arg, comp.type_signature.parameter).get(tff.CLIENTS):
            raise SiteRefused("the sites have not agreed to this computation over their clients")
        return super().invoke(comp, arg)


class _Call:
    """One call of a computation over clients at sites.

    Attributes:
      first: so many clients' answers are waited for, and the others' are not; None: all.
      least: with fewer clients' answers a round is repeated with others; 0: `Patience.quorum` says what is enough.
    """

    def __init__(
        self,
        runtime: SitesRuntime,
        agreement: Agreement,
        purpose: str,
        program: Program,
        argument,
        round_num: int,
        first: int | None,
        least: int,
    ):
        self._first, self._least = first, least
        self._runtime, self._agreement, self._purpose = runtime, agreement, purpose
        self._program, self._argument, self._round = program, argument, round_num
        self._values = Values()
        self._number_of = {client.client_id: number for number, client in enumerate(agreement.clients)}
        site_of = {client.client_id: client.site for client in agreement.clients}
        self._given = [s for s in program.form.steps.values() if s.given and s.per_client]
        held = self._held()
        self._ids, (self._split,) = [one.client_id for one in held], {one.split for one in held} or {"train"}
        self._of_site: OrderedDict[str, list[int]] = OrderedDict()
        for site in agreement.sites:
            places = [place for place, client in enumerate(self._ids) if site_of[client] == site]
            if places:
                self._of_site[site] = places

    def run(self):
        """The result; what stays at clients is the number of the round that it is of."""
        left_out = self._lost()
        while True:
            taking_part = OrderedDict((s, p) for s, p in self._of_site.items() if s not in left_out)
            try:
                result = self._attempt(taking_part)
                self._say_who_counts(taking_part, left_out)
                split = self._split if self._purpose == EVALUATE else None
                self._runtime.has_answered(split, len(taking_part), len(self._of_site))
                return result
            except _Failed as failed:
                left_out |= failed.sites.keys()
                lines = "; ".join(failed.sites.values())
                if self._are_enough(self._of_site.keys() - left_out):
                    self._runtime.sites.say(f"{lines}; round {self._round} goes on without")
                elif self._least:
                    _log.warning("%s; round %d is repeated with others", lines, self._round)
                    self._say_who_counts(self._of_site.keys() - left_out, left_out)
                    raise TooFewAnswers(lines) from None
                else:
                    raise WorkerDied(lines, pid=None, log_path=None) from None

    def _lost(self) -> set[str]:
        """Sites that were lost in an earlier call and are left out of this one at once, if the others are enough."""
        lost = self._runtime.sites.still_lost(self._of_site, self._agreement.run)
        if not lost or not self._are_enough(self._of_site.keys() - lost.keys()):
            return set()  # the call needs them
        _log.warning("%s; round %d goes on without", "; ".join(lost.values()), self._round)
        return set(lost)

    def _are_enough(self, sites: Collection[str]) -> bool:
        expected = min(len(self._ids), self._first or len(self._ids))
        left, quorum = self._clients_of(sites), self._runtime.sites.patience.quorum
        return bool(left) and left >= (self._least or quorum * expected)

    def _say_who_counts(self, taking_part: Collection[str], left_out: set[str]) -> None:
        if self._purpose == TRAIN:
            why = {s: NO_ANSWER if s in left_out else SURPLUS for s in self._of_site if s not in taking_part}
            self._runtime.not_counted = {self._ids[place]: why[s] for s in why for place in self._of_site[s]}

    def _clients_of(self, sites: Collection[str]) -> int:
        return sum(len(self._of_site[site]) for site in sites)

    def _attempt(self, sites: OrderedDict[str, list[int]]):
        server: dict[object, object] = {CANCELLATION: Cancellation()}

        def argument(step: Step):
            return self._values.take(self._part(step.name), step.type_signature)

        self._program.run(server, argument, lambda stage, scope: self._stage(stage, sites, scope))
        if self._purpose == TRAIN:
            self._runtime.took_part[self._round] = list(sites)
        return self._result(sites, server)

    def _stage(self, stage: SiteStage, sites: OrderedDict[str, list[int]], scope: Scope) -> list[object]:
        """The stage's sums over the sites; takes sites off `sites` whose answers to the first stage are late.

        Raises _Failed.
        """
        place = self._program.stages.index(stage)
        sent = tuple(array for step in stage.sent for array in arrays_of(scope[step.name]))
        questions = {}
        for site, places in sites.items():
            versions = () if self._state_path is None else self._part(self._state_path)
            questions[site] = protocol.Stage(
                run=self._agreement.run,
                round=self._round,
                purpose=self._purpose,
                program=self._program.digest,
                stage=place,
                split=self._split,
                clients=tuple(self._ids[client] for client in places),
                versions=tuple(int(versions[client]) for client in places) if len(versions) else (),
                arrays=sent,
            )
        picks = self._first is not None and place == 0
        enough = (lambda answered: self._clients_of(answered) >= self._first) if picks else (lambda answered: False)
        answers = self._runtime.sites.ask_all(questions, enough)
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
        return [merged(scope, one, [of_site[n] for of_site in partials]) for n, one in enumerate(stage.sums)]

    def _bounds(self, places: Sequence[int]) -> Bounds:
        """Of the sums over the clients at these places of the call."""
        numbers = [self._number_of[self._ids[place]] for place in places]
        sizes = [getattr(self._agreement.clients[number], self._split) or 0 for number in numbers]
        return self._runtime.limits.bounds(sizes, numbers, len(self._of_site))

    @property
    def _state_path(self):
        names = [name for name, _ in tff.structure.iter_elements(self._program.form.parameter.type_signature)]
        return (names.index("client_state"),) if "client_state" in names else None

    def _part(self, path: Sequence[int]):
        value = self._argument
        for index in path:
            value = tff.structure.from_container(value)[index]
        return value

    def _held(self) -> list[Reference]:
        """The examples of the call's clients, in their order."""
        for step in self._given:
            found = [_held(value) for value in self._part(step.name)]
            if all(found):
                return found
        if self._given and not len(self._part(self._given[0].name)):
            return []
        raise SiteRefused("a computation over sites needs examples that are held there")

    def _result(self, sites, server: dict):
        there = {place for places in sites.values() for place in places}

        def part(step: Step):
            if not step.per_client:
                return self._values.give(server[step.name], step.type_signature)
            states = self._part(self._state_path)
            return [np.int64(self._round) if n in there else states[n] for n in range(len(self._ids))]

        return self._program.result(part, self._program.result_type)


class _Failed(Exception):
    """Sites that have to be left out, with the reason of each."""

    def __init__(self, sites: dict[str, str]):
        super().__init__("; ".join(sites.values()))
        self.sites = sites


def _held(value) -> Reference | None:
    if isinstance(value, Reference):
        return value
    if isinstance(value, dict):
        return next((held for part in value.values() if (held := _held(part)) is not None), None)
    return None
