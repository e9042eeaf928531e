"""The base of the predictors of all kinds of input, which `load_export` makes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from datasets.catalogue import DATA_SETS, find_data_set
from tff_re.errors import UserError

if TYPE_CHECKING:
    from tff_re.exporting.training_digests import Seen, TrainingDigests

T = TypeVar("T")

OF_TEXTS = {"of_texts": True}
"""Metadata of a prediction's fields that are parts of texts: shown only with --show-text."""


class PredictionError(UserError):
    """An export cannot be loaded or a text cannot be classified. One line, without any of the text."""


@dataclass(frozen=True)
class Prediction:
    """What the model says about a text.

    Attributes:
      label: The most probable class.
      probability: Its probability.
      probabilities: Class to probability, in the order of the labels.
    """

    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)


@dataclass(frozen=True)
class Score:
    """Result of scoring an exported model on a file.

    Attributes:
      size: what was scored, in words: so many samples; so many bags, or documents, of so many facts.
      metrics: `classification_metrics`; of bags `ranking_metrics`; of documents `pair_metrics` at the export's
        threshold, which is among them; of entities those of `SpanMeasures` without the loss.
      examples: so many samples; this and what follows is None for bags and documents, and for entities but for `labels`
        and `per_class`.
      confusion: int64 [C, C], rows are the file's labels, columns the predictions, both in the order of `labels`.
      trivial: the metrics of models that give every example one class, see `trivial_metrics`.
      labels: the export's classes; of entities the types that were counted.
      positive_labels: those that micro-F1 and macro-F1 count; None: all.
      per_class: (precision, recall, F1, samples or gold entities) of each of `labels`, [K] each.
      notes: what a reader of the numbers should know.
      counts: numbers of examples and facts, which add up over files.
      seen: how many examples the run trained on or chose its round by; None: the export has no digests of these.
    """

    size: str
    metrics: dict[str, float]
    examples: int | None = None
    confusion: np.ndarray | None = field(default=None, repr=False)
    trivial: dict[str, dict[str, float]] | None = field(default=None, repr=False)
    labels: tuple[str, ...] | None = None
    positive_labels: tuple[int, ...] | None = None
    per_class: tuple[np.ndarray, ...] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict, repr=False)
    seen: Seen | None = None

    def title(self, name: str) -> str:
        """What was scored, in words.

        `name` is the file's.
        """
        return f"{name}: {self.size}"

    def facts(self, *, classes: bool = True) -> dict[str, Any]:
        """What `validate` signs, as JSON: numbers and the export's labels. A number that is not finite is None.

        Args:
          classes: whether counts by class are among them.
        """
        by_class = None
        if classes and self.per_class is not None:
            by_class = [[_finite(value) for value in row] for row in zip(*self.per_class, strict=True)]
        return {
            "counts": {name: int(value) for name, value in self.counts.items()},
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "labels": None if self.labels is None else list(self.labels),
            "positive_labels": None if self.positive_labels is None else [int(i) for i in self.positive_labels],
            "by_class": by_class,
            "confusion": self.confusion.tolist() if classes and self.confusion is not None else None,
        }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


