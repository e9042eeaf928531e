"""Logs of a coordinator and of its sites as JSON lines: seconds and bytes of stages, messages, and no text."""

from __future__ import annotations

import json
import logging

import pytest

from tests.sites.sites_for_tests import NAMES, Federation, corpora, payload, recipe_of, stages, write_sites
from tff_re.cli.site import _log_to
from tff_re.pages.live_page import live_page
from tff_re.runs.live import LiveFolder
from tff_re.runtime.logs import VARIABLE
from tff_re.sites.run import train_at_sites


@pytest.fixture
def logger():
    """The project's logger, as it was after the test."""
    log = logging.getLogger("tff_re")
    before = log.handlers[:], log.level, log.propagate
    yield log
    for handler in set(log.handlers) - set(before[0]):
        log.removeHandler(handler)
        handler.close()
    log.setLevel(before[1])
    log.propagate = before[2]


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def run(tmp_path, monkeypatch, logger):
    """A run of two rounds, whose sites log into one file."""
    monkeypatch.setenv(VARIABLE, "json")
    _log_to(tmp_path / "state" / "site.log")
    federation = Federation(write_sites(tmp_path / "sites"))
    recipe = recipe_of("fedpap", "evaluation.train_split=false")
    train_at_sites(recipe, tmp_path / "run", federation.engine, details=False)
    federation.close()
    return federation


def test_the_log_of_the_coordinator_has_each_stage_with_its_bytes(run, tmp_path):
    lines = [line for line in lines_of(tmp_path / "run" / "run.log") if "outcome" not in line]
    (agreed,) = [line for line in lines if line["event"] == "sites.agreed"]
    assert agreed["sites"] == list(NAMES) and (agreed["clients"], agreed["quorum"]) == (3, 1.0)
    logged = [line for line in lines if line["event"] == "stage.finished" and line["purpose"] == "train"]
    assert [(line["round"], line["stage"]) for line in logged] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all((line["answered"], line["asked"]) == (3, 3) and line["seconds"] > 0 for line in logged)
    sent = list(stages(run))
    assert sum(line["bytes_down"] for line in logged) == sum(payload(arrays) for _, _, arrays, _ in sent)
    assert sum(line["bytes_up"] for line in logged) == sum(payload(sums) for *_, (_, sums) in sent)
    evaluations = [line for line in lines if line["event"] == "stage.finished" and line["purpose"] == "evaluate"]
    assert [line["round"] for line in evaluations] == [1, 2]


def test_the_live_page_shows_the_stages_and_the_sites(run, tmp_path):
    live = LiveFolder(tmp_path / "run").read()
    assert set(live.log.stages) == {("train", 0), ("train", 1), ("evaluate", 0)}
    assert live.sites.keys() == set(NAMES) and live.took_part == {1: list(NAMES), 2: list(NAMES)}
    text = live_page(live, part=True)
    assert "train, stage 1" in text and "quorum" in text and "100% of a round" in text and "3 of 3" in text


def test_the_log_of_a_site_has_its_messages_and_no_text(run, tmp_path):
    path = tmp_path / "state" / "site.log"
    lines = lines_of(path)
    assert path.stat().st_mode & 0o077 == 0
    answered = [line for line in lines if line["event"] == "message.answered"]
    assert {line["kind"] for line in answered} == {"hello", "words", "reveal", "agree", "stage", "finish"}
    assert {line["outcome"] for line in answered} == {"answered"} and len({line["run"] for line in answered}) == 1
    trained = [line for line in answered if line.get("purpose") == "train"]
    assert len(trained) == 12 and all(line["bytes_up"] > 0 and line["clients"] == 1 for line in trained)
    assert "words.sent" in {line["event"] for line in lines}
    decoded = json.dumps(lines, ensure_ascii=False)
    sentences = [s["sentence"] for texts in corpora().values() for d in texts.values() for s in d["dialogue"]]
    assert sentences and not [s[n : n + 2] for s in sentences for n in range(len(s) - 1) if s[n : n + 2] in decoded]
