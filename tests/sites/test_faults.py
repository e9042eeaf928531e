"""What goes wrong: the same result as undisturbed, or a clear line and a resume."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from datasets import files as written
from tests.sites.sites_for_tests import NAMES, Federation, corpora, recipe_of, write_site, write_sites
from tests.upper_floors import assert_same_weights, command
from tff_re.cli.train import over
from tff_re.errors import UserError
from tff_re.pages.run_page import run_page
from tff_re.runs.folder import RunFolder
from tff_re.runtime.errors import WorkerDied
from tff_re.sites import store
from tff_re.sites.agreement import read_agreement
from tff_re.sites.asking import Patience
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import read_site, recipe_digest
from tff_re.sites.run import train_at_sites
from tff_re.sites.runtime import SitesRuntime
from tff_re.sites.site import SiteService
from tff_re.sites.transport import InMemory, NoAnswer, Sockets

QUICK = Patience(stage_seconds=5, retry_seconds=0.05)
ENOUGH = Patience(stage_seconds=5, retry_seconds=0.05, quorum=0.6)
RECIPE = ("fedpap", "training.rounds=2")


class Disturbed(Federation):
    """A federation in which `disturb(site, table, answer)` comes between: it gives the answer, or raises."""

    def __init__(self, folder, disturb, **tables):
        super().__init__(write_sites(folder, **tables))
        undisturbed = self.engine.call

        def call(site):
            return lambda message: disturb(site, unpack(message)[0], lambda: undisturbed(site, message, 5))

        self.engine = InMemory({name: call(name) for name in NAMES})


def stage(table, round_num, number, purpose="train"):
    return (table["kind"], table.get("round"), table.get("stage"), table.get("purpose")) == (
        *("stage", round_num, number),
        purpose,
    )


def train(federation, out, recipe=None, **options):
    options = {"patience": QUICK, "details": False, **options}
    try:
        return train_at_sites(recipe or recipe_of(*RECIPE), out, federation.engine, **options)[1]
    finally:
        federation.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return train(Federation(write_sites(folder / "sites")), folder / "run").weights


def test_a_site_that_is_killed_between_two_stages(undisturbed, tmp_path):
    def disturb(site, table, answer):
        if stage(table, 2, 1) and site == "bonn":
            federation.restart("bonn")  # with nothing but its disk
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    assert_same_weights(train(federation, tmp_path / "run").weights, undisturbed)


@pytest.mark.slow
def test_a_site_that_lost_what_it_kept_does_the_round_again(undisturbed, tmp_path):
    seen = []

    def disturb(site, table, answer):
        if stage(table, 2, 1) and site == "bonn" and not seen:
            seen.append(site)
            federation.restart("bonn")
            for path in (tmp_path / "sites" / "bonn").rglob("kept/*"):
                path.unlink()
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    assert_same_weights(train(federation, tmp_path / "run").weights, undisturbed)
    assert seen


@pytest.mark.slow
def test_an_answer_that_is_lost_is_asked_for_again(undisturbed, tmp_path):
    """The site answers twice; the second answer is the first."""
    answers = []

    def disturb(site, table, answer):
        if stage(table, 1, 1) and site == "celle":
            answers.append(answer())
            if len(answers) == 1:
                raise NoAnswer("lost on the way")
            assert answers[0] == answers[1]
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    assert_same_weights(train(federation, tmp_path / "run").weights, undisturbed)
    assert len(answers) == 2


@pytest.mark.parametrize("what", ["nan", *(pytest.param(w, marks=pytest.mark.slow) for w in ("never", "shape"))])
def test_a_site_that_fails_is_left_out_of_the_round_where_the_others_are_enough(undisturbed, tmp_path, what):
    def disturb(site, table, answer):
        if table["kind"] == "stage" and table["round"] == 2 and table["purpose"] == "train" and site == "bonn":
            if what == "never":
                raise NoAnswer("site bonn does not answer")
            answer_table, arrays = unpack(answer())
            changed = [np.full_like(a, np.nan) if what == "nan" and a.dtype.kind == "f" else a for a in arrays]
            return pack(answer_table, [*changed, np.zeros(1, np.float32)] if what == "shape" else changed)
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    result = train(federation, tmp_path / "run", patience=ENOUGH)
    assert (tmp_path / "run" / "took_part.csv").read_text().splitlines()[2] == "2,aachen celle"
    assert all(np.isfinite(layer).all() for layer in result.weights.trainable)
    assert not np.array_equal(result.weights.trainable[0], undisturbed.trainable[0])
    log = (tmp_path / "run" / "run.log").read_text()
    assert "site bonn" in log and "round 2 goes on without" in log


def without(site, lost=()):
    """Answers of all but `site`, which fails in training, as do those of `lost`."""

    def disturb(asked, table, answer):
        if table["kind"] == "stage" and table["purpose"] == "train" and asked in (site, *lost):
            raise NoAnswer(f"site {asked} does not answer")
        return answer()

    return disturb


def answers_of(out):
    rows = [line.split(",") for line in (out / "answers.csv").read_text("utf-8").splitlines()[1:]]
    return {round_num: [row[1:] for row in rows if row[0] == round_num] for round_num in {row[0] for row in rows}}


def test_an_evaluation_that_fails_at_a_site_is_of_the_others(tmp_path):
    seen = []

    def disturb(site, table, answer):
        if table["kind"] == "stage" and table["purpose"] == "evaluate" and site == "bonn":
            seen.append(site)
            raise NoAnswer("site bonn does not answer")
        return answer()

    recipe = recipe_of("fedpap", "training.rounds=1", "evaluation.train_split=false")
    result = train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", recipe, patience=ENOUGH)
    examples = {c.site: c.test for c in read_agreement(RunFolder(tmp_path / "run").sites).clients}
    assert seen and result.test.confusion.sum() == examples["aachen"] + examples["celle"]
    log = RunFolder(tmp_path / "run").log.read_text("utf-8")
    assert "site bonn does not answer; round 1 goes on without" in log
    assert result.test.sites == (2, 3) and over(result.test.sites) == "2 of 3 sites" and over((3, 3)) == "all clients"
    assert json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["sites"]["test"]["answered"] == 2
    assert "The test covers 2 of 3 sites" in run_page(tmp_path / "run")


def test_the_first_answers_count_and_late_ones_are_dropped(tmp_path):
    released, late = threading.Event(), []

    def disturb(site, table, answer):
        if site == "bonn" and table["kind"] == "stage" and table["purpose"] == "train":
            late.append(table)
            released.wait(60)
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    recipe = recipe_of(*RECIPE, "training.clients_per_round=2", "training.over_sampling=1.5")
    result = train(federation, tmp_path / "run", recipe, on_round=lambda report: report.round == 2 and released.set())
    assert len(late) == 2 and all(table["stage"] == 0 for table in late)
    assert (tmp_path / "run" / "took_part.csv").read_text().splitlines()[1:] == ["1,aachen celle", "2,aachen celle"]
    who = [["1", "aachen", "counted"], ["1", "bonn", "surplus"], ["1", "celle", "counted"]]
    assert answers_of(tmp_path / "run") == {"1": who, "2": who}
    gone = Disturbed(tmp_path / "gone", without("bonn"))
    assert_same_weights(result.weights, train(gone, tmp_path / "run 2", patience=ENOUGH).weights)


def test_a_round_that_too_few_answer_is_repeated_with_others(tmp_path):
    keys = ("training.clients_per_round=2", "training.min_clients=2")
    federation = Disturbed(tmp_path / "sites", without("bonn"))
    train(federation, tmp_path / "run", recipe_of(*RECIPE, *keys, "training.attempts=20"))
    assert (tmp_path / "run" / "took_part.csv").read_text().splitlines()[1:] == ["1,aachen celle", "2,aachen celle"]
    rows = [row for rows in answers_of(tmp_path / "run").values() for row in rows]
    assert {what for _, client, what in rows if client == "bonn"} == {"no_answer"}
    assert {what for _, client, what in rows if client != "bonn"} == {"counted", "repeated"}
    few = Disturbed(tmp_path / "few", without("bonn", lost=["celle"]))
    with pytest.raises(UserError, match=r"round 1: too few clients answered in each of 3 attempts \(0 of 2, "):
        train(few, tmp_path / "run 2", recipe_of(*RECIPE, *keys))


@pytest.mark.slow
def test_without_a_quorum_the_run_ends_with_a_line_and_is_resumed(undisturbed, tmp_path):
    away = [True]

    def disturb(site, table, answer):
        if table["kind"] == "stage" and table["round"] == 2 and site == "bonn" and away:
            raise NoAnswer("site bonn does not answer")
        return answer()

    recipe = recipe_of(*RECIPE, "training.checkpoint_every=1")
    with pytest.raises(WorkerDied, match="site bonn does not answer"):
        train(Disturbed(tmp_path / "sites", disturb), tmp_path / "run", recipe)
    away.clear()
    again = Disturbed(tmp_path / "sites", disturb)
    assert_same_weights(train(again, tmp_path / "run", recipe, resume=True).weights, undisturbed)


@pytest.mark.slow
def test_a_coordinator_that_is_killed_goes_on_with_the_clients_states_of_its_checkpoint(tmp_path):
    recipe = recipe_of("moon", "training.rounds=4", "training.checkpoint_every=2")
    whole = train(Federation(write_sites(tmp_path / "undisturbed")), tmp_path / "whole", recipe)

    def killed(report):
        if report.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Federation(write_sites(tmp_path / "sites")), tmp_path / "run", recipe, on_round=killed)
    versions = sorted(int(p.name) for p in (tmp_path / "sites" / "bonn").rglob("clients/*/*"))
    assert versions == [1, 2, 3]  # what a resume from the checkpoint of round 3, or from the one before, needs
    lines = []
    again = Federation({name: tmp_path / "sites" / name / "site.toml" for name in NAMES})
    result = train(again, tmp_path / "run", recipe, resume=True, on_line=lines.append)
    assert_same_weights(result.weights, whole.weights)
    assert lines == ["resumed after round 3 of 4"]


def test_every_round_across_sites_is_kept(undisturbed, tmp_path, monkeypatch):
    """Whatever training.checkpoint_every says: killed in round 2, and resumed after round 1."""
    federation, rounds = Federation(write_sites(tmp_path / "sites")), []

    begin = SitesRuntime.begin_round

    def killed(self, number):
        if number == 2:
            raise SystemError  # nothing is written after it
        begin(self, number)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(SitesRuntime, "begin_round", killed)
        train(federation, tmp_path / "run", recipe_of(*RECIPE, "training.checkpoint_every=100"))
    again = Federation(federation.files)
    ways = {"resume": True, "on_round": lambda report: rounds.append(report.round)}
    result = train(again, tmp_path / "run", recipe_of(*RECIPE, "training.checkpoint_every=100"), **ways)
    assert rounds == [2]
    assert_same_weights(result.weights, undisturbed)


@pytest.mark.slow
def test_a_full_disk_at_a_site(undisturbed, tmp_path, monkeypatch):
    recipe = recipe_of(*RECIPE, "training.checkpoint_every=1")

    def full(path, data):
        if "kept" in os.fspath(path) and "-2-" in os.fspath(path) and "celle" in os.fspath(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        written.replace_file(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(store, "replace_file", full)
        with pytest.raises(WorkerDied, match=r"site celle: its disk does not take .*No space left"):
            train(Federation(write_sites(tmp_path / "sites")), tmp_path / "run", recipe)
    again = Federation({name: tmp_path / "sites" / name / "site.toml" for name in NAMES})
    assert_same_weights(train(again, tmp_path / "run", recipe, resume=True).weights, undisturbed)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"allow": {"recipes": ["0" * 64]}}, "is not accepted here"),
        ({"allow": {"privacy": "client"}}, "has no .privacy."),
        pytest.param({"allow": {"most_rounds": 1}}, "answers 1 rounds of a run", marks=SLOW),
        pytest.param({"allow": {"least_clients": 2}}, "over at least 2 of its clients", marks=SLOW),
        pytest.param({"allow": {"most_bytes_up": 400}}, "400 bytes have left", marks=SLOW),
        ({"clients": {"least_examples": 1000}}, "no client has 1000"),
        ({"data": {"path": "no such file"}}, "its data cannot be read"),
        ({"vocabulary": {}}, None),
    ],
)
def test_what_a_site_refuses(tmp_path, tables, line):
    files = write_sites(tmp_path / "sites")
    files["bonn"] = write_site(tmp_path / "sites" / "bonn", "bonn", corpora()["bonn"], **tables)
    if line is None:
        (tmp_path / "sites" / "bonn" / "vocabulary.key").write_bytes(b"another secret than the others have")
        line = "secrets for the vocabulary differ"
    with pytest.raises(UserError, match=line) as refused:
        train(Federation(files), tmp_path / "run")
    assert str(tmp_path) not in str(refused.value) and "\n" not in str(refused.value)


def test_a_site_accepts_a_recipe_by_its_digest_or_its_file(tmp_path):
    recipe = recipe_of(*RECIPE)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml(), "utf-8")
    for accepted in (recipe_digest(recipe), str(tmp_path / "recipe.toml")):
        site = read_site(write_site(tmp_path / "s", "s", corpora()["bonn"], allow={"recipes": [accepted]}))
        service, text = SiteService(site), recipe_of(*RECIPE, "seed=7").to_toml()
        hello = {"kind": "hello", "run": "0" * 32, "recipe": text}
        assert "clients" in unpack(service.answer(pack(hello)))[0]
        other = recipe_of(*RECIPE, "algorithm.learning_rate=0.2").to_toml()
        table, _ = unpack(service.answer(pack({**hello, "run": "1" * 32, "recipe": other})))
        assert "not accepted" in table["refused"]
        named = recipe_of(*RECIPE).to_toml().replace("[task]", '[task]\nsymptoms = "/etc/passwd"')
        table, _ = unpack(service.answer(pack({**hello, "run": "2" * 32, "recipe": named})))
        assert "names a file by task.symptoms" in table["refused"]
        service.close()


@pytest.mark.slow
def test_another_computation_than_the_sites_is_refused(tmp_path):
    def disturb(site, table, answer):
        if table["kind"] == "agree":
            table["programs"]["train"] = "0" * 64
            return federation.services[site].answer(pack(table))
        return answer()

    federation = Disturbed(tmp_path / "sites", disturb)
    with pytest.raises(UserError, match="gives another computation here than at the coordinator"):
        train(federation, tmp_path / "run")


@pytest.mark.slow
def test_other_data_than_the_run_was_begun_with(tmp_path):
    files = write_sites(tmp_path / "sites")
    train(Federation(files), tmp_path / "run", recipe_of(*RECIPE, "training.rounds=1"))
    write_site(tmp_path / "sites" / "bonn", "bonn", corpora(6)["bonn"])
    with pytest.raises(UserError, match="begun with other data of this site"):
        train(Federation(files), tmp_path / "run", recipe_of(*RECIPE, "training.rounds=1"), resume=True)


@pytest.mark.slow
def test_without_the_secret_only_words_of_enough_clients_of_one_site_are_shown(tmp_path):
    tables = {"vocabulary": {"secret": ""}, "clients": {"rule": "documents"}}
    files = write_sites(tmp_path / "sites", **tables)
    for path in files.values():
        path.write_text(path.read_text().replace('secret = ""', ""))
    federation = Federation(files)
    train(federation, tmp_path / "run", recipe_of(*RECIPE, "training.rounds=1"))
    words_of_sites = [unpack(a)[0]["words"] for _, m, a in federation.sent if unpack(m)[0]["kind"] == "words"]
    assert (
        "甲" in words_of_sites[0] and "甲" not in words_of_sites[1] and all("烧" in words for words in words_of_sites)
    )
    alone = Federation(write_sites(tmp_path / "one", vocabulary={"secret": ""}))
    alone.close()
    for path in alone.files.values():
        path.write_text(path.read_text().replace('secret = ""', ""))
    with pytest.raises(UserError, match="no word is left"):  # each site is one client
        train(Federation(alone.files), tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ('nam = "x"', "unknown key"),
        ("socket = 3", "string"),
        ('[set]\n"algorithm.learning_rate" = "1"', "not a site's to choose"),
    ],
)
def test_a_malformed_site_file(tmp_path, change, line):
    path = write_site(tmp_path, "bonn", corpora()["bonn"])
    path.write_text(change + "\n" + path.read_text() if "[" not in change else path.read_text() + change)
    with pytest.raises(UserError, match=line) as refused:
        read_site(path)
    assert str(path) in str(refused.value)


def test_the_commands(tmp_path, capsys):
    (tmp_path / "recipe.toml").write_text(recipe_of(*RECIPE).to_toml(), "utf-8")
    typed = command(capsys, "site", "--digest", tmp_path / "recipe.toml")
    assert typed.code == 0 and typed.out.strip() == recipe_digest(recipe_of(*RECIPE))
    assert command(capsys, "site").code == 2
    away = ("--runtime", f"sites:bonn={tmp_path / 'no.sock'}", "--retry-seconds", "0", "--out", tmp_path / "run")
    typed = command(capsys, "train", tmp_path / "recipe.toml", *away)
    assert typed.code == 2 and typed.err.count("\n") == 1 and "site bonn does not answer" in typed.err
    assert not (tmp_path / "run").exists()
    typed = command(capsys, "train", tmp_path / "recipe.toml", *away, "--retry-seconds", "0.2")
    line = "waiting for site bonn: it does not answer (No such file or directory); 0 s left"
    assert typed.code == 2 and typed.err.count("\n") == 1 and typed.out.splitlines() == [line]
    typed = command(capsys, "train", tmp_path / "recipe.toml", "--sites", "bonn", "--out", tmp_path / "run")
    assert typed.code == 2 and "--sites needs --runtime" in typed.err
    typed = command(capsys, "evaluate", tmp_path, "--runtime", "flower:x")
    assert typed.code == 2


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def begin(files, processes):
    for path in files.values():
        line = [sys.executable, "-m", "tff_re.run", "site", str(path)]
        processes.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
    for process in processes[-len(files) :]:
        assert any("answers on" in line for line in iter(process.stdout.readline, ""))
    return Sockets({name: path.parent / "site.sock" for name, path in files.items()})


def test_a_site_as_a_process(tmp_path, processes):
    path = write_site(tmp_path, "bonn", corpora()["bonn"])
    engine = begin({"bonn": path}, processes)
    hello = {"kind": "hello", "run": "0" * 32, "recipe": recipe_of(*RECIPE).to_toml()}
    table, _ = unpack(engine.call("bonn", pack(hello), 60))
    assert table["clients"] == [["bonn", 21, 9, None]] and (tmp_path / "site.sock").stat().st_mode & 0o777 == 0o600
    processes[0].send_signal(signal.SIGTERM)
    assert processes[0].wait(90) == 143 and not (tmp_path / "site.sock").exists()
    log = (tmp_path / "state" / "site.log").read_text()
    assert "hello: 0 bytes down, 0 bytes up" in log and "answered" in log


@pytest.mark.slow
def test_three_processes_one_of_them_killed_between_two_stages(undisturbed, tmp_path, processes):
    """Each builds its own computations: their digests are the same in four processes."""
    files = write_sites(tmp_path / "sites")
    sockets = begin(files, processes)

    class Killing(Sockets):
        def call(self, site, message, seconds):
            if stage(unpack(message)[0], 2, 1) and site == "bonn" and len(processes) == len(NAMES):
                processes[1].kill()
                processes[1].wait()
                begin({"bonn": files["bonn"]}, processes)
            return super().call(site, message, seconds)

    engine = Killing(sockets._paths)
    patience = Patience(stage_seconds=300, retry_seconds=60)
    _, result = train_at_sites(recipe_of(*RECIPE), tmp_path / "run", engine, patience=patience, details=False)
    assert len(processes) == len(NAMES) + 1
    assert_same_weights(result.weights, undisturbed)
    assert json.loads((tmp_path / "run" / "sites.json").read_text())["run"]


@pytest.mark.slow
def test_noise_in_the_clients_steps_is_the_sites_own_and_a_round_is_answered_once(tmp_path):
    table = "privacy={unit = 'example', clip = 0.5, noise_multiplier = 0.5}"
    recipe = recipe_of("fedavgs", table, "training.rounds=1", "evaluation.train_split=false")
    weights = []
    for name in ("one", "two"):
        federation = Federation(write_sites(tmp_path / name, allow={"privacy": "example"}))
        weights.append(train(federation, tmp_path / f"run {name}", recipe).weights.trainable[0])
    assert not np.array_equal(weights[0], weights[1])  # the same recipe and seed
    changed = [
        pack({**unpack(m)[0], "round": 1}, [a + 1 if a.dtype.kind == "f" else a for a in unpack(m)[1]])
        for site, m, _ in federation.sent
        if site == "aachen" and unpack(m)[0]["kind"] == "stage" and unpack(m)[0]["purpose"] == "train"
    ]
    again = SiteService(read_site(federation.files["aachen"]))
    table, _ = unpack(again.answer(changed[0]))
    again.close()
    assert "a round is answered once" in table["refused"]
