"""`extract` as a user types it, with real exports."""

from __future__ import annotations

import functools
import json
import shutil

import numpy as np
import pytest

from datasets.documents.pubtator import read_pubtator
from datasets.files import sha256_of
from tests.documents_for_tests import write_documents
from tests.extraction.stubs import SECRET, facts_of, json_lines, write
from tests.upper_floors import command, refusal
from tff_re.exporting import prediction
from tff_re.exporting.kinds.entities import EntityPredictor
from tff_re.exporting.prediction import load_export

pytestmark = pytest.mark.xdist_group("exports")

TEXTS = (f"{SECRET}: the drug inhibits the gene. A rash.", "💊 the gene binds the drug, pain")


_loaded_once = functools.cache(prediction.load_export)


@pytest.fixture(autouse=True)
def _exports_are_loaded_once(monkeypatch):
    monkeypatch.setattr(prediction, "load_export", lambda folder, **ways: _loaded_once(folder, **ways))


def extract(capsys, ner, relations, *arguments):
    return command(capsys, "extract", "--entities", ner, "--relations", relations, *arguments)


def test_facts_of_an_export_of_sentences(capsys, ner, sentence_export, tmp_path):
    file, out = json_lines(tmp_path / "notes.jsonl", *TEXTS), tmp_path / "facts.jsonl"
    typed = extract(capsys, ner, sentence_export, "--file", file, "--out", out)
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    facts = {(f.document, f.head.start, f.tail.start): f for f in facts_of(out)}
    predictor, wanted = load_export(sentence_export), {}
    for number, text in enumerate(TEXTS):
        start = 0
        for sentence in text.replace(". A", ".\nA").split("\n"):
            for word in ("gene", "rash", "pain"):
                head, tail = sentence.find("drug"), sentence.find(word)
                if min(head, tail) >= 0:
                    sample = {"text": sentence, "head": (head, head + 4), "tail": (tail, tail + 4)}
                    wanted[f"d{number}", head + start, tail + start] = predictor.predict([sample])[0]
            start += len(sentence) + 1
    assert len(wanted) == 3
    assert facts.keys() == {key for key, prediction in wanted.items() if prediction.label != "no_relation"}
    for key, fact in facts.items():
        assert fact.relation == wanted[key].label and abs(fact.probability - wanted[key].probability) < 1e-5
        assert fact.relations_export == sha256_of(sentence_export / "SHA256SUMS")
        assert fact.entities_export == sha256_of(ner / "SHA256SUMS")
    assert f"2 documents, 6 mentions, {len(facts)} facts" in typed.out and f"written: {out}" in typed.out


def test_facts_of_an_export_of_documents(capsys, ner, document_export, tmp_path):
    """With gold words as mentions and a terminology of gold ids, these are the export's own predictions."""
    file = write_documents(tmp_path / "in.pubtator", range(1, 7))
    rows = [f"{word}\tD00000{n}" for n, word in enumerate(("gene", "rash", "pain"), 1)]
    names = write(tmp_path / "names.tsv", "\n".join(["drug\tC0", *rows]) + "\n")
    out = tmp_path / "facts.jsonl"
    typed = extract(capsys, ner, document_export, "--terminology", names, "--file", file, "--out", out)
    assert typed.code == 0, typed
    predictor = load_export(document_export)
    predictions = predictor.predict(predictor.read(file))
    wanted = {(p.document_id, p.tail_id): p.probability for p in predictions if p.probability >= predictor.threshold}
    facts = {(fact.document, fact.tail.id): fact.probability for fact in facts_of(out)}
    assert facts.keys() == wanted.keys() and len(facts) > 0
    np.testing.assert_allclose([facts[key] for key in wanted], list(wanted.values()), atol=2e-5)


