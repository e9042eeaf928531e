"""Exported models of whole Chinese texts: untouched text in, the trained model's predictions out."""

from __future__ import annotations

import functools
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import normalizers
from transformers import AutoTokenizer

from datasets.dialogues.loading import load_corpus
from datasets.encoding_files import piece_encoding_from_json
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.tokenizer_tables import tables_of
from tests.exports_for_tests import assert_without, drawn_weights, printed_by_the_card, with_weights, written_once
from tests.models.encoders_for_tests import CHINESE, COMMON, chinese_encoder
from tests.relations_for_tests import HARD
from tff_re import models
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.forms import HALF_TOLERANCE, TOLERANCE
from tff_re.exporting.in_graph.whole_text import WholeText
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import PieceInput

LABELS = ("咳嗽", "发热", "腹痛")
LENGTH = 24
SECRET = "宝宝昨晚高烧不退还咳嗽"
TEXTS = ("宝宝咳嗽，发烧三天了？", "", " ", SECRET, "肚子\n疼 [SEP] ab", "嗯" * 60, *HARD)
OPTIONS = {
    "plain": {},
    "mean": {"pooling": "mean"},
    "frozen": {"frozen_layers": 1},
    "lora": {"adapter": AdapterOptions(rank=2)},
}
# An export of a run with LoRA is in the fast suite: tests/recipes/test_shipped_recipes.py.
KINDS = ("plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("frozen", "lora", "mean")))
FORMS_OF = {"plain": {"quantise": "float16"}}


def generated(count: int, seed: int = 0) -> list[str]:
    """Different texts of Chinese characters, letters, hard pieces and any code points at all."""
    draw = random.Random(seed)

    def part() -> str:
        kind = draw.random()
        if kind < 0.6:
            return "".join(draw.choices(COMMON, k=draw.randint(1, 6)))
        if kind < 0.8:
            return "".join(draw.choices("abcdrug XYZ09，。？！-.[]", k=draw.randint(1, 6)))
        if kind < 0.95:
            return draw.choice(HARD)
        codes = (draw.randrange(1, 0x110000) for _ in "abc")
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)

    texts: dict[str, None] = {}
    while len(texts) < count:
        texts["".join(part() for _ in range(draw.choice((0, 1, 2, 4, 8))))] = None
    return list(texts)


@functools.cache
def graph_of(folder: str, length: int):
    encoding = PieceEncoding(AutoTokenizer.from_pretrained(folder), length)
    whole = WholeText(encoding, tables_of(encoding))
    return encoding, tf.function(whole, (tf.TensorSpec([None], tf.string),), autograph=False)


def assert_same_ids(texts, folder: str, length: int) -> None:
    encoding, graph = graph_of(folder, length)
    encoded = graph(tf.constant(texts, tf.string))
    for name, array in encoding.encode(texts).arrays.items():
        assert encoded[name].dtype == tf.int32 and encoded[name].shape == array.shape
        differing = np.flatnonzero((encoded[name].numpy() != array).any(axis=1))
        assert not len(differing), (name, differing[:5])


# The tokenizer in the graph


@pytest.mark.parametrize("length", [3, 24])
def test_ten_thousand_texts(length):
    assert_same_ids(generated(10_000, seed=length), str(chinese_encoder()), length)


@pytest.mark.parametrize("texts", [[], [""], ["", " ", "\x00"], list(TEXTS)])
def test_hard_texts_and_none(texts):
    assert_same_ids(texts, str(chinese_encoder()), LENGTH)


@pytest.mark.real_data
@pytest.mark.skipif("TFF_RE_DATA" not in os.environ, reason="TFF_RE_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "split"), [("mie", "dev"), ("mie_windows", "dev"), ("dxy", "train"), ("shipped", "train")]
)
def test_every_text_of_the_data_at_hand(name, split):
    folder = str(Path(os.environ["TFF_RE_DATA"]) / "encoders" / "e5_small_zh_6")
    texts = [sample.text for sample in load_corpus(name, split=split).samples]
    assert len(texts) > 200
    assert_same_ids(texts, folder, 512)
    assert_same_ids(generated(10_000, seed=5), folder, 128)


# Exports


@functools.cache
def trained(kind: str):
    """(arguments of export_model, probabilities of TEXTS by the model as it was trained) of a small model."""
    module, folder = models.MODELS["text_encoder"], str(chinese_encoder())
    options, seed = module.Options(**OPTIONS[kind]), 3
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoding, inputs = PieceEncoding(tokenizer, LENGTH), PieceInput(len(tokenizer), LENGTH, folder)
    arrays = encoding.encode(TEXTS).arrays
    if precomputed := module.precompute(options, inputs, seed):
        inputs, run = precomputed
        arrays = arrays if run is None else run(arrays)
    model = module.build(options, inputs, len(LABELS))
    weights = drawn_weights(model)
    probabilities = tf.nn.softmax(with_weights(model, weights)({n: arrays[n] for n in inputs.specs})["logits"]).numpy()
    arguments = {
        "model_name": "text_encoder",
        "model_options": options,
        "inputs": inputs,
        "label_names": LABELS,
        "weights": weights,
        "encoding": encoding,
        "details": {"run": "a", "recipe": "small", "metrics": {"test": {"accuracy": 0.5}}},
        "probes": TEXTS,
    }
    return arguments, probabilities


