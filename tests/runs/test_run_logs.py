"""A run's log in both forms, and what `watch` reads of it."""

from __future__ import annotations

import json

import pytest

from tests.upper_floors import command, consultations, refusal, text_recipe, tiny, write_json, write_recipe
from tff_re.recipes.reading import resolve
from tff_re.runs.live import FINISHED, LiveFolder
from tff_re.runs.run import train_run
from tff_re.runtime.logs import VARIABLE


def trained(folder, runtime, monkeypatch, form):
    monkeypatch.setenv(VARIABLE, form)
    texts = consultations()
    recipe = resolve(text_recipe(write_json(folder / "c.json", texts)), "r.toml", ("training.rounds=2",))
    experiment, _ = train_run(recipe, folder / "run", runtime=runtime, details=False)
    return (folder / "run" / "run.log").read_text("utf-8"), texts, len(experiment.notes)


EVENTS = ["run.begun", "round.finished", "round.finished", "run.finished"]


def test_json_lines_have_the_events_of_the_run_and_no_text_of_its_data(runtime, tmp_path, monkeypatch):
    log, texts, notes = trained(tmp_path, runtime, monkeypatch, "json")
    lines = [json.loads(line) for line in log.splitlines()]
    assert notes and [line["event"] for line in lines] == [*["run.note"] * notes, *EVENTS]
    begun, *rounds, finished = lines[notes:]
    assert begun["rounds"] == 2 and begun["bytes_down"] > 0 and begun["bytes_up"] > 0
    assert [(line["round"], line["rounds"]) for line in (*rounds, finished)] == [(1, 2), (2, 2), (2, 2)]
    assert all(line["seconds"] > 0 for line in rounds)
    sentences = [s["sentence"] for dialogue in texts.values() for s in dialogue["dialogue"]]
    decoded = json.dumps(lines, ensure_ascii=False)
    assert sentences and not [s[n : n + 2] for s in sentences for n in range(len(s) - 1) if s[n : n + 2] in decoded]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_live_page_reads_both_forms(runtime, tmp_path, monkeypatch, form):
    log, _, notes = trained(tmp_path, runtime, monkeypatch, form)
    live = LiveFolder(tmp_path / "run").read()
    assert (live.state, live.done, live.rounds) == (FINISHED, 2, 2) and len(live.timings) == 2
    named = [line.event.name for line in live.log.lines]
    assert named == EVENTS and live.log.left_out == notes  # which have no fixed words
    assert live.bytes_of_client == tuple(live.log.last["run.begun"][f"bytes_{way}"] for way in ("down", "up"))
    assert (" INFO round 2 of 2: " in log) == (form == "text")


def test_a_form_that_there_is_not_ends_a_command_before_it_writes(capsys, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path / "r.toml")
    monkeypatch.setenv(VARIABLE, "xml")
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "run"), "TFF_RE_LOG=xml", "text or json")
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "run", "--log", "xml"), "--log")
    assert not (tmp_path / "run").exists()


def test_the_option_chooses_the_form_and_a_resumed_run_may_have_another(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "text")
    recipe, out = write_recipe(tmp_path / "r.toml"), tmp_path / "run"
    assert command(capsys, "train", recipe, "--out", out, "--log", "json").code == 0
    json_lines = (out / "run.log").read_text("utf-8")
    assert json.loads(json_lines.splitlines()[-1])["event"] == "run.finished"
    assert command(capsys, "train", recipe, "--out", out, "--resume", "--log", "text").code == 0
    log = (out / "run.log").read_text("utf-8")
    assert log.startswith(json_lines) and f"resumed after round {tiny().training.rounds} of" in log
    live = LiveFolder(out).read()
    assert live.log.counts["run.begun", "INFO"] == 2 and live.log.left_out == 0
    assert command(capsys, "report", out).code == 0  # its date is read from lines of both forms
