"""Feature vectors: one class for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datasets.json_values import Fail, field
from tff_re.exporting.card import Use, uses
from tff_re.exporting.kind import Kind
from tff_re.exporting.layout import DESCRIPTION_FILE, REMEDY
from tff_re.exporting.predictors import Prediction, PredictionError, Predictor


class VectorPredictor(Predictor):
    """An exported model of feature vectors."""

    takes, data_sets = "feature vectors", None

    def predict_each(self, texts: Sequence[Any]) -> list[Prediction | PredictionError]:
        raise PredictionError("the model takes feature vectors, not texts; use predict_vectors")

    def predict_vectors(self, x: np.ndarray) -> list[Prediction]:
        x, width = np.asarray(x, np.float32), self.description["input"]["width"]
        if x.ndim != 2 or x.shape[1] != width:
            raise PredictionError(
                f"the vectors have shape {x.shape}, but the model takes [n, {width}]; change their width"
            )
        return self._predictions(x)


class VectorKind(Kind):
    names, predictor, form_name = ("vectors",), VectorPredictor, "VectorForm"

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        if field(description["input"], "width", int, fail) < 1:
            raise fail('"input.width" is not at least 1', remedy=REMEDY)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> None:
        if value is not None:
            raise fail(f"does not fit {DESCRIPTION_FILE}")

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        width = description["input"]["width"]
        vector, explanation = f"tf.zeros([1, {width}])", f"The model takes feature vectors, float32 [n, {width}]."
        return uses(description, Use(f"x={vector}", explanation), Use(vector, explanation))
