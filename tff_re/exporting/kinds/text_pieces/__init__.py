"""Classes of whole texts for models with a pretrained encoder's tokenizer: raw text in, one class for each out.

The graph tokenizes the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets.json_values import Fail
from tff_re.exporting.card import ENCODED, IMPORT_TENSORFLOW_TEXT, OF_TENSORFLOW_TEXT, Use, uses
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds.texts import TextPredictor, string_of
from tff_re.exporting.layout import DESCRIPTION_FILE, KERAS_FILE, SAVED_MODEL_FOLDER

PIECES = "pieces"

_RAW = (
    "The model takes raw text and tokenizes it by itself{of_text}. The signature `encoded` takes ids, and `encode` "
    "gives them."
)
_TEXTS = 'text=tf.constant(["肚子疼"])'
_ENCODE = """encode = tf.saved_model.load("{folder}").signatures["encode"]
arrays = encode({texts})
"""


class TextPiecePredictor(TextPredictor):
    """An exported model of texts with its tokenizer in the graph."""

    batch_size = 32

    def _prepared(self, text: Any) -> str:
        return self._as_read(string_of(text))


class TextPieceKind(Kind):
    names, predictor, form_name = (PIECES,), TextPiecePredictor, "TextPieceForm"

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> None:
        if not isinstance(value, dict):
            raise fail("is not the JSON of an encoding")
        if value.get("encoding") != PIECES or value.get("max_length") != source.get("max_length"):
            raise fail(f"does not fit {DESCRIPTION_FILE}")

    def import_operations(self, source: Mapping[str, Any]) -> None:
        import tensorflow_text  # noqa: F401

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        saved_model = Use(_TEXTS, _RAW.format(of_text=OF_TENSORFLOW_TEXT), IMPORT_TENSORFLOW_TEXT)
        layers = f"import tff_re.models.{description['model']}  # its layers\n"
        before = IMPORT_TENSORFLOW_TEXT + layers + _ENCODE.format(folder=SAVED_MODEL_FOLDER, texts=_TEXTS)
        keras = Use(
            "dict(arrays)",
            ENCODED.format(keras_file=KERAS_FILE, names=", ".join(description["arrays"])),
            before if SAVED_MODEL_FOLDER in description["forms"] else None,
        )
        return uses(description, saved_model, keras)
