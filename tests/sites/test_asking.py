"""What the coordinator says while it waits, and how it treats a site that was lost; the clock is the tests'."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.sites.sites_for_tests import NAMES, recipe_of
from tests.sites.test_faults import ENOUGH, Disturbed, train
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites import asking, protocol
from tff_re.sites.asking import Patience, SiteLost, Sites
from tff_re.sites.messages import unpack
from tff_re.sites.transport import Engine, NoAnswer

RUN, STAGES = "0" * 32, {"purpose": "train", "program": "0" * 64, "stage": 0, "split": "train"}
HELLO = protocol.Hello(run=RUN, recipe="")
STAGE = protocol.Stage(run=RUN, round=1, clients=("a",), versions=(), arrays=(), **STAGES)


class ByHand(asking.Clock):
    """Goes on only while nothing but calls that hang is under way."""

    def __init__(self):
        self.time, self.ends, self.changed = 0.0, [], threading.Condition()

    def now(self):
        return self.time

    def wait(self, futures, seconds):
        while not (done := any(future.done() for future in futures)) and len(futures) > self.hung:
            time.sleep(0.0005)
        if not done:
            self.go_on(seconds)

    @property
    def hung(self):
        return sum(end > self.time for end in self.ends)

    def go_on(self, seconds):
        with self.changed:
            self.time += seconds
            self.changed.notify_all()

    def hang(self, seconds):
        with self.changed:
            self.ends.append(end := self.time + seconds)
            self.changed.wait_for(lambda: self.time >= end)


class MadeUp(Engine):
    """Sites that do as `of(site, clock)` says: `"answers"`, `"hangs"`, or the reason why they do not answer."""

    def __init__(self, behaviour):
        self.sites, self.behaviour, self.clock, self.calls = NAMES, behaviour, ByHand(), []

    def call(self, site, message, seconds):
        kind = unpack(message)[0]["kind"]
        self.calls.append((site, kind, seconds, self.clock.now()))
        what = self.behaviour(site, self.clock.now())
        if what == "hangs":
            self.clock.hang(seconds)
            raise NoAnswer(f"site {site} has not answered within {seconds:g} s")
        if what != "answers":
            raise NoAnswer(f"site {site} does not answer ({what})")
        if kind == "hello":
            fields = {"version": "1", "recipe": "0" * 64, "clients": ((site, 1, 1, None),), "label": "l"}
            fields |= {"label_names": ("a", "b"), "positive_labels": None, "vocabulary": "local", "evaluation": "sums"}
            return protocol.to_bytes(protocol.HelloAnswer(site=site, **fields, relations=None, document_form=None))
        answer = protocol.PingAnswer(site=site) if kind == "ping" else protocol.StageAnswer(site=site, arrays=())
        return protocol.to_bytes(answer)

    def asked(self, site, kind=None):
        return [
            (seconds, at) for name, asked_kind, seconds, at in self.calls if name == site and kind in (None, asked_kind)
        ]


def made(behaviour, **patience):
    engine, lines = MadeUp(behaviour), []
    return engine, Sites(engine, Patience(**patience), on_line=lines.append, clock=engine.clock), lines


def away(site, until, what="Connection refused", since=0.0):
    return lambda name, now: what if name == site and since <= now < until else "answers"


def test_what_is_waited_for_is_said_at_once_and_every_ten_seconds():
    engine, sites, lines = made(away("bonn", 35))
    answers = sites.ask_all(dict.fromkeys(NAMES, HELLO))
    assert list(answers) == list(NAMES) and answers["bonn"].site == "bonn"
    waiting = [f"waiting for site bonn: it does not answer (Connection refused); {left} s left" for left in (300, 290)]
    assert lines[:2] == waiting and len(lines) == 5 and lines[-1] == "site bonn answers again"
    assert engine.clock.now() == 35 and len(engine.asked("aachen")) == 1


def test_a_site_that_does_not_come_back_is_given_up_after_retry_seconds():
    engine, sites, lines = made(away("bonn", 1e9), retry_seconds=30)
    answers = sites.ask_all(dict.fromkeys(NAMES, STAGE))
    assert isinstance(answers["bonn"], SiteLost) and "Connection refused" in str(answers["bonn"])
    assert [line.rsplit("; ")[1] for line in lines] == ["30 s left", "20 s left", "10 s left", "0 s left"]
    assert engine.clock.now() == 30


@pytest.mark.parametrize(("message", "said"), [(HELLO, range(10, 100, 10)), (STAGE, (10, 70))])
def test_sites_that_hang_are_named(message, said):
    engine, sites, lines = made(away("aachen", 1, "hangs"), stage_seconds=100)
    engine.behaviour = lambda site, now: "answers" if site == "celle" else "hangs"
    answers = sites.ask_all(dict.fromkeys(NAMES, message))
    assert [isinstance(answer, SiteLost) for answer in answers.values()] == [True, True, False]
    wanted = [f"waiting for sites aachen, bonn: no answer yet; {100 - at} s left" for at in said]
    assert [line for line in lines if "no answer yet" in line][: len(wanted)] == wanted


def test_a_lost_site_is_asked_briefly_with_growing_pauses_until_it_answers():
    engine, sites, lines = made(away("bonn", 400), retry_seconds=5)
    sites.ask_all(dict.fromkeys(NAMES, STAGE))
    assert sites.still_lost(NAMES, RUN).keys() == {"bonn"} and not engine.asked("bonn", "ping")
    lost = engine.clock.now()
    while engine.clock.now() < 700:
        engine.clock.go_on(1)
        sites.still_lost(NAMES, RUN)
    pings = [(seconds, at - lost) for seconds, at in engine.asked("bonn", "ping")]
    assert pings == [(20, at) for at in (10, 30, 70, 150, 310, 630)]  # the last one is answered
    assert lines[-1] == "site bonn answers again" and sites.still_lost(NAMES, RUN) == {}
    sites.ask_all({"bonn": STAGE})
    assert engine.asked("bonn", "stage")[-1][0] == 600


def test_a_lost_site_that_hangs_costs_a_short_time():
    engine, sites, _ = made(away("bonn", 1e9, "hangs"), stage_seconds=100, retry_seconds=0)
    sites.ask_all(dict.fromkeys(NAMES, STAGE))
    engine.clock.go_on(10)
    before = engine.clock.now()
    assert sites.still_lost(NAMES, RUN) == {"bonn": "site bonn has not answered within 100 s"}
    assert engine.clock.now() - before == 20


def test_a_lost_site_that_a_call_needs_is_asked_in_full():
    engine, sites, _ = made(away("bonn", 40), retry_seconds=5)
    sites.ask_all(dict.fromkeys(NAMES, STAGE))
    engine.clock.go_on(40)
    answers = sites.ask_all(dict.fromkeys(NAMES, STAGE))
    assert answers["bonn"].site == "bonn" and sites.still_lost(NAMES, RUN) == {}


# In a run


def test_a_lost_site_leaves_and_comes_back(tmp_path, monkeypatch):
    """Bonn is away from the second stage of round 2 on to the end of round 3."""
    clock, lines, asked = ByHand(), [], []
    monkeypatch.setattr(asking, "Clock", lambda: clock)
    gone = []

    def disturb(site, table, answer):
        if table["kind"] == "stage" and table["round"] == 2 and table["stage"] == 1 and site == "bonn":
            gone.append(site)
        if site == "bonn" and gone:
            raise NoAnswer("site bonn does not answer")
        asked.append((site, table.get("kind"), table.get("round"), table.get("purpose"), table.get("stage")))
        return answer()

    def after(report):
        lines.append(f"round {report.round}")
        clock.go_on(20 if report.round == 3 else 0)
        if report.round == 3:
            gone.clear()

    federation = Disturbed(tmp_path / "sites", disturb)
    recipe = recipe_of("fedpap", "training.rounds=4", "evaluation.train_split=false")
    ways = {"patience": ENOUGH, "on_round": after, "on_line": lines.append}
    result = train(federation, tmp_path / "run", recipe, **ways)
    assert lines == [
        "round 1",
        "waiting for site bonn: it does not answer; 0 s left",
        "site bonn does not answer; round 2 goes on without",
        "test over 2 of 3 sites",
        "round 2",
        "round 3",
        "site bonn answers again",
        "test over 3 of 3 sites",
        "round 4",
    ]
    log = (tmp_path / "run" / "run.log").read_text("utf-8")
    assert all(line in log for line in lines if "round" not in line)
    rows = read_history(RunFolder(tmp_path / "run"))
    assert [(row["sites/answered"], row["sites/asked"], row["sites/test"]) for row in rows] == [
        *((3, 3, 3), (2, 3, 2), (2, 3, 2), (3, 3, 3))
    ]
    of_round_3 = [site for site, _, number, *rest in asked if number == 3 and rest == ["train", 0]]
    assert of_round_3 == ["aachen", "celle"], "the others compute a round once"
    assert result.test.sites == (3, 3)
    assert json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["sites"] == {
        "test": {"answered": 3, "of": 3}
    }


@pytest.mark.slow
def test_a_quorum_that_needs_the_lost_site_waits_for_it(tmp_path, monkeypatch):
    """With all sites needed a second failure is waited for as long as the first."""
    clock, tries = ByHand(), []
    monkeypatch.setattr(asking, "Clock", lambda: clock)

    def disturb(site, table, answer):
        if table["kind"] == "stage" and table["purpose"] == "train" and site == "bonn":
            tries.append(clock.now())
            if len(tries) < 8:
                raise NoAnswer("site bonn does not answer")
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    recipe = recipe_of("fedavgs", "training.rounds=1", "evaluation.train_split=false")
    train(federation, tmp_path / "run", recipe, patience=Patience(retry_seconds=3))
    assert tries == [0, 0.75, 1.5, 2.25, 3, 3, 3.75, 4.5]
