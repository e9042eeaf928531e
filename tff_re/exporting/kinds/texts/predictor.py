"""Predictions for texts of words or of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.dialogues.loading import load_corpus
from datasets.text.encoding import TextEncoding
from tff_re.exporting.predictors import PredictionError, Predictor


class TextPredictor(Predictor):
    """An exported model of texts."""

    encoding: TextEncoding

    def _prepared(self, text: Any) -> str:
        return self.encoding.prepare(string_of(text))

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        corpus = load_corpus(dataset, path=file, label=label, split="given")
        return corpus, [sample.text for sample in corpus.samples]


def string_of(text: Any) -> str:
    """The string of a text as `Predictor.predict` takes it. Raises PredictionError."""
    if isinstance(text, Mapping):
        if "text" not in text:
            raise PredictionError('has no "text"; give it one')
        text = text["text"]
    if not isinstance(text, str):
        raise PredictionError(f"is a {type(text).__name__}; give a string")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PredictionError("holds half of a surrogate pair; decode it as UTF-8")
    return text
