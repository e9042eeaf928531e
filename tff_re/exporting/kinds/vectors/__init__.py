"""Feature vectors: one class for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets.json_values import Fail, field
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds.vectors.predictor import VectorPredictor
from tff_re.exporting.layout import DESCRIPTION_FILE, REMEDY
from tff_re.exporting.uses import Use, uses


class VectorKind(Kind):
    names = ("vectors",)
    predictor = VectorPredictor

    @property
    def form(self):
        from tff_re.exporting.kinds.vectors.form import VectorForm

        return VectorForm

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
