"""Relations between two marked mentions in a sentence: raw text in, the relation's class out.

The graph tokenizes the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.errors import DataError
from datasets.json_values import Fail, field, optional_string
from datasets.relations import neutral
from datasets.relations.loading import load_relations
from datasets.relations.records import UNKNOWN_TYPE, RelationMention
from datasets.text.relation_layout import from_inline_markers
from tff_re.exporting.card import ENCODED, IMPORT_TENSORFLOW_TEXT, OF_TENSORFLOW_TEXT, Use, uses
from tff_re.exporting.kind import Kind, check_pair_types, check_strings, pair_types
from tff_re.exporting.kinds.texts import string_of
from tff_re.exporting.layout import DESCRIPTION_FILE, KERAS_FILE, REMEDY, SAVED_MODEL_FOLDER
from tff_re.exporting.predictors import Prediction, PredictionError, Predictor

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

PIECES, WORDS = "relation_pieces", "relation_words"

_MARKERS = 4

GIVEN = "given"
"""The split of a file that is scored or predicted on."""

_MARKED = """The model takes sentences with the two mentions marked, each marker once: `<e1>` and `</e1>` around the
head, `<e2>` and `</e2>` around the tail. It tokenizes them by itself{with_text}. The signature `spans` takes `text`,
`head` and `tail` (int32 [n, 2]: start and end in characters, the end exclusive) in place of markers; `encoded` takes
ids, and `encode` gives them. {blind}A request with a sentence that cannot be read is refused as a whole; the message
gives its number in the batch."""
_BLIND = """Mentions are replaced by their types before the model reads them: `head_type` and `tail_type`, strings [n],
go with every signature but `encoded`. The words of the mentions are not used. """
_PLAIN_ENCODED = (
    "`{keras_file}` is made of Keras' own layers and takes encoded inputs ({names}; int32, as the signature `encode` "
    "of the SavedModel gives them)."
)
_ENCODE = """encode = tf.saved_model.load("{folder}").signatures["encode"]
arrays = encode(text=tf.constant(["Aspirin inhibits COX-2."]), {spans}{types})
"""
_SPANS = "head=tf.constant([[0, 7]]), tail=tf.constant([[17, 22]])"


class RelationPredictor(Predictor):
    """An exported model of sentence relations."""

    takes, data_sets = "two mentions in a text", "relations"
    batch_size = 32

    @property
    def blind(self) -> bool:
        """Whether it reads the mentions' types in place of the mentions."""
        return bool(self.description["input"].get("blind"))

    def _prepared(self, text: Any) -> RelationMention:
        if isinstance(text, RelationMention):
            return text
        fields = text if isinstance(text, Mapping) else {}
        plain = string_of(text)
        types = tuple(fields.get(name) for name in ("head_type", "tail_type"))
        if self.blind and not all(isinstance(kind, str) and kind.strip() for kind in types):
            raise PredictionError(
                "needs head_type and tail_type, which the model reads in place of the mentions; add them"
            )
        types = [kind if isinstance(kind, str) and kind.strip() else UNKNOWN_TYPE for kind in types]
        if not any(name in fields for name in ("head", "tail")):
            problem = None
            try:
                return from_inline_markers(plain, *types, markers=tuple(self.description["input"]["markers"]))
            except DataError as error:
                problem = _reason(error)
            raise PredictionError(problem)
        spans = [_span(fields.get(name), name, len(plain)) for name in ("head", "tail")]
        return RelationMention("text", "text", plain, *spans, *types, "", 0)

    def _inputs(self, values: Sequence[RelationMention]) -> dict[str, Any]:
        return span_inputs(values, self.blind)

    @staticmethod
    def _length(value: RelationMention) -> int:
        return len(value.text)

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        options = {}
        if dataset == neutral.NAME:  # its files name no classes: those of the model are the ones that a label can have
            options = {"class_names": self.labels, "negative_label": self._details.get("negative_label")}
        corpus = load_relations(dataset, path=file, label=label, split=GIVEN, **options)
        return corpus, corpus.samples

    def reads_records(self, file: Path | None, dataset: str | None) -> bool:
        if file is None or (dataset or self.dataset) != neutral.NAME:
            return False
        return dataset is not None or neutral.is_named_so(file)  # else the file has a text a line

    def predict_records(self, file: Path) -> list[tuple[str, str, Prediction]]:
        mentions = neutral.read(file, split=GIVEN, labelled=False).mentions
        ids = [mention.mention_id.removeprefix(f"{GIVEN}-") for mention in mentions]
        return list(zip(ids, [mention.text for mention in mentions], self.predict(mentions), strict=True))

    def _positive_labels(self, corpus: Any) -> tuple[int, ...]:
        left_out = {name for i, name in enumerate(corpus.label_names) if i not in set(corpus.positive_labels)}
        return tuple(i for i, name in enumerate(self.labels) if name not in left_out)


