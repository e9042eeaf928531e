"""A site: answers a coordinator's messages from its own data, within what its file allows. No engine is in here."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError
from computations.local_model import LABEL
from datasets.errors import DataError
from tff_re import __version__
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.at_sites import SitesBuilder
from tff_re.runs.experiment import Experiment
from tff_re.runs.randomness import entropy, two_words
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.in_process.values import Values
from tff_re.sites import protocol
from tff_re.sites.data import SiteData
from tff_re.sites.messages import Malformed, Refused
from tff_re.sites.policy import Site, recipe_digest
from tff_re.sites.stages import Kept, Program, Stage, arrays_of, member, run_stage, value_of
from tff_re.sites.store import RunStore
from tff_re.sites.words import KEYED, LOCAL, WordsOfSite, secret_check
from tff_re.tasks.at_sites import SPLITS, Agreement, agreement_from_json, encoding_of, prepared

_log = logging.getLogger("tff_re.sites")

TRAIN, EVALUATE = "train", "evaluate"


class Lost(Exception):
    """What an earlier stage or round left is not there any more."""


@dataclass
class _Run:
    """A run that this site takes part in, in memory; all of it can be made again from the store."""

    recipe: Recipe
    store: RunStore
    data: SiteData
    agreement: Agreement | None = None
    examples: dict = field(default_factory=dict)
    experiment: Experiment | None = None

    @cached_property
    def programs(self) -> dict[str, Program]:
        """By their purposes."""
        return {
            TRAIN: Program(self.experiment.algorithm.next),
            EVALUATE: Program(self.experiment.evaluation),
        }


class SiteService:
    """Answers messages, one at a time."""

    def __init__(self, site: Site):
        self._site, self._options = site, site.options
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._values = Values()
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(self._options.threads, thread_name_prefix="tff-re-client")
        self._kinds = {
            "hello": self._hello,
            "words": self._words,
            "reveal": self._reveal,
            "facts": self._facts,
            "agree": self._agree,
            "stage": self._stage,
            "finish": self._finish,
        }

    def close(self) -> None:
        """Ends what is being computed."""
        self._pool.shutdown(cancel_futures=True)

    def answer(self, message: bytes) -> bytes:
        """The answer to a message. Never raises for what a coordinator may have sent."""
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
        except OSError as error:
            outcome = f"failed: {error}"
            return self._no("failed", f"its disk does not take what it has to keep ({error.strerror})")
        except (DataError, RuntimeProblem, CompositionError) as error:
            outcome = f"failed: {error}"
            return self._no("failed", f"its part failed ({type(error).__name__}); see the site's log")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            outcome = f"malformed: {type(error).__name__}"
            _log.debug("a malformed message", exc_info=True)
            return self._no("refused", "the message is not as this version of tff-re makes it")
        finally:
            down, up = (0 if one is None else protocol.payload(one) for one in (question, answer))
            milliseconds = 1000 * (time.perf_counter() - began)
            _log.info("%s: %d bytes down, %d bytes up, %.0f ms, %s", _named(question), down, up, milliseconds, outcome)

    def _no(self, why: str, text: str) -> bytes:
        line = f"site {self._options.name}: {' '.join(text.split())}"
        return protocol.to_bytes(protocol.No(site=self._options.name, **{why: line}))

    # Federated set-up

    def _hello(self, question: protocol.Hello) -> protocol.HelloAnswer:
        """The recipe comes; the sizes of the clients and the classes go, if the recipe is accepted."""
        store = RunStore(self._site.state, question.run)
        recipe = self._accepted(question.recipe)
        known = store.read("recipe.toml")
        if known is not None and known.decode() != question.recipe:
            raise Refused("the run was begun with another recipe")
        run = self._runs[question.run] = _Run(recipe, store, self._read(recipe))
        while len(self._runs) > 2:
            self._runs.popitem(last=False)
        if not run.data.sizes:
            raise Refused(f"no client has {self._options.clients.least_examples} training examples")
        store.write("recipe.toml", question.recipe.encode())
        data = run.data
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
            )
        except ValueError as error:
            raise Refused(f"its data cannot be used across sites: {error}") from None

    def _accepted(self, text: str) -> Recipe:
        try:
            recipe = self._site.own_recipe(text)
            self._site.require_allowed(recipe)
        except UserError as error:  # of the policy and the recipe, which the coordinator has
            raise Refused(str(error)) from None
        return recipe

    def _read(self, recipe: Recipe) -> SiteData:
        try:
            return SiteData(self._site, recipe)
        except (UserError, DataError) as error:
            _log.warning("the data cannot be read: %s", error)
            raise Refused("its data cannot be read for this recipe; see the site's log") from None

    def _label(self, recipe: Recipe) -> str:
        from datasets.catalogue import find_data_set

        label = getattr(recipe.task.options, "label", None)
        return label or find_data_set(recipe.task.options.dataset).labels[0]

    def _words(self, question: protocol.Words) -> protocol.WordsAnswer:
        """Counts of words go, see `WordsOfSite`."""
        words = self._words_of(question.run)
        return protocol.WordsAnswer(site=self._options.name) if words is None else words.counted()

    def _reveal(self, question: protocol.Reveal) -> protocol.RevealAnswer:
        """Digests of words come, with evidence that enough clients hold them; these words go."""
        words, store = self._words_of(question.run), self._run(question.run, agreed=False).store
        if words is None:
            raise Refused("it counts no words")
        found, asked = words.shown(question), question.digests.tobytes()
        if store.read("revealed") not in (None, asked):
            raise Refused("other words were shown in this run before; words are shown once")
        store.write("revealed", asked)
        return protocol.RevealAnswer(site=self._options.name, words=tuple(found))

    def _words_of(self, name: str) -> WordsOfSite | None:
        """None where a tokenizer is given."""
        run = self._run(name, agreed=False)
        found = run.data.word_counts()
        if found is None:
            return None
        return WordsOfSite(self._site, name, found, run.recipe.task.options.min_clients)

    def _facts(self, question: protocol.Facts) -> protocol.FactsAnswer:
        """Digests of the facts of the site's bags go, in an order that tells nothing."""
        run, secret = self._run(question.run, agreed=False), self._site.secret()
        if secret is None:
            raise Refused("bags need the sites' secret (vocabulary.secret): facts are told apart by its digests")
        keyed, _ = run.data.facts(secret, question.run)
        _log.info("run %s: digests of %d facts are shown", question.run[:8], len(keyed))
        check = secret_check(secret, question.run)
        return protocol.FactsAnswer(site=self._options.name, check=check, digests=keyed)

    def _agree(self, question: protocol.Agree) -> protocol.AgreeAnswer:
        """What all agreed upon comes, and the numbers of this site's facts among all; goes whether this site would
        compute the same."""
        run = self._run(question.run, agreed=False)
        agreement = agreement_from_json(question.agreement)
        own = [(c.client_id, c.train, c.test, c.dev) for c in agreement.clients if c.site == self._options.name]
        if agreement.run != question.run or own != run.data.sizes:
            raise Refused("its clients are not those that it named; begin the run again")
        if agreement.triples is not None:
            run.store.write("facts", question.numbers.tobytes())
        self._build(run, agreement)
        for purpose, digest in question.programs.items():
            if purpose == EVALUATE and not self._options.allow.evaluation:
                raise Refused(
                    "it allows no evaluation; set evaluation.train_split = false and hold out no test examples"
                )
            if run.programs[purpose].digest != digest:
                raise Refused(
                    f"the recipe gives another computation here than at the coordinator ({purpose}); use the same "
                    f"versions of tff-re ({__version__} here) and of TensorFlow ({tf.__version__})"
                )
        run.store.write("agreement.json", question.agreement.encode())
        return protocol.AgreeAnswer(site=self._options.name, agreed=True)

    def _build(self, run: _Run, agreement: Agreement) -> None:
        found = encoding_of(run.recipe.task, run.recipe.seed, agreement.paths(run.data.data_paths, at_site=True))
        run.agreement, numbers = agreement, self._numbers(run, agreement)
        run.examples = run.data.examples(agreement, *found[:2], numbers)
        run.experiment = SitesBuilder(prepared(agreement, found, run.examples)).build(run.recipe)
        run.__dict__.pop("programs", None)

    def _numbers(self, run: _Run, agreement: Agreement) -> np.ndarray | None:
        """See `SiteData.examples`."""
        if agreement.triples is None:
            return None
        secret = self._site.secret()
        facts = None if secret is None else run.data.facts(secret, agreement.run)
        given = np.frombuffer(run.store.read("facts") or b"", "<i4")
        if facts is None or len(given) != len(facts[1]) or not ((given >= 0) & (given < agreement.triples)).all():
            raise Refused("the numbers of its facts are not those of the facts that it named; begin the run again")
        numbers = np.full(len(run.data.corpora[0].triples), -1, np.int32)
        numbers[facts[1]] = given
        return numbers

    def _run(self, name: str, *, agreed: bool = True) -> _Run:
        run = self._runs.get(name)
        if run is None:
            store = RunStore(self._site.state, name)
            text = store.read("recipe.toml")
            if text is None:
                raise Lost("it does not know the run")
            recipe = self._accepted(text.decode())
            run = self._runs[name] = _Run(recipe, store, self._read(recipe))
        if agreed and run.agreement is None:
            text = run.store.read("agreement.json")
            if text is None:
                raise Lost("it has not agreed to the run yet")
            self._build(run, agreement_from_json(text))
        return run

    # Stages

    def _stage(self, question: protocol.Stage) -> protocol.StageAnswer:
        """Broadcast values come, the sums over the clients go; see `tff_re.sites.stages`."""
        run = self._run(question.run)
        purpose, round_num, arrays = question.purpose, question.round, question.arrays
        program = run.programs[purpose]
        if question.program != program.digest:
            raise Refused("the run's computation is another one here; begin the run again")
        stage = program.stages[question.stage]
        clients = [client.id for client in question.clients]
        if len(set(clients)) < len(clients) or not set(clients) <= set(run.examples):
            raise Refused("these are no clients of this site")
        self._require_enough(run, purpose, question.clients, clients)
        self._count(run, program, stage, purpose, round_num, arrays)
        values = iter(arrays)
        sent = {step.name: value_of(step.type_signature, values) for step in stage.sent}
        given = [self._given(run, program, client, round_num, values) for client in question.clients]
        if next(values, None) is not None:
            raise Malformed("the message holds more arrays than the stage takes")
        before = self._before(run, program, stage, round_num, clients)
        threads = self._options.threads
        totals, kept = run_stage(program, stage, sent, given, before, threads=threads, pool=self._pool)
        if stage is program.stages[-1]:
            self._keep_states(run, program, round_num, clients, kept)
        else:
            content = {"clients": clients}, program.kept_arrays(stage, kept)
            run.store.write_kept(program.digest, round_num, stage.number, *content)
        return protocol.StageAnswer(site=self._options.name, arrays=tuple(arrays_of(totals)))

    def _require_enough(
        self, run: _Run, purpose: str, asked: Sequence[protocol.StageClient], clients: list[str]
    ) -> None:
        """Refuses sums over few clients: an evaluation is over all that have examples of its split."""
        if purpose == EVALUATE:
            splits = {tree.held for client in asked for tree in client.given.values()}
            for split in splits:
                place = SPLITS.index(split)
                there = {c for c, own in run.examples.items() if own[place] is not None and len(own[place][LABEL])}
                if len(splits) > 1 or there != set(clients):
                    raise Refused("it evaluates all of its clients together")
        elif len(clients) < self._options.allow.least_clients:
            least = self._options.allow.least_clients
            raise Refused(
                f"its sums are over at least {least} of its clients (allow.least_clients), not {len(clients)}"
            )

    def _count(self, run: _Run, program: Program, stage: Stage, purpose: str, round_num: int, arrays) -> None:
        """Refuses what is more than allowed, before it is computed."""
        counts, allow = run.store.counts(), self._options.allow
        if purpose == EVALUATE and not allow.evaluation:
            raise Refused("it allows no evaluation")
        if purpose == TRAIN and round_num not in counts["rounds"]:
            counts["rounds"].append(round_num)
            if len(counts["rounds"]) > allow.most_rounds:
                raise Refused(f"it answers {allow.most_rounds} rounds of a run (allow.most_rounds), and no more")
        counts["bytes_up"] += program.bytes_of(stage)[1]
        if counts["bytes_up"] > allow.most_bytes_up:
            raise Refused(f"{allow.most_bytes_up} bytes have left for this run (allow.most_bytes_up), and no more may")
        if purpose == TRAIN and not stage.number and run.recipe.privacy is not None:
            # The same noise on two models would tell more than the accounting says.
            digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
            if run.recipe.privacy.unit != "client" and counts["first"].setdefault(str(round_num), digest) != digest:
                raise Refused(f"round {round_num} was asked for with other weights before; a round is answered once")
        run.store.write_counts(counts)

    def _given(self, run: _Run, program: Program, client: protocol.StageClient, round_num: int, values):
        """What gives a client's parts of the argument; the arrays that came for it are taken off `values` now."""
        parts = [step for step in program.form.steps.values() if step.given and step.per_client]
        of_part = {}
        for step in parts:
            name, kind = json.dumps(step.name), member(step.type_signature)
            if name in client.given:
                of_part[step.name] = self._resolved(run, client.given[name], kind, client.id, round_num, values)
        return lambda step: of_part[step.name]() if callable(of_part[step.name]) else of_part[step.name]

    def _resolved(self, run: _Run, tree, type_signature: tff.Type, client: str, round_num: int, values):
        if isinstance(tree, protocol.Held):
            own = run.examples[client][SPLITS.index(tree.held)]
            return self._values.take(run.experiment.model.arrange(own), type_signature)
        if isinstance(tree, protocol.Version):
            return self._client_state(run, client, tree.version, type_signature)
        if isinstance(tree, tuple):
            types = tff.structure.to_elements(type_signature)
            found = [
                self._resolved(run, part, of_part, client, round_num, values)
                for part, (_, of_part) in zip(tree, types, strict=True)
            ]
            names = [name for name, _ in types]
            if "seed" in names and run.recipe.privacy is not None and run.recipe.privacy.unit != "client":
                # The noise of the client's steps comes from the seed, so it is the site's own.
                number = int.from_bytes(hashlib.sha256(client.encode()).digest()[:7], "little")
                found[names.index("seed")] = tf.constant(two_words(entropy(run.store.secret(), round_num, number)))
            return tuple(found)
        return value_of(type_signature, values)

    def _client_state(self, run: _Run, client: str, version: int, type_signature: tff.Type):
        if version < 0:
            examples = run.experiment.model.arrange(run.examples[client][0])
            blank = run.experiment.algorithm.client_work.initial_client_state(examples, run.recipe.seed)
            return self._values.take(blank, type_signature)
        arrays = run.store.client_state(client, version)
        if arrays is None:
            raise Lost(f"a client's state after round {version} is not on its disk")
        return value_of(type_signature, iter(arrays))

    def _before(self, run: _Run, program: Program, stage: Stage, round_num: int, clients: list[str]) -> Kept:
        """What earlier stages of the call left."""
        place = program.stages.index(stage)
        if place == 0:
            return Kept({}, [{} for _ in clients])
        earlier = program.stages[place - 1]
        table, arrays = run.store.kept(program.digest, round_num, earlier.number)
        if table.get("clients") != clients:
            raise Lost(f"what it kept of round {round_num} is not on its disk")
        return program.kept_of(earlier, iter(arrays), len(clients))

    def _keep_states(self, run: _Run, program: Program, round_num: int, clients: list[str], kept: Kept) -> None:
        results = program.client_results()
        if not results:
            return
        for client, own in zip(clients, kept.clients, strict=True):
            arrays = arrays_of([own[step.name] for step in results])
            run.store.write_client_state(client, round_num, arrays)
            # The coordinator keeps the checkpoints of the last two rounds, whatever training.checkpoint_every says.
            run.store.forget_states(client, round_num - 2)

    def _finish(self, question: protocol.Finish) -> protocol.FinishAnswer:
        """The run is over: what was kept for it goes."""
        self._runs.pop(question.run, None)
        RunStore(self._site.state, question.run).forget()
        return protocol.FinishAnswer(site=self._options.name)


def _named(question: protocol.Question | None) -> str:
    """A question in the log."""
    if question is None:
        return "no question"
    named = f"run {question.run[:8]} {question.kind}"
    if isinstance(question, protocol.Stage):
        named += f" {question.purpose} round {question.round} stage {question.stage}, {len(question.clients)} clients"
    return named