def test_all_files_and_resume(capsys, ner, sentence_export, tmp_path):
    file, out = json_lines(tmp_path / "notes.jsonl", *TEXTS), tmp_path / "facts.jsonl"
    more = (
        "--show-text",
        "--html",
        tmp_path / "p.html",
        "--pubtator",
        tmp_path / "p.pubtator",
        "--graph",
        tmp_path / "g",
    )
    typed = extract(capsys, ner, sentence_export, "--file", file, "--out", out, *more)
    assert typed.code == 0 and SECRET not in typed.out
    assert SECRET in (tmp_path / "p.html").read_text("utf-8") and len(read_pubtator(tmp_path / "p.pubtator")) == 2
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.state"))
    typed = extract(capsys, ner, sentence_export, "--file", file, "--out", out)
    refusal(typed, "facts.jsonl: already exists; choose another file, or use --overwrite")
    typed = extract(capsys, ner, sentence_export, "--file", file, "--out", out, "--resume")
    refusal(typed, "is finished; there is nothing to resume")
    assert extract(capsys, ner, sentence_export, "--file", file, "--out", out, "--overwrite").code == 0


def test_another_export_cannot_continue(capsys, ner, sentence_export, tmp_path, monkeypatch):
    file, out = json_lines(tmp_path / "notes.jsonl", *TEXTS * 10), tmp_path / "facts.jsonl"
    with monkeypatch.context() as context:
        context.setattr(EntityPredictor, "recognise_each", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        typed = extract(capsys, ner, sentence_export, "--file", file, "--out", out)
    assert typed.code == 130 and "continues with --resume" in typed.err
    other = tmp_path / "other"
    shutil.copytree(sentence_export, other)
    about = json.loads((other / "export.json").read_text("utf-8"))
    write(other / "export.json", json.dumps({**about, "details": {**about["details"], "pair_types": [["drug", "x"]]}}))
    typed = extract(capsys, ner, other, "--file", file, "--out", out, "--resume")
    refusal(typed, "export.json: was changed after the export")
    typed = extract(capsys, ner, other, "--file", file, "--out", out, "--resume", "--trust")
    refusal(typed, f"{ner} recognises drug, gene, but {other} relates drug:x: they have no pair of types in common")
    changed = tmp_path / "changed"
    shutil.copytree(ner, changed)
    write(changed / "SHA256SUMS", "other")
    typed = extract(capsys, changed, sentence_export, "--file", file, "--out", out, "--resume", "--trust")
    refusal(typed, "facts.jsonl.state: was started with another setting: entities export; start anew with --overwrite")


def test_pairs_and_names_of_types(capsys, ner, sentence_export, tmp_path):
    file, out = json_lines(tmp_path / "notes.jsonl", *TEXTS), tmp_path / "facts.jsonl"
    ways = ("--file", file, "--out", out, "--overwrite")
    assert extract(capsys, ner, sentence_export, *ways, "--pairs", "drug:gene").code == 0
    typed = extract(capsys, ner, sentence_export, *ways, "--pairs", "gene:drug")
    refusal(typed, f"{sentence_export} does not relate gene:drug of {ner}; use drug:gene")
    assert extract(capsys, ner, sentence_export, *ways, "--rename", "drug=gene", "--rename", "gene=drug").code == 0
    assert all(fact.head.type == "gene" for fact in facts_of(out))
    refusal(extract(capsys, ner, sentence_export, *ways, "--rename", "drug"), "--rename drug: has not two parts")
    refusal(extract(capsys, ner, sentence_export, *ways, "--pairs", "drug"), "--pairs drug: has not two parts")


def test_the_evaluation_is_a_table(capsys, ner, document_export, tmp_path):
    gold = write_documents(tmp_path / "gold.pubtator", range(1, 7))
    text = gold.read_text("utf-8").replace("Chemical", "drug").replace("Disease", "gene")
    typed = extract(capsys, ner, document_export, "--evaluate", write(gold, text))
    assert typed.code == 0 and typed.err == "", typed
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in typed.out.splitlines() if line[0] == "│"]
    scores = [row for row in rows if row[1]]
    assert scores[0][:4] == ["recognition", "1.0000", "1.0000", "1.0000"] and len(scores) == 5
    assert [row[0].split()[0] for row in scores[3:]] == ["relations"] * 2 and scores[3][1:] == scores[4][1:]
    typed = extract(capsys, ner, document_export, "--evaluate", gold, "--out", tmp_path / "o")
    refusal(typed, "--out does not go with --evaluate")