class ExportedModel:
    """An exported model with its labels and its encoding.

    Attributes:
      takes: what it classifies, in words.
      data_sets: the kind of the data sets that it can be scored on; None: of none.
      takes_files: whether it takes files of a data set (`predict_file`) in place of texts.
      kind: what it takes, `input.kind` of export.json.
      dataset: the data set of the run; None where the run made its examples up.
      training_digests: reads the digests of the run's examples, see `read_training_digests`.
    """

    takes: ClassVar[str]
    data_sets: ClassVar[str | None] = None
    takes_files: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any], labels: Sequence[str], encoding: Any, description: dict[str, Any]):
        """`function` maps a batch, by the names of the model's inputs, to probabilities."""
        self.labels, self.encoding, self.description = tuple(labels), encoding, description
        self._function, self._details = function, description.get("details") or {}
        self.kind, self.dataset = description["input"]["kind"], self._details.get("dataset")
        self.training_digests: Callable[[], TrainingDigests | None] = lambda: None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description.get('model')}, {len(self.labels)} classes)"

    def reads_records(self, file: Path | None, dataset: str | None) -> bool:
        """Whether `predict_records` reads a file.

        `dataset` names its format; the run's data set by default.
        """
        return False

    def predict_records(self, file: Path) -> list[tuple[str, str, Prediction]]:
        """(id, text, prediction) of each record of a file in the format of `relations`.

        Labels in the file are ignored.

        Raises:
          DataError: the file is missing or malformed.
        """
        raise NotImplementedError

    def score(self, file: Path, dataset: str | None = None, label: str | None = None) -> Score:
        """Scores the model on a file.

        See `tff_re.score`.
        """
        if dataset is None:
            dataset, label = self.dataset, label or self._details.get("label")
        if dataset is None:
            raise UserError("the export does not say which data set it was trained on; give --dataset")
        if find_data_set(dataset).kind != self.data_sets:
            raise UserError(
                f"the model takes {self.takes}, which the data set '{dataset}' does not have; choose another --dataset"
            )
        return self._score(file, dataset, label)

    def _score(self, file: Path, dataset: str, label: str | None) -> Score:
        """`score` of a file of the kind's own data sets."""
        raise NotImplementedError

    def _seen(self, corpus: Any) -> Seen | None:
        """How many examples of a corpus the run has seen, or None if that is not known."""
        digests = self.training_digests()
        return None if digests is None else digests.seen(corpus.samples)

    def _named(self, row: np.ndarray) -> dict[str, float]:
        """Label -> probability."""
        return {label: float(value) for label, value in zip(self.labels, row, strict=True)}


class Predictor(ExportedModel):
    """An exported model that gives one class to each text or feature vector.

    Attributes:
      batch_size: so many are classified at once.
      blind: whether it reads the mentions' types in place of the mentions.
    """

    takes = "texts"
    data_sets: ClassVar[str | None] = "texts"
    batch_size: ClassVar[int] = 256
    blind = False

    def predict(self, texts: Sequence[Any]) -> list[Prediction]:
        """The prediction for each raw text.

        An empty text gets the model's prediction for no words.

        A text is a string, or a mapping with `text`. For relations the string has the markers in it (``<e1>…</e1>``,
        ``<e2>…</e2>``), a mapping may have `head` and `tail` (start and end in characters, the end exclusive) in their
        place, and `head_type` and `tail_type`, which a blinded model needs; a RelationMention does as well.

        Raises:
          PredictionError: `texts` is not a list, or holds a text that cannot be read: the first one is named by its
            number; or the model takes feature vectors.
        """
        predictions = []
        for number, result in enumerate(self.predict_each(texts), 1):
            if isinstance(result, PredictionError):
                raise PredictionError(f"text number {number} {result}")
            predictions.append(result)
        return predictions

    def predict_each(self, texts: Sequence[Any]) -> list[Prediction | PredictionError]:
        """Like `predict`, but a text that cannot be read gets an error as its result.

        The other texts are predicted all the same.

        Raises:
          PredictionError: `texts` is not a list, or the model takes feature vectors.
        """
        if isinstance(texts, str | bytes | Mapping):
            raise PredictionError("expected a list of texts, got one text; put it into a list")
        results: list[Any] = [self._read(text) for text in texts]
        good = [i for i, result in enumerate(results) if not isinstance(result, PredictionError)]
        for i, prediction in zip(good, self._predictions([results[i] for i in good]), strict=True):
            results[i] = prediction
        return results

    def predict_vectors(self, x: np.ndarray) -> list[Prediction]:
        """The prediction for each feature vector of `x`, float32 [n, width].

        Raises:
          PredictionError: the model takes texts, or `x` has another shape.
        """
        raise PredictionError("the model takes texts, not feature vectors; use predict")

    def probabilities(self, texts: Sequence[Any]) -> np.ndarray:
        """The probabilities of texts that `predict` takes, float32 [n, C]."""
        rows = [list(prediction.probabilities.values()) for prediction in self.predict(texts)]
        return np.array(rows, np.float32).reshape(-1, len(self.labels))

    def _score(self, file: Path, dataset: str, label: str | None) -> Score:
        # scikit-learn is slow to import
        from tff_re.tasks.metrics import classification_metrics, per_class, trivial_metrics

        corpus, examples = self._examples(file, dataset, label)
        number = {name: i for i, name in enumerate(self.labels)}
        foreign = [name for name in corpus.label_names if name not in number]
        if foreign:
            raise UserError(
                f"{file}: {len(foreign)} of its {len(corpus.label_names)} classes are not among the model's "
                f"({', '.join(self.labels)}); choose the --dataset and --label used in training"
            )
        gold = np.array([number[corpus.label_names[sample.label]] for sample in corpus.samples])
        probabilities, positive = self.probabilities(examples), self._positive_labels(corpus)
        confusion = np.zeros([len(self.labels)] * 2, np.int64)
        np.add.at(confusion, (gold, probabilities.argmax(axis=1)), 1)
        loss = -np.log(np.maximum(probabilities[np.arange(len(gold)), gold], np.finfo(np.float32).tiny)).sum()
        metrics = classification_metrics({"examples": len(gold), "loss": loss, "confusion": confusion}, positive)
        trivial = trivial_metrics(confusion.sum(axis=1), positive)
        size, classes = f"{len(gold)} samples", per_class(confusion)
        counts, seen = {"examples": len(gold)}, self._seen(corpus)
        of_classes = (self.labels, positive, classes)
        return Score(size, metrics, len(gold), confusion, trivial, *of_classes, counts=counts, seen=seen)

    def _read(self, text: Any) -> Any:
        """The model's input for a text, or the error.

        The error does not name the text's number, which the caller knows.
        """
        try:
            return self._prepared(text)
        except PredictionError as error:
            return PredictionError(str(error))  # without the text in its traceback

    def _prepared(self, text: Any) -> Any:
        """What the model takes for a text. Raises PredictionError."""
        raise NotImplementedError

    def _as_read(self, text: str) -> str:
        """A text without the blanks around it, where the reader of the run's data set leaves them out."""
        about = DATA_SETS.get(self.dataset)
        return text.strip() if about is not None and about.strips else text

    def _inputs(self, values: Sequence[Any]) -> dict[str, Any]:
        """The signature's inputs for a batch of prepared texts."""
        return {self.description["input"]["name"]: values}

    @staticmethod
    def _length(value: Any) -> int:
        """By which prepared texts are put side by side: a batch is as wide as its longest."""
        return 0

    def _predictions(self, values: Sequence[Any] | np.ndarray) -> list[Prediction]:
        def run(batch: list[Any]) -> np.ndarray:
            return self._function(**self._inputs(batch))

        predictions = []
        for row in in_batches(run, values, self.batch_size, self._length):
            best = int(np.argmax(row))
            predictions.append(Prediction(self.labels[best], float(row[best]), self._named(row)))
        return predictions

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        """(the corpus of a file, what `predict` takes of its samples). Raises DataError."""
        raise NotImplementedError

    def _positive_labels(self, corpus: Any) -> tuple[int, ...] | None:
        """The classes that micro-F1 and macro-F1 count, or None for all."""
        return None


