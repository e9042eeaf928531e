"""Exports of entity recognition: raw text in, the trained model's entities out, with offsets of that text."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from datasets.encoding_files import tagged_encoding_from_json
from datasets.entities.records import EntitySpan
from datasets.entities.scoring import score_spans
from datasets.entities.tags import spans_of
from tests.exports_for_tests import (
    ENTITY_TYPES,
    LENGTH,
    arguments,
    assert_without,
    entity_samples,
    export_of,
    printed_by_the_card,
    with_weights,
)
from tests.models.encoders_for_tests import chinese_encoder
from tff_re import models
from tff_re.errors import UserError
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.forms import HALF_TOLERANCE, TOLERANCE
from tff_re.exporting.kinds import KINDS as KINDS_OF_INPUT
from tff_re.exporting.kinds.entities import EntityKind, EntityPrediction, EntityPredictor, RecognisedText, types_of
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError
from tff_re.models.inputs import TaggedPieceInput, TaggedTokenInput, pieces_of
from tff_re.models.tagging import probabilities_and_tags

pytestmark = pytest.mark.xdist_group("exports")

CHARACTERS, WORDS, PIECES = "entities of characters", "entities of words", "entities of pieces"
WINDOWS = "entities of pieces, in windows with a CRF"
SLOW = (WORDS, WINDOWS, "entities of pieces behind frozen layers", "entities with LoRA")
KINDS = (CHARACTERS, PIECES, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW))
TEXTS = [sample.text for sample in entity_samples()]


@functools.cache
def trained_entities(kind: str) -> list[list[tuple]]:
    """(start, end, type, probability) of TEXTS by the model as it was trained, with the encoding of the training."""
    made = arguments(kind)
    module, options, inputs = models.MODELS[made["model_name"]], made["model_options"], made["inputs"]
    model = with_weights(module.build(options, inputs, len(made["label_names"])), made["weights"])
    if not isinstance(inputs, TaggedTokenInput | TaggedPieceInput) or getattr(inputs, "fixed", None) is not None:
        model = module.whole_form(options, inputs, model)
    encoding, width = made["encoding"], pieces_of(inputs).max_length
    arrays = encoding.encode(entity_samples()).arrays
    _, offsets = encoding.encode_texts(TEXTS)
    fill = {"tags": -1}
    behind = [[0, 0], [0, width - arrays["tags"].shape[1]]]
    padded = {
        name: np.pad(arrays[name], behind, constant_values=fill.get(name, 0))
        if arrays[name].shape[1] == arrays["tags"].shape[1] and name not in ("unrepresented", "annotated")
        else arrays[name]
        for name in pieces_of(inputs).specs
    }
    tags = tf.constant(np.where(padded["tags"] >= 0, 0, -1))  # the gold ones are not looked at
    outputs = model({**{name: tf.constant(value) for name, value in padded.items()}, "tags": tags}, training=False)
    probabilities, best = (value.numpy() for value in probabilities_and_tags(outputs, tags))
    results = []
    for row, (of_text, text_tags) in enumerate(zip(probabilities, best, strict=True)):
        columns = np.flatnonzero(text_tags >= 0)
        tokens = [tuple(offset) for offset in offsets[row][columns].tolist()]
        chosen = of_text[columns, text_tags[columns]]
        spans = spans_of(text_tags[columns].tolist(), tokens, encoding.entity_types, encoding.scheme)
        inside = [[span.start <= start and end <= span.end for start, end in tokens] for span in spans]
        results.append(
            [(s.start, s.end, s.type, float(chosen[which].mean())) for s, which in zip(spans, inside, strict=True)]
        )
    return results


def as_tuples(entities) -> list[tuple]:
    return [(entity.start, entity.end, entity.type) for entity in entities]


@pytest.mark.parametrize("kind", KINDS)
def test_entities_are_the_trained_models(kind):
    predicted = load_export(export_of(kind)).predict(TEXTS)
    expected = trained_entities(kind)
    assert sum(map(len, expected)) > 3, "the test would show nothing"
    assert predicted[TEXTS.index("")] == []
    for entities, of_text in zip(predicted, expected, strict=True):
        assert as_tuples(entities) == [entity[:3] for entity in of_text]
        tolerance = HALF_TOLERANCE if "frozen" in kind else 2 * TOLERANCE
        np.testing.assert_allclose([e.probability for e in entities], [e[3] for e in of_text], atol=tolerance, rtol=0)
        assert all(isinstance(entity, EntityPrediction) and entity.type in ENTITY_TYPES for entity in entities)


@pytest.mark.parametrize("kind", [CHARACTERS, *(pytest.param(k, marks=pytest.mark.slow) for k in (PIECES, WINDOWS))])
def test_signatures_and_the_keras_model(kind):
    folder = export_of(kind)
    signatures = tf.saved_model.load(str(folder / "saved_model")).signatures
    assert set(signatures) == {"serving_default", "encoded", "encode"}
    served = signatures["serving_default"](text=tf.constant(TEXTS))
    encoded = signatures["encode"](text=tf.constant(TEXTS))
    shape = tuple(served["tags"].shape)
    assert served["probabilities"].shape == (*shape, len(load_export(folder).labels))
    for name in ("starts", "ends"):
        np.testing.assert_array_equal(served[name], encoded.pop(name))
    no_token = served["starts"].numpy() < 0
    assert (served["tags"].numpy()[no_token] == -1).all() and not served["probabilities"].numpy()[no_token].any()
    np.testing.assert_allclose(served["probabilities"].numpy()[~no_token].sum(-1), 1, atol=1e-5)
    answer = signatures["encoded"](**encoded)
    for name in ("probabilities", "tags"):
        np.testing.assert_allclose(answer[name], served[name], atol=TOLERANCE)
    if (folder / "model.keras").exists():
        by_keras = tf.keras.models.load_model(folder / "model.keras", compile=False)(dict(encoded))
        np.testing.assert_allclose(by_keras["probabilities"], served["probabilities"], atol=TOLERANCE)
        np.testing.assert_array_equal(by_keras["tags"], served["tags"])


def test_what_is_written():
    folder = export_of(CHARACTERS)
    description = json.loads((folder / "export.json").read_text("utf-8"))
    assert description["input"] == {
        **{"name": "text", "kind": "entity_characters", "max_length": LENGTH, "scheme": "BIO", "crf": True},
        "vocabulary": len(arguments(CHARACTERS)["encoding"].text_encoding.vocabulary.words),
    }
    labels = json.loads((folder / "labels.json").read_text("utf-8"))
    assert labels == ["O", "B-symptom", "I-symptom", "B-drug", "I-drug"]
    assert description["arrays"] == ["tokens"]
    whole = description["forms"]["saved_model"]
    assert whole["difference"] <= TOLERANCE and whole["examples"] == len(TEXTS) and whole["unit"] == "texts"
    predicted = [[EntitySpan(*entity) for entity in as_tuples(e)] for e in load_export(folder).predict(TEXTS)]
    gold = [sample.spans for sample in entity_samples()]
    measured = score_spans(gold, predicted, ENTITY_TYPES).micro.f1
    assert abs(whole["f1"] - measured) < 0.3, "the most probable tag of each token in place of the CRF's"
    again = tagged_encoding_from_json((folder / "encoding.json").read_text("utf-8"))
    assert again == arguments(CHARACTERS)["encoding"]
    assert "(marginals)" in (folder / "README.md").read_text("utf-8")
    assert_without(folder, str(folder.parent), TEXTS[0], TEXTS[2])


@pytest.mark.slow
def test_what_is_written_of_pieces():
    folder = export_of(PIECES)
    description = json.loads((folder / "export.json").read_text("utf-8"))
    assert description["input"]["kind"] == "entity_pieces" and not description["input"]["crf"]
    assert description["arrays"] == ["input_ids", "attention_mask", "token_mask"]
    again = tagged_encoding_from_json((folder / "encoding.json").read_text("utf-8"))
    for texts in (TEXTS, TEXTS[:1]):
        arrays, offsets = again.encode_texts(texts)
        expected, places = arguments(PIECES)["encoding"].encode_texts(texts)
        tf.nest.map_structure(np.testing.assert_array_equal, {**arrays, "at": offsets}, {**expected, "at": places})
    assert_without(folder, str(chinese_encoder()), str(folder.parent), TEXTS[0])
    model = tf.keras.models.load_model(export_of("entities with LoRA") / "model.keras", compile=False)
    assert not [variable.name for variable in model.variables if "lora" in variable.name], "an adapter is merged"


@pytest.mark.parametrize("kind", [CHARACTERS, *(pytest.param(k, marks=pytest.mark.slow) for k in (WORDS, PIECES))])
def test_the_card_works_as_it_stands(kind):
    printed = printed_by_the_card(export_of(kind))
    by_tokens = [row for row in printed if len(row) == 3]
    labels = load_export(export_of(kind)).labels
    assert by_tokens and {row[2] for row in by_tokens} <= set(labels)
    predicted = [row for row in printed if len(row) == 4]
    if kind != WORDS:  # whose example is segmented already, for TensorFlow alone
        tags = [labels.index(row[2]) for row in by_tokens]
        spans = spans_of(tags, [row[:2] for row in by_tokens], ENTITY_TYPES, "BIO")
        assert [row[:3] for row in predicted] == as_tuples(spans)
    if (export_of(kind) / "model.keras").exists():
        assert [tag for tag in printed[-1][0] if tag >= 0] == [labels.index(row[2]) for row in by_tokens]


@pytest.mark.slow
def test_weights_in_16_bits_give_nearly_the_same():
    for kind in (CHARACTERS, WORDS):
        whole, half = (load_export(export_of(kind), form).predict(TEXTS) for form in ("saved_model", FLOAT16))
        for entities, others in zip(whole, half, strict=True):
            assert as_tuples(entities) == as_tuples(others)


FLOAT16 = "saved_model_float16"


# Long texts and offsets


def test_a_text_that_is_cut_says_so():
    predictor = load_export(export_of(CHARACTERS))
    text = "咳嗽" * LENGTH
    short, cut, empty, dots = predictor.recognise_each([text[:LENGTH], text, "", text[:LENGTH] + " 。"])
    assert isinstance(cut, RecognisedText) and cut.read_to == LENGTH and cut.text == text and text not in repr(cut)
    assert (short.read_to, empty.read_to, dots.read_to) == (None, None, None)
    assert as_tuples(cut.entities) == as_tuples(short.entities) != [] and empty.entities == ()
    assert [result.text_id for result in (short, cut)] == ["1", "2"]


@pytest.mark.slow
def test_long_texts_are_read_in_windows():
    """The run's longest text had 48 pieces, a window has 12."""
    predictor = load_export(export_of(WINDOWS))
    text = "咳嗽发烧 the drug 宝宝 " * 40
    (result,) = predictor.recognise_each([text])
    assert result.read_to is None and result.entities[-1].end > len(text) - 12
    assert as_tuples(predictor.predict([text, "咳嗽"])[0]) == as_tuples(result.entities)


