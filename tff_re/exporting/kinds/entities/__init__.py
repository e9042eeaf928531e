"""Entities of raw texts for models of words, of characters or of word pieces.

The graph tokenizes the text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from datasets.catalogue import file_in, find_data_set
from datasets.encoding_files import TAGGED_PIECES, tagged_encoding_from_json
from datasets.entities import neutral
from datasets.entities.encoding import TaggedTokenEncoding
from datasets.entities.loading import load_entities
from datasets.entities.records import EntityCorpus, EntitySpan
from datasets.entities.scoring import score_spans
from datasets.entities.tags import SCHEMES, spans_of, tag_names
from datasets.errors import DataError, counted
from datasets.json_values import Fail, optional_string
from datasets.json_values import field as json_field
from datasets.relations.reading import ending_of
from tff_re.errors import UserError
from tff_re.exporting.card import IMPORT_TENSORFLOW_TEXT, OF_TENSORFLOW_TEXT, tagging_uses
from tff_re.exporting.kind import Kind, check_strings, checked_encoding
from tff_re.exporting.kinds.texts import string_of
from tff_re.exporting.layout import DESCRIPTION_FILE, ENCODING_FILE, REMEDY
from tff_re.exporting.predictors import ExportedModel, PredictionError, Score, in_batches

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

WORDS, CHARACTERS, PIECES = "entity_words", "entity_characters", "entity_pieces"

OUTPUTS = ("probabilities", "tags", "starts", "ends")
"""Of the SavedModel, as the predictor reads them."""

GIVEN = "given"
"""The split of a file that is scored or predicted on."""

_READING = ("nested", "other_types", "unit")
"""Options of the task that say how a file of the run's data set is read."""

_EXAMPLES = {
    WORDS: "肚子 疼 了 三天",
    CHARACTERS: "肚子疼了三天",
    PIECES: "肚子疼了三天",
}
_TAKES = {
    WORDS: "It takes texts of words joined by blanks: segment them with jieba, after adding each word of `added_words` "
    f"(under `text` in `{ENCODING_FILE}`) to its dictionary (`jieba.add_word`), and leave out words that are blanks. "
    "Offsets are then those of the joined words; `tff_re.load_export` segments, and gives offsets of the text itself.",
    CHARACTERS: "It takes raw text and reads it character by character.",
    PIECES: f"It takes raw text and tokenizes it by itself{OF_TENSORFLOW_TEXT}.",
}


@dataclass(frozen=True)
class EntityPrediction:
    """An entity that the model finds in a text.

    Attributes:
      start, end: Characters (code points) of the text, half-open.
      type: Its type.
      probability: The mean over its tokens of the probability of their tags (with a CRF their marginal probability).
    """

    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True)
class RecognisedText:
    """A text and its entities.

    Attributes:
      text_id, document_id: As the file gives them; of texts without a file their number from 1.
      text: The text.
      entities: In the order of the text; none overlap.
      read_to: The characters that the model read, where it cut the text; None: it read all.
    """

    text_id: str
    document_id: str
    text: str = field(repr=False)
    entities: tuple[EntityPrediction, ...]
    read_to: int | None = None