class CorpusPredictor(ExportedModel):
    """An exported model that takes files of a data set in place of texts.

    Attributes:
      columns: the headings of a table of predictions.
      numbers: those of columns of numbers.
      caption: what a reader of the table should know.
    """

    takes_files = True
    caption: str = ""
    columns: ClassVar[tuple[str, ...]]
    numbers: ClassVar[tuple[str, ...]]

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[Any]:
        """The predictions for a file in the format of a data set.

        `dataset` is the run's by default.

        Raises:
          DataError: the file is missing or malformed.
        """
        raise NotImplementedError

    def cells(self, prediction: Any) -> tuple[str, ...]:
        """A prediction as a row of a table with `columns`, without parts of texts."""
        raise NotImplementedError

    def cells_with_texts(self, prediction: Any) -> tuple[str, ...]:
        """Like `cells`, with the names that the texts use.

        If the text uses no name, the cell is the same as in `cells`.
        """
        return self.cells(prediction)


def in_batches(
    run: Callable[[list[Any]], Iterable[T]], items: Sequence[Any] | np.ndarray, size: int, length: Callable[[Any], int]
) -> list[T]:
    """What `run`, of up to `size` items, gives for each item, in the items' order; a batch has items of like length."""
    order = sorted(range(len(items)), key=lambda i: length(items[i]))
    results: list[Any] = [None] * len(items)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        for i, result in zip(chosen, run([items[i] for i in chosen]), strict=True):
            results[i] = result
    return results
