"""ChemProt's release as documents whose relations are between mentions."""

from __future__ import annotations

import pytest
from datasets_for_tests import SECRET, refused

from datasets.documents.chemprot import read_chemprot_documents
from datasets.documents.records import Fact

ABSTRACTS = f"7\tAspirin binds COX-2\tYes. {SECRET}\n8\tB\tNo genes.\n"
ENTITIES = "7\tT1\tGENE-Y\t14\t19\tCOX-2\n7\tT2\tCHEMICAL\t0\t7\tAspirin\n7\tT3\tGENE-N\t14\t17\tCOX\n"
RELATIONS = (
    "7\tCPR:4\tY \tINHIBITOR\tArg1:T2\tArg2:T1\n"
    "7\tCPR:4\tY \tDOWNREGULATOR\tArg1:T2\tArg2:T1\n"
    "7\tCPR:1\tN \tPART-OF\tArg1:T2\tArg2:T3\n"
)


@pytest.fixture
def folder(tmp_path):
    for kind, text in {"abstracts": ABSTRACTS, "entities": ENTITIES, "relations": RELATIONS}.items():
        (tmp_path / f"c_{kind}.tsv").write_bytes(text.encode())
    return tmp_path


def test_mentions_are_entities_and_evaluated_groups_are_relations(folder):
    documents = read_chemprot_documents(folder / "c_abstracts.tsv")
    first, second = documents
    assert (first.document_id, first.text) == ("7", f"Aspirin binds COX-2\tYes. {SECRET}") and first.title_length == 19
    assert [(m.start, m.end, m.kind, m.entity_ids) for m in first.mentions] == [
        (0, 7, "chemical", ("T2",)),
        (14, 17, "gene", ("T3",)),
        (14, 19, "gene", ("T1",)),
    ]
    assert first.facts == (Fact("T2", "CPR:4", "T1"),) and second.mentions == second.facts == ()
    names = read_chemprot_documents(folder / "c_relations.tsv", label="names_with_negatives")[0].facts
    assert [fact.relation for fact in names] == ["INHIBITOR", "DOWNREGULATOR"]
    (folder / "c_relations.tsv").rename(folder / "c_gold.tsv")
    (folder / "c_gold_standard.tsv").write_text("7\tCPR:4\tArg1:T2\tArg2:T1\n")
    for name in ("entities", "gold_standard", "abstracts"):
        assert read_chemprot_documents(folder / f"c_{name}.tsv") == documents


def test_abstracts_are_enough_for_texts(folder):
    texts = [document.text for document in read_chemprot_documents(folder / "c_entities.tsv")]
    for kind in ("entities", "relations"):
        (folder / f"c_{kind}.tsv").unlink()
    plain = read_chemprot_documents(folder / "c_abstracts.tsv", annotated=False)
    assert [document.text for document in plain] == texts and plain[0].mentions == ()
    missing = refused(read_chemprot_documents, folder / "c_abstracts.tsv")
    assert missing.startswith(f"{folder / 'c_entities.tsv'}: no such file")
    (folder / "c_abstracts.tsv").write_bytes(b"")
    assert "c_abstracts.tsv: has no documents" in refused(
        read_chemprot_documents, folder / "c_abstracts.tsv", annotated=False
    )
