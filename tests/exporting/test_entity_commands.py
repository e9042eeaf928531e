"""`predict` and `evaluate` on exports of entity recognition, and the way from a recipe to them, as a user types it."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from datasets.entities.loading import load_entities
from tests.exporting.test_export_entities import RECORDS, by_words, predictor_of, write
from tests.exports_for_tests import assert_without
from tests.upper_floors import command, refusal, share_computations, write_recipe
from tff_re.exporting.prediction import load_export
from tff_re.sites.validations import read_keys, read_results, total

SECRET = "张三"
"""In the first record."""


@pytest.fixture
def export(monkeypatch, tmp_path):
    """A folder that is loaded as a model which finds 咳嗽 and drug."""
    predictor = predictor_of(by_words, dataset="entities", recipe="own <words>")
    monkeypatch.setattr("tff_re.exporting.prediction.load_export", lambda folder, trust: predictor)
    (tmp_path / "export.json").write_text("{}")
    return tmp_path


@pytest.fixture
def notes(tmp_path):
    return write(tmp_path / "notes.jsonl", RECORDS)


def rows(text):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


ENTITIES = [
    *(["a", "2", "4", "symptom", "0.7000"], ["a", "5", "9", "drug", "0.7000"], ["b", "2", "4", "symptom", "0.7000"]),
    *(["c", "0", "4", "drug", "0.7000"], ["c", "4", "6", "symptom", "0.7000"]),
]


def test_a_table_of_offsets_and_types(capsys, export, notes):
    typed = command(capsys, "predict", export, "--file", notes)
    assert (typed.code, typed.err) == (0, "") and rows(typed.out) == ENTITIES
    assert command(capsys, "predict", export, "--file", notes, "--format", "table") == typed
    assert "咳嗽" not in typed.out and "mention" not in typed.out


def test_highlighted_in_the_terminal(capsys, export, notes):
    typed = command(capsys, "predict", export, "--file", notes, "--show-text")
    assert typed.code == 0 and "a: 张三咳嗽 symptom，drug drug" in typed.out
    assert "b: \n咳嗽 symptom头疼" in typed.out and "\r" not in typed.out
    assert [row[-1] for row in rows(typed.out)] == ["咳嗽", "drug", "咳嗽", "drug", "咳嗽"]


def test_a_text_does_not_steer_the_terminal(capsys, export):
    typed = command(capsys, "predict", export, "\x1b[2J咳嗽\x07", "--show-text")
    assert typed.code == 0 and "\x1b" not in typed.out and "\x07" not in typed.out
    assert rows(typed.out) == [["1", "4", "6", "symptom", "0.7000", "咳嗽"]]


def test_json_lines(capsys, export, notes, tmp_path):
    typed = command(capsys, "predict", export, "--file", notes, "--format", "jsonl")
    lines = [json.loads(line) for line in typed.out.splitlines()]
    assert [line["id"] for line in lines] == ["a", "b", "c"] and lines[0]["document"] == "d"
    first = lines[0]["entities"][0]
    assert first == {"start": 2, "end": 4, "type": "symptom", "probability": pytest.approx(0.7)}
    assert "咳嗽" not in typed.out and SECRET not in typed.out
    assert command(capsys, "predict", export, "--file", notes, "--json") == typed
    out = tmp_path / "entities.jsonl"
    written = command(capsys, "predict", export, "--file", notes, "--format", "jsonl", "--out", out)
    assert written.out == f"written: {out}\n" and out.read_text("utf-8") == typed.out
    typed = command(capsys, "predict", export, "--file", notes, "--format", "jsonl", "--show-text")
    assert json.loads(typed.out.splitlines()[0])["entities"][0]["text"] == "咳嗽"
    out.write_text(typed.out, "utf-8")
    again = load_entities("entities", path=out)
    assert [sample.text for sample in again.samples] == [record["text"] for record in RECORDS], (
        "to correct and train on"
    )
    assert [[s.start, s.end, s.type] for s in again.samples[2].spans] == [[0, 4, "drug"], [4, 6, "symptom"]]


@pytest.mark.parametrize("form", ["pubtator", "brat"])
def test_forms_that_hold_the_text(capsys, export, notes, tmp_path, form):
    out = tmp_path / ("made.pubtator" if form == "pubtator" else "made")
    arguments = ("predict", export, "--file", notes, "--format", form, "--out", out)
    refusal(command(capsys, *arguments), f"--format {form} holds the texts; add --show-text")
    assert not out.exists()
    typed = command(capsys, *arguments, "--show-text")
    assert (typed.code, typed.out) == (0, f"written: {out}\n")
    again = load_entities("entities", path=out, split="train")
    found = {sample.sample_id.removeprefix("train-"): sample for sample in again.samples}
    for record, expected in zip(RECORDS, ([(2, 4), (5, 9)], [(2, 4)], [(0, 4), (4, 6)]), strict=True):
        spans = found[record["id"]].spans
        assert [(span.start, span.end) for span in spans] == expected
        assert [found[record["id"]].text[a:b] for a, b in expected] == [record["text"][a:b] for a, b in expected]
    if form == "brat":
        refusal(command(capsys, *arguments, "--show-text"), "already exists; name a new folder")
        refusal(command(capsys, *arguments[:-2], "--show-text"), "--format brat writes a folder; name it with --out")
    else:
        printed = command(capsys, *arguments[:-2], "--show-text")
        assert printed.out == out.read_text("utf-8")


def test_a_page(capsys, export, notes, tmp_path):
    page = tmp_path / "page.html"
    refusal(
        command(capsys, "predict", export, "--file", notes, "--html", page), "--html holds the texts; add --show-text"
    )
    typed = command(capsys, "predict", export, "--file", notes, "--html", page, "--show-text")
    assert (typed.code, typed.out) == (0, f"written: {page}\n")
    html = page.read_text("utf-8")
    assert html.count('class="mention"') == len(ENTITIES) + 2, "two are the types"
    assert "Entities that own &lt;words&gt; found" in html and SECRET in html
    both = command(capsys, "predict", export, "--file", notes, "--html", page, "--show-text", "--format", "jsonl")
    assert both.out.count("\n") == 3 and both.err == f"note: written: {page}\n", "lines of JSON and nothing else"
    assert page.stat().st_mode & 0o777 == 0o600, "as the files of a run"


def test_texts_and_lines(capsys, export, tmp_path, monkeypatch):
    typed = command(capsys, "predict", export, "张三咳嗽", "drug", "--json")
    lines = [json.loads(line) for line in typed.out.splitlines()]
    assert [(line["line"], len(line["entities"])) for line in lines] == [(1, 1), (2, 1)] and "id" not in lines[0]
    path = tmp_path / "lines.txt"
    path.write_bytes("咳嗽\r\n".encode() + b"\xff\n" + f"{SECRET}drug\n".encode())
    typed = command(capsys, "predict", export, "--file", path, "--json")
    assert SECRET not in refusal(typed, f"{path}: line 2 is not UTF-8 at byte 0")
    assert [json.loads(line).get("error", "")[:12] for line in typed.out.splitlines()] == ["", "is not UTF-8", ""]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes()), "utf-8"))
    typed = command(capsys, "predict", export)
    refusal(typed, "text number 2 is not UTF-8")
    assert [row[0] for row in rows(typed.out) if row[0]] == ["1", "2", "3"]
    objects = write(tmp_path / "objects.jsonl", [{"text": "咳嗽"}, {"words": "drug"}])
    refusal(command(capsys, "predict", export, "--file", objects), 'objects.jsonl: line 1: has no "id"')
    typed = command(capsys, "predict", export, "--file", objects, "--json-lines", "--json")
    refusal(typed, 'objects.jsonl: line 2 has no "text"')


def test_a_text_that_was_cut_is_said(capsys, export, monkeypatch, notes):
    from tff_re.exporting import prediction

    predictor = prediction.load_export("", trust=False)
    monkeypatch.setitem(predictor.description["input"], "max_length", 4)
    inner = predictor._function
    monkeypatch.setattr(predictor, "_function", lambda text: {n: a[:, :4] for n, a in inner(text).items()})
    typed = command(capsys, "predict", export, "--file", notes, "--json")
    assert typed.err == (
        "note: 3 of 3 texts not read to the end: the model reads 4 characters; nothing is looked for in the rest\n"
    )
    assert [json.loads(line)["read_to"] for line in typed.out.splitlines()] == [4, 4, 4]


def test_nothing_found_is_a_line_in_place_of_an_empty_table(capsys, export):
    typed = command(capsys, "predict", export, "a", "")
    assert (typed.code, typed.out, typed.err) == (0, "", "note: no entity was found in 2 texts\n")


def test_what_does_not_fit(capsys, export, notes, tmp_path, monkeypatch):
    refusal(
        command(capsys, "predict", export, "a", "--head-type", "x"), "--head-type and --tail-type are for relations"
    )
    refusal(command(capsys, "predict", export, "a", "--dataset", "entities"), "--dataset says what form a --file has")
    refusal(command(capsys, "predict", export, "a", "--out", tmp_path / "o"), "--out needs --format jsonl, brat or")
    refusal(command(capsys, "predict", export, "a", "--file", notes), "pass a file of them only with --file")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    refusal(command(capsys, "predict", export, "--file", tmp_path / "empty.jsonl"), "empty.jsonl: has no texts")
    (tmp_path / "empty.txt").write_bytes(b"")
    refusal(command(capsys, "predict", export, "--file", tmp_path / "empty.txt"), "no text given")
    from tests.exports_for_tests import export_of

    monkeypatch.undo()
    for option in (("--format", "jsonl"), ("--out", tmp_path / "o"), ("--html", tmp_path / "o")):
        typed = command(capsys, "predict", export_of("vectors"), "a", *option)
        refusal(typed, "its model finds no entities; leave --format, --out and --html out")


def test_evaluate_prints_metrics_and_types(capsys, export, notes, tmp_path):
    typed = command(capsys, "evaluate", export, "--file", notes)
    assert (typed.code, typed.err) == (0, "")
    assert "notes.jsonl: 3 texts, 5 entities" in " ".join(typed.out.split())
    assert re.search(r"│ f1 +│ +0\.6000", typed.out) and re.search(r"│ lenient_recall +│ +0\.8000", typed.out)
    assert "loss" not in typed.out and SECRET not in typed.out
    assert rows(typed.out)[-2:] == [
        ["symptom", "0.6667", "0.6667", "0.6667", "3"],
        ["drug", "0.5000", "0.5000", "0.5000", "2"],
    ]
    drugs = write(tmp_path / "drugs.jsonl", [{**RECORDS[2]}])
    assert "not counted, because the file has none: symptom" in command(capsys, "evaluate", export, "--file", drugs).out
    foreign = write(tmp_path / "foreign.jsonl", [{**RECORDS[0], "entities": [[2, 4, "finding"]]}])
    typed = command(capsys, "evaluate", export, "--file", foreign)
    refusal(typed, "1 of its 1 types of entities are not among the model's (symptom, drug)")


def test_validate_signs_counts_of_entities_that_give_the_total(capsys, export, notes, tmp_path):
    key, results = tmp_path / "key.pem", tmp_path / "results"
    results.mkdir()
    line = command(capsys, "validate", "--make-key", "--key", key, "--name", "aachen").out
    (tmp_path / "keys.toml").write_text(line, "utf-8")
    typed = command(capsys, "validate", export, "--file", notes, "--key", key, "--out", results / "a.json")
    assert (typed.code, typed.err) == (0, "") and SECRET not in (results / "a.json").read_text("utf-8")
    found = read_results(results, read_keys(tmp_path / "keys.toml"))
    counts, metrics = total(found)
    assert counts["texts"] == 3 and counts["actual"] == 5 and found[0].content["labels"] == ["symptom", "drug"]
    assert len(metrics) == 6
    assert metrics == pytest.approx({name: found[0].content["metrics"][name] for name in metrics})


# From a recipe to predictions


def corpus(path, count, first=0):
    """Texts in which 咳嗽 is a symptom, each with SECRET before it, in so many documents."""
    records = []
    for number in range(first, first + count):
        words = ["咳嗽", "发烧"][number % 2]
        text = f"{SECRET}第{number % 7}天{words}了{'，又咳嗽' * (number % 3)}。"
        starts = [match.start() for match in re.finditer("咳嗽|发烧", text)]
        kinds = {"咳嗽": "symptom", "发烧": "fever"}
        entities = [[start, start + 2, kinds[text[start : start + 2]]] for start in starts]
        records.append({"id": f"t{number}", "document": f"d{number % 5}", "text": text, "entities": entities})
    return write(path, records)


@pytest.mark.slow
def test_from_a_recipe_to_predictions(runtime, tmp_path, capsys):
    train, test = corpus(tmp_path / "train.jsonl", 60), corpus(tmp_path / "test.jsonl", 12, first=61)
    table = {
        "name": "own-entities",
        "task": {
            **{"name": "entity_recognition", "dataset": "entities", "path": str(train), "encoding": "characters"},
            **{"max_length": 24, "min_clients": 1, "test": "official", "test_path": str(test)},
        },
        "partition": {"name": "iid", "num_clients": 3},
        "model": {"name": "tagger", "units": 8, "embedding_width": 8, "crf": True},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.05, "local_epochs": 4, "batch_size": 8},
        "training": {"rounds": 6, "client_fraction": 1.0},
    }
    recipe, run, export = write_recipe(tmp_path / "r.toml", table), tmp_path / "run", tmp_path / "run" / "export"
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        typed = command(capsys, "train", recipe, "--out", run)
        assert typed.code == 0, typed.err
        typed = command(capsys, "export", run, "--quantise", "float16")
        assert typed.code == 0, typed.err
    about = json.loads((export / "export.json").read_text("utf-8"))
    measured = about["details"]["metrics"]["test"]
    assert measured["f1"] > 0.5 and about["details"]["dataset"] == "entities"
    assert about["forms"]["saved_model"]["examples"] == 12
    assert_without(export, SECRET, str(tmp_path))
    card = (export / "README.md").read_text("utf-8")
    assert "the model's softmax, with a CRF the marginal probability" in card and "entities do not overlap" in card
    typed = command(capsys, "evaluate", export, "--file", test)
    assert typed.code == 0 and re.search(rf"│ f1 +│ +{measured['f1']:.4f}", typed.out), "the run's F1 on the same texts"
    assert re.search(rf"│ lenient_f1 +│ +{measured['lenient_f1']:.4f}", typed.out)
    typed = command(capsys, "predict", export, "--file", test, "--format", "jsonl")
    assert typed.code == 0 and SECRET not in typed.out and len(typed.out.splitlines()) == 12
    predicted = load_export(export).predict(["咳嗽了", ""])
    assert predicted[1] == [] and {entity.type for entity in predicted[0]} <= {"symptom", "fever"}
