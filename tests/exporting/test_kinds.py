"""A further kind of input is one file: from a model to its export, predictions, score and card."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.upper_floors import command, refusal
from tff_re import api, models
from tff_re.exporting import kinds
from tff_re.exporting.card import file_uses
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds.vectors.form import VectorForm
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import CorpusPredictor, PredictionError, Score
from tff_re.models.inputs import DenseInput

LABELS = ("dry", "wet")


class RainInput(DenseInput):
    """Rain of so many days."""


class RainForm(VectorForm):
    inputs = (RainInput,)

    def __init__(self, trained, plain, inputs, encoding, probes):
        super().__init__(trained, plain, inputs, encoding, probes)
        self.source = {"name": "x", "kind": "rain", "days": inputs.width}


class RainPredictor(CorpusPredictor):
    takes, columns, numbers = "tables of rain", ("place", "label", "probability"), ("probability",)

    def predict_file(self, path, *, dataset=None):
        rows = [line.split(",") for line in path.read_text("utf-8").splitlines()]
        probabilities = self._function(x=np.array([row[2:] for row in rows], np.float32))
        return [
            (place, label, self.labels[row.argmax()], row.max())
            for (place, label, *_), row in zip(rows, probabilities, strict=True)
        ]

    def cells(self, prediction):
        return prediction[0], prediction[2], f"{prediction[3]:.2f}"

    def score(self, file, dataset=None, label=None):
        right = [true_label == predicted for _, true_label, predicted, _ in self.predict_file(file)]
        return Score(f"{len(right)} places", {"accuracy": float(np.mean(right))})


class RainKind(Kind):
    names, predictor, form = ("rain",), RainPredictor, RainForm

    def check(self, description, fail):
        if "days" not in description["input"]:
            raise fail('has no "input.days"', remedy="add it")

    def encoding(self, value: Any, source, fail):
        return None

    def uses(self, description):
        words = {"file": "rain.csv", "printed": "prediction", "answer": "what falls", "arrays": "x", "shape": "places"}
        return file_uses(description, layers=("a",), explanation="Rain.", **words)


@pytest.fixture
def rain(monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "rain", RainKind())


def export(folder):
    """A model that says `wet` from a sum of rain of more than 1 on."""
    options = models.MODELS["logistic_regression"].Options()
    weights = [np.array([[0, 1]] * 3, np.float32), np.array([1, 0], np.float32)]
    return export_model(
        folder,
        model_name="logistic_regression",
        model_options=options,
        inputs=RainInput(3),
        label_names=LABELS,
        weights=SimpleNamespace(trainable=weights, non_trainable=[]),
        encoding=None,
        details={"run": "a"},
        quantise="float16",
    )


def test_a_further_kind_goes_all_the_way(rain, tmp_path, capsys):
    folder = export(tmp_path / "e")
    assert 'predict_file("rain.csv")' in (card := (folder / "README.md").read_text("utf-8")) and "Rain." in card
    file = tmp_path / "rain.csv"
    file.write_text("here,wet,1,0,3\nthere,wet,0,0,0\n", "utf-8")
    predictor = load_export(folder, "saved_model_float16")
    assert isinstance(predictor, RainPredictor)
    assert [row[2] for row in predictor.predict_file(file)] == ["wet", "dry"]
    assert api.score(folder, file).metrics == {"accuracy": 0.5}
    typed = command(capsys, "predict", folder, "--file", file)
    assert typed.code == 0 and "│ there │ dry" in typed.out and "│ place │ label │" in typed.out.replace("┃", "│")
    refusal(command(capsys, "predict", folder, "a text"), "the model takes tables of rain, not texts")
    assert "rain.csv: 2 places" in " ".join(command(capsys, "evaluate", folder, "--file", file).out.split())
    about = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps({**about, "input": {"kind": "rain", "name": "x"}}))
    with pytest.raises(PredictionError, match=r'export\.json: has no "input.days"; add it'):
        load_export(folder)


def test_a_kind_that_is_not_registered_is_refused(tmp_path):
    with pytest.raises(ExportError, match="models of RainInput cannot be exported yet"):
        export(tmp_path / "e")
