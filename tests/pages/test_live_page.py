"""The live page of a run and its metrics: what the folder says, and no text of data."""

from __future__ import annotations

import json
import os
import re

import pytest
from filelock import FileLock

from tests.pages.live_runs_for_tests import (
    JSON_LINES,
    LOG,
    PRIVATE,
    RECIPE,
    SECRET,
    finish,
    write_rows,
    write_run,
)
from tests.pages.test_page import EVIL, Read, csv_file
from tff_re.errors import UserError
from tff_re.pages.live_page import headline, live_page
from tff_re.pages.prometheus import exposition
from tff_re.runs.folder import RunFolder
from tff_re.runs.live import FINISHED, IDLE, TRAINING, LiveFolder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def read(folder):
    return LiveFolder(folder).read()


def test_a_run_before_its_first_round(tmp_path):
    run = read(write_run(tmp_path / "run", rounds=0))
    assert (run.state, run.done, run.rounds, run.end, run.changed) == (IDLE, 0, 4, None, None)
    text = Read(live_page(run)).text
    assert "not running, no round is finished yet" in text and "round 0 of 4" in text
    assert "No round is finished yet." in text and "The log has no lines yet." in text and "ε spent –" in text
    samples = parsed(exposition(run))
    assert samples["tff_re_round"] == {(): 0} and samples["tff_re_rounds"] == {(): 4}
    assert "tff_re_epsilon_spent" not in samples and "tff_re_stage_seconds" not in samples


def test_the_state_is_that_of_the_lock_and_the_summary(run):
    assert read(run).state == IDLE
    with FileLock(RunFolder(run).lock):
        training = read(run)
        assert training.state == TRAINING and "training, round 3 of 4, " in headline(training)
        finish(run)
        assert read(run).state == TRAINING  # it is resumed after a round that was its last
        write_rows(run, 4)
        assert read(run).state == FINISHED  # a process evaluates it
    assert read(run).state == FINISHED and read(run).summary["rounds"] == 4


def test_a_run_can_begin_while_its_lock_is_looked_at(run):
    folder = RunFolder(run)
    with folder.locked():
        assert read(run).state == TRAINING
        with pytest.raises(UserError, match="another process is using this folder"), RunFolder(run).locked():
            pass
    assert read(run).state == IDLE


def test_the_estimated_end(run):
    os.utime(run / "metrics.csv", (1000.0, 1000.0))
    with FileLock(RunFolder(run).lock):
        live = read(run)
    assert live.seconds_a_round == pytest.approx((1.5 + 3.0 + 3.0) / 3)
    assert live.changed == 1000.0 and live.end == live.now  # it is overdue
    os.utime(run / "metrics.csv", (live.now, live.now))
    with FileLock(RunFolder(run).lock):
        live = read(run)
    assert live.end == pytest.approx(max(live.changed + 2.5, live.now)) and "about 2.5 s left" in headline(live)


def test_what_the_page_shows(run):
    text = live_page(read(run))
    read_page = Read(text)
    sections = [attributes["id"] for tag, attributes in read_page.elements if tag == "section"]
    assert sections == ["now", "curves", "rounds", "asked", "stages", "privacy", "log"]
    for part in (
        "live, seed 5 not running, round 3 of 4, ε 3.13 spent",
        "quorum 2 clients; 50% of a round's clients, if sites fail",
        "2 3 2 1 3.00 s – 2.50",  # a round: asked, counted, lost, training, no evaluation, ε
        "aachen 2 15 3 of 3 3 bonn 1 7 2 of 3 3",
        "counted in round 2 a",
        "training 2.00 s 2.00 s 6.0 s",
        "train, stage 0 1.25 s 1.00 s 2.0 s 4.0 kB 2.0 kB",
        "down, per client and round 1.0 kB",
        "all clients, all rounds so far 12.0 kB",  # of the eight answers that count
        "ε spent 3.13 ε of the recipe 8 δ 0.001 unit client",
        "10:00:03 WARNING …; round 2 goes on without",
        "WARNING site bonn answers again",
        "2 lines with notes, warnings or errors in free words: see run.log.",
    ):
        assert part in read_page.text, part
    # Loss, F1, F1 over the bytes, ε.
    assert len(read_page.attributes("data-root-id")) == 4