def test_what_is_refused(capsys, ner, sentence_export, tmp_path):
    empty, out = write(tmp_path / "empty.txt", ""), tmp_path / "facts.jsonl"
    typed = extract(capsys, ner, sentence_export, "--file", empty, "--out", out)
    refusal(typed, f"{empty}: has no text")
    refusal(extract(capsys, ner, sentence_export, "--file", empty), "give the documents by --file and where to write")
    typed = extract(capsys, tmp_path / "no", sentence_export, "--file", empty, "--out", out)
    refusal(typed, f"{tmp_path / 'no'}: no such folder")
    typed = extract(capsys, sentence_export, sentence_export, "--file", empty, "--out", out)
    refusal(typed, f"{sentence_export} does not recognise entities; give an export of the task entity_recognition")
    typed = extract(capsys, ner, ner, "--file", empty, "--out", out)
    refusal(typed, f"{ner} takes texts, but extraction needs a model of two mentions in a sentence")
    bad = write(tmp_path / "bad.txt", f"{SECRET}\n".encode() + b"\xff")
    typed = extract(capsys, ner, sentence_export, "--file", bad, "--out", out)
    assert SECRET not in refusal(typed, f"{bad}: line 2: byte 11: is not UTF-8; convert the file to UTF-8")
    assert not out.exists() and not list(tmp_path.glob("*.part"))


def test_mentions_with_ids_without_an_export_of_relations(capsys, ner, tmp_path):
    file, out = json_lines(tmp_path / "notes.jsonl", *TEXTS), tmp_path / "mentions.jsonl"
    names = write(tmp_path / "names.tsv", "drug\tD1\n")
    ways = ("--file", file, "--out", out, "--terminology", names)
    typed = command(capsys, "extract", "--entities", ner, *ways)
    assert typed.code == 0 and "2 documents, 6 mentions\n" in typed.out and SECRET not in out.read_text("utf-8")
    first, second = facts_of(out)
    start = TEXTS[1].index("gene")
    assert [(m.start, m.end, m.type, m.id) for m in first.mentions if m.linked == "exact"] == [(16, 20, "drug", "D1")]
    assert (second.mentions[0].start, second.mentions[0].type) == (start, "gene"), "an emoji is one character"
    assert first.entities_export == sha256_of(ner / "SHA256SUMS")
    typed = command(capsys, "extract", "--entities", ner, *ways, "--overwrite", "--graph", tmp_path / "g")
    refusal(typed, "the graph is of relations; give an export of relations, or leave the graph out")
    typed = command(capsys, "extract", "--entities", ner, "--evaluate", file)
    refusal(typed, "--evaluate scores relations too: give --relations, or use evaluate EXPORT --file FILE")


def test_the_release_of_chemprot_is_scored_and_read(capsys, ner, sentence_export, tmp_path):
    """The file of relations names its neighbours; for texts, abstracts are enough."""
    text = "the drug inhibits the gene ."
    write(tmp_path / "c_abstracts.tsv", f"7\t{text}\tNo more.\n")
    write(tmp_path / "c_entities.tsv", "7\tT1\tCHEMICAL\t4\t8\tdrug\n7\tT2\tGENE-Y\t22\t26\tgene\n")
    relations = write(tmp_path / "c_relations.tsv", "7\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2\n")
    ways = ("--dataset", "chemprot_release")
    typed = extract(capsys, ner, sentence_export, *ways, "--evaluate", relations)
    refusal(typed, "the gold relations are CPR:4, but the model knows binds, inhibits")
    out = tmp_path / "facts.jsonl"
    typed = extract(capsys, ner, sentence_export, *ways, "--file", tmp_path / "c_abstracts.tsv", "--out", out)
    assert typed.code == 0 and "1 document, 2 mentions, " in typed.out


def test_what_is_not_an_export_of_relations_is_refused(capsys, ner, tmp_path):
    from tests.exports_for_tests import export_of

    file = json_lines(tmp_path / "a.jsonl", "a")
    typed = extract(capsys, ner, export_of("words"), "--file", file, "--out", tmp_path / "o")
    refusal(typed, "takes texts, but extraction needs a model of two mentions in a sentence")