@pytest.mark.slow
def test_offsets_of_words_are_those_of_the_text():
    predictor = load_export(export_of(WORDS))
    plain, spaced = "宝宝咳嗽，发烧了", " 宝宝\u3000咳嗽\r\n ，发烧\t了"
    whole, apart = predictor.predict([plain, spaced])
    assert whole and len(whole) == len(apart)
    for entity, other in zip(whole, apart, strict=True):
        words = "".join(spaced[other.start : other.end].split())
        assert words == plain[entity.start : entity.end] and entity.type == other.type
        assert not spaced[other.start].isspace() and not spaced[other.end - 1].isspace()
        assert entity.probability == pytest.approx(other.probability)


# A predictor whose graph answers what a test wants


def predictor_of(tags_of_text, labels=("O", "B-symptom", "I-symptom", "B-drug", "I-drug"), **details):
    """An EntityPredictor of characters that gives each text these tags with a probability of 0.7, O the rest."""

    def function(text):
        width = max(1, *map(len, text))
        tags, starts = np.full([2, len(text), width], -1)
        probabilities = np.zeros([len(text), width, len(labels)], np.float32)
        for row, value in enumerate(text):
            count = len(value)
            tags[row, :count], starts[row, :count] = tags_of_text(value), range(count)
            probabilities[row, range(count), tags[row, :count]] = 0.7
        return {
            "probabilities": probabilities,
            "tags": tags,
            "starts": starts,
            "ends": np.where(starts < 0, -1, starts + 1),
        }

    source = {"name": "text", "kind": "entity_characters", "scheme": "BIO", "max_length": None}
    return EntityPredictor(function, labels, None, {"model": "tagger", "input": source, "details": details})


