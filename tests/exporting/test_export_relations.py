"""Exported models of sentence relations: raw sentences in, the trained model's predictions out, by TensorFlow alone."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tools import saved_model_utils
from tokenizers import normalizers
from transformers import AutoTokenizer

from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS, with_inline_markers
from tests.exports_for_tests import (
    LABELS,
    LENGTH,
    MENTIONS,
    arguments,
    assert_without,
    export_of,
    printed_by_the_card,
    with_weights,
)
from tests.models.encoders_for_tests import encoder
from tff_re import models
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.kinds.relations import span_inputs
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError

pytestmark = pytest.mark.xdist_group("exports")  # trained, loaded and read models are shared

PIECES, BLIND = FAST = ("word pieces", "blinded relations of words")
LSTM = "lstm of relations"
# A model of bags behind frozen layers and an LSTM of characters are in the fast suite.
KINDS = (*FAST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (LSTM, "frozen layers")))
SECRET = "Mrs Miller"


def assert_close(probabilities, kind):
    """Within 1e-5 of the trained model; behind frozen layers half of the texts are, see HALF_TOLERANCE."""
    difference = np.abs(np.asarray(probabilities) - trained_probabilities(kind)[: len(probabilities)]).max(axis=1)
    assert difference.max() <= (1e-3 if kind == "frozen layers" else 1e-5) and np.median(difference) <= 1e-5, kind


@functools.cache
def trained_probabilities(kind):
    """What the process that trained the model says of MENTIONS, through the arrays that it trained on."""
    export_arguments = arguments(kind)
    inputs, options = export_arguments["inputs"], export_arguments["model_options"]
    module = models.MODELS[export_arguments["model_name"]]
    model = with_weights(module.build(options, inputs, len(LABELS)), export_arguments["weights"])
    arrays = export_arguments["encoding"].encode(MENTIONS).arrays
    if kind == "frozen layers":
        arrays = module.precompute(options, inputs.pieces, inputs.seed)[1](arrays)
    return tf.nn.softmax(model({name: arrays[name] for name in inputs.specs})["logits"]).numpy()


def calls(kind):
    """(signature, inputs as JSON has them): a batch by markers, the batch by spans, a text alone."""
    blind = arguments(kind)["encoding"].blind
    spans = {name: np.asarray(value).tolist() for name, value in span_inputs(MENTIONS, blind).items()}
    marked = {name: value for name, value in spans.items() if name not in ("head", "tail")}
    marked["text"] = [with_inline_markers(mention) for mention in MENTIONS]
    alone = {name: value[:1] for name, value in marked.items()}
    return [("serving_default", marked), ("spans", spans), ("serving_default", alone)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_predictor_gives_the_trained_models_predictions(kind):
    predictor, expected = load_export(export_of(kind)), trained_probabilities(kind)
    assert_close(predictor.probabilities(MENTIONS), kind)
    types = [{"head_type": m.head_type, "tail_type": m.tail_type} for m in MENTIONS]
    spans = [{"text": m.text, "head": list(m.head), "tail": list(m.tail)} for m in MENTIONS]
    with_spans = [{**span, **kinds} for span, kinds in zip(spans, types, strict=True)]
    assert_close(predictor.probabilities(with_spans), kind)
    marked = [with_inline_markers(m) for m in MENTIONS]
    if predictor.blind:
        marked = [{"text": text, **kinds} for text, kinds in zip(marked, types, strict=True)]
    labels = arguments(kind)["label_names"]
    assert [p.label for p in predictor.predict(marked)] == [labels[i] for i in expected.argmax(axis=1)]
    assert predictor.blind == (kind == BLIND)


def test_the_signatures_as_a_server_reads_them():
    graph = saved_model_utils.get_meta_graph_def(str(export_of(BLIND) / "saved_model"), "serve")

    def types_of(tensors):
        return {
            name: (tf.dtypes.as_dtype(tensor.dtype).name, [d.size for d in tensor.tensor_shape.dim])
            for name, tensor in tensors.items()
        }

    text = {name: ("string", [-1]) for name in ("text", "head_type", "tail_type")}
    spans = {**text, "head": ("int32", [-1, 2]), "tail": ("int32", [-1, 2])}
    arrays = {name: ("int32", [-1, *spec.shape[1:]]) for name, spec in arguments(BLIND)["inputs"].specs.items()}
    inputs = {"serving_default": text, "spans": spans, "encoded": arrays, "encode": spans}
    assert inputs == {name: types_of(graph.signature_def[name].inputs) for name in inputs}
    assert types_of(graph.signature_def["encode"].outputs) == arrays
    for name in ("serving_default", "spans", "encoded"):
        assert types_of(graph.signature_def[name].outputs) == {"probabilities": ("float32", [-1, 3])}


# What lies in the folder


def test_smaller_forms_stand_beside_with_size_and_accuracy():
    folder = export_of(BLIND)
    encoding = json.loads((folder / "encoding.json").read_text("utf-8"))
    assert encoding["vocabulary"]["drug"] >= 2 and set(encoding["markers"]) == set(MARKERS)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert set(forms) == {"model.keras", "saved_model", "saved_model_float16", "model.tflite"}
    labels = np.array([mention.label for mention in MENTIONS])
    accuracy = float((trained_probabilities(BLIND).argmax(axis=1) == labels).mean())
    for name, about in forms.items():
        assert about["examples"] == len(MENTIONS)
        assert about["accuracy"] == pytest.approx(accuracy, abs=0.05), name
        files = [file for file in (folder / name, *(folder / name).rglob("*")) if file.is_file()]
        assert about["bytes"] == sum(file.stat().st_size for file in files)
    assert forms["saved_model"]["difference"] <= 1e-5 < forms["saved_model_float16"]["difference"] < 1e-2
    assert forms["model.tflite"]["difference"] < 5e-2
    card = (folder / "README.md").read_text("utf-8")
    assert f"| `saved_model_float16` | {forms['saved_model_float16']['bytes'] / 1e6:.2f} MB | " in card
    loaded = tf.saved_model.load(str(folder / "saved_model_float16"))
    (half,) = (part for part in loaded.resources if hasattr(part, "weights"))
    assert {weight.dtype for weight in half.weights} == {tf.float16} and len(half.weights) >= 3
    half = load_export(folder, "saved_model_float16")
    np.testing.assert_allclose(half.probabilities(MENTIONS), trained_probabilities(BLIND), atol=1e-2)
    with pytest.raises(PredictionError, match=r"saved_model_float16: is missing; export the model in this form"):
        load_export(export_of(PIECES), "saved_model_float16")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PIECES, "frozen layers", LSTM])
def test_smaller_forms_of_the_other_models(kind, tmp_path):
    folder = export_model(tmp_path / "e", **arguments(kind), quantise="float16", tflite=True)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert forms["saved_model_float16"]["difference"] < 1e-2 and forms["model.tflite"]["difference"] < 0.1


def test_one_format_alone(tmp_path):
    folder = export_model(tmp_path / "a", **arguments("words"), formats="keras")
    assert not (folder / "saved_model").exists() and "serving_default" not in (folder / "README.md").read_text("utf-8")
    with pytest.raises(PredictionError, match="saved_model: is missing; export the model in this form"):
        load_export(folder)
    folder = export_of("words")
    assert not (folder / "model.keras").exists() and "Keras" not in (folder / "README.md").read_text("utf-8")
    assert load_export(folder).predict(["a"])


@pytest.mark.parametrize("kind", [PIECES, pytest.param(BLIND, marks=pytest.mark.slow)])
def test_the_card_works_as_it_stands(kind):
    printed = printed_by_the_card(export_of(kind))
    assert len(printed) == 2 and printed[0][0] == printed[1][0] in arguments(kind)["label_names"]
    assert printed[0][1] == pytest.approx(printed[1][1], abs=1e-3)


def test_neither_machine_paths_nor_sentences_are_in_the_files():
    for kind in FAST:
        private = str(encoder(layers=1)), os.path.dirname(models.__path__[0]), "inhibits the gene"
        assert_without(export_of(kind), *private)
    config = zipfile.ZipFile(export_of(PIECES) / "model.keras").read("config.json").decode()
    assert str(encoder(layers=1).parent) not in config


# What cannot be exported


def test_what_does_not_fit_is_refused(tmp_path):
    def refused(match, **changes):
        with pytest.raises(ExportError, match=match) as caught:
            export_model(tmp_path / "export", **{**arguments(LSTM), **changes})
        assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []

    inputs = arguments(LSTM)["inputs"]
    refused("needs its encoding", encoding=None)
    refused("does not fit the model", inputs=dataclasses.replace(inputs, max_length=30))
    refused("does not fit the model", inputs=dataclasses.replace(inputs, vocabulary_size=5))
    refused("there is no format 'onnx'", formats="onnx")
    refused("no quantised form 'int4'", quantise="int4")


def test_a_weight_beyond_float16_is_refused(tmp_path):
    export_arguments = arguments(BLIND)
    export_arguments["weights"].trainable[0][0, 0] = 1e6
    with pytest.raises(ExportError, match="beyond the range of float16"):
        export_model(tmp_path / "export", **export_arguments, quantise="float16")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_the_graph_cannot_be_is_refused(tmp_path):
    tokenizer, _ = with_markers(AutoTokenizer.from_pretrained(str(encoder(layers=1))))
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    export_arguments = {**arguments(PIECES), "encoding": RelationEncoding(tokenizer, LENGTH)}
    with pytest.raises(ExportError, match="with its tokenizer in the graph: the tokenizer's normalizer is NFC"):
        export_model(tmp_path / "export", **export_arguments)


@pytest.mark.slow
def test_another_encoding_than_the_graphs_is_found(tmp_path, monkeypatch):
    real = RelationEncoding.encode

    def of_longer_texts(self, mentions):
        return real(self, [dataclasses.replace(mention, text=f"{mention.text} gene") for mention in mentions])

    monkeypatch.setattr(RelationEncoding, "encode", of_longer_texts)
    with pytest.raises(ExportError, match="encodes a probe text differently") as caught:
        export_model(tmp_path / "export", **arguments(BLIND), formats="saved_model")
    assert "gene" not in str(caught.value) and list(tmp_path.iterdir()) == []


# The predictor's errors


def test_a_bad_text_does_not_stop_the_others():
    good = "<e1>drug</e1> binds <e2>gene</e2>"
    predictor = load_export(export_of(PIECES))
    bad = {
        "holds the marker <e1> 0 times": SECRET,
        "holds the marker <e2> 2 times": f"{good} {SECRET} <e2>",
        "has a mention that is empty": f"<e1></e1>{SECRET} <e2>b</e2>",
        'has no "text"': {"head": [0, 1], "tail": [0, 1]},
        'has no span "tail" in its 10': {"text": SECRET, "head": [0, 1]},
        'has no span "head" in its 10': {"text": SECRET, "head": [3, 11], "tail": [0, 1]},
        'has no span "head" in its 10 characters': {"text": SECRET, "head": "ab", "tail": [0, 1]},
        "is a int; give a string": {"text": 5},
        "is a NoneType; give a string": None,
        "half of a surrogate pair": good + "\ud800",
    }
    results = predictor.predict_each([good, *bad.values(), good])
    first, last = results[0], results[-1]
    assert first.label == last.label and first.label in LABELS
    assert first.probabilities == pytest.approx(last.probabilities, abs=1e-6)  # kernels differ by the place in a batch
    for reason, error in zip(bad, results[1:-1], strict=True):
        assert isinstance(error, PredictionError) and reason in str(error), (reason, error)
        assert "Miller" not in str(error) and "\n" not in str(error)
    with pytest.raises(PredictionError, match="text number 2 holds the marker <e1> 0 times"):
        predictor.predict([good, SECRET])
    assert predictor.predict([]) == []
