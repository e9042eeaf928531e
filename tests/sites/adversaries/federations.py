"""Runs across sites in memory that honest parties have begun, one for each algorithm, for adversaries to go on with."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from computations import algorithms
from tests.bags_for_tests import PCNN, bag_table, with_method, write_pubtator
from tests.built_once import temporary_folder
from tests.documents_for_tests import document_table, marking_encoder, write_documents
from tests.sites.sites_for_tests import Federation, corpora, recipe_of, write_site, write_sites
from tests.upper_floors import consultations, write_json
from tff_re.recipes.reading import Recipe, resolve
from tff_re.sites import protocol
from tff_re.sites.policy import recipe_digest
from tff_re.sites.run import train_at_sites
from tff_re.sites.runtime import SitesRuntime
from tff_re.sites.transport import InMemory

NOT_AT_SITES = {"lazy_mil_alias"}
"""Algorithms that are refused across sites (`require_possible_at_sites`)."""

ALGORITHMS = tuple(name for name in algorithms.names() if name not in NOT_AT_SITES)
ONE = "fedpap"
"""For tricks that do not depend on the algorithm: it has two stages."""

PRIVATE = "fedavgs with noise"
"""FedAvgS under [privacy] of examples, beside the registry's algorithms: the site adds noise of its own."""

RECIPES = (*ALGORITHMS, PRIVATE)

FAST = (PRIVATE, "feded", "fedcmc", "fedpap", "moon")
"""Of the fast tests: noise, examples at the server, maxima, two stages, states of clients."""

OF_DOCUMENTS = ("fedlcc",)
OF_BAGS = tuple(name for name in ALGORITHMS if "mil" in name)
WITH_SERVER = ("feded", "fedavg_server_pass")

SITES = ("aachen", "bonn")
VICTIM = "bonn"
"""The attacked site, and the one that lies."""

KEYS = ("training.clients_per_round=7", "training.rounds=2", "algorithm.local_epochs=1", "evaluation.train_split=false")
CLIENTS = {"rule": "documents"}


def speed_of(algorithm: str) -> tuple:
    """Return the marks of a test of an algorithm: those that are not `FAST` are slow."""
    return () if algorithm in FAST else (pytest.mark.slow,)


class Stop(Exception):
    """The honest part of a run is over."""


def recipe_for(algorithm: str, folder: Path, *keys: str) -> Recipe:
    """A tiny recipe with the algorithm, and the coordinator's own files where it needs them."""
    if algorithm in OF_BAGS:
        test = write_pubtator(folder / "test.pubtator", range(40, 43))
        data = {"dataset": "cdr_aligned", "path": None, "test_path": str(test), "new_pairs": False, "min_clients": 2}
        training = {"rounds": 2, "clients_per_round": 6}
        table = bag_table(task=data, training=training, algorithm=with_method(algorithm), model={**PCNN, "filters": 2})
        return resolve(table, "tiny-bags.toml", keys)
    if algorithm in OF_DOCUMENTS:
        task = {"path": None, "tokenizer": str(marking_encoder())}
        table = document_table(task=task, training={"rounds": 2, "clients_per_round": 6})
        return resolve(table, "tiny-documents.toml", keys)
    if algorithm in WITH_SERVER:
        dialogues = {f"server-{key}": value for key, value in consultations(2, 2).items()}
        path = write_json(folder / "own.json", dialogues)
        keys = ("task.server_share=0.2", f"task.path={path}", *keys)
    if algorithm == PRIVATE:
        return recipe_of("fedavgs", *KEYS, "privacy={unit = 'example', clip = 0.5, epsilon = 1.0}", *keys)
    if algorithm == "fedetf":  # logistic regression is a classifier only, which it keeps fixed
        keys = ("model={name = 'lstm', units = 4, embedding_width = 4}", *keys)
    return recipe_of(algorithm, *KEYS, *keys)