def by_words(text):
    """Tags of 咳嗽 (a symptom) and of drug (a drug)."""
    tags = [0] * len(text)
    for words, begin in (("咳嗽", 1), ("drug", 3)):
        for start in (i for i in range(len(text)) if text.startswith(words, i)):
            tags[start : start + len(words)] = [begin] + [begin + 1] * (len(words) - 1)
    return tags


def test_entities_of_tags():
    predictor = predictor_of(by_words)
    first, second = predictor.predict(["👨\u200d👩\r\n咳嗽咳嗽", {"text": "drug, 咳嗽"}])
    assert as_tuples(first) == [(5, 7, "symptom"), (7, 9, "symptom")]
    assert as_tuples(second) == [(0, 4, "drug"), (6, 8, "symptom")]
    assert first[0].probability == pytest.approx(0.7)
    assert predictor.entity_types == ENTITY_TYPES and "symptom, drug" in repr(predictor)
    assert predictor.predict([]) == []


def test_a_bad_text_does_not_stop_the_others():
    predictor, secret = predictor_of(by_words), "张三丰咳嗽"
    with pytest.raises(PredictionError, match="put it into a list"):
        predictor.predict(secret)
    results = predictor.predict_each([secret, 5, {"words": secret}, secret + "\ud800"])
    assert as_tuples(results[0]) == [(3, 5, "symptom")]
    for error, reason in zip(results[1:], ("is a int", 'has no "text"', "surrogate pair"), strict=True):
        assert isinstance(error, PredictionError) and reason in str(error) and secret not in str(error)
    with pytest.raises(PredictionError, match="text number 2 is a int; give a string") as caught:
        predictor.predict([secret, 5])
    assert secret not in str(caught.value) and caught.value.__context__ is None


