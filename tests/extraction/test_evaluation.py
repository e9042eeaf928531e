"""Scores on gold documents, worked by hand: recognition, relations on gold mentions, both together."""

from __future__ import annotations

import pytest

import tff_re
from datasets.errors import DataError
from tests.extraction.stubs import DRUGS, Documents, Recogniser, Sentences, write

WORDS = {**dict.fromkeys(DRUGS, "Drug"), "EGFR": "Gene", "here": "Gene"}


def block(number, title, *rows):
    lines = [f"{number}|t|{title}", f"{number}|a|", *("\t".join((str(number), *map(str, row))) for row in rows)]
    return "\n".join(lines) + "\n\n"


# The recogniser misses COX-2, and calls "here" a gene; of the second document it finds everything.
GOLD = block(
    1,
    "Aspirin inhibits COX-2 here. ASA.",
    *((0, 7, "Aspirin", "drug", "D1"), (17, 22, "COX-2", "gene", "G2"), (29, 32, "ASA", "drug", "D1")),
    ("CID", "D1", "G2"),
) + block(
    2,
    "Aspirin inhibits EGFR; Fever.",
    *((0, 7, "Aspirin", "drug", "D1"), (17, 21, "EGFR", "gene", "G1"), (23, 28, "Fever", "Sign", "S1")),
    ("CID", "D1", "G1"),
)


@pytest.fixture
def gold(tmp_path):
    return write(tmp_path / "gold.pubtator", GOLD)


def numbers(counts):
    return counts.right, counts.predicted, counts.gold


def test_each_step_has_its_score(gold, tmp_path):
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Documents(), gold)
    assert result.documents == 2
    assert {name: numbers(counts) for name, counts in result.rows()} == {
        "recognition": (4, 5, 5),
        "recognition: Drug": (3, 3, 3),
        "recognition: Gene": (1, 2, 2),
        "relations on gold mentions": (2, 2, 2),
        # Of document 1: Aspirin and here, ASA and here; both drugs are D1, and here is no gold gene.
        "relations from raw text": (1, 2, 2),
    }
    assert (result.recognition.precision, result.recognition.recall) == (0.8, 0.8)
    assert result.recognition.f1 == pytest.approx(0.8) and result.end_to_end.f1 == 0.5
    assert result.notes == ("left out: 1 gold mention of Sign, a type that the recogniser does not know",)


def test_ids_of_a_terminology_are_compared(gold, tmp_path):
    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\nEGFR\tother\n")
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Documents(), gold, terminology=names)
    assert numbers(result.end_to_end) == (0, 2, 2) and numbers(result.on_gold_mentions) == (2, 2, 2)
    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\nEGFR\tG1\nhere\tG2\n")
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Documents(), gold, terminology=names)
    assert numbers(result.end_to_end) == (2, 2, 2)


def test_sentences_are_scored_by_ids_too(tmp_path):
    text = GOLD.replace("CID", "inhibits").replace("1|t|Aspirin inhibits", "1|t|Aspirin inhibits")
    gold = write(tmp_path / "gold.pubtator", text + block(3, "Nothing.", (0, 7, "Nothing", "drug", "-1")))
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Sentences(), gold)
    assert numbers(result.on_gold_mentions) == (2, 2, 2) and numbers(result.end_to_end) == (1, 2, 2)


def test_composite_mentions_stand_for_each_of_their_ids(tmp_path):
    rows = [(0, 7, "Aspirin", "Drug", "D1"), (17, 21, "EGFR", "Gene", "G1|G2"), ("CID", "D1", "G2")]
    gold = write(tmp_path / "gold.pubtator", block(1, "Aspirin inhibits EGFR", *rows))
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Documents(), gold)
    assert numbers(result.on_gold_mentions) == (1, 2, 1) and numbers(result.end_to_end) == (1, 1, 1)


def test_counts_of_nothing_are_zero(tmp_path):
    gold = write(tmp_path / "gold.pubtator", block(1, "Nothing here."))
    result = tff_re.evaluate_extraction(Recogniser(), Documents(), gold)
    assert [(c.precision, c.recall, c.f1) for _, c in result.rows()] == [(0, 0, 0)] * 5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, 7, "Nothing", "Sign", "S1")], "the gold entities have types Sign, but the recogniser knows Drug, Gene"),
        ([("PIP", "A", "B")], "the gold relations are PIP, but the model knows CID, other"),
    ],
)
def test_gold_that_does_not_fit(tmp_path, rows, said):
    gold = write(tmp_path / "gold.pubtator", block(1, "Nothing here.", *rows))
    with pytest.raises(DataError, match=said):
        tff_re.evaluate_extraction(Recogniser(), Documents(), gold)


