"""The budgets of a site that a coordinator lies to, and the order of requests without a site.

Its tricks with single messages are in `tests/sites/adversaries`. Both are the rows of "Who is trusted with what" in
docs/sites.md.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from datasets.files import replace_file
from tests.sites.adversaries.everyone import OF_COORDINATORS, OF_SITES
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.sites_for_tests import Federation, decisions_of, recipe_of, write_sites
from tests.upper_floors import command
from tff_re.runs.features.privacy import accounting_in
from tff_re.sites import protocol
from tff_re.sites.answering import _seed
from tff_re.sites.decisions import MAX_REPEATS, MAX_WEIGHTS, SPARE_EVALUATIONS
from tff_re.sites.ledger import FILE
from tff_re.sites.messages import Refused
from tff_re.sites.policy import for_sites, read_site
from tff_re.sites.requests import Record, Request, groups
from tff_re.sites.run import train_at_sites
from tff_re.sites.site import SiteService
from tff_re.sites.transport import InMemory

PRIVATE = ("privacy={unit = 'example', clip = 0.5, epsilon = 1.0}", "evaluation.train_split=false")
ROUNDS = ("training.rounds=2", "training.clients_per_round=15", "algorithm.local_epochs=1")
SITE = "celle"
"""The attacked one; it has six clients."""


class _Stop(Exception):
    pass


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder of sites that have agreed to a private run, and the first question of its training to the site."""
    folder, asked, attacked = tmp_path_factory.mktemp("lying"), {}, threading.Event()
    allow = {"privacy": "example", "least_clients": 4}
    federation = Federation(write_sites(folder, clients={"rule": "documents"}, allow=allow))
    honest = federation.engine.call

    def call(site):
        def answer(message):
            question = protocol.question_of(message)
            if isinstance(question, protocol.Stage):
                asked[site] = message
                if site == SITE:
                    attacked.set()
                raise _Stop
            return honest(site, message, 60)

        return answer

    federation.engine = InMemory({name: call(name) for name in federation.files})
    recipe = recipe_of("fedavgs", *PRIVATE, *ROUNDS)
    with pytest.raises(_Stop):
        train_at_sites(recipe, folder / "run", federation.engine, details=False)
    assert attacked.wait(60)  # another site's thread may have stopped the run
    federation.close()
    return folder / SITE, bytes(asked[SITE]), recipe


class Attacked:
    """The site as a process that was started again, with nothing but its disk."""

    def __init__(self, folder, message):
        self.folder, self._message = folder, message
        self.question = protocol.question_of(message)
        self.service = SiteService(read_site(folder / "site.toml"))

    def ask(self, **changes):
        """The answer to the honest question with these changes."""
        return self.answer(attrs.evolve(self.question, **changes))

    def answer(self, question):
        return protocol.answer_of(type(question), self.service.answer(protocol.to_bytes(question)))

    def refused(self, line, **changes):
        answer = self.ask(**changes)
        assert isinstance(answer, protocol.No) and line in (answer.refused or ""), answer
        return answer

    def other_weights(self, shift=1.0):
        return tuple(a + np.float32(shift) if a.dtype.kind == "f" else a for a in self.question.arrays)

    def restarted(self, **allow):
        """Again a process of its own, whose file allows something else."""
        self.service.close()
        text = (self.folder / "site.toml").read_text("utf-8")
        for key, value in allow.items():
            text = text.replace("[allow]\n", f"[allow]\n{key} = {json.dumps(value)}\n")
        (self.folder / "site.toml").write_text(text, "utf-8")
        return Attacked(self.folder, self._message)


@pytest.fixture
def attacked(begun, tmp_path):
    shutil.copytree(begun[0], tmp_path / SITE, ignore=shutil.ignore_patterns("*.sock"))
    site = Attacked(tmp_path / SITE, begun[1])
    yield site
    site.service.close()


def sums_of(answer):
    assert isinstance(answer, protocol.StageAnswer), answer
    return b"".join(array.tobytes() for array in answer.arrays)


# A round is answered once


def test_the_same_request_gets_the_same_bytes_after_a_restart_and_where_they_were_lost(attacked):
    first = sums_of(attacked.ask())
    again = attacked.restarted()
    assert sums_of(again.ask()) == first
    for path in again.folder.rglob("kept/*"):
        path.unlink()
    assert sums_of(again.ask()) == first  # computed anew
    again.refused("a round is answered once", arrays=again.other_weights())
    again.service.close()


