"""From documents to facts with models that know some words: offsets, ids, pairs, and nothing of the text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import tff_re
from datasets.errors import DataError
from tests.extraction.stubs import (
    SECRET,
    Documents,
    Entity,
    Recogniser,
    Sentences,
    extracted,
    facts_of,
    json_lines,
    write,
)
from tff_re.errors import UserError

SENTENCE = f"{SECRET} 💊 takes Aspirin. Aspirin inhibits COX-2, EGFR too. None here."


def spans(facts):
    return [(fact.head.start, fact.head.end, fact.relation, fact.tail.start, fact.tail.end) for fact in facts]


def test_facts_of_sentences_have_offsets_in_code_points_and_no_text(tmp_path):
    facts, result = extracted(tmp_path, SENTENCE, "")
    start, cox = SENTENCE.index("Aspirin inhibits"), SENTENCE.index("COX")
    assert spans(facts) == [
        (start, start + 7, "inhibits", cox, cox + 5),
        (start, start + 7, "inhibits", cox + 7, cox + 11),
    ]
    fact = facts[0]
    assert (fact.document, fact.probability, fact.sentence) == ("d0", 0.5, [start, SENTENCE.index(" None")])
    assert (fact.head.type, fact.head.probability, fact.head.linked) == ("Drug", 0.75, "none")
    assert fact.entities_export is None and fact.relations_export is None
    assert (result.documents, result.mentions, result.facts) == (2, 4, 2)
    assert result.notes == ("1 document without text", "mentions linked: none 4")
    text = (tmp_path / "facts.jsonl").read_text("utf-8")
    assert SECRET not in text and "Aspirin" not in text and '"text"' not in text


def test_with_show_text_facts_have_the_mentions_words(tmp_path):
    facts, _ = extracted(tmp_path, SENTENCE, show_text=True)
    assert (facts[0].head.text, facts[0].tail.text) == ("Aspirin", "COX-2")


def test_line_breaks_and_emoji_before_a_mention(tmp_path):
    text = "👩‍👧 x\r\n\r\nAspirin\r\ninhibits COX-2"
    path = write(tmp_path / "note.txt", text)
    tff_re.extract(Recogniser(), Sentences(), path, tmp_path / "f.jsonl")
    (fact,) = facts_of(tmp_path / "f.jsonl")
    assert text[fact.head.start : fact.head.end] == "Aspirin" and text[fact.tail.start : fact.tail.end] == "COX-2"
    assert fact.document == "note"


def test_chinese_sentences_are_told_apart(tmp_path):
    facts, _ = extracted(tmp_path, "阿司匹林没有作用。环氧合酶inhibits阿司匹林！环氧合酶。")
    assert spans(facts) == [(21, 25, "inhibits", 9, 13)]


def test_mentions_are_encoded_as_in_training(tmp_path):
    model = Sentences()
    extracted(tmp_path, f"None. {SECRET}: COX-2 inhibits Aspirin.", relations=model)
    (sample,) = model.samples
    assert sample.text == f"{SECRET}: COX-2 inhibits Aspirin." and sample.head_text == "Aspirin"
    assert (sample.head_type, sample.tail_type, sample.tail_text) == ("drug", "gene", "COX-2")


def test_placeholders_stand_where_the_training_texts_had_them(tmp_path):
    model = Sentences(placeholders={"drug": "@DRUG$", "gene": "@GENE$"})
    facts, _ = extracted(tmp_path, "It: EGFR inhibits Aspirin, 💊.", relations=model, show_text=True)
    (sample,) = model.samples
    assert sample.text == "It: @GENE$ inhibits @DRUG$, 💊."
    assert (sample.head_text, sample.tail_text, facts[0].head.text) == ("@DRUG$", "@GENE$", "Aspirin")


def test_a_model_without_a_negative_class_relates_every_pair(tmp_path):
    facts, _ = extracted(tmp_path, "Aspirin and EGFR.", relations=Sentences(negative_label=None))
    assert [fact.relation for fact in facts] == ["no_relation"]


def test_ids_of_a_terminology_and_how_they_were_found(tmp_path):
    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\nCOX2\tG2\nacetylsalicylic acid\tD1\n")
    words = {"acetylsalicylic acids": "Drug", "COX-2": "Gene", "EGFR": "Gene", "ASA": "Drug"}
    text = "acetylsalicylic acids inhibits COX-2 and EGFR. ASA inhibits ASA."
    facts, result = extracted(tmp_path, text, entities=Recogniser(words), terminology=names)
    first, second = facts
    assert (first.head.id, first.head.linked, first.head.similarity) == (
        "D1",
        "similar",
        pytest.approx(0.974, abs=1e-3),
    )
    assert (first.tail.id, first.tail.linked) == ("G2", "folded") and second.tail.id.startswith("unlinked:")
    assert result.notes == ("mentions linked: exact 2, folded 1, none 1, similar 1",)


def test_whole_documents_one_prediction_a_pair(tmp_path):
    text = "Aspirin. ASA inhibits EGFR here. COX-2 and aspirin."
    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\n")
    model = Documents()
    facts, _ = extracted(tmp_path, text, "Aspirin, EGFR.", "EGFR", relations=model, terminology=names)
    assert [(fact.head.id, fact.relation, fact.probability) for fact in facts] == [("D1", "CID", 0.875)] * 2
    near, far = facts
    assert (near.head.start, near.tail.start, near.sentence) == (9, 22, [9, 32])
    assert near.head.mentions == [[0, 7], [9, 12], [43, 50]] and near.tail.mentions == [[22, 26]]
    assert (far.head.start, far.tail.start, far.sentence) == (43, 33, [33, 51])
    sample, other = model.corpora[0].samples
    drug, *genes = sample.entities
    assert (drug.entity_id, drug.kind, len(drug.mentions), len(genes)) == ("D1", "Drug", 3, 2)
    assert [(pair.head, pair.tail) for pair in sample.pairs] == [(0, 1), (0, 2)] and len(other.pairs) == 1


def test_without_a_terminology_an_entity_is_a_surface_form(tmp_path):
    facts, _ = extracted(tmp_path, "Aspirin inhibits EGFR. aspirin; ASA.", relations=Documents())
    assert len(facts) == 2 and facts[0].head.mentions == [[0, 7], [23, 30]]


def test_one_type_for_both_entities_goes_in_both_directions_or_once(tmp_path):
    ways = {"pair_types": [["Gene", "Gene"]]}
    facts, _ = extracted(tmp_path, "EGFR inhibits COX-2", relations=Documents(**ways))
    assert spans(facts) == [(0, 4, "CID", 14, 19), (14, 19, "CID", 0, 4)]
    once, _ = extracted(tmp_path, "EGFR inhibits COX-2", relations=Documents(**ways, label="once"), overwrite=True)
    assert spans(once) == spans(facts)[:1]


def test_a_relation_without_a_direction_is_a_fact_once(tmp_path):
    """In the pair that training counts it in: the first in the order of the text, where types do not tell."""
    text, ways = "EGFR inhibits COX-2", {"pair_types": [["Gene", "Gene"]]}
    some = Documents(**ways, pairs={"directed": ["other"]})
    facts, _ = extracted(tmp_path, text, relations=some)
    assert spans(facts) == [(0, 4, "CID", 14, 19)]
    assert [(pair.head, pair.tail) for pair in some.corpora[0].samples[0].pairs] == [(0, 1), (1, 0)]
    none = Documents(**ways, pairs={"directed": False})
    assert spans(extracted(tmp_path, text, relations=none, overwrite=True)[0]) == spans(facts)
    assert [(pair.head, pair.tail) for pair in none.corpora[0].samples[0].pairs] == [(0, 1)]
    one_way = Documents(pairs={"directed": False})
    facts, _ = extracted(tmp_path, "EGFR inhibits Aspirin", relations=one_way, overwrite=True)
    assert spans(facts) == [(14, 21, "CID", 0, 4)], "the types tell head from tail"


def test_the_model_of_relations_is_given_the_types_of_its_training(tmp_path):
    model = Documents(pair_types=[["CHEMICAL", "gene"]])
    facts, _ = extracted(tmp_path, "Aspirin inhibits EGFR", relations=model, renamed={"Drug": "CHEMICAL"})
    assert [entity.kind for entity in model.corpora[0].samples[0].entities] == ["CHEMICAL", "gene"]
    assert spans(facts) == [(0, 7, "CID", 17, 21)] and facts[0].head.type == "Drug"


def test_documents_that_are_too_long_are_left_out_and_counted(tmp_path):
    text = "Aspirin inhibits EGFR."
    facts, result = extracted(tmp_path, text, text + " and so on", text, relations=Documents(longest=len(text)))
    assert [fact.document for fact in facts] == ["d0", "d2"]
    assert result.notes[0] == "1 document longer than the relation model reads"


def test_an_export_whose_threshold_nothing_reaches(tmp_path):
    model = Documents()
    model.threshold = float("inf")
    facts, result = extracted(tmp_path, "Aspirin inhibits EGFR.", relations=model)
    assert facts == [] and "it never predicts a fact" in result.notes[-1]


def test_the_recogniser_may_read_sentences(tmp_path):
    recogniser = Recogniser()
    facts, _ = extracted(tmp_path, SENTENCE, entities=recogniser, unit="sentences")
    assert recogniser.batches == [3]
    assert spans(facts) == spans(extracted(tmp_path, SENTENCE, overwrite=True)[0]) and len(facts) == 2


def test_documents_come_in_batches_of_a_fixed_size(tmp_path):
    recogniser, progress = Recogniser(), []
    extracted(tmp_path, *["Aspirin inhibits EGFR."] * 40, entities=recogniser, on_batch=progress.append)
    assert recogniser.batches == [16, 16, 8]
    assert [(p.documents, p.total, p.facts) for p in progress] == [(0, 40, 0), (16, 40, 16), (32, 40, 32), (40, 40, 40)]


def test_pubtator_holds_every_mention_and_is_read_again(tmp_path):
    from datasets.documents.pubtator import read_pubtator

    names = write(tmp_path / "names.tsv", "Aspirin\tD1\nEGFR\tG1\n")
    source = write(tmp_path / "in.pubtator", "7|t|💊 Aspirin\n7|a|inhibits EGFR.\n\n8|t|None\n8|a|\n")
    ways = {"show_text": True, "terminology": names, "pubtator": tmp_path / "out.pubtator"}
    tff_re.extract(Recogniser(), Documents(), source, tmp_path / "f.jsonl", **ways)
    first, second = read_pubtator(tmp_path / "out.pubtator")
    assert (first.text, first.title_length) == ("💊 Aspirin inhibits EGFR.", 9) and second.mentions == ()
    assert [(m.start, m.end, m.kind, m.entity_ids) for m in first.mentions] == [
        (2, 9, "Drug", ("D1",)),
        (19, 23, "Gene", ("G1",)),
    ]
    assert [(f.head_id, f.relation, f.tail_id) for f in first.facts] == [("D1", "CID", "G1")]
    text = "A\tb\r\nAspirin inhibits EGFR"
    plain = json_lines(tmp_path / "n.jsonl", text)
    tff_re.extract(Recogniser(), Documents(), plain, tmp_path / "f.jsonl", **ways, overwrite=True)
    (document,) = read_pubtator(tmp_path / "out.pubtator")
    assert document.text.rstrip() == "A b  Aspirin inhibits EGFR" and document.mentions[0].start == 5
    strange = write(tmp_path / "s.jsonl", json.dumps({"id": "a|b", "text": "x"}) + "\n")
    with pytest.raises(DataError, match="its id cannot stand in PubTator's form"):
        tff_re.extract(Recogniser(), Documents(), strange, tmp_path / "f.jsonl", **ways, overwrite=True)


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ({"pubtator": "p.pubtator"}, "p.pubtator: --pubtator writes the texts; give --show-text too"),
        ({"html": "p.html"}, "p.html: --html writes the texts; give --show-text too"),
        ({"graph": "facts.jsonl"}, "facts.jsonl: is named twice"),
        ({"unit": "words"}, "the recogniser reads documents or sentences"),
        ({"similarity": 0.0}, "the similarity is not above 0"),
        ({"terminology": "missing.tsv"}, "missing.tsv: no such file"),
        ({"relations": Recogniser()}, "Recogniser takes something else, but extraction needs a model of two mentions"),
        (
            {"entities": Sentences()},
            "Sentences does not recognise entities; give an export of the task entity_recognition",
        ),
        ({"relations": Sentences(pair_types=None)}, "Sentences does not say which types its pairs have"),
        ({"relations": Sentences(pair_types=[])}, "Sentences does not say which types its pairs have; give them with"),
        (
            {"relations": Sentences(pair_types=[["A", "B"]])},
            "Recogniser recognises Drug, Gene, but Sentences relates A:B",
        ),
    ],
)
def test_what_is_refused_before_anything_is_written(tmp_path, ways, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = {"entities": Recogniser(), "relations": Sentences(), **ways}
    with pytest.raises(DataError) as raised:
        tff_re.extract(file=json_lines(tmp_path / "n.jsonl", "a"), out="facts.jsonl", **models)
    assert said in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["n.jsonl"]


def test_overlapping_predictions_are_no_pair_under_placeholders(tmp_path):
    class Overlapping(Recogniser):
        def predict(self, texts):
            return [[Entity(0, 9, "Drug", 1.0), Entity(3, 12, "Gene", 1.0)] for _ in texts]

    model = Sentences(placeholders={"drug": "@DRUG$", "gene": "@GENE$"})
    assert extracted(tmp_path, "abc inhibits xyz", entities=Overlapping(), relations=model)[0] == []
    assert len(extracted(tmp_path, "abc inhibits xyz", entities=Overlapping(), overwrite=True)[0]) == 1


class Cutting(Recogniser):
    """Reads the first 30 characters of a text, and says so, as an export of entity recognition does."""

    def recognise_each(self, texts):
        found = self.predict([text[:30] for text in texts])
        return [
            SimpleNamespace(entities=entities, read_to=None if len(text) <= 30 else 30)
            for text, entities in zip(texts, found, strict=True)
        ]


def test_documents_that_the_recogniser_cuts_are_counted(tmp_path):
    texts = "Aspirin inhibits EGFR.", "Aspirin inhibits EGFR. Aspirin inhibits COX-2."
    facts, result = extracted(tmp_path, *texts, entities=Cutting())
    said = "1 document that the recogniser did not read to the end"
    assert len(facts) == 2 and result.notes[0] == f"{said} (--unit sentences gives it one sentence at a time)"
    facts, result = extracted(tmp_path, *texts, entities=Cutting(), unit="sentences", overwrite=True)
    assert len(facts) == 3 and result.notes == ("mentions linked: none 6",)
    long = "and so on " * 9
    _, result = extracted(tmp_path, long, entities=Cutting(), unit="sentences", overwrite=True)
    assert result.notes == (said,)


def test_without_a_model_of_relations_mentions_are_written(tmp_path):
    names = write(tmp_path / "names.tsv", "阿司匹林\tD1\n")
    file, out = json_lines(tmp_path / "n.jsonl", "吃了阿司匹林。", f"{SECRET}", "EGFR"), tmp_path / "m.jsonl"
    ways = {"terminology": names, "pubtator": tmp_path / "p.pubtator", "html": tmp_path / "p.html", "show_text": True}
    progress = []
    result = tff_re.extract(Recogniser(), None, file, out, on_batch=progress.append, **ways)
    first, second, third = facts_of(out)
    (mention,) = first.mentions
    assert (mention.start, mention.end, mention.type, mention.id, mention.text) == (2, 6, "Drug", "D1", "阿司匹林")
    assert (second.document, second.mentions) == ("d1", []) and third.mentions[0].linked == "none"
    assert first.entities_export is None and not hasattr(first, "relations_export")
    assert (result.documents, result.mentions, result.facts) == (3, 2, None)
    assert [(p.documents, p.mentions) for p in progress] == [(0, 0), (3, 2)]
    first_block = (tmp_path / "p.pubtator").read_text("utf-8").split("\n\n")[0]
    assert first_block == "d0|t|吃了阿司匹林。\nd0|a|\nd0\t2\t6\t阿司匹林\tDrug\tD1"
    page = (tmp_path / "p.html").read_text("utf-8")
    assert "Recognised entities" in page and "3 documents, 2 mentions." in page and 'id="facts"' not in page
    tff_re.extract(Recogniser(), None, file, out, overwrite=True)
    assert SECRET not in out.read_text("utf-8") and "阿司匹林" not in out.read_text("utf-8")


def test_what_needs_a_model_of_relations(tmp_path):
    file, out = json_lines(tmp_path / "n.jsonl", "a"), tmp_path / "m.jsonl"
    with pytest.raises(UserError, match="the graph is of relations; give an export of relations, or leave the graph"):
        tff_re.extract(Recogniser(), None, file, out, graph=tmp_path / "g")
    for ways in ({"pairs": [("Drug", "Gene")]}, {"renamed": {"Drug": "drug"}}):
        with pytest.raises(
            DataError, match="pairs of types and renamed types are only for relations; add an export of rel"
        ):
            tff_re.extract(Recogniser(), None, file, out, **ways)
    assert [path.name for path in tmp_path.iterdir()] == ["n.jsonl"]