DAMAGES = {
    "no tag for each token": lambda a: a.update(tags=a["tags"][:, :-1]),
    "no tag for each token ": lambda a: a.update(tags=np.full_like(a["tags"], 5)),
    "no tag for each token  ": lambda a: a.update(probabilities=a["probabilities"][:1]),
    "offsets that are not in the text": lambda a: a.update(ends=a["ends"] + 40),
    "offsets that are not in the text ": lambda a: a.update(starts=np.minimum(a["starts"], 0)),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_an_answer_of_a_damaged_graph_is_one_line(message):
    predictor = predictor_of(by_words)
    function = predictor._function

    def damaged(text):
        answer = function(text=text)
        DAMAGES[message](answer)
        return answer

    predictor._function = damaged
    with pytest.raises(PredictionError, match=f"the graph's answer is damaged .*{message.strip()}.*; export") as caught:
        predictor.predict(["咳嗽 drug", "咳嗽"])
    assert "\n" not in str(caught.value) and "咳" not in str(caught.value)


def test_types_of_tags():
    assert types_of(("O", "B-a", "I-a", "B-b", "I-b"), "BIO") == ("a", "b")
    assert types_of(("O", "B-a", "I-a", "E-a", "S-a"), "BIOES") == ("a",)
    for labels in (
        ("O",),
        ("O", "B-a"),
        ("O", "I-a", "B-a"),
        ("O", "B-a", "I-b"),
        ("O", "B-", "I-"),
        ("O", "B-a", "I-a", "B-a", "I-a"),
    ):
        assert types_of(labels, "BIO") is None


# Files


def write(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


RECORDS = [
    {"id": "a", "document": "d", "text": "张三咳嗽，drug", "entities": [[2, 4, "symptom"], [5, 9, "drug"]]},
    {"id": "b", "text": "\r\n咳嗽头疼", "entities": [[2, 4, "symptom"], [4, 6, "symptom"]]},
    {"id": "c", "text": "drug咳嗽", "entities": [[0, 3, "drug"]]},
]


def test_a_file_of_ones_own(tmp_path):
    file = write(tmp_path / "notes.jsonl", RECORDS)
    predictor = predictor_of(by_words)
    results = predictor.predict_file(file)
    assert [(r.text_id, r.document_id) for r in results] == [("a", "d"), ("b", "b"), ("c", "c")]
    assert [as_tuples(r.entities) for r in results] == [
        [(2, 4, "symptom"), (5, 9, "drug")],
        [(2, 4, "symptom")],
        [(0, 4, "drug"), (4, 6, "symptom")],
    ]
    unlabelled = write(tmp_path / "new.jsonl", [{key: r[key] for key in ("id", "text")} for r in RECORDS])
    assert [r.entities for r in predictor.predict_file(unlabelled)] == [r.entities for r in results]
    conll = tmp_path / "notes.conll"
    conll.write_text("咳嗽\ndrug\n\ndrug\n", "utf-8")
    assert [as_tuples(r.entities) for r in predictor.predict_file(conll)] == [
        [(0, 2, "symptom"), (3, 7, "drug")],
        [(0, 4, "drug")],
    ]
    pubtator = tmp_path / "notes.pubtator"
    pubtator.write_text("7|t|drug\n7|a|咳嗽\n\n", "utf-8")
    assert [as_tuples(r.entities) for r in predictor.predict_file(pubtator)] == [[(0, 4, "drug"), (5, 7, "symptom")]]
    (tmp_path / "brat").mkdir()
    (tmp_path / "brat" / "n.txt").write_bytes("drug\r\n咳嗽".encode())
    assert [as_tuples(r.entities) for r in predictor.predict_file(tmp_path / "brat")] == [
        [(0, 4, "drug"), (6, 8, "symptom")]
    ]


def test_an_export_is_scored_on_a_file(tmp_path):
    """Strict: 3 of 5 found are right of 5; lenient: drug 0:4 overlaps 0:3."""
    score = predictor_of(by_words, dataset="entities").score(write(tmp_path / "a.jsonl", RECORDS))
    assert score.title("a.jsonl") == "a.jsonl: 3 texts, 5 entities" and score.labels == ENTITY_TYPES
    assert "loss" not in score.metrics and score.confusion is None and score.trivial is None
    expected = {"precision": 3 / 5, "recall": 3 / 5, "f1": 3 / 5, "lenient_precision": 4 / 5, "lenient_recall": 4 / 5}
    assert {name: score.metrics[name] for name in expected} == pytest.approx(expected)
    precision, recall, f1, gold = score.per_class
    assert precision.tolist() == pytest.approx([2 / 3, 1 / 2]) and recall.tolist() == pytest.approx([2 / 3, 1 / 2])
    assert score.metrics["macro_f1"] == pytest.approx(f1.mean()) and gold.tolist() == [3, 2]
    assert score.notes == ()


def test_types_of_the_file_and_of_the_model(tmp_path):
    predictor = predictor_of(by_words, dataset="entities")
    only_drugs = [{**record, "entities": [e for e in record["entities"] if e[2] == "drug"]} for record in RECORDS]
    score = predictor.score(write(tmp_path / "drugs.jsonl", only_drugs))
    assert score.labels == ("drug",) and score.notes == ("not counted, because the file has none: symptom",)
    assert score.metrics["f1"] == pytest.approx(1 / 2)
    foreign = [{**RECORDS[0], "entities": [[2, 4, "finding"], [5, 9, "drug"]]}]
    with pytest.raises(UserError, match=r"1 of its 2 types of entities are not among the model's \(symptom, drug\)"):
        predictor.score(write(tmp_path / "foreign.jsonl", foreign))
    left_out = predictor_of(
        by_words, dataset="entities", reading={"other_types": "leave_out", "entity_types": ["drug"]}
    )
    score = left_out.score(tmp_path / "foreign.jsonl")
    assert score.labels == ("drug",) and "1 entities of other types left out" in score.notes
    with pytest.raises(UserError, match="does not say which data set"):
        predictor_of(by_words).score(tmp_path / "foreign.txt")
    with pytest.raises(UserError, match="the model takes texts, which the data set 'shipped' does not have"):
        predictor.score(tmp_path / "foreign.jsonl", "shipped")
    with pytest.raises(UserError, match="has no label choices"):
        predictor.score(tmp_path / "foreign.jsonl", "entities", "other")


def test_overlapping_entities_of_a_file_are_read_as_in_training(tmp_path):
    nested = [{"id": "a", "text": "咳嗽 drug", "entities": [[0, 2, "symptom"], [3, 7, "drug"], [3, 5, "drug"]]}]
    file = write(tmp_path / "nested.jsonl", nested)
    score = predictor_of(by_words, dataset="cdr_entities").score(file, "entities")
    assert score.metrics["f1"] == 1 and score.notes == ("1 entities that overlap a longer one left out",)
    refusing = predictor_of(by_words, dataset="entities", reading={"nested": "refuse"})
    with pytest.raises(Exception, match=r"nested\.jsonl: line 1.*overlaps"):
        refusing.score(file)


def test_the_form_of_a_file():
    of_cdr, of_imcs, made_up = (
        predictor_of(by_words, **details)
        for details in ({"dataset": "cdr_entities"}, {"dataset": "imcs_v2_entities"}, {})
    )
    assert of_cdr.form_of(Path("a.pubtator.gz")) == "cdr_entities"
    assert of_imcs.form_of(Path("a.json")) == "imcs_v2_entities" and of_cdr.form_of(Path("a.json")) is None
    for predictor in (of_cdr, of_imcs, made_up):
        assert predictor.form_of(Path("a.jsonl")) == predictor.form_of(Path("a.conll")) == "entities"
        assert predictor.form_of(Path("a.txt")) is None
    assert made_up.form_of(Path("a.pubtator")) == "entities"


def test_a_file_of_a_data_set(tmp_path):
    """Options of the task that its reader does not take are left out."""
    reading = {"other_types": "refuse", "unit": "sentence", "entity_types": ["symptom"]}
    predictor = predictor_of(by_words, ("O", "B-Disease", "I-Disease"), dataset="cdr_entities", reading=reading)
    file = tmp_path / "a.pubtator"
    file.write_text("7|t|A drug.\n7|a|It is 咳嗽. No.\n7\t14\t16\t咳嗽\tDisease\tD1\n\n", "utf-8")
    predictor._function = predictor_of(lambda text: [0] * len(text), predictor.labels)._function
    assert [text.text_id for text in predictor.predict_file(file)] == ["7/1", "7/2", "7/3"]
    reading["entity_types"] = ["Disease"]
    score = predictor.score(file)
    assert score.labels == ("Disease",) and score.title("a") == "a: 3 texts, 1 entity"
    assert score.metrics["recall"] == 0


# What is refused


def test_what_does_not_fit_is_refused(tmp_path):
    made = arguments(CHARACTERS)

    def refused(match, **changes):
        with pytest.raises(ExportError, match=match) as caught:
            export_model(tmp_path / "export", **{**made, **changes})
        assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []

    inputs, encoding = made["inputs"], made["encoding"]
    refused("a model of entities needs its encoding", encoding=None)
    refused("a model of entities needs its encoding", encoding=arguments(PIECES)["encoding"])
    size = inputs.vocabulary_size
    refused("does not fit the model", inputs=TaggedTokenInput(size + 1, LENGTH, ENTITY_TYPES, "BIO"))
    refused("does not fit the model", inputs=TaggedTokenInput(size, LENGTH + 1, ENTITY_TYPES, "BIO"))
    refused("does not fit the model", inputs=TaggedTokenInput(size, LENGTH, ENTITY_TYPES, "BIOES"))
    refused("does not fit the model", inputs=TaggedTokenInput(size, LENGTH, ENTITY_TYPES[::-1], "BIO"))
    refused("TFLite takes one text of a fixed size .* leave --tflite out", tflite=True)
    refused("this tagger model has no encoder for transformers", huggingface=True)
    assert encoding.text_encoding.max_length == LENGTH


def test_a_tokenizer_that_keeps_control_characters_is_refused(tmp_path):
    made = arguments(PIECES)
    tokenizer = made["encoding"].tokenizer
    normalizer = json.loads(tokenizer.backend_tokenizer.to_str())["normalizer"]
    tokenizer.backend_tokenizer.normalizer = type(tokenizer.backend_tokenizer.normalizer)(
        clean_text=False, **{k: normalizer[k] for k in ("handle_chinese_chars", "strip_accents", "lowercase")}
    )
    with pytest.raises(ExportError, match=r"keeps control characters \(clean_text\)"):
        export_model(tmp_path / "export", **made)
    assert list(tmp_path.iterdir()) == []


def test_another_encoding_than_the_graphs_is_found(tmp_path, monkeypatch):
    encoding = type(arguments(CHARACTERS)["encoding"])
    real = encoding.encode_texts

    def moved(self, texts):
        arrays, offsets = real(self, texts)
        return arrays, np.where(offsets > 0, offsets + 1, offsets)

    monkeypatch.setattr(encoding, "encode_texts", moved)
    with pytest.raises(ExportError, match="encodes a probe text differently"):
        export_model(tmp_path / "export", **arguments(CHARACTERS), formats="saved_model")
    assert list(tmp_path.iterdir()) == []


def test_renamed_types_are_read_with_trust(tmp_path):
    folder = shutil.copytree(export_of(CHARACTERS), tmp_path / "export")
    labels = json.loads((folder / "labels.json").read_text("utf-8"))
    (folder / "labels.json").write_text(json.dumps([label.replace("drug", "药物") for label in labels]), "utf-8")
    renamed = load_export(folder, trust=True)
    assert renamed.entity_types == ("symptom", "药物")
    before = load_export(export_of(CHARACTERS)).predict(TEXTS)
    assert [as_tuples(e) for e in renamed.predict(TEXTS)] == [
        [(a, b, kind.replace("drug", "药物")) for a, b, kind in as_tuples(e)] for e in before
    ]
    (folder / "labels.json").write_text(json.dumps([*labels[:-1], "I-other"]), "utf-8")
    with pytest.raises(PredictionError, match=r"labels\.json: is not a list of the tags of BIO"):
        load_export(folder, trust=True)


def test_the_kind_is_registered():
    names = {name for name, kind in KINDS_OF_INPUT.items() if isinstance(kind, EntityKind)}
    assert names == {"entity_words", "entity_characters", "entity_pieces"}
