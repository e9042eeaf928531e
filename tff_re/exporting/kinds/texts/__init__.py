"""Texts of words or of characters: raw text in, one class for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets.json_values import Fail
from datasets.text.encoding import encoding_from_json
from tff_re.exporting.kind import Kind, checked_encoding
from tff_re.exporting.kinds.texts.predictor import TextPredictor
from tff_re.exporting.layout import ENCODING_FILE
from tff_re.exporting.uses import Use, uses

_EXAMPLES = {"words": "肚子 疼", "characters": "肚子疼"}
_EXPLANATIONS = {
    "words": "The model takes texts of words joined by blanks: segment them with jieba, after adding each word of "
    f"`added_words` in `{ENCODING_FILE}` to its dictionary (`jieba.add_word`), and leave out words that are blanks. "
    "`tff_re.load_export` does this.",
    "characters": "The model takes raw text and reads it character by character.",
}


class TextKind(Kind):
    names = ("words", "characters")
    predictor = TextPredictor

    @property
    def form(self):
        from tff_re.exporting.kinds.texts.form import TextForm

        return TextForm

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(encoding_from_json, value, source, fail, lambda own: own["encoding"] == source["kind"])

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        kind = description["input"]["kind"]
        text, explanation = f'tf.constant(["{_EXAMPLES[kind]}"])', _EXPLANATIONS[kind]
        return uses(description, Use(f"text={text}", explanation), Use(text, explanation))
