"""A site that is lost before, between and after the steps of masked sums: the total over who is left, or a line."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.sites.sites_for_tests import NAMES, Federation, recipe_of, write_sites
from tests.sites.test_faults import ENOUGH, Disturbed, answers_of, train
from tests.upper_floors import assert_same_weights
from tff_re.errors import UserError
from tff_re.runtime.errors import WorkerDied
from tff_re.sites.asking import Patience
from tff_re.sites.attempts import Attempt
from tff_re.sites.masking import SiteMasks
from tff_re.sites.messages import pack, unpack
from tff_re.sites.opening import Opening
from tff_re.sites.transport import NoAnswer

KEYS = ("aggregation.secure=masks", "evaluation.train_split=false")
RECIPE = recipe_of("fedavgs", *KEYS)


@pytest.fixture
def totals(monkeypatch):
    """(sites, arrays) of every total that a coordinator opens; each is the sum of what these sites had before masks."""
    plain, opened = {}, []
    mask, total = SiteMasks.masked, Opening.total

    def masked(self, run, question, sums):
        sums_of_attempt = plain.setdefault(Attempt.from_question(question).number, {})
        sums_of_attempt[self._name] = [np.array(array) for array in sums]
        return mask(self, run, question, sums)

    def checked_total(self, stage, attempt, asked, answers, sums):
        arrays = total(self, stage, attempt, asked, answers, sums)
        for index, array in enumerate(arrays):
            parts = [plain[attempt][site][index] for site in answers]
            if array.dtype.kind == "f":
                np.testing.assert_allclose(array, np.sum(parts, axis=0, dtype=np.float64), rtol=1e-6)
            else:
                np.testing.assert_array_equal(array, np.sum(parts, axis=0, dtype=np.int64) % 2**22)
        opened.append((tuple(asked), tuple(answers)))
        return arrays

    monkeypatch.setattr(SiteMasks, "masked", masked)
    monkeypatch.setattr(Opening, "total", checked_total)
    return opened


def lost_at(step, *, times=None, then=None):
    """bonn gives no answer to questions of this kind in round 2's training, or so many times."""
    seen, in_round = [], [0]

    def disturb(site, table, answer):
        if table["kind"] == "masked" and table["purpose"] == "train":
            in_round[0] = table["round"]
        trains = table.get("purpose", "train") == "train"
        silent = site == "bonn" and table["kind"] == step and in_round[0] == 2 and trains
        if silent and (times is None or len(seen) < times):
            seen.append(table)
            if then is not None:
                then()
            raise NoAnswer("site bonn does not answer")
        return answer()

    disturb.seen = seen
    return disturb


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return train(Federation(write_sites(folder / "sites")), folder / "run", RECIPE).weights


@pytest.fixture(scope="module")
def left_out(tmp_path_factory):
    """The weights where bonn is lost before it sends anything in round 2."""
    folder = tmp_path_factory.mktemp("left out")
    return train(Disturbed(folder / "sites", lost_at("masked")), folder / "run", RECIPE, patience=ENOUGH).weights


def test_a_site_lost_before_its_sums_came(totals, tmp_path, left_out, undisturbed):
    """The others tell the keys that they share with it."""
    disturb = lost_at("masked")
    result = train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE, patience=ENOUGH)
    assert (NAMES, ("aachen", "celle")) in totals, "in one attempt"
    assert (tmp_path / "run" / "took_part.csv").read_text().splitlines()[2] == "2,aachen celle"
    assert not np.array_equal(result.weights.trainable[0], undisturbed.trainable[0])
    assert_same_weights(result.weights, left_out)
    assert "site bonn does not answer; round 2 goes on without" in (tmp_path / "run" / "run.log").read_text()


def test_a_site_lost_before_it_signed_costs_an_attempt(totals, tmp_path, left_out):
    disturb = lost_at("roster")
    result = train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE, patience=ENOUGH)
    assert disturb.seen and (("aachen", "celle"),) * 2 in totals
    assert_same_weights(result.weights, left_out)


def test_a_site_lost_after_others_opened_ends_the_run_with_a_line_and_is_waited_for(tmp_path, undisturbed):
    """A total with it was opened to the coordinator but for its own key; one without it would tell its sums."""
    files = write_sites(tmp_path / "sites")
    federation = Disturbed(tmp_path / "sites", lost_at("open"))
    line = "a total over aachen, bonn, celle was opened before, and one over aachen, celle would tell"
    with pytest.raises(UserError, match=line) as caught:
        train(federation, tmp_path / "run", RECIPE, patience=ENOUGH)
    assert "\n" not in str(caught.value)
    again = Federation(files)
    assert_same_weights(train(again, tmp_path / "run", RECIPE, resume=True).weights, undisturbed)
    with pytest.raises(WorkerDied, match="site bonn does not answer"):  # all are needed without a quorum
        train(Disturbed(tmp_path / "two", lost_at("open")), tmp_path / "run 2", RECIPE)
    patient, disturb = Patience(stage_seconds=5, retry_seconds=5), lost_at("open", times=2)
    result = train(Disturbed(tmp_path / "three", disturb), tmp_path / "run 3", RECIPE, patience=patient)
    assert len(disturb.seen) == 2
    assert_same_weights(result.weights, undisturbed)


