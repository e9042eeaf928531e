"""Predictions for the relation of two mentions in a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import DataError
from datasets.relations.loading import load_relations
from datasets.relations.records import UNKNOWN_TYPE, RelationMention
from datasets.text.relation_layout import from_inline_markers
from tff_re.exporting.kinds.texts.predictor import string_of
from tff_re.exporting.predictors import PredictionError, Predictor, in_batches

BATCH_SIZE = 32


class RelationPredictor(Predictor):
    """An exported model of sentence relations."""

    takes, data_sets = "two mentions in a text", "relations"
    takes_relations = True

    @property
    def blind(self) -> bool:
        """Whether it reads the mentions' types in place of the mentions."""
        return bool(self.description["input"].get("blind"))

    def _prepared(self, text: Any) -> RelationMention:
        if isinstance(text, RelationMention):
            return text
        given = text if isinstance(text, Mapping) else {}
        plain = string_of(text)
        types = tuple(given.get(name) for name in ("head_type", "tail_type"))
        if self.blind and not all(isinstance(kind, str) and kind.strip() for kind in types):
            raise PredictionError("has no head_type and tail_type, which the model reads for the mentions; give them")
        types = [kind if isinstance(kind, str) and kind.strip() else UNKNOWN_TYPE for kind in types]
        if not any(name in given for name in ("head", "tail")):
            problem = None
            try:
                return from_inline_markers(plain, *types, markers=tuple(self.description["input"]["markers"]))
            except DataError as error:
                problem = _reason(error)
            raise PredictionError(problem)
        spans = [_span(given.get(name), name, len(plain)) for name in ("head", "tail")]
        return RelationMention("text", "text", plain, *spans, *types, "", 0)

    def _inputs(self, values: Sequence[RelationMention]) -> dict[str, Any]:
        return span_inputs(values, self.blind)

    def _rows(self, values: Sequence[RelationMention]) -> list[np.ndarray]:
        return in_batches(
            lambda batch: self._function(**self._inputs(batch)), values, BATCH_SIZE, lambda own: len(own.text)
        )

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        corpus = load_relations(dataset, path=file, label=label, split="given")
        return corpus, corpus.samples

    def _positive_labels(self, corpus: Any) -> tuple[int, ...]:
        left_out = {name for i, name in enumerate(corpus.label_names) if i not in set(corpus.positive_labels)}
        return tuple(i for i, name in enumerate(self.labels) if name not in left_out)


def span_inputs(mentions: Sequence[RelationMention], blind: bool) -> dict[str, Any]:
    """The inputs of the signature `spans` by name."""
    inputs: dict[str, Any] = {
        "text": [mention.text for mention in mentions],
        "head": np.array([mention.head for mention in mentions], np.int32).reshape(-1, 2),
        "tail": np.array([mention.tail for mention in mentions], np.int32).reshape(-1, 2),
    }
    if blind:
        inputs["head_type"] = [mention.head_type for mention in mentions]
        inputs["tail_type"] = [mention.tail_type for mention in mentions]
    return inputs


def _span(value: Any, name: str, length: int) -> tuple[int, int]:
    good = (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(place, int) and not isinstance(place, bool) for place in value)
        and 0 <= value[0] < value[1] <= length
    )
    if not good:
        raise PredictionError(
            f'has no span "{name}" in its {length} characters; give [start, end] with 0 <= start < end <= length'
        )
    return value[0], value[1]


def _reason(error: DataError) -> str:
    reason = "has a mention that is empty" if error.record else error.reason
    return f"{reason}; {error.remedy}" if error.remedy else reason