def test_two_requests_never_share_noise():
    def seed(first, unit="example", round_num=1, client="a", secret=b"s" * 32):
        store = SimpleNamespace(secret=lambda: secret)
        run = SimpleNamespace(recipe=SimpleNamespace(privacy_unit=unit, seed=0), store=store)
        return tuple(_seed(run, round_num, client, first * 64))

    seeds = {seed("0"), seed("1"), seed("0", round_num=2), seed("0", client="b"), seed("0", secret=b"t" * 32)}
    assert len(seeds) == 5 and seed("0") in seeds
    assert seed("0", unit="client") == seed("1", unit="client")  # noise is the coordinator's: the simulation's seed


# Rounds and budgets


def test_a_recipe_of_two_rounds_is_answered_twice_and_the_ledger_has_its_epsilon(attacked, capsys):
    for number in (0, 3, 1000):
        attacked.refused(f"the recipe has rounds 1 to 2, and not {number}", round=number)
    for number in (1, 2):
        sums_of(attacked.ask(round=number))
    for number in range(1, 1001):
        attacked.refused("", round=number, arrays=attacked.other_weights(number))
    service, run = attacked.service, attacked.question.run
    accounting = accounting_in(service._runs[run].experiment)
    (digest,) = service._decisions.ledger._data
    spent = service._decisions.ledger.epsilon(digest)
    assert spent == accounting.epsilon_of(dict.fromkeys(attacked.question.clients, 2)) <= 1.0
    typed = command(capsys, "site", attacked.folder / "site.toml", "--ledger")
    assert typed.code == 0 and "texts.json" in typed.out and "1 run, 2 rounds" in typed.out
    assert f"run {run[:8]}" in typed.out and "ε = 1.00 at δ = 1e-05" in typed.out
    again = attacked.restarted()
    assert again.service._decisions.ledger.epsilon(digest) == spent
    again.service.close()


def test_the_rounds_of_a_run_are_limited(attacked):
    site = attacked.restarted(most_rounds=1)
    sums_of(site.ask())
    site.refused("answers 1 rounds of a run (allow.most_rounds)", round=2)
    site.service.close()


def test_new_run_ids_do_not_give_a_new_budget(attacked, begun):
    site = attacked.restarted(runs=1)
    text = for_sites(begun[2])
    assert isinstance(site.answer(protocol.Hello(run=site.question.run, recipe=text)), protocol.HelloAnswer)
    answer = site.answer(protocol.Hello(run="f" * 32, recipe=text))
    assert "1 runs were begun on its data (allow.runs), and no more may be" in answer.refused
    site = site.restarted(epsilon_total=0.5)
    site.refused("above 0.5 (allow.epsilon_total)")
    assert site.service._decisions.ledger.rounds_of(site.question.run) == {}
    site.service.close()


def test_other_data_under_the_same_run_are_refused(attacked):
    """With the same noise on both, their difference would have none."""
    sums_of(attacked.ask())
    path = attacked.folder / "texts.json"
    corpus = json.loads(path.read_text("utf-8"))
    next(iter(corpus.values()))["dialogue"][0]["sentence"] += "烧"
    replace_file(path, json.dumps(corpus, ensure_ascii=False).encode())
    site = attacked.restarted()
    site.refused("begun with other data of this site")
    site.service.close()


# The order of requests, without a site


ANY = decisions_of()


def question(**changes):
    single = {"run": "0" * 32, "round": 1, "purpose": "train", "program": "0" * 64, "stage": 0, "split": "train"}
    lists = {"clients": ("a", "b", "c", "d"), "versions": (), "arrays": (np.zeros(2, np.float32),)}
    return Request(protocol.Stage(**{**single, **lists, **changes}))


def test_sets_of_clients_of_one_round_are_told_apart_in_groups_only():
    """A round that is tried again with other clients (training.min_clients)."""
    recipe = recipe_of("fedavgs", "training.min_clients=1", "training.attempts=3")
    record, decisions = Record(), decisions_of(least_clients=2)
    decisions.admit(record, question(), recipe, 1)
    for clients in (("a", "b", "c"), ("a", "b", "c", "e"), ("b", "c", "d", "e", "f")):
        with pytest.raises(Refused, match="few of these would tell both sums apart"):
            decisions.admit(record, question(clients=clients), recipe, 1)
    record = Record(record.to_json())
    decisions.admit(record, question(clients=("a", "b", "e", "f")), recipe, 1)
    with pytest.raises(Refused, match="with other weights"):
        decisions.admit(record, question(clients=("e", "f"), arrays=(np.ones(2, np.float32),)), recipe, 1)
    decisions.admit(record, question(clients=("e", "f")), recipe, 1)
    with pytest.raises(Refused, match="with other clients before; a round is answered once"):
        decisions.admit(record, question(clients=("g", "h")), recipe, 1)
    assert sorted(map(sorted, groups([("a", "b"), ("b", "c"), ("a", "c")]))) == [["a"], ["b"], ["c"]]


