"""Exported models answer raw text, and what is wrong with an export is said in one line."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding
from tests.upper_floors import command, refusal
from tff_re import models
from tff_re.exporting.digests import write_digests
from tff_re.exporting.export_model import export_model
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import Prediction, PredictionError
from tff_re.models.inputs import DenseInput, TokenInput

LABELS = ("咳嗽", "发热", "无")
SECRET = "张三丰"


def export(folder, encoding, inputs):
    """A model whose class is that of the one word (or vector element) of two classes, and the third without any."""
    module = models.module("logistic_regression")
    options = module.Options(embedding_width=2)
    kernel, bias = np.array([[9, 0, 0], [0, 9, 0]], np.float32), np.array([0, 0, 1], np.float32)
    vectors = np.array([[0, 0], [0, 0], [1, 0], [0, 1]], np.float32)
    trainable = [kernel, bias] if encoding is None else [vectors, kernel, bias]
    return export_model(
        folder,
        model_name="logistic_regression",
        model_options=options,
        inputs=inputs,
        label_names=LABELS,
        weights=SimpleNamespace(trainable=trainable, non_trainable=[]),
        encoding=encoding,
        details={},
    )


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    words = WordEncoding(Vocabulary(("咳嗽", "发热")), 5, Segmenter(("咳嗽", "发热")))
    characters = CharacterEncoding(Vocabulary(("咳", "热")), 5)
    return {
        "words": export(folder / "words", words, TokenInput(4, 5)),
        "characters": export(folder / "characters", characters, TokenInput(4, 5)),
        "vectors": export(folder / "vectors", None, DenseInput(2)),
    }


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_raw_texts_get_the_label_of_their_words(exports, kind):
    predictor = load_export(exports[kind])
    texts = ["咳嗽", "发热", "", "\u3000\n"] * 200  # more than one batch
    predictions = predictor.predict(texts)
    assert [p.label for p in predictions] == ["咳嗽", "发热", "无", "无"] * 200
    first = predictions[0]
    assert isinstance(first, Prediction)
    assert tuple(first.probabilities) == LABELS
    logit = {"words": 9, "characters": 4.5}[kind]  # one of the two characters is out of the vocabulary
    right = np.exp(logit) / (np.exp(logit) + np.e + 1)
    assert first.probability == first.probabilities["咳嗽"] == pytest.approx(right, 1e-4)
    assert predictor.predict([]) == []


def test_the_segmenter_finds_words_that_stand_together(exports):
    assert load_export(exports["words"]).predict(["发热，发热！！"])[0].label == "发热"


def test_vectors(exports):
    predictor = load_export(exports["vectors"])
    assert [p.label for p in predictor.predict_vectors(np.eye(2))] == ["咳嗽", "发热"]
    with pytest.raises(PredictionError, match=r"\(3,\); the model takes \[n, 2\]"):
        predictor.predict_vectors([1, 2, 3])
    with pytest.raises(PredictionError, match="feature vectors, not texts"):
        predictor.predict(["a"])


def test_no_text_stands_in_errors_and_representations(exports):
    predictor = load_export(exports["words"])
    with pytest.raises(PredictionError, match="texts, not feature vectors"):
        predictor.predict_vectors([[1, 2]])
    for texts in (SECRET, [SECRET + "\ud800"], [SECRET.encode()], [SECRET, None]):
        with pytest.raises(PredictionError) as caught:
            predictor.predict(texts)
        assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.__context__ is None
    assert SECRET not in repr(predictor) + repr(predictor.predict([SECRET]))


def damaged(change):
    def apply(folder):
        path = folder / "export.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")

    return apply


def sealed(folder, name):
    """Junk in the place of a file, or nothing in that of a folder, with digests that fit."""
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    else:
        (folder / name).write_bytes(b"\x00junk")
    (folder / "SHA256SUMS").unlink()
    write_digests(folder)


DAMAGES = {
    "no such folder": lambda f: shutil.rmtree(f),
    "holds no export.json": lambda f: (f / "export.json").unlink(),
    "export.json.*is not JSON": lambda f: (f / "export.json").write_text('{"format": '),
    "export.json.*is not UTF-8": lambda f: (f / "export.json").write_bytes(b"\xff\xfe"),
    "export.json.*not the description": lambda f: (f / "export.json").write_text("[]"),
    "export.json.*another version": damaged({"format_version": 99}),
    "labels.json.*no such file": lambda f: (f / "labels.json").unlink(),
    "labels.json.*not a list of labels": lambda f: (f / "labels.json").write_text("{}"),
    "labels.json.*one label for each": lambda f: (f / "labels.json").write_text('["a"]'),
    "encoding.json.*no such file": lambda f: (f / "encoding.json").unlink(),
    "encoding.json.*is not the JSON of an encoding": lambda f: (f / "encoding.json").write_text("{}"),
    "encoding.json.*does not fit": lambda f: (f / "encoding.json").write_text("null"),
    'export.json.*"input" is not an object': damaged({"input": None}),
    "saved_model.*is missing": lambda f: shutil.rmtree(f / "saved_model"),
    "saved_model.pb: is damaged": lambda f: sealed(f, "saved_model/saved_model.pb"),
    "fingerprint.pb: is damaged": lambda f: sealed(f, "saved_model/fingerprint.pb"),
    "saved_model.*cannot be loaded": lambda f: sealed(f, "saved_model/variables/variables.index"),
    "saved_model.*holds no variables/variables.index": lambda f: sealed(f, "saved_model/variables"),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_export_is_named_in_one_line(exports, tmp_path, message):
    folder = shutil.copytree(exports["words"], tmp_path / "export")
    DAMAGES[message](folder)
    with pytest.raises(PredictionError, match=message.strip()) as caught:
        load_export(folder)
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value), "a remedy"


def test_a_missing_export_is_reported_without_waiting_for_tensorflow():
    code = (
        "import sys, tff_re.exporting.prediction as p\n"
        "try: p.load_export('nowhere')\n"
        "except p.PredictionError as e: print(e)\n"
        "assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "nowhere: no such folder; give the folder of an exported model\n"


def test_a_file_of_several_splits_is_not_scored(exports, tmp_path, capsys):
    """The split of DXY's release that was trained on is in the same file as the test split."""
    record = {"consult_id": "5", "disease_tag": "咳嗽", "self_repo": SECRET}
    file = tmp_path / "v2.txt"
    file.write_text(f"train {[record]!r}\ntest {[record]!r}\n", "utf-8")
    arguments = ("evaluate", exports["words"], "--file", file, "--dataset", "dxy")
    refusal(command(capsys, *arguments), f"{file}: has no split given; use one of train, test, or another file")
    file.write_text(json.dumps(record) + "\n", "utf-8")
    assert command(capsys, *arguments).code == 0
