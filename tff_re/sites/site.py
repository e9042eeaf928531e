"""A site, which answers a coordinator's messages from its own data within what its file allows.

No engine is in here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from computations.errors import CompositionError
from datasets.errors import DataError
from tff_re import __version__
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.experiment import Experiment
from tff_re.runtime import events
from tff_re.runtime.errors import RuntimeProblem
from tff_re.sites import protocol
from tff_re.sites.agreement import SPLITS, Agreement, agreement_from_json
from tff_re.sites.answering import StageAnswers
from tff_re.sites.comparisons import compared_models
from tff_re.sites.data import SiteData
from tff_re.sites.decisions import Decisions
from tff_re.sites.experiments import SitesBuilder
from tff_re.sites.ledger import training_data
from tff_re.sites.log_lines import facts_of, outcome_of
from tff_re.sites.masking import SiteMasks
from tff_re.sites.masks import NotMaskable
from tff_re.sites.messages import Lost, Malformed, Refused
from tff_re.sites.own_models import OwnModels
from tff_re.sites.policy import Site, recipe_digest
from tff_re.sites.prepared import AgreedEncoding, SitesPrepared, prepared
from tff_re.sites.program import Program
from tff_re.sites.requests import EVALUATE, TRAIN
from tff_re.sites.store import RunStore
from tff_re.sites.surveys import Surveys
from tff_re.sites.words import KEYED, LOCAL, WordsOfSite, secret_check
from tff_re.tasks import TASKS

_log = logging.getLogger("tff_re.sites")


@dataclass
class _Run:
    """A run that this site takes part in, in memory.

    All of it can be made again from the store.
    """

    recipe: Recipe
    store: RunStore
    data: SiteData
    agreement: Agreement | None = None
    examples: dict = field(default_factory=dict)
    experiment: Experiment | None = None
    prepared: SitesPrepared | None = None
    alone: Experiment | None = None

    @cached_property
    def programs(self) -> dict[str, Program]:
        """Return the programs by purpose."""
        return {
            TRAIN: Program(self.experiment.algorithm.next),
            EVALUATE: Program(self.experiment.evaluation),
        }


class SiteService:
    """Answers messages, one at a time."""

    def __init__(self, site: Site):
        self._site, self._options = site, site.options
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._lock = threading.Lock()
        self._decisions = Decisions(site)
        for line in self._decisions.ledger.lines():
            events.SITE_LEDGER.log(_log, line=line)
        self._stages = StageAnswers(self._decisions, self._options.threads, self._options.keep_updates)
        self._masks = SiteMasks(site, self._decisions)
        self._surveys = Surveys(site, self._decisions, self._masks)
        self._own_models = OwnModels(site, self._decisions)
        self._kinds = {
            "hello": self._hello,
            "words": self._words,
            "reveal": self._reveal,
            "facts": self._facts,
            "agree": self._agree,
            "stage": self._stage,
            "masked": self._masked,
            "roster": self._roster,
            "open": self._open,
            "alone": lambda question: self._own_models.alone(self._run(question.run), question),
            "compare": lambda question: self._own_models.compare(self._run(question.run), question),
            "finish": self._finish,
            "survey": self._surveys.answer,
            "masked_survey": self._surveys.masked,
            "masked_distance": self._surveys.distance,
            "ping": lambda question: protocol.PingAnswer(site=self._options.name),
        }

    def close(self) -> None:
        """Cancel the running computation."""
        self._stages.close()

    def known_run(self, name: str) -> _Run:
        """Return a run that this site agreed to, with its data and computations.

        Raises Refused or Lost.
        """
        return self._run(name)

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message.

        Never raises for anything a coordinator may have sent.
        """
        with self._lock:
            return self._answer(message)

    def _answer(self, message: bytes) -> bytes:
        began, question, answer, outcome = time.perf_counter(), None, None, "malformed"
        try:
            question = protocol.question_of(message)
            answer = self._kinds[question.kind](question)
            outcome = "answered"
            return protocol.to_bytes(answer)
        except Malformed as error:
            outcome = f"malformed: {error}"
            return self._no("refused", str(error))
        except (Refused, UserError) as error:
            outcome = f"refused: {error}"
            return self._no("refused", str(error) if isinstance(error, Refused) else "see the site's log")
        except Lost as error:
            outcome = f"lost: {error}"
            return self._no("lost", str(error))
        except NotMaskable as error:
            outcome = f"failed: {error}"
            return self._no("failed", str(error))
        except OSError as error:
            outcome = f"failed: {error}"
            return self._no("failed", f"its disk does not take what it has to keep ({error.strerror})")
        except (DataError, RuntimeProblem, CompositionError) as error:
            outcome = f"failed: {error}"
            return self._no("failed", f"its part failed ({type(error).__name__}); see the site's log")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            outcome = f"malformed: {type(error).__name__}"
            events.MESSAGE_MALFORMED.log(_log, exc_info=True)
            return self._no("refused", "the message is not as this version of tff-re makes it")
        finally:
            down, up = (0 if sent is None else protocol.payload(sent) for sent in (question, answer))
            milliseconds = 1000 * (time.perf_counter() - began)
            said = {"question": _named(question), **facts_of(question), **outcome_of(outcome)}
            events.MESSAGE_ANSWERED.log(_log, bytes_down=down, bytes_up=up, milliseconds=milliseconds, **said)

    def _no(self, why: str, text: str) -> bytes:
        line = f"site {self._options.name}: {' '.join(text.split())}"
        return protocol.to_bytes(protocol.No(site=self._options.name, **{why: line}))

    # Federated set-up

    def _hello(self, question: protocol.Hello) -> protocol.HelloAnswer:
        """Receive the recipe and, if it is accepted, send the sizes of the clients and the classes."""
        store, content = RunStore(self._site.state, question.run), question.recipe.encode()
        recipe = self._decisions.recipe(question.recipe)
        if store.read("recipe.toml") not in (None, content):
            raise Refused("the run was begun with another recipe")
        run = _Run(recipe, store, self._read(recipe))
        self._decisions.clients(run.data.sizes)
        answer = self._described(recipe, run.data)
        self._enter(run, question.run)
        store.write("recipe.toml", content)
        return answer

    def _described(self, recipe: Recipe, data: SiteData) -> protocol.HelloAnswer:
        """Return what the coordinator learns of the site's data.

        Raises Refused if a message cannot say it.
        """
        try:
            return protocol.HelloAnswer(
                site=self._options.name,
                version=__version__,
                recipe=recipe_digest(recipe),
                clients=tuple(data.sizes),
                label=self._label(recipe),
                label_names=data.label_names,
                positive_labels=None if data.positive_labels is None else tuple(data.positive_labels),
                vocabulary=LOCAL if self._site.secret() is None else KEYED,
                relations=data.relations,
                document_form=data.document_form,
                share=data.share,
                evaluation=self._options.allow.evaluation,
                comparison=self._decisions.comparison(recipe) if compared_models(recipe) else None,
            )
        except ValueError as error:
            raise Refused(f"its data cannot be used across sites: {error}") from None

    def _enter(self, run: _Run, name: str) -> None:
        """Record the run in the ledger, and keep it in memory.

        Raises Refused if it began on other data.
        """
        clients = {client: held.train for client, held in run.data.clients.items()}
        one_client = self._options.clients.rule == "one"
        data = training_data(run.recipe, clients, run.data.data_paths.data, one_client=one_client)
        self._decisions.begin(data, name, run.recipe)
        self._runs[name] = run
        while len(self._runs) > 2:
            self._runs.popitem(last=False)

    def _read(self, recipe: Recipe) -> SiteData:
        try:
            return SiteData(self._site, recipe)
        except (UserError, DataError) as error:
            events.DATA_UNREADABLE.log(_log, error=error)
            raise Refused("its data cannot be read for this recipe; see the site's log") from None

    def _label(self, recipe: Recipe) -> str:
        from datasets.catalogue import find_data_set

        label = getattr(recipe.task.options, "label", None)
        return label or find_data_set(recipe.task.options.dataset).labels[0]

    def _words(self, question: protocol.Words) -> protocol.WordsAnswer:
        """Send word counts (see `WordsOfSite`)."""
        words = self._words_of(question.run)
        return protocol.WordsAnswer(site=self._options.name) if words is None else words.counted()

    def _reveal(self, question: protocol.Reveal) -> protocol.RevealAnswer:
        """Receive digests of words, with evidence that enough clients hold them, and send these words."""
        words, store = self._words_of(question.run), self._run(question.run, agreed=False).store
        if words is None:
            raise Refused("it counts no words")
        revealed, asked = words.revealed(question), question.digests.tobytes()
        if store.read("revealed") not in (None, asked):
            raise Refused("other words were shown in this run before; words are shown once")
        store.write("revealed", asked)
        return protocol.RevealAnswer(site=self._options.name, words=tuple(revealed))

    def _words_of(self, name: str) -> WordsOfSite | None:
        """Return the run's words, or None if it has a tokenizer."""
        run = self._run(name, agreed=False)
        counts = run.data.word_counts()
        if counts is None:
            return None
        self._decisions.words(run.recipe.task.options.min_clients)
        return WordsOfSite(self._site, name, counts, run.recipe.task.options.min_clients)

    def _facts(self, question: protocol.Facts) -> protocol.FactsAnswer:
        """Send the digests of the facts of the site's bags, in an order that reveals nothing."""
        run, secret = self._run(question.run, agreed=False), self._site.secret()
        if secret is None:
            raise Refused("bags need the sites' secret (vocabulary.secret): facts are told apart by its digests")
        facts = run.data.facts(secret, question.run)
        if facts is None:
            raise Refused("its examples are not in bags, and have no facts")
        keyed, _ = facts
        events.FACTS_SENT.log(_log, run=question.run[:8], count=len(keyed))
        check = secret_check(secret, question.run)
        return protocol.FactsAnswer(site=self._options.name, check=check, digests=keyed)

    def _agree(self, question: protocol.Agree) -> protocol.AgreeAnswer:
        """Receive the agreement and the numbers of this site's facts, and send whether it would compute the same."""
        run = self._run(question.run, agreed=False)
        agreement = agreement_from_json(question.agreement)
        clients = [(c.client_id, c.train, c.test, c.dev) for c in agreement.clients if c.site == self._options.name]
        if agreement.run != question.run or clients != run.data.sizes:
            raise Refused("its clients are not those that it named; begin the run again")
        content = question.agreement.encode()
        if run.store.read("agreement.json") not in (None, content):
            raise Refused("the run was begun with another agreement")
        numbers = question.numbers if agreement.triples is not None else None
        if numbers is not None and run.store.read("facts") not in (None, numbers.tobytes()):
            raise Refused("the run was begun with other numbers of its facts")
        agreed = self._built(run, agreement, numbers)
        self._decisions.computation(agreed.programs, question.programs)
        if numbers is not None:
            run.store.write("facts", numbers.tobytes())
        run.store.write("agreement.json", content)
        self._runs[question.run] = agreed
        return protocol.AgreeAnswer(site=self._options.name, agreed=True)

    def _built(self, run: _Run, agreement: Agreement, numbers: np.ndarray | None) -> _Run:
        """Return the run as it is computed by an agreement, and leave `run` as it is.

        Raises Refused if its sums may not leave.
        """
        recipe, task = run.recipe, TASKS[run.recipe.task.name]
        agreed = AgreedEncoding.of(recipe.task, recipe.seed, agreement.paths(run.data.data_paths, at_site=True))
        encoded = run.data.examples(agreement, agreed.encoding, agreed.inputs, self._numbers(run, agreement, numbers))
        data = prepared(task, agreement, agreed, encoded)
        experiment = SitesBuilder(data).build(recipe)
        clients = experiment.prepared.examples.clients  # behind frozen layers, what the model reads
        here = [client for client in clients if client.client_id in encoded]
        examples = {client.client_id: tuple(getattr(client, split) for split in SPLITS) for client in here}
        built = _Run(recipe, run.store, run.data, agreement, examples, experiment, data)
        self._decisions.programs(recipe, built.programs)
        return built

    def _numbers(self, run: _Run, agreement: Agreement, received: np.ndarray | None) -> np.ndarray | None:
        """Return `numbers` of `SiteData.examples`.

        `received`: numbers of this site's facts, in the order in which it named them.
        """
        if agreement.triples is None:
            return None
        secret = self._site.secret()
        facts = None if secret is None else run.data.facts(secret, agreement.run)
        if (
            facts is None
            or received is None
            or len(received) != len(facts[1])
            or not ((received >= 0) & (received < agreement.triples)).all()
        ):
            raise Refused("the numbers of its facts are not those of the facts that it named; begin the run again")
        numbers = np.full(len(run.data.corpora[0].triples), -1, np.int32)
        numbers[facts[1]] = received
        return numbers

    def _run(self, name: str, *, agreed: bool = True) -> _Run:
        run = self._runs.get(name)
        if run is None:
            store = RunStore(self._site.state, name)
            text = store.read("recipe.toml")
            if text is None:
                raise Lost("it does not know the run")
            recipe = self._decisions.recipe(text.decode())
            run = _Run(recipe, store, self._read(recipe))
            self._enter(run, name)
        if agreed and run.agreement is None:
            text = run.store.read("agreement.json")
            if text is None:
                raise Lost("it has not agreed to the run yet")
            numbers = np.frombuffer(run.store.read("facts") or b"", "<i4")
            run = self._runs[name] = self._built(run, agreement_from_json(text), numbers)
        return run

    # Stages

    def _stage(self, question: protocol.Stage) -> protocol.StageAnswer:
        """Receive broadcast values and send the sums over the clients (see `StageAnswers`)."""
        run = self._run(question.run)
        self._decisions.sums(run.recipe, masked=False)
        return protocol.StageAnswer(site=self._options.name, arrays=tuple(self._stages.answer(run, question)))

    def _masked(self, question: protocol.Masked) -> protocol.MaskedAnswer:
        """Receive broadcast values and send the masked sums over the clients (see `SiteMasks`)."""
        run = self._run(question.run)
        self._decisions.sums(run.recipe, masked=True)
        self._masks.check(run, question)
        masked = self._masks.masked(run, question, self._stages.answer(run, question))
        return protocol.MaskedAnswer(site=self._options.name, arrays=tuple(masked))

    def _roster(self, question: protocol.Roster) -> protocol.RosterAnswer:
        """Receive the sites that sent masked sums, and send a signature."""
        signature = self._masks.signature(self._masked_sums(question.run), question)
        return protocol.RosterAnswer(site=self._options.name, signature=signature)

    def _open(self, question: protocol.Open) -> protocol.OpenAnswer:
        """Receive the signatures of these sites, and send keys of masks."""
        own_key, shared_keys = self._masks.opened(self._masked_sums(question.run), question)
        return protocol.OpenAnswer(site=self._options.name, own_key=own_key, shared_keys=shared_keys)

    def _masked_sums(self, name: str) -> Any:
        """Return what was masked under an id: the counts of a survey, or sums of a run."""
        return self._surveys.masked_counts(name) or self._run(name)

    def _finish(self, question: protocol.Finish) -> protocol.FinishAnswer:
        """End the run and delete what was stored for it."""
        self._runs.pop(question.run, None)
        RunStore(self._site.state, question.run).forget()
        return protocol.FinishAnswer(site=self._options.name)


def _named(question: protocol.Question | None) -> str:
    """Return how the log names a question."""
    if question is None:
        return "no question"
    named = f"run {question.run[:8]} {question.kind}"
    if isinstance(question, protocol.Stage):
        named += f" {question.purpose} round {question.round} stage {question.stage}, {len(question.clients)} clients"
    if isinstance(question, protocol.Masked | protocol.Roster | protocol.MaskedSurvey | protocol.MaskedDistance):
        named += f", attempt {question.attempt} of {', '.join(question.sites)}"
    return named