def test_what_was_evaluated_without_a_site_is_evaluated_without_it_again(totals, tmp_path, monkeypatch):
    """Other weights in the same round: sites open no total that differs by one site."""
    monkeypatch.setattr("tff_re.sites.asking.FIRST_PAUSE", 0.0)
    silent = []

    def disturb(site, table, answer):
        evaluates = table["kind"] == "masked" and table["purpose"] == "evaluate" and table["split"] == "test"
        if site == "bonn" and evaluates and table["round"] == 2 and len(silent) < 1:
            silent.append(site)
            raise NoAnswer("site bonn does not answer")
        return answer()

    once = Patience(stage_seconds=5, retry_seconds=0.0, quorum=0.6)
    federation = Disturbed(tmp_path / "sites", disturb)
    keys = ("choice.dev_share=0.3", "choice.dev_unit=document", "choice.metric=accuracy")
    train(federation, tmp_path / "run", recipe_of("fedavgs", *KEYS, *keys), patience=once)
    of_round = [unpack(message)[0] for site, message, _ in federation.sent if unpack(message)[0]["kind"] == "masked"]
    asked = [t["sites"] for t in of_round if t["purpose"] == "evaluate" and t["split"] == "test" and t["round"] == 2]
    assert silent and asked == [[*NAMES]] * 2 + [["aachen", "celle"]] * 2, "bonn had answered again in between"
    assert (NAMES, ("aachen", "celle")) in totals


@pytest.mark.parametrize("step", ["masked", *(pytest.param(s, marks=pytest.mark.slow) for s in ("roster", "open"))])
def test_a_site_that_is_killed_between_the_steps_goes_on_from_its_disk(totals, tmp_path, undisturbed, step):
    patient = Patience(stage_seconds=5, retry_seconds=5)
    disturb = lost_at(step, times=1, then=lambda: federation.restart("bonn"))
    federation = Disturbed(tmp_path / "sites", disturb)
    result = train(federation, tmp_path / "run", RECIPE, patience=patient)
    assert disturb.seen and {answers for _, answers in totals} == {NAMES}
    assert_same_weights(result.weights, undisturbed)


@pytest.mark.slow
def test_an_answer_that_is_lost_is_the_same_when_it_comes_again(tmp_path, undisturbed):
    answers = {}

    def disturb(site, table, answer):
        if site == "celle" and table["kind"] in ("masked", "roster", "open"):
            known = answers.setdefault((table["kind"], table["attempt"]), [])
            known.append(answer())
            if len(known) == 1:
                raise NoAnswer("lost on the way")
            assert known[0] == known[1]
            return known[1]
        return answer()

    patient = Patience(stage_seconds=5, retry_seconds=5)
    result = train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE, patience=patient)
    assert_same_weights(result.weights, undisturbed)
    assert {kind for kind, _ in answers} == {"masked", "roster", "open"}


def test_late_sites_of_over_sampling_are_dropped_with_their_masks(totals, tmp_path):
    released = threading.Event()

    def disturb(site, table, answer):
        if site == "bonn" and table["kind"] == "masked" and table["purpose"] == "train":
            released.wait(60)
        return answer()

    recipe = recipe_of("fedavgs", *KEYS, "training.clients_per_round=2", "training.over_sampling=1.5")
    federation = Disturbed(tmp_path / "sites", disturb)
    train(federation, tmp_path / "run", recipe, on_round=lambda report: report.round == 2 and released.set())
    assert totals.count((NAMES, ("aachen", "celle"))) == 2
    who = [["1", "aachen", "counted"], ["1", "bonn", "surplus"], ["1", "celle", "counted"]]
    assert answers_of(tmp_path / "run") == {"1": who, "2": who}


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: [array.reshape(-1)[:1] for array in arrays],
        lambda arrays: [array.astype(np.int64) for array in arrays],
        lambda arrays: arrays[1:],
    ],
)
def test_malformed_masked_sums_leave_the_round(totals, tmp_path, change):
    def disturb(site, table, answer):
        if site == "bonn" and table["kind"] == "masked" and table["purpose"] == "train" and table["round"] == 2:
            answer_table, arrays = unpack(answer())
            return pack(answer_table, change(arrays))
        return answer()

    train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE, patience=ENOUGH)
    assert (NAMES, ("aachen", "celle")) in totals
    assert "site bonn: its masked sums are not of their type" in (tmp_path / "run" / "run.log").read_text()


def test_one_site_that_is_left_opens_nothing(tmp_path):
    def disturb(site, table, answer):
        if site != "celle" and table["kind"] == "masked":
            raise NoAnswer(f"site {site} does not answer")
        return answer()

    alone = Patience(stage_seconds=5, retry_seconds=0.05, quorum=0.3)
    with pytest.raises(UserError, match="masked sums need clients at two sites or more, and there is only celle"):
        train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE, patience=alone)


def test_a_total_that_cannot_be_names_the_round_and_no_site(tmp_path):
    """A site that lies is hidden by the masks."""

    def disturb(site, table, answer):
        if site == "bonn" and table["kind"] == "masked" and table["purpose"] == "train":
            answer_table, arrays = unpack(answer())
            arrays = [array.copy() for array in arrays]
            for array in arrays:
                if array.dtype == np.uint64:
                    array += np.uint64(1 << 40)
            return pack(answer_table, arrays)
        return answer()

    with pytest.raises(UserError, match="round 1: the total over aachen, bonn, celle cannot be: its sums hold"):
        train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", RECIPE)