@functools.cache
def export_of(kind: str) -> Path:
    """The folder of a kind's export; made once in a session, when it is first asked for."""
    write = functools.partial(export_model, **trained(kind)[0], **FORMS_OF.get(kind, {}))
    return written_once(f"text pieces {kind}", write)


def assert_close(probabilities, kind: str) -> None:
    tolerance = HALF_TOLERANCE if kind == "frozen" else TOLERANCE
    np.testing.assert_allclose(probabilities, trained(kind)[1][: len(probabilities)], atol=tolerance, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_the_trained_models(kind):
    predictor = load_export(export_of(kind))
    assert_close(predictor.probabilities(TEXTS), kind)
    assert [p.label for p in predictor.predict(TEXTS)] == [LABELS[i] for i in trained(kind)[1].argmax(axis=1)]
    assert len(np.unique(trained(kind)[1].round(4), axis=0)) > len(TEXTS) / 3, "the test would show nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_and_the_keras_model(kind):
    signatures = tf.saved_model.load(str(export_of(kind) / "saved_model")).signatures
    assert set(signatures) == {"serving_default", "encoded", "encode"}
    arrays = signatures["encode"](text=tf.constant(TEXTS))
    assert {name: tuple(array.shape) for name, array in arrays.items()} == {
        name: (len(TEXTS), LENGTH) for name in ("input_ids", "attention_mask")
    }
    assert_close(signatures["encoded"](**arrays)["probabilities"].numpy(), kind)
    assert_close(signatures["serving_default"](text=tf.constant(TEXTS[:1]))["probabilities"].numpy(), kind)
    model = tf.keras.models.load_model(export_of(kind) / "model.keras", compile=False)
    assert_close(model(dict(arrays))["probabilities"].numpy(), kind)
    assert not [v.name for v in model.variables if "lora" in v.name], "an adapter is merged"


def test_what_is_written():
    folder = export_of("plain")
    description = json.loads((folder / "export.json").read_text("utf-8"))
    assert description["input"] == {"name": "text", "kind": "pieces", "max_length": LENGTH, "vocabulary": len(CHINESE)}
    assert description["forms"]["saved_model"]["difference"] <= TOLERANCE
    assert description["forms"]["saved_model_float16"]["difference"] < 1e-2
    again = piece_encoding_from_json((folder / "encoding.json").read_text("utf-8"))
    for name, array in trained("plain")[0]["encoding"].encode(TEXTS).arrays.items():
        np.testing.assert_array_equal(again.encode(TEXTS).arrays[name], array)
    assert_without(folder, str(chinese_encoder()), str(chinese_encoder().parent), SECRET)


@pytest.mark.parametrize("kind", ["plain", pytest.param("lora", marks=pytest.mark.slow)])
def test_the_card_works_as_it_stands(kind):
    printed = printed_by_the_card(export_of(kind))
    assert len(printed) == 2 and printed[0][0] == printed[1][0] in LABELS
    assert printed[0][1] == pytest.approx(printed[1][1], abs=1e-3)


@pytest.mark.slow
def test_tflite(tmp_path):
    folder = export_model(tmp_path / "a", **trained("plain")[0], tflite=True)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert forms["model.tflite"]["difference"] < 0.1


@pytest.mark.slow  # of relations it is among the quick tests
def test_one_format_alone(tmp_path):
    folder = export_model(tmp_path / "a", **trained("plain")[0], formats="keras")
    card = (folder / "README.md").read_text("utf-8")
    assert "takes encoded inputs (input_ids, attention_mask;" in card and "serving_default" not in card


# What is refused


def test_what_does_not_fit_is_refused(tmp_path):
    export_arguments = trained("plain")[0]

    def refused(match, **changes):
        with pytest.raises(ExportError, match=match) as caught:
            export_model(tmp_path / "export", **{**export_arguments, **changes})
        assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []

    folder = str(chinese_encoder())
    refused("a model of texts of word pieces needs its encoding", encoding=None)
    refused("does not fit the model", inputs=PieceInput(len(CHINESE), LENGTH + 1, folder))
    refused("does not fit the model", inputs=PieceInput(5, LENGTH, folder))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    refused("the tokenizer's normalizer is NFC", encoding=PieceEncoding(tokenizer, LENGTH))


def test_another_encoding_than_the_graphs_is_found(tmp_path, monkeypatch):
    real = PieceEncoding.encode
    monkeypatch.setattr(PieceEncoding, "encode", lambda self, texts: real(self, [f"{text}咳" for text in texts]))
    with pytest.raises(ExportError, match="encodes a probe text differently") as caught:
        export_model(tmp_path / "export", **trained("plain")[0], formats="saved_model")
    assert "咳" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_a_bad_text_does_not_stop_the_others():
    results = load_export(export_of("plain")).predict_each([SECRET, 5, {"text": SECRET}, SECRET + "\ud800"])
    assert results[0].label == results[2].label in LABELS
    for reason, error in (("is a int; give a string", results[1]), ("half of a surrogate pair", results[3])):
        assert isinstance(error, PredictionError) and reason in str(error) and SECRET not in str(error)