def test_a_relation_that_the_model_does_not_know_counts_as_missed(gold, tmp_path):
    text = GOLD.replace("2\tCID", "2\tPIP")
    result = tff_re.evaluate_extraction(Recogniser(WORDS), Documents(), write(tmp_path / "g.pubtator", text))
    assert numbers(result.on_gold_mentions) == (1, 2, 2)
    assert result.notes[-1] == "counted as missed: 1 gold relation PIP, which the model does not know"


CHEMPROT = {
    "abstracts": "7\tAspirin inhibits EGFR\tASA inhibits EGFR. Aspirin.\n",
    "entities": "7\tT1\tCHEMICAL\t0\t7\tAspirin\n7\tT2\tGENE-Y\t17\t21\tEGFR\n7\tT3\tCHEMICAL\t22\t25\tASA\n"
    "7\tT4\tGENE-N\t35\t39\tEGFR\n",
    "relations": "7\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2\n7\tCPR:3\tY \tACTIVATOR\tArg1:T3\tArg2:T2\n",
}


class Groups(Sentences):
    """Two mentions of a sentence with `inhibits` are CPR:4."""

    labels = ("no_relation", "CPR:4", "CPR:3")

    def _prediction(self, text):
        return super()._prediction(text.replace("inhibits", "CPR:4"))


@pytest.fixture
def release(tmp_path):
    for kind, text in CHEMPROT.items():
        write(tmp_path / f"c_{kind}.tsv", text)
    return tmp_path / "c_abstracts.tsv"


def test_relations_between_mentions_are_scored_by_their_spans(release, tmp_path):
    """A terminology does not make the second pair, of the same two entities in another sentence, the gold one."""
    words = {"Aspirin": "chemical", "ASA": "chemical", "EGFR": "gene"}
    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\nEGFR\tG1\n")
    for ways in ({}, {"terminology": names}):
        model = Groups(pair_types=[["chemical", "gene"]])
        result = tff_re.evaluate_extraction(Recogniser(words), model, release, dataset="chemprot_release", **ways)
        assert {name: numbers(counts) for name, counts in result.rows()} == {
            "recognition": (4, 5, 4),
            "recognition: chemical": (2, 3, 2),
            "recognition: gene": (2, 2, 2),
            "relations on gold mentions": (1, 2, 2),
            "relations from raw text": (1, 2, 2),
        }
    wrong = Recogniser({**words, "inhibits EGFR": "gene"})
    result = tff_re.evaluate_extraction(wrong, model, release, dataset="chemprot_release", terminology=names)
    assert numbers(result.end_to_end) == (0, 2, 2), "two predicted pairs, none of them gold"


def test_what_data_sets_cannot_be_scored_on(release, gold):
    words, score = {"Aspirin": "chemical", "EGFR": "gene"}, tff_re.evaluate_extraction
    with pytest.raises(
        DataError, match="the gold relations are between mentions, but the model's are between the enti"
    ):
        score(Recogniser(words), Documents(pair_types=[["chemical", "gene"]]), release, dataset="chemprot_release")
    with pytest.raises(DataError, match="data set ade: has no documents with relations; use one of biored, cdr, chemp"):
        score(Recogniser(), Documents(), gold, dataset="ade")
    with pytest.raises(DataError, match="there is no such data set"):
        score(Recogniser(), Documents(), gold, dataset="cdrs")


def test_a_data_set_of_documents_is_read_by_its_reader(tmp_path):
    text = block(
        *(1, "Aspirin inhibits EGFR."),
        *((0, 7, "Aspirin", "ChemicalEntity", "D1"), (17, 21, "EGFR", "GeneOrGeneProduct", "G1,G2")),
        ("Bind", "G1", "D1", "Novel"),
    )
    gold = write(tmp_path / "gold.pubtator", text)
    words = {"Aspirin": "ChemicalEntity", "EGFR": "GeneOrGeneProduct"}
    model = Documents(pair_types=[["ChemicalEntity", "GeneOrGeneProduct"]], pairs={"directed": False})
    model.labels = ("Bind", "other")
    result = tff_re.evaluate_extraction(Recogniser(words), model, gold, dataset="biored")
    assert numbers(result.on_gold_mentions) == (1, 2, 1) and numbers(result.end_to_end) == (1, 1, 1)


def test_a_relation_without_a_direction_is_right_in_both_orders(tmp_path):
    rows = (0, 7, "Aspirin", "Drug", "D1"), (17, 21, "EGFR", "Gene", "G1"), ("CID", "G1", "D1")
    gold = write(tmp_path / "gold.pubtator", block(1, "Aspirin inhibits EGFR.", *rows))
    for directed, right in ((False, 1), (["other"], 1), (True, 0), (["CID"], 0)):
        result = tff_re.evaluate_extraction(Recogniser(), Documents(pairs={"directed": directed}), gold)
        assert numbers(result.on_gold_mentions) == numbers(result.end_to_end) == (right, 1, 1)
