"""model.onnx: the trained model's logits by onnxruntime; what has no such form is refused in one line."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.exports_for_tests import KNOWN_WORDS, arguments, assert_without, printed_by_the_card, written_once
from tests.upper_floors import command, refusal
from tff_re import api
from tff_re.exporting import onnx_form
from tff_re.exporting.digests import check_digests
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.prediction import load_export

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in onnx_form.PACKAGES), reason="the extra onnx is not installed"
)

QUICK = ("vectors", "words", "text pieces")
SLOW = (
    *("characters", "word presence", "lstm of words", "lstm of relations", "word pieces"),
    *("word pieces, cls_entities_sum", "word pieces, entity_max", "word pieces, entity_start"),
    *("blinded word pieces", "word pieces of DistilBERT", "text pieces of DistilBERT, their mean"),
    *("frozen layers", "text pieces behind frozen layers", "text pieces with LoRA"),
)
KINDS = (*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW))


@functools.cache
def export_of(kind):
    """The folder of an export of that kind with model.onnx."""
    return written_once(
        f"onnx {kind}", functools.partial(export_model, **arguments(kind), formats="saved_model", onnx=True)
    )


@needs_onnx
@pytest.mark.parametrize("kind", KINDS)
def test_the_card_s_program_gives_the_saved_model_s_answer(kind):
    folder = export_of(kind)
    printed = printed_by_the_card(folder, words=KNOWN_WORDS)
    labels, probabilities = zip(*printed, strict=True)
    assert len(printed) >= 2 and len(set(labels)) == 1
    assert max(probabilities) - min(probabilities) <= (1e-3 if "frozen" in kind else 1e-5)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert forms["model.onnx"]["difference"] <= (1e-3 if "frozen" in kind else 1e-5)
    assert forms["model.onnx"]["bytes"] == (folder / "model.onnx").stat().st_size
    check_digests(folder, ("model.onnx",))
    assert (folder / "tokenizer.json").exists() == (kind not in ("vectors", "words", *SLOW[:3]))
    assert_without(folder, str(folder.parent))


@needs_onnx
def test_a_model_that_tf2onnx_does_not_take_is_refused(tmp_path):
    """Its maxima over segments."""
    with pytest.raises(ExportError, match=r"cannot be written for this pcnn model \(\w+\); leave --onnx out$"):
        export_model(tmp_path / "a", **arguments("relations of words"), formats="saved_model", onnx=True)
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_any_number_of_texts_at_once():
    folder = export_of("text pieces")
    answer = onnx_form.onnx_core(folder / "model.onnx", at_once=2)
    texts = ["the drug inhibits", "gene", "", "咳嗽" * 40, "."]
    arrays = arguments("text pieces")["encoding"].encode(texts).arrays
    outputs = answer(arrays)
    expected = [list(prediction.probabilities.values()) for prediction in load_export(folder).predict(texts)]
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=0, atol=1e-5)
    softmax = tf.nn.softmax(outputs["logits"]).numpy()
    np.testing.assert_allclose(outputs["probabilities"], softmax, rtol=0, atol=1e-6)


# Our side, without the packages


@pytest.fixture
def stand_ins(monkeypatch):
    """Packages that compute with TensorFlow what they were given; `added` is added to the logits."""
    behaviour = SimpleNamespace(added=0.0, error=None)
    packages = {name: ModuleType(name) for name in onnx_form.PACKAGES}
    for name, package in packages.items():
        monkeypatch.setitem(sys.modules, name, package)

    def from_function(function, input_signature, opset, custom_op_handlers, output_path):
        if behaviour.error is not None:
            raise behaviour.error
        behaviour.function, behaviour.names = function, [spec.name for spec in input_signature]
        Path(output_path).write_bytes(b"onnx")

    class InferenceSession:
        def __init__(self, path, providers):
            assert Path(path).read_bytes() == b"onnx"

        def get_outputs(self):
            return [SimpleNamespace(name="logits"), SimpleNamespace(name="probabilities")]

        def get_inputs(self):
            return [SimpleNamespace(name=name) for name in behaviour.names]

        def run(self, names, inputs):
            outputs = behaviour.function(*(tf.constant(inputs[name]) for name in behaviour.names))
            return [outputs["logits"].numpy() + behaviour.added, outputs["probabilities"].numpy()]

    packages["tf2onnx"].convert = SimpleNamespace(from_function=from_function)
    packages["onnxruntime"].InferenceSession = InferenceSession
    return behaviour


def test_it_is_written_only_when_asked_for(stand_ins, tmp_path):
    folder = export_model(tmp_path / "a", **arguments("text pieces"), formats="keras", onnx=True)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert set(forms) == {"model.keras", "model.onnx"} and forms["model.onnx"]["difference"] <= 1e-5
    assert "## Use with onnxruntime" in (folder / "README.md").read_text("utf-8")
    check_digests(folder, ("model.onnx", "tokenizer.json"))
    folder = export_model(tmp_path / "b", **arguments("vectors"))
    assert not (folder / "model.onnx").exists() and "onnx" not in (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("added", [2e-5, float("nan")])
def test_other_logits_are_refused_with_the_model_s_name(stand_ins, tmp_path, added):
    """The tolerance is 1e-5 of the largest logit, which is 9 here."""
    stand_ins.added = 9 * added
    with pytest.raises(ExportError, match=r"this logistic_regression model: .* \(the largest logit is 9\)"):
        export_model(tmp_path / "a", **arguments("words"), onnx=True)
    assert list(tmp_path.iterdir()) == []
    stand_ins.added = 9 * 5e-6
    export_model(tmp_path / "a", **arguments("words"), onnx=True)


def test_what_cannot_be_converted_is_refused_with_the_model_s_name(stand_ins, tmp_path):
    stand_ins.error = ValueError("Tensorflow op [\nX] is not supported")
    expected = r"cannot be written for this logistic_regression model \(ValueError\); leave --onnx out$"
    with pytest.raises(ExportError, match=expected):
        export_model(tmp_path / "a", **arguments("vectors"), onnx=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "name"), [("bags", "pcnn"), ("documents", "document_encoder")])
def test_bags_and_documents_are_refused(tmp_path, kind, name):
    with pytest.raises(ExportError, match=f"not the bags or documents of this {name} model; leave --onnx out"):
        export_model(tmp_path / "a", **arguments(kind), onnx=True)


@pytest.mark.slow
def test_of_entities_where_each_tag_is_its_own(stand_ins, tmp_path):
    """Their probabilities are zero where there is no token, as the SavedModel's."""
    folder = export_model(tmp_path / "a", **arguments("entities of words"), formats="saved_model", onnx=True)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert forms["model.onnx"]["difference"] <= 1e-5
    assert "`model.onnx` takes encoded inputs (tokens)" in (folder / "README.md").read_text("utf-8")
    with pytest.raises(
        ExportError, match=r"tagger model: its CRF decides on the tags of a text together; leave --onnx"
    ):
        export_model(tmp_path / "b", **arguments("entities of characters"), formats="keras", onnx=True)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("missing", onnx_form.PACKAGES)
def test_a_missing_package_is_one_line_that_says_what_to_install(stand_ins, monkeypatch, tmp_path, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ExportError) as caught:
        export_model(tmp_path / "a", **arguments("vectors"), onnx=True)
    line = f"model.onnx needs the package {missing}, which is not installed; run: pip install 'onnx"
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_has_no_such_form(capsys, tmp_path):
    typed = command(capsys, "export", tmp_path, "--adapter-only", "--onnx")
    refusal(typed, "leave out format, quantise, tflite, onnx, huggingface, training-digests")
    with pytest.raises(api.UserError):
        api.export(tmp_path, adapter_only=True, huggingface=True)
