"""Predictions for feature vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_re.exporting.predictors import Prediction, PredictionError, Predictor


class VectorPredictor(Predictor):
    """An exported model of feature vectors."""

    takes, data_sets = "feature vectors", None

    def predict_each(self, texts: Sequence[Any]) -> list[Prediction | PredictionError]:
        raise PredictionError("the model takes feature vectors, not texts; use predict_vectors")

    def predict_vectors(self, x: np.ndarray) -> list[Prediction]:
        x, width = np.asarray(x, np.float32), self.description["input"]["width"]
        if x.ndim != 2 or x.shape[1] != width:
            raise PredictionError(f"the vectors have shape {x.shape}; the model takes [n, {width}]")
        return self._predictions(x)