def test_no_text_of_data_and_no_markup_of_names_is_on_the_page(run):
    for part in (False, True):
        text = live_page(read(run), part=part)
        assert SECRET not in text and "宝" not in text
        read_page = Read(text)
        assert not read_page.attributes("src") and EVIL.replace(",", "") in read_page.text
        assert read_page.attributes("href") == ["data:,", *(h for h in read_page.attributes("href") if h[0] == "#")]
        (policy,) = [attributes["content"] for _, attributes in read_page.elements if "http-equiv" in attributes]
        assert policy.startswith("default-src 'none'; ") and policy.endswith("; connect-src 'self'")
    assert "宝" not in exposition(read(run))


def test_an_open_page_takes_numbers_from_a_part_without_the_library(run):
    whole, part = (live_page(read(run), part=value) for value in (False, True))
    assert len(whole) > 1_000_000 and len(part) < 30_000
    states = [json.loads(re.search(r'id="live">(.*?)</script>', text)[1]) for text in (whole, part)]
    assert states[0] == states[1] and states[0]["shape"][:3] == ["now", "curves", "rounds"]
    f1 = states[0]["data"]["curves: f1: 0"]
    assert f1["x"] == [1, 3] and f1["mean"] == f1["low"] == f1["high"] == [0.25, 0.75]
    assert all(f'"{name}"' in whole.rpartition("<script")[0] for name in states[0]["data"])


def test_what_is_appended_to_the_log_is_read_once_and_a_new_log_from_its_start(run):
    folder, log = LiveFolder(run), run / "run.log"
    assert len(folder.read().log.lines) == 8 and folder.read().log.left_out == 2
    with log.open("a") as file:
        file.write("2026-03-01 10:00:07,000 INFO round 3 of 4: 2.00 s")
    assert folder.read().log.counts["round.finished", "INFO"] == 2  # the line is not whole yet
    with log.open("a") as file:
        file.write("\n")
    assert folder.read().log.counts["round.finished", "INFO"] == 3
    log.write_text(JSON_LINES, "utf-8")
    assert [str(line).split(" ", 2)[2] for line in folder.read().log.lines][1] == "WARNING site bonn answers again"
    assert folder.read().log.left_out == 0
    log.unlink()
    assert not folder.read().log.lines


def test_a_run_that_was_simulated(tmp_path):
    folder = write_run(tmp_path / "run", recipe=RECIPE)
    for name in ("answers.csv", "took_part.csv", "sites.json", "run.log"):
        (folder / name).unlink()
    csv_file(folder / "metrics.csv", ("round", "clients/counted", "test/f1"), (1, 3, 0.5))
    csv_file(folder / "timings.csv", ("round", "seconds/training"), (1, 1.0))
    text = Read(live_page(read(folder))).text
    assert "No client of this run can fail: all that were asked have answered." in text
    assert "Trained without differential privacy: nothing is guaranteed." in text and "Curves f1" in text
    assert "quorum 2 clients" in text and "bytes down" not in text and "down, per client" not in text


# Prometheus


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)+)\})? (\S+)')


