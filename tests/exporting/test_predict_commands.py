"""`predict` and `evaluate` on exported relation models, and `export` of a run, as a user types them."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from datasets.relations import pgr
from datasets.relations.loading import load_relations
from tests.exports_for_tests import LABELS, assert_without, export_of
from tests.runs.test_sentence_relations import table, write_pgr
from tests.upper_floors import SECRET, command, refusal, share_computations, write_recipe
from tff_re.exporting.prediction import load_export

pytestmark = pytest.mark.xdist_group("exports")

GOOD = "<e1>drug</e1> binds <e2>gene</e2>"
SPANS = {"text": f"drug binds gene {SECRET}", "head": [0, 4], "tail": [11, 15]}


@pytest.fixture(scope="module")
def exported():
    return export_of("word pieces")


def rows(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_sentences_as_arguments(capsys, exported):
    typed = command(capsys, "predict", exported, GOOD, f"<e2>gene</e2> {SECRET} <e1>drug</e1>")
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    assert [row[0] for row in rows(typed.out)] == ["1", "2"]
    assert all(row[1] in LABELS and 0 < float(row[2]) <= 1 for row in rows(typed.out))


def test_json_lines_in_and_out(capsys, exported, tmp_path):
    path = tmp_path / "given.jsonl"
    path.write_text(json.dumps(SPANS, ensure_ascii=False) + "\n" + json.dumps({"text": GOOD, "id": 7}) + "\n", "utf-8")
    typed = command(capsys, "predict", exported, "--file", path, "--json")
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    first, second = map(json.loads, typed.out.splitlines())
    assert first["line"] == 1 and list(first["probabilities"]) == list(LABELS)
    assert first["probability"] == max(first["probabilities"].values()) == first["probabilities"][first["label"]]
    wanted = load_export(exported).probabilities([SPANS, GOOD])
    np.testing.assert_allclose([list(p["probabilities"].values()) for p in (first, second)], wanted, atol=1e-6)
    (tmp_path / "lines.gz").write_bytes(gzip.compress(path.read_bytes()))
    again = command(capsys, "predict", exported, "--file", tmp_path / "lines.gz", "--json-lines", "--json")
    assert again == typed


def test_bad_lines_do_not_stop_the_others(capsys, exported, tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    lines = [GOOD.encode(), SECRET.encode(), b"abc\xff", b"", f"{SECRET} {GOOD}".encode()]
    path.write_bytes(b"\r\n".join(lines) + b"\r\n")
    typed = command(capsys, "predict", exported, "--file", path, "--json")
    assert refusal(typed, f"{path}: line 2 holds the marker <e1> 0 times", "(and 2 more)")
    results = [json.loads(line) for line in typed.out.splitlines()]
    assert [value["line"] for value in results] == [1, 2, 3, 4, 5]
    assert ["label" in value for value in results] == [True, False, False, False, True]
    assert "is not UTF-8 at byte 3" in results[2]["error"]
    assert SECRET not in typed.out + typed.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes()), "utf-8"))
    printed = command(capsys, "predict", exported)
    refusal(printed, "text number 2 holds the marker <e1> 0 times")
    assert SECRET not in printed.out and len([row for row in rows(printed.out) if row[0]]) == 5


BAD = {
    '{"text": ': "is not JSON",
    '["a"]': "is not a JSON object",
    '{"text": "a", "text": "b"}': "the same key twice",
    '{"head": [0, 1]}': 'has no "text"',
    json.dumps({"text": SECRET, "head": [0, 99], "tail": [0, 1]}): 'has no span "head"',
}


def test_bad_json_lines(capsys, exported, tmp_path):
    path = tmp_path / "given.jsonl"
    path.write_text("\n".join([json.dumps(SPANS), *BAD]) + "\n", "utf-8")
    typed = command(capsys, "predict", exported, "--file", path, "--json")
    assert SECRET not in refusal(typed, "given.jsonl: line 2 is not JSON", "(and 4 more)") + typed.out
    first, *others = map(json.loads, typed.out.splitlines())
    assert first["label"] in LABELS
    for result, reason in zip(others, BAD.values(), strict=True):
        assert reason in result["error"]


def test_types_for_a_blinded_model(capsys, tmp_path):
    blind = export_of("blinded relations of words")
    refusal(command(capsys, "predict", blind, GOOD), "text number 1 needs head_type and tail_type")
    typed = command(capsys, "predict", blind, GOOD, "--head-type", "drug", "--tail-type", "gene", "--json")
    record = {"text": GOOD, "head_type": "drug", "tail_type": "gene"}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(record) + "\n")
    same = command(capsys, "predict", blind, "--file", path, "--head-type", "other", "--json")
    assert typed.code == 0 and same == typed


def test_what_does_not_fit(capsys, exported, tmp_path):
    missing = tmp_path / "missing.txt"
    refusal(command(capsys, "predict", exported, "--file", missing), f"{missing}: no such file")
    refusal(command(capsys, "predict", exported, GOOD, "--file", missing), "texts are given twice")
    (tmp_path / "empty").write_bytes(b"")
    refusal(command(capsys, "predict", exported, "--file", tmp_path / "empty"), "no text given")
    refusal(command(capsys, "evaluate", exported), "is an export; give the file to score it on by --file")
    typed = command(capsys, "evaluate", exported, "--file", missing)
    refusal(typed, "does not say which data set it was trained on; give --dataset")
    typed = command(capsys, "evaluate", exported, "--file", missing, "--dataset", "shipped")
    refusal(typed, "the model takes two mentions in a text, which the data set 'shipped' does not have")
    typed = command(capsys, "evaluate", exported, "--file", missing, "--dataset", "pgr", "--split", "test")
    refusal(typed, "has no splits; leave --split out")
    typed = command(capsys, "evaluate", exported, "--file", write_pgr(tmp_path / "p.tsv"), "--dataset", "pgr")
    refusal(typed, "1 of its 2 classes are not among the model's (no_relation, inhibits, binds)")
    typed = command(capsys, "evaluate", tmp_path, "--file", missing)
    refusal(typed, "--file is for exports, and this holds no export.json")


def test_a_file_without_a_pair_is_one_line_in_place_of_an_empty_table(capsys, tmp_path, monkeypatch):
    predictions = []
    predictor = SimpleNamespace(takes_files=True, takes="documents", data_sets="documents", columns=("head", "label"))
    predictor.numbers, predictor.caption = (), ""
    predictor.predict_file = lambda path, dataset: predictions
    predictor.cells = lambda result: ("a", "b")
    monkeypatch.setattr("tff_re.exporting.prediction.load_export", lambda folder, trust: predictor)
    path = tmp_path / "documents.pubtator"
    for more in ((), ("--json",)):
        typed = command(capsys, "predict", tmp_path, "--file", path, *more)
        assert (typed.code, typed.out) == (0, "")
        assert typed.err == f"note: {path}: holds no pair of mentions to classify\n"
    predictions.append("a pair")
    typed = command(capsys, "predict", tmp_path, "--file", path)
    assert typed.err == "" and "│ a " in typed.out


@pytest.mark.slow
def test_documents_without_mentions_hold_no_pair(capsys, tmp_path):
    path = tmp_path / "documents.pubtator"
    path.write_text("1|t|No names.\n1|a|Nor here.\n\n2|t|A title.\n2|a|A text.\n\n", "utf-8")
    typed = command(capsys, "predict", export_of("documents"), "--file", path)
    assert (typed.code, typed.out) == (0, "") and "holds no pair of mentions to classify" in typed.err


# Whole runs of texts and of bags are exported by quick tests (tests/cli/test_command_line.py, test_export_records.py).


@pytest.fixture(scope="module")
def run(runtime, tmp_path_factory):
    """A run of a word model on PGR's form, trained, exported and scored by commands; (folder, corpus, typed lines)."""
    from tests.cli.test_command_line import Capture

    folder = tmp_path_factory.mktemp("run")
    corpus = write_pgr(folder / "train.tsv")
    task = {"dataset": "pgr", "encoding": "words", "min_clients": 1, "test": "documents", "test_share": 0.3}
    made = table(corpus, **task)
    made["model"] = {"name": "pcnn", "filters": 6, "embedding_width": 5}
    made["algorithm"] = {"name": "fedavgs", "learning_rate": 0.01, "local_epochs": 1}
    recipe = write_recipe(folder / "r.toml", made)
    with Capture() as capture, pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        trained = command(capture, "train", recipe, "--out", folder / "run")
        exported = command(capture, "export", folder / "run", "--format", "saved_model", "--quantise", "float16")
    assert trained.code == exported.code == 0, (trained, exported)
    return folder / "run", corpus, exported


