"""Two marked mentions in a sentence: raw text in, the class of their relation out; tokenized in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from datasets.json_values import Fail, field
from tff_re.exporting.kind import Kind, check_strings
from tff_re.exporting.kinds.relations.predictor import RelationPredictor
from tff_re.exporting.layout import DESCRIPTION_FILE, KERAS_FILE, REMEDY, SAVED_MODEL_FOLDER
from tff_re.exporting.uses import Use, uses

PIECES, WORDS = "relation_pieces", "relation_words"

_MARKERS = 4

_MARKED = """The model takes sentences with the two mentions marked, each marker once: `<e1>` and `</e1>` around the
head, `<e2>` and `</e2>` around the tail. It tokenizes them by itself{with_text}. The signature `spans` takes `text`,
`head` and `tail` (int32 [n, 2]: start and end in characters, the end exclusive) in place of markers; `encoded` takes
ids, and `encode` gives them. {blind}A request with a sentence that cannot be read is refused as a whole; the message
gives its number in the batch."""
_OF_TEXT = (
    " with operations of tensorflow-text (`pip install tensorflow==2.14.* tensorflow-text==2.14.* 'setuptools<81'`; "
    "tensorflow-text needs the last and does not say so)"
)
_BLIND = """Mentions are replaced by their types before the model reads them: `head_type` and `tail_type`, strings [n],
go with every signature but `encoded`. The words of the mentions are not used. """
_ENCODED = (
    "`{keras_file}` takes encoded inputs ({names}; int32, as the signature `encode` of the SavedModel gives them) and, "
    "for its layers, the package tff-re. The SavedModel needs neither."
)
_PLAIN_ENCODED = (
    "`{keras_file}` is made of Keras' own layers and takes encoded inputs ({names}; int32, as the signature `encode` "
    "of the SavedModel gives them)."
)
_ENCODE = """encode = tf.saved_model.load("{folder}").signatures["encode"]
arrays = encode(text=tf.constant(["Aspirin inhibits COX-2."]), {spans}{types})
"""
_SPANS = "head=tf.constant([[0, 7]]), tail=tf.constant([[17, 22]])"
_IMPORT_TEXT = "import tensorflow_text  # the SavedModel's tokenizer is made of its operations\n"


class RelationKind(Kind):
    names = (PIECES, WORDS)
    predictor = RelationPredictor
    signature = "spans"
    of_mentions = True
    cut = "around the mentions"

    @property
    def form(self):
        from tff_re.exporting.kinds.relations.form import RelationForm

        return RelationForm

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        source = description["input"]
        check_strings(field(source, "markers", list, fail), '"input.markers"', fail, count=_MARKERS)
        if not isinstance(source.get("blind"), bool):
            raise fail('"input.blind" is neither true nor false', remedy=REMEDY)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> None:
        if not isinstance(value, dict):
            raise fail("is not the JSON of an encoding")
        if value.get("encoding") != source["kind"]:
            raise fail(f"does not fit {DESCRIPTION_FILE}")

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        types = ("head_type", "tail_type") if description["input"]["blind"] else ()
        return ("text", "head", "tail", *types)

    def import_operations(self, source: Mapping[str, Any]) -> None:
        if source["kind"] == PIECES:
            import tensorflow_text  # noqa: F401

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        source, names = description["input"], ", ".join(description["arrays"])
        pieces, blind, stock = source["kind"] == PIECES, source["blind"], source["stock"]
        types = ', head_type=tf.constant(["drug"]), tail_type=tf.constant(["gene"])' if blind else ""
        imports = _IMPORT_TEXT if pieces else ""
        saved_model = Use(
            f'text=tf.constant(["<e1>Aspirin</e1> inhibits <e2>COX-2</e2>."]){types}',
            _MARKED.format(with_text=_OF_TEXT if pieces else "", blind=_BLIND if blind else ""),
            imports,
        )
        layers = "" if stock else f"import tff_re.models.{description['model']}  # its layers\n"
        before = imports + layers + _ENCODE.format(folder=SAVED_MODEL_FOLDER, spans=_SPANS, types=types)
        keras = Use(
            "dict(arrays)",
            (_PLAIN_ENCODED if stock else _ENCODED).format(keras_file=KERAS_FILE, names=names),
            before if SAVED_MODEL_FOLDER in description["forms"] else None,
        )
        return uses(description, saved_model, keras)
