"""Texts of words or of characters: raw text in, one class for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.dialogues.loading import load_corpus
from datasets.json_values import Fail
from datasets.text.encoding import TextEncoding, encoding_from_json
from tff_re.exporting.card import Use, uses
from tff_re.exporting.kind import Kind, checked_encoding
from tff_re.exporting.layout import ENCODING_FILE
from tff_re.exporting.predictors import PredictionError, Predictor

_EXAMPLES = {"words": "肚子 疼", "characters": "肚子疼"}
_EXPLANATIONS = {
    "words": "The model takes texts of words joined by blanks: segment them with jieba, after adding each word of "
    f"`added_words` in `{ENCODING_FILE}` to its dictionary (`jieba.add_word`), and leave out words that are blanks. "
    "`tff_re.load_export` does this.",
    "characters": "The model takes raw text and reads it character by character.",
}


class TextPredictor(Predictor):
    """An exported model of texts."""

    encoding: TextEncoding

    def _prepared(self, text: Any) -> str:
        return self.encoding.prepare(self._as_read(string_of(text)))

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        corpus = load_corpus(dataset, path=file, label=label, split="given")
        return corpus, [sample.text for sample in corpus.samples]


class TextKind(Kind):
    names, predictor, form_name = ("words", "characters"), TextPredictor, "TextForm"

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(
            encoding_from_json, value, source, fail, lambda table: table["encoding"] == source["kind"]
        )

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        kind = description["input"]["kind"]
        text, explanation = f'tf.constant(["{_EXAMPLES[kind]}"])', _EXPLANATIONS[kind]
        return uses(description, Use(f"text={text}", explanation), Use(text, explanation))


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