@pytest.mark.slow
def test_a_run_is_exported_with_its_card(run):
    folder, corpus, typed = run
    export = folder / "export"
    assert f"written: {export} (README.md, SHA256SUMS, encoding.json, " in typed.out
    assert "saved_model_float16/" in typed.out
    card = (export / "README.md").read_text("utf-8")
    for part in (
        "## Data",
        "read in the form of: pgr",
        "## Training",
        "rounds: 2",
        "## Privacy",
        "no differential privacy",
        "## Limits",
    ):
        assert part in card, part
    assert "clients in a round: 3 of 3" in card and "| test | micro\\_f1 | " in card
    about = json.loads((export / "export.json").read_text("utf-8"))
    whole, measured = about["forms"]["saved_model"], about["details"]["metrics"]["test"]["accuracy"]
    assert whole["examples"] == 8 and whole["difference"] <= 1e-5
    assert whole["accuracy"] == pytest.approx(measured, abs=1e-6)
    assert {"recipe.toml", "environment.json", "labels.json"} <= {file.name for file in export.iterdir()}
    assert_without(export, str(corpus.parent), SECRET)
    assert 'path = "train.tsv"' in (export / "recipe.toml").read_text("utf-8")


@pytest.mark.slow
def test_the_export_of_a_run_knows_its_data_set(run, capsys):
    folder, corpus, _ = run
    typed = command(capsys, "evaluate", folder / "export", "--file", corpus)
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    assert command(capsys, "evaluate", folder / "export", "--file", corpus, "--dataset", "pgr") == typed


def test_an_export_is_scored_on_a_file(capsys, tmp_path):
    export = export_of("blinded relations of words")
    corpus, scored = write_pgr(tmp_path / "given.tsv"), ("evaluate", export, "--dataset", "pgr")
    typed = command(capsys, *scored, "--file", corpus)
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    corpus_read = load_relations("pgr", path=corpus)
    predicted = load_export(export).probabilities(corpus_read.mentions).argmax(axis=1)
    accuracy = np.mean(predicted == [m.label for m in corpus_read.mentions])
    assert re.search(rf"accuracy │ +{accuracy:.4f}", typed.out) and "micro_f1" in typed.out
    assert "micro-F1 and macro-F1 leave out no_relation" in typed.out
    assert command(capsys, *scored, "--data", corpus) == typed
    broken = corpus.with_name("broken.tsv")
    broken.write_text("\t".join(pgr.HEADER) + "\n" + SECRET + "\n", "utf-8")
    refusal(command(capsys, *scored, "--file", broken), "broken.tsv: line 2")
