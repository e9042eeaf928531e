"""Exported models answer raw text, and what is wrong with an export is said in one line."""

import json
import shutil

import numpy as np
import pytest

from tests.exports_for_tests import TEXT_LABELS, export_of
from tests.upper_floors import command, refusal
from tff_re.exporting.digests import write_digests
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import Prediction, PredictionError

SECRET = "张三丰"


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_raw_texts_get_the_label_of_their_words(kind):
    predictor = load_export(export_of(kind))
    texts = ["咳嗽", "发热", "", "\u3000\n"] * 200  # more than one batch
    predictions = predictor.predict(texts)
    assert [p.label for p in predictions] == ["咳嗽", "发热", "无", "无"] * 200
    first = predictions[0]
    assert isinstance(first, Prediction)
    assert tuple(first.probabilities) == TEXT_LABELS
    logit = {"words": 9, "characters": 4.5}[kind]  # one of the two characters is out of the vocabulary
    right = np.exp(logit) / (np.exp(logit) + np.e + 1)
    assert first.probability == first.probabilities["咳嗽"] == pytest.approx(right, 1e-4)
    assert predictor.predict([]) == [] and predictor.predict(["发热，发热！！"])[0].label == "发热"


def test_blanks_around_a_text_are_left_out_where_the_runs_reader_leaves_them_out():
    predictor = load_export(export_of("words"))
    assert predictor._as_read(" 咳嗽\n") == " 咳嗽\n"
    predictor.dataset = "dxy"
    assert predictor._as_read(" 咳嗽\n") == "咳嗽"


def test_vectors():
    predictor = load_export(export_of("vectors"))
    assert [p.label for p in predictor.predict_vectors(np.eye(2))] == ["咳嗽", "发热"]
    with pytest.raises(PredictionError, match=r"\(3,\), but the model takes \[n, 2\]"):
        predictor.predict_vectors([1, 2, 3])
    with pytest.raises(PredictionError, match="feature vectors, not texts"):
        predictor.predict(["a"])


def test_no_text_stands_in_errors_and_representations():
    predictor = load_export(export_of("words"))
    with pytest.raises(PredictionError, match="texts, not feature vectors"):
        predictor.predict_vectors([[1, 2]])
    for texts in (SECRET, [SECRET + "\ud800"], [SECRET.encode()], [SECRET, None]):
        with pytest.raises(PredictionError) as caught:
            predictor.predict(texts)
        assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.__context__ is None
    assert SECRET not in repr(predictor) + repr(predictor.predict([SECRET]))


def unreadable(folder):
    """Junk in the place of the variables, with digests that fit."""
    (folder / "saved_model" / "variables" / "variables.index").write_bytes(b"\x00junk")
    (folder / "SHA256SUMS").unlink()
    write_digests(folder)


DAMAGES = {
    "no such folder": shutil.rmtree,
    "holds no export.json": lambda f: (f / "export.json").unlink(),
    "export.json.*is not JSON": lambda f: (f / "export.json").write_text('{"format": '),
    "export.json.*is not UTF-8": lambda f: (f / "export.json").write_bytes(b"\xff\xfe"),
    "labels.json.*no such file": lambda f: (f / "labels.json").unlink(),
    "encoding.json.*no such file": lambda f: (f / "encoding.json").unlink(),
    "saved_model.*cannot be loaded": unreadable,
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_export_is_named_in_one_line(tmp_path, message):
    folder = shutil.copytree(export_of("words"), tmp_path / "export")
    DAMAGES[message](folder)
    with pytest.raises(PredictionError, match=message.strip()) as caught:
        load_export(folder)
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value), "a remedy"


def test_a_file_of_several_splits_is_not_scored(tmp_path, capsys):
    """The split of DXY's release that was trained on is in the same file as the test split."""
    record = {"consult_id": "5", "disease_tag": "咳嗽", "self_repo": SECRET}
    file = tmp_path / "v2.txt"
    file.write_text(f"train {[record]!r}\ntest {[record]!r}\n", "utf-8")
    arguments = ("evaluate", export_of("words"), "--file", file, "--dataset", "dxy")
    refusal(command(capsys, *arguments), f"{file}: has no split given; use one of train, test, or another file")
    file.write_text(json.dumps(record) + "\n", "utf-8")
    assert command(capsys, *arguments).code == 0