def write_files(algorithm: str, folder: Path, recipe: Recipe, **tables) -> dict[str, Path]:
    """The sites' files: one run of this recipe alone, sums over at least two clients."""
    privacy = "example" if algorithm == PRIVATE else "none"
    allow = {
        "privacy": privacy,
        "recipes": [recipe_digest(recipe)],
        "least_clients": 2,
        "runs": 1,
        **tables.pop("allow", {}),
    }
    files = {}
    for number, site in enumerate(SITES):
        if algorithm in OF_DOCUMENTS:
            tables["set"] = {"task.tokenizer": str(marking_encoder())}
            data = {"dataset": "cdr", "path": "texts.pubtator"}
            files[site] = write_site(folder / site, site, {}, data=data, clients=CLIENTS, allow=allow, **tables)
            write_documents(folder / site / "texts.pubtator", range(3 * number, 3 * number + 3))
        elif algorithm in OF_BAGS:
            data = {"dataset": "cdr_aligned", "path": "texts.pubtator"}
            files[site] = write_site(folder / site, site, {}, data=data, clients=CLIENTS, allow=allow, **tables)
            write_pubtator(folder / site / "texts.pubtator", range(3 * number, 3 * number + 3))
        else:
            files[site] = write_site(folder / site, site, corpora(3)[site], clients=CLIENTS, allow=allow, **tables)
    return files


@dataclass
class Begun:
    """A run of which the first round is over.

    Attributes:
      folder: of the sites.
      recipe: of the run.
      asked: site -> every question that it answered, with the answer, in their order.
      calls: arguments of the coordinator's calls of training and evaluation.
    """

    folder: Path
    recipe: Recipe
    asked: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=lambda: {site: [] for site in SITES})
    calls: dict[str, tuple] = field(default_factory=dict)

    def questions(self, kind: str, site: str = VICTIM, **values) -> list[protocol.Question]:
        """The honest questions of a kind with these values."""
        questions = [protocol.question_of(message) for message, _ in self.asked[site]]
        return [q for q in questions if q.kind == kind and all(getattr(q, k) == v for k, v in values.items())]


@functools.cache
def begun(algorithm: str) -> Begun:
    """Return a run of an algorithm whose first round is over, trained once in a session."""
    return begin(algorithm, temporary_folder("adversaries") / algorithm)


def begin(algorithm: str, folder: Path, *keys: str, **tables) -> Begun:
    """Trains the first round."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = recipe_for(algorithm, folder, *keys)
    files = write_files(algorithm, folder, recipe, **tables)
    run = Begun(folder, recipe)
    federation = Federation(files)

    def call(site):
        def answered(message):
            question = protocol.question_of(message)
            if isinstance(question, protocol.Stage) and question.round == 2:
                raise Stop
            answer = federation.services[site].answer(message)
            run.asked[site].append((bytes(message), answer))
            return answer

        return answered

    _train(run, InMemory({site: call(site) for site in files}))
    federation.close()
    return run


def _train(run: Begun, engine: InMemory) -> None:
    """Trains until a site stops the run, and notes the coordinator's calls; its computations stay open."""
    honest = SitesRuntime.call

    def noted(self, purpose, program, argument):
        run.calls.setdefault(purpose, (self._agreement, self.limits, program, argument, self._round))
        return honest(self, purpose, program, argument)

    patches = (
        mock.patch.object(SitesRuntime, "call", noted),
        mock.patch.object(SitesRuntime, "_close", lambda self: None),
    )
    with patches[0], patches[1], pytest.raises(Stop):
        train_at_sites(run.recipe, run.folder / "run", engine, details=False)


@functools.cache
def begun_masked() -> Begun:
    """Return a masked run of three sites, each asked for masked sums, in `asked` alone; set up once in a session.

    A site has several clients, and a round may be tried again with others of them (training.min_clients).
    """
    folder = temporary_folder("adversaries") / "masked"
    federation, all_asked = Federation(write_sites(folder, corpora(2), clients=CLIENTS)), threading.Event()
    keys = ("training.clients_per_round=9", "training.min_clients=1", "algorithm.local_epochs=1")
    recipe = recipe_of("fedavgs", "aggregation.secure=masks", "evaluation.train_split=false", *keys)
    run = Begun(folder, recipe, {site: [] for site in federation.files})

    def call(site):
        def answered(message):
            if not isinstance(protocol.question_of(message), protocol.Masked):
                return federation.services[site].answer(message)
            run.asked[site].append((bytes(message), b""))
            if all(run.asked.values()):
                all_asked.set()
            all_asked.wait(60)
            raise Stop

        return answered

    _train(run, InMemory({site: call(site) for site in federation.files}))
    federation.close()
    assert all_asked.is_set()
    return run
