"""The benchmark of many clients, with few: an interrupted run is resumed, and all that is measured has a value."""

import json

import pytest

from benchmarks import clients
from datasets.dialogues.loading import load_corpus

pytestmark = pytest.mark.tools


def test_a_run_is_interrupted_resumed_and_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "PER_ROUND", 3)
    monkeypatch.setattr(clients, "PROBLEMS", {"LR": (*clients.PROBLEMS["LR, SCAFFOLD"][:2], (20,))})
    heading, _, row, *_, said = clients.run(1, tmp_path).strip().splitlines()
    cells = dict(zip(*([cell.strip() for cell in line.strip("|").split("|")] for line in (heading, row)), strict=True))
    assert (cells.pop("problem"), cells.pop("clients")) == ("LR", "20")
    assert cells.keys() == clients.COLUMNS.keys() and "4 rounds of 3 clients" in said
    values = {name: float(value) for name, value in cells.items()}
    assert values["a round, s"] > 0 and values["set-up, s"] > 0 and values["evaluation, s"] >= 0
    assert 100 < values["peak, MB"] < 5000 and values["folder, MB"] > 0


def test_made_up_dialogues_are_clients_with_a_dozen_sentences(tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(clients.dialogues(30), ensure_ascii=False), "utf-8")
    samples = load_corpus("imcs_v2", None, path=path, label="symptom_presence").samples
    assert len(samples) == 30 * clients.EXAMPLES and len({sample.document_id for sample in samples}) == 30
    assert {sample.label for sample in samples} == {0, 1}
    assert all(5 <= len(sample.text) <= 30 for sample in samples)