def test_later_stages_follow_the_first_and_are_bounded():
    recipe, record = recipe_of("fedpap"), Record()
    with pytest.raises(Refused, match="stage 1 of round 1 comes without the stages before it"):
        ANY.admit(record, question(stage=1), recipe, 1)
    first = ANY.admit(record, question(), recipe, 1)
    with pytest.raises(Refused, match="comes without the stages before it"):
        ANY.admit(record, question(stage=1, clients=("a", "b")), recipe, 1)
    for number in range(MAX_REPEATS):
        asked = question(stage=1, arrays=(np.full(2, number, np.float32),))
        assert ANY.admit(record, asked, recipe, 1) == ANY.admit(record, asked, recipe, 1) == first
    with pytest.raises(Refused, match="too often"):
        ANY.admit(record, question(stage=1, arrays=(np.full(2, -1, np.float32),)), recipe, 1)


def test_rounds_after_the_newest_checkpoints_come_again_and_older_ones_do_not():
    recipe, record = recipe_of("fedavgs", "training.rounds=9"), Record()
    for number in range(1, 6):
        ANY.admit(record, question(round=number), recipe, 1)
    ANY.admit(record, question(round=4), recipe, 1)
    assert (record.rounds, record.newest) == (5, 5)
    with pytest.raises(Refused, match="round 3 comes after round 5"):
        ANY.admit(record, question(round=3), recipe, 1)


def test_evaluations_of_a_run_are_bounded():
    recipe, record = recipe_of("fedavgs"), Record()
    limit, done = recipe.training.rounds + SPARE_EVALUATIONS, 0
    with pytest.raises(Refused, match=f"evaluates {limit} weights on test examples in this run"):
        for number in range(1000):
            asked = {"purpose": "evaluate", "split": "test", "round": number // MAX_WEIGHTS}
            ANY.admit(record, question(**asked, arrays=(np.full(2, number, np.float32),)), recipe, 1)
            done += 1
    assert done == limit
    with pytest.raises(Refused, match=r"1 bytes have left for this run \(allow.most_bytes_up\)"):
        decisions_of(most_bytes_up=1).admit(record, question(), recipe, 1)


def test_the_form_of_a_request_without_privacy():
    sizes, ways = {"a": (3, 1, 0), "b": (2, 0, 0), "c": (0, 1, 0)}, {"stages": 1, "keeps_states": True}
    recipe = recipe_of("moon")

    def refused(line, decisions=ANY, **changes):
        with pytest.raises(Refused, match=line):
            asked = question(**{"clients": ("a", "b"), "versions": (0, -1), **changes})
            decisions.check(asked, recipe, sizes, **ways)

    ANY.check(question(clients=("a", "b"), versions=(0, -1)), recipe, sizes, **ways)
    refused("no stage 1", stage=1)
    refused("not clients of this site with train examples", clients=("a", "c"))
    refused("a client's state is one of a round before", versions=(1, -1))
    refused("a client's state is one of a round before", versions=())
    evaluated = {"purpose": "evaluate", "versions": ()}
    ANY.check(question(**evaluated, clients=("a", "b"), round=0), recipe, sizes, **ways)
    refused("evaluates on test and train examples only", **evaluated, split="dev")
    refused("takes no part in evaluations", decisions_of(evaluation="none"), **evaluated)
    refused("evaluates all of its clients together", **evaluated, clients=("a",))


def test_a_damaged_ledger_stops_the_site(begun, tmp_path, capsys):
    shutil.copytree(begun[0], tmp_path / SITE, ignore=shutil.ignore_patterns("*.sock"))
    path = tmp_path / SITE / "state" / FILE
    path.write_text('{"version": 1, "data": {"x": {}}}', "utf-8")
    typed = command(capsys, "site", tmp_path / SITE / "site.toml", "--ledger")
    assert typed.code == 2 and "ledger.json: is damaged; put it back" in typed.err and typed.err.count("\n") == 1


def test_every_row_of_the_table_names_tests():
    lines = (Path(__file__).parents[2] / "docs" / "sites.md").read_text("utf-8").splitlines()
    begin = lines.index("## Who is trusted with what")
    cells = [line.split("|")[-2] for line in lines[begin : begin + 30] if line.startswith("| ")][2:]
    named = [name for cell in cells for name in re.findall("`([^`]+)`", cell)]
    assert len(cells) >= 12 and all("`" in cell for cell in cells)
    here = {name for name in named if not name.startswith("tests/")}
    tricks = {trick.name for adversary in (*OF_COORDINATORS, *OF_SITES) for trick in tricks_of(adversary)}
    assert here <= globals().keys() | tricks, here - globals().keys() - tricks
    assert all((Path(__file__).parents[2] / name).is_file() for name in {*named} - here)