class EntityPredictor(ExportedModel):
    """An exported model of entity recognition.

    Attributes:
      entity_types: The types that it finds.
      scheme: Of its tags, ``BIO`` or ``BIOES``.
    """

    takes, data_sets = "texts", "entities"
    batch_size = 32

    def __init__(self, function: Callable[..., Any], labels: Sequence[str], encoding: Any, description: dict[str, Any]):
        super().__init__(function, labels, encoding, description)
        self.scheme = description["input"]["scheme"]
        self.entity_types = cast(tuple[str, ...], types_of(self.labels, self.scheme))  # as `check_labels` has seen

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description.get('model')}, {', '.join(self.entity_types)})"

    def predict(self, texts: Sequence[Any]) -> list[list[EntityPrediction]]:
        """The entities of each raw text.

        A text is a string, or a mapping with `text`. An empty text has no entities.

        Raises:
          PredictionError: `texts` is not a list, or holds a text that cannot be read: the first one is named by its
            number.
        """
        predictions = []
        for number, result in enumerate(self.predict_each(texts), 1):
            if isinstance(result, PredictionError):
                raise PredictionError(f"text number {number} {result}")
            predictions.append(result)
        return predictions

    def predict_each(self, texts: Sequence[Any]) -> list[list[EntityPrediction] | PredictionError]:
        """Like `predict`, but a text that cannot be read gets an error as its result.

        The other texts are predicted all the same.

        Raises:
          PredictionError: `texts` is not a list.
        """
        return [
            result if isinstance(result, PredictionError) else list(result.entities)
            for result in self.recognise_each(texts)
        ]

    def recognise_each(self, texts: Sequence[Any]) -> list[RecognisedText | PredictionError]:
        """As `predict_each`, with the texts and how much of them was read.

        Raises:
          PredictionError: `texts` is not a list.
        """
        if isinstance(texts, str | bytes | Mapping):
            raise PredictionError("expected a list of texts, got one text; put it into a list")
        results: list[Any] = [_read(text) for text in texts]
        good = [i for i, result in enumerate(results) if isinstance(result, str)]
        for i, answer in zip(good, self._recognised([results[i] for i in good]), strict=True):
            results[i] = RecognisedText(str(i + 1), str(i + 1), results[i], *answer)
        return results

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[RecognisedText]:
        """The texts of a file with the entities that the model finds in them.

        Args:
          path: A file of a data set of entities, or one of your own: JSON lines, CoNLL columns, PubTator, brat.
            Entities that it has are not looked at, and may be missing from a file of your own.
          dataset: A data set of entities, whose form the file has; `form_of` the file if not given.

        Raises:
          DataError: The file is missing or malformed.
        """
        name = dataset or self.form_of(Path(path)) or neutral.NAME
        corpus = self._corpus(Path(path), name, labelled=False)
        answers = self._recognised([sample.text for sample in corpus.samples])
        # A reader adds its name and the split, or only its name, before the ids of the file.
        prefixes = (f"{GIVEN}-",) if name == neutral.NAME else (f"{name}-", f"{GIVEN}-")
        ids = [sample.sample_id for sample in corpus.samples]
        for prefix in prefixes:
            ids = [text_id.removeprefix(prefix) for text_id in ids]
        return [
            RecognisedText(text_id, sample.document_id, sample.text, *answer)
            for text_id, sample, answer in zip(ids, corpus.samples, answers, strict=True)
        ]

    def form_of(self, file: Path) -> str | None:
        """The data set whose format a file is read in if none is named.

        None: the file has one text per line.

        That is the run's data set where its files have the same ending, and else `entities`, for files of your own.
        """
        if self.dataset is not None:
            data_set = find_data_set(self.dataset)
            files = data_set.files.values()
            if ending_of(file) in map(ending_of, files) or (files and file_in(data_set, file)):
                return self.dataset
        return neutral.NAME if neutral.is_named_so(file) else None

    def score(self, file: Path, dataset: str | None = None, label: str | None = None) -> Score:
        return super().score(file, dataset or self.form_of(file), label)

    def _score(self, file: Path, dataset: str, label: str | None) -> Score:
        from tff_re.tasks.span_metrics import SpanMeasures, span_statistics  # TensorFlow is slow to import

        if label not in (None, self._details.get("label")):
            raise UserError(f"the data set '{dataset}' has no label choices; leave --label out")
        corpus = self._corpus(file, dataset, labelled=True)
        foreign = [name for name in corpus.entity_types if name not in self.entity_types]
        if foreign:
            raise UserError(
                f"{file}: {len(foreign)} of its {len(corpus.entity_types)} types of entities are not among the "
                f"model's ({', '.join(self.entity_types)}); rename or remove them, or choose another --dataset"
            )
        scored = tuple(name for name in self.entity_types if name in corpus.entity_types)
        predicted = [
            [EntitySpan(entity.start, entity.end, entity.type) for entity in entities]
            for entities, _ in self._recognised([sample.text for sample in corpus.samples])
        ]
        scores = score_spans([sample.spans for sample in corpus.samples], predicted, scored)
        measures, statistics = SpanMeasures(scored), span_statistics(scores)
        metrics = measures.metrics(statistics)
        del metrics["loss"]  # of tokens, of which a file of spans says nothing
        missing = [name for name in self.entity_types if name not in scored]
        notes = [f"not counted, because the file has none: {', '.join(missing)}"] if missing else []
        notes += corpus.notes
        return Score(
            f"{counted(len(corpus.samples), 'text')}, {counted(int(statistics['actual'].sum()), 'entity')}",
            metrics,
            labels=scored,
            per_class=measures.per_class(statistics),
            notes=tuple(notes),
            seen=self._seen(corpus),
            counts={"texts": len(corpus.samples)}
            | {name: int(statistics[name].sum()) for name in sorted(set(statistics) - {"examples", "loss"})},
        )

    def _corpus(self, file: Path, dataset: str, *, labelled: bool) -> EntityCorpus:
        """The texts of a file, read as in training where it has the form of the run's data set."""
        options: dict[str, Any] = {"nested": "outermost", "labelled": labelled}
        if dataset == self.dataset:
            options |= {"nested": None, **(self._details.get("reading") or {})}
        if not labelled or not options.get("entity_types"):
            options["entity_types"] = None
        takes = find_data_set(dataset).options
        options = {name: value for name, value in options.items() if name in takes}
        return load_entities(dataset, path=file, split=GIVEN, **options)

    def _recognised(self, texts: Sequence[str]) -> list[tuple[tuple[EntityPrediction, ...], int | None]]:
        """(entities, `read_to`) of each text."""

        def run(batch: list[str]) -> list[Any]:
            segmented = [self._segmented(text) for text in batch]
            answer = self._function(**{self.description["input"]["name"]: segmented})
            _check_answer(answer, len(batch), len(self.labels))
            rows = zip(*(answer[name] for name in OUTPUTS), strict=True)
            return [self._decoded(text, words, *row) for text, words, row in zip(batch, segmented, rows, strict=True)]

        return in_batches(run, texts, self.batch_size, len)

    def _segmented(self, text: str) -> str:
        """The text as the SavedModel takes it."""
        return self.encoding.text_encoding.prepare(text) if self.kind == WORDS else text

    def _decoded(
        self,
        text: str,
        segmented: str,
        probabilities: np.ndarray,
        tags: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> tuple[tuple[EntityPrediction, ...], int | None]:
        """(entities, `read_to`) of a text.

        Args:
          text, segmented: as it is, and as the SavedModel takes it.
          probabilities, tags, starts, ends: of its tokens, and -1 behind them.
        """
        present = starts >= 0
        probabilities, tags, starts, ends = (values[present] for values in (probabilities, tags, starts, ends))
        _check_offsets(starts, ends, segmented)
        if segmented != text:
            starts, ends = _in_text(text, segmented, starts, ends)
        tokens = list(zip(starts.tolist(), ends.tolist(), strict=True))
        of_tags, entities = probabilities[np.arange(len(tags)), tags], []
        for span in spans_of(tags.tolist(), tokens, self.entity_types, self.scheme):
            of_span = of_tags[slice(*np.searchsorted(starts, [span.start, span.end]))]
            entities.append(EntityPrediction(span.start, span.end, span.type, float(of_span.mean())))
        return tuple(entities), self._read_to(text, int(ends.max(initial=0)))

    def _read_to(self, text: str, end: int) -> int | None:
        """Where reading ended, if letters or digits follow that the model cut off."""
        if self.description["input"].get("max_length") is None:
            return None
        return end if any(character.isalnum() for character in text[end:]) else None


class EntityKind(Kind):
    names, predictor, form_name = (WORDS, CHARACTERS, PIECES), EntityPredictor, "EntityForm"
    outputs = OUTPUTS
    probability = "softmax, with a CRF the marginal probability of a tag"
    limits = ("entities do not overlap; of nested ones it finds at most one",)

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        source = description["input"]
        if json_field(source, "scheme", str, fail) not in SCHEMES:
            raise fail(f'"input.scheme" is not one of {", ".join(SCHEMES)}', remedy=REMEDY)
        reading = (description.get("details") or {}).get("reading")
        if reading is None:
            return
        if not isinstance(reading, dict) or set(reading) - {*_READING, "entity_types"}:
            raise fail(f'"details.reading" must have only {", ".join(_READING)} and entity_types', remedy=REMEDY)
        for key in _READING:
            optional_string(reading, key, fail)
        if reading.get("entity_types") is not None:
            types = json_field(reading, "entity_types", list, fail)
            check_strings(types, '"details.reading.entity_types"', fail)

    def check_labels(self, labels: Sequence[str], description: Mapping[str, Any], fail: Fail) -> None:
        if types_of(labels, description["input"]["scheme"]) is None:
            raise fail(f"is not a list of the tags of {description['input']['scheme']}: O, B-<type>, I-<type>, …")

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> TaggedTokenEncoding | None:
        if not isinstance(value, dict) or value.get("scheme") != source["scheme"]:
            raise fail(f"does not fit {DESCRIPTION_FILE}")
        if source["kind"] == PIECES:
            if value.get("encoding") != TAGGED_PIECES or value.get("max_length") != source.get("max_length"):
                raise fail(f"does not fit {DESCRIPTION_FILE}")
            return None
        encoding = checked_encoding(tagged_encoding_from_json, value, source, fail)
        fits = isinstance(encoding, TaggedTokenEncoding) and (
            f"entity_{encoding.text_encoding.kind}",
            encoding.text_encoding.max_length,
        ) == (source["kind"], source.get("max_length"))
        if not fits:
            raise fail(f"does not fit {DESCRIPTION_FILE}")
        return encoding

    def import_operations(self, source: Mapping[str, Any]) -> None:
        if source["kind"] == PIECES:
            import tensorflow_text  # noqa: F401

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        kind = description["input"]["kind"]
        imports = IMPORT_TENSORFLOW_TEXT if kind == PIECES else ""
        return tagging_uses(description, text=_EXAMPLES[kind], takes=_TAKES[kind], imports=imports)

    def details(self, experiment: Experiment, weights: Any, dev: Mapping[str, float] | None) -> dict[str, Any]:
        """`reading`: options of the task that say how a file of the data set is read."""
        options = experiment.recipe.task.options
        reading = {name: getattr(options, name, None) for name in (*_READING, "entity_types")}
        reading = {name: value for name, value in reading.items() if value is not None}
        return {"reading": reading} if reading else {}


def types_of(labels: Sequence[str], scheme: str) -> tuple[str, ...] | None:
    """The entity types of these tags, or None if they are not tags of the scheme."""
    types = tuple(label.removeprefix("B-") for label in labels[1 :: len(SCHEMES[scheme])])
    try:
        return types if tag_names(types, scheme) == tuple(labels) else None
    except DataError:
        return None


def _read(text: Any) -> str | PredictionError:
    """The string of a text, or the error, without the text in its traceback."""
    try:
        return string_of(text)
    except PredictionError as error:
        return PredictionError(str(error))


def _check_answer(answer: Mapping[str, np.ndarray], count: int, num_tags: int) -> None:
    """Raises PredictionError where a graph's answer has other shapes or tags than those of `count` texts."""
    shape = answer["tags"].shape
    good = len(shape) == 2 and shape[0] == count and answer["probabilities"].shape == (*shape, num_tags)
    good = good and all(answer[name].shape == shape for name in ("starts", "ends"))
    if not good or not np.all((answer["starts"] < 0) | ((answer["tags"] >= 0) & (answer["tags"] < num_tags))):
        raise PredictionError(f"the graph's answer is damaged (no tag for each token); {REMEDY}")


def _check_offsets(starts: np.ndarray, ends: np.ndarray, text: str) -> None:
    """Raises PredictionError where tokens are not one after the other in the text."""
    good = np.all(starts < ends) and np.all(ends[:-1] <= starts[1:]) and ends.max(initial=0) <= len(text)
    if not good:
        raise PredictionError(f"the graph's answer is damaged (offsets that are not in the text); {REMEDY}")


def _in_text(text: str, joined: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets in words joined by blanks -> in the text: what is not blank is the same in both."""
    positions, places = (
        np.array([position for position, character in enumerate(value) if not character.isspace()], np.int64)
        for value in (joined, text)
    )
    first, last = np.searchsorted(positions, starts), np.searchsorted(positions, ends - 1)
    return places[first], places[last] + 1