class RelationKind(Kind):
    names, predictor, form_name = (PIECES, WORDS), RelationPredictor, "RelationForm"
    signature = "spans"
    of_mentions = True
    cut = "around the mentions"

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        source = description["input"]
        check_strings(field(source, "markers", list, fail), '"input.markers"', fail, count=_MARKERS)
        if not isinstance(source.get("blind"), bool):
            raise fail('"input.blind" is not true or false', remedy=REMEDY)
        details = description.get("details") or {}
        optional_string(details, "negative_label", fail)
        check_pair_types(description, fail)
        placeholders = details.get("placeholders", {})
        if not isinstance(placeholders, dict) or not all(
            isinstance(text, str) and text for text in placeholders.values()
        ):
            raise fail('"details.placeholders" is not an object of strings', remedy=REMEDY)

    def details(self, experiment: Experiment, weights: Any, dev: Mapping[str, float] | None) -> dict[str, Any]:
        names, positive = experiment.prepared.label_names, experiment.prepared.measures.positive_labels
        negative = [name for label, name in enumerate(names) if positive is not None and label not in positive]
        mentions = [mention for corpus in experiment.prepared.corpora for mention in corpus.samples]
        placeholders = placeholders_of(mentions)
        return {
            **({"negative_label": negative[0]} if len(negative) == 1 else {}),
            **pair_types((mention.head_type, mention.tail_type) for mention in mentions),
            **({"placeholders": placeholders} if placeholders else {}),
        }

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
        imports = IMPORT_TENSORFLOW_TEXT if pieces else ""
        saved_model = Use(
            f'text=tf.constant(["<e1>Aspirin</e1> inhibits <e2>COX-2</e2>."]){types}',
            _MARKED.format(with_text=OF_TENSORFLOW_TEXT if pieces else "", blind=_BLIND if blind else ""),
            imports,
        )
        layers = "" if stock else f"import tff_re.models.{description['model']}  # its layers\n"
        before = imports + layers + _ENCODE.format(folder=SAVED_MODEL_FOLDER, spans=_SPANS, types=types)
        keras = Use(
            "dict(arrays)",
            (_PLAIN_ENCODED if stock else ENCODED).format(keras_file=KERAS_FILE, names=names),
            before if SAVED_MODEL_FOLDER in description["forms"] else None,
        )
        return uses(description, saved_model, keras)


def placeholders_of(mentions: Iterable[RelationMention]) -> dict[str, str]:
    """Type -> what stands for every mention of it in texts without the mentions' words, as GAD's ``@GENE$``.

    Empty where one mention is not its type's placeholder.
    """
    placeholders = {}
    for mention in mentions:
        for text, its_type in ((mention.head_text, mention.head_type), (mention.tail_text, mention.tail_type)):
            if text != f"@{its_type.upper()}$":
                return {}
            placeholders[its_type] = text
    return placeholders


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
        and all(isinstance(offset, int) and not isinstance(offset, bool) for offset in value)
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