def parsed(text):
    """Metric -> labels -> value, as the specification of the text form reads it; every metric has a type before."""
    samples, types = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("gauge", "counter")
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in types and name.endswith("_total") == (types[name] == "counter"), name
            key = tuple(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', labels or ""))
            assert key not in samples.setdefault(name, {}), line
            samples[name][key] = float(value)
    assert set(types) == set(samples)
    return samples


def test_metrics_do_not_tell_who_was_sampled_if_that_is_private(run):
    samples = parsed(exposition(read(run)))
    assert samples["tff_re_epsilon_spent"] == {(): 3.125}
    assert not {"tff_re_site_rounds_total", "tff_re_stage_bytes"} & set(samples)


def test_the_metrics_of_a_run(tmp_path):
    run = write_run(tmp_path / "run", recipe=PRIVATE.replace('"client"', '"example"'))
    with FileLock(RunFolder(run).lock):
        samples = parsed(exposition(read(run)))
    expected = {
        "tff_re_training": {(): 1},
        "tff_re_finished": {(): 0},
        "tff_re_round": {(): 3},
        "tff_re_rounds": {(): 4},
        "tff_re_test_f1": {(): 0.75},
        "tff_re_test_loss": {(): 0.4},
        "tff_re_clients_asked": {(): 3},
        "tff_re_epsilon_spent": {(): 3.125},
        "tff_re_epsilon_budget": {(): 8},
        "tff_re_delta": {(): 0.001},
        "tff_re_quorum_ratio": {(): 0.5},
        "tff_re_quorum_clients": {(): 2},
        "tff_re_stage_seconds": {
            (("stage", "training"),): 2,
            (("stage", "evaluation"),): 1,
            (("stage", "train/0"),): 1.25,
        },
        "tff_re_stage_seconds_total": {
            (("stage", "training"),): 6,
            (("stage", "evaluation"),): 1.5,
            (("stage", "train/0"),): 2,
        },
        "tff_re_stage_bytes": {
            (("stage", "train/0"), ("direction", "down")): 4000,
            (("stage", "train/0"), ("direction", "up")): 2000,
        },
        "tff_re_client_round_bytes": {(("direction", "down"),): 1000, (("direction", "up"),): 500},
        "tff_re_site_rounds_total": {(("site", "aachen"),): 3, (("site", "bonn"),): 2},
    }
    assert {name: samples[name] for name in expected} == expected
    assert samples["tff_re_log_events_total"][("event", "site.back"), ("level", "WARNING")] == 1
    assert samples["tff_re_estimated_end_timestamp_seconds"][()] >= samples["tff_re_last_round_timestamp_seconds"][()]
    info = dict(next(iter(samples["tff_re_run_info"])))
    assert info == {
        "recipe": "live",
        "algorithm": "fedavgs",
        "model": "pcnn",
        "task": "sentence_relations",
    }


def test_labels_are_escaped_and_metrics_of_one_name_are_told_apart(tmp_path):
    folder = write_run(tmp_path / "run", rounds=0, recipe=PRIVATE.replace('"live"', '"a\\\\b\\"c\\nd{}"'))
    csv_file(
        folder / "metrics.csv", ("round", "test/f1", "test f1", "local/loss", "local/x"), (1, 0.5, 0.25, "inf", "nan")
    )
    text = exposition(read(folder))
    assert 'recipe="a\\\\b\\"c\\nd{}"' in text
    samples = parsed(text)
    assert samples["tff_re_test_f1"] == {(("metric", "test/f1"),): 0.5, (("metric", "test f1"),): 0.25}
    assert "tff_re_local_loss +Inf" in text and "tff_re_local_x NaN" in text
    assert "seed=" not in text, "noise may be drawn from it"
    open_run = write_run(tmp_path / "open", rounds=0, recipe=RECIPE)
    assert 'seed="5"' in exposition(read(open_run))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("recipe.toml", "a = ", "recipe.toml: is damaged"),
        ("metrics.csv", "round\r\n2\r\n", "metrics.csv: is damaged"),
        ("answers.csv", "x\r\n", "answers.csv: row 1 is damaged"),
        ("sites.json", "{}", "sites.json: is damaged"),
        ("summary.json", "{}", "summary.json: is damaged"),
    ],
)
def test_a_damaged_file_is_named(run, name, content, said):
    (run / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=said):
        read(run)


def test_folders_without_a_run(tmp_path, run):
    for path, said in (
        (tmp_path / "no", "no such folder"),
        (tmp_path, "holds no run"),
        (run / "metrics.csv", "is a file; give the folder of a run"),
    ):
        with pytest.raises(UserError, match=said):
            LiveFolder(path)


def test_nothing_is_written(run):
    def files():
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.rglob("*")}

    before = files()
    live_page(read(run)), exposition(read(run))
    assert files() == before and LOG in (run / "run.log").read_text("utf-8")
