"""What the predictors of all kinds of input have in common; `load_export` makes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datasets.catalogue import find_data_set
from tff_re.errors import UserError
from tff_re.exporting.scoring import CorpusScore, Score

BATCH_SIZE = 256


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


class ExportedModel:
    """An exported model with its labels and its encoding.

    Attributes:
      takes_files: whether it takes files of a data set (`predict_file`) in place of texts.
    """

    takes_files: ClassVar[bool] = False

    def __init__(
        self, function: Callable[..., np.ndarray], labels: Sequence[str], encoding: Any, description: dict[str, Any]
    ):
        """`function` maps a batch, by the names of the model's inputs, to probabilities."""
        self.labels = tuple(labels)
        self.encoding = encoding
        self.description = description
        self._function = function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description.get('model')}, {len(self.labels)} classes)"

    @property
    def kind(self) -> str:
        """What the model takes: `input.kind` of export.json."""
        return self.description["input"]["kind"]

    @property
    def dataset(self) -> str | None:
        """The data set of the run; None where the run made its examples up."""
        return self._details.get("dataset")

    @property
    def _details(self) -> dict[str, Any]:
        return self.description.get("details") or {}

    def score(self, file: Path, dataset: str | None = None, label: str | None = None) -> Score | CorpusScore:
        """Scores the model on a file; see `tff_re.score`."""
        raise NotImplementedError

    def _data_set_name(self, dataset: str | None) -> str:
        """The data set to read a file as: the one that is asked for, or the run's. Raises UserError."""
        name = dataset or self.dataset
        if name is None:
            raise UserError("the export does not say what data set it was trained on; give --dataset")
        return name

    def _named(self, row: np.ndarray) -> dict[str, float]:
        """Label -> probability."""
        return {label: float(value) for label, value in zip(self.labels, row, strict=True)}


class Predictor(ExportedModel):
    """An exported model that gives one class to each text or feature vector."""

    takes: ClassVar[str] = "texts"
    """What is classified, in words."""
    data_sets: ClassVar[str | None] = "texts"
    """The kind of the data sets that it can be scored on; None: of none."""

    takes_relations = False
    """Whether it classifies the relation of two mentions in a text."""
    blind = False
    """Whether it reads the mentions' types in place of the mentions."""

    def predict(self, texts: Sequence[Any]) -> list[Prediction]:
        """The prediction for each raw text; an empty text is answered too, by what the model says about no words.

        A text is a string, or a mapping with `text`. For relations the string has the markers in it (``<e1>…</e1>``,
        ``<e2>…</e2>``), a mapping may have `head` and `tail` (start and end in characters, the end exclusive) in their
        place, and `head_type` and `tail_type`, which a blinded model needs; a RelationMention does as well.

        Raises:
          PredictionError: `texts` is not a list, or holds a text that cannot be read: the first one is named by its
            number; or the model takes feature vectors.
        """
        results = self.predict_each(texts)
        for number, result in enumerate(results, 1):
            if isinstance(result, PredictionError):
                raise PredictionError(f"text number {number} {result}")
        return results

    def predict_each(self, texts: Sequence[Any]) -> list[Prediction | PredictionError]:
        """As `predict`, with an error in the place of each text that cannot be read; none stops the others.

        Raises:
          PredictionError: `texts` is not a list, or the model takes feature vectors.
        """
        if isinstance(texts, str | bytes | Mapping):
            raise PredictionError("one text was given in place of a list; put it into a list")
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

    def score(self, file: Path, dataset: str | None = None, label: str | None = None) -> Score:
        if dataset is None:
            dataset, label = self._data_set_name(None), label or self._details.get("label")
        if find_data_set(dataset).kind != self.data_sets:
            raise UserError(
                f"the model takes {self.takes}, the data set '{dataset}' has others; choose another --dataset"
            )
        corpus, examples = self._examples(file, dataset, label)
        number = {name: i for i, name in enumerate(self.labels)}
        foreign = [name for name in corpus.label_names if name not in number]
        if foreign:
            raise UserError(
                f"{file}: {len(foreign)} of its {len(corpus.label_names)} classes are not among the model's "
                f"({', '.join(self.labels)}); choose --dataset and --label as they were in training"
            )
        own = np.array([number[corpus.label_names[sample.label]] for sample in corpus.samples])
        return Score.of(self.probabilities(examples), own, self.labels, self._positive_labels(corpus))

    def _read(self, text: Any) -> Any:
        """What the model takes for a text, or the error; without the text's number, which the caller knows."""
        try:
            return self._prepared(text)
        except PredictionError as error:
            return PredictionError(str(error))  # without the text in its traceback

    def _prepared(self, text: Any) -> Any:
        """What the model takes for a text. Raises PredictionError."""
        raise NotImplementedError

    def _inputs(self, values: Sequence[Any]) -> dict[str, Any]:
        """The signature's inputs for a batch of prepared texts."""
        return {self.description["input"]["name"]: values}

    def _rows(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The probabilities of prepared texts, [C] each."""
        return in_batches(lambda batch: self._function(**self._inputs(batch)), values, BATCH_SIZE)

    def _predictions(self, values: Sequence[Any]) -> list[Prediction]:
        found = []
        for row in self._rows(values):
            best = int(np.argmax(row))
            found.append(Prediction(self.labels[best], float(row[best]), self._named(row)))
        return found

    def _examples(self, file: Path, dataset: str, label: str | None) -> tuple[Any, Sequence[Any]]:
        """(the corpus of a file, what `predict` takes of its samples). Raises DataError."""
        raise NotImplementedError

    def _positive_labels(self, corpus: Any) -> tuple[int, ...] | None:
        """The classes that micro-F1 and macro-F1 count; None: all."""
        return None


class CorpusPredictor(ExportedModel):
    """An exported model that takes files of a data set in place of texts.

    Attributes:
      takes: what a file has, in words.
      columns: the headings of a table of predictions.
      numbers: those of columns of numbers.
    """

    takes_files = True
    takes: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    numbers: ClassVar[tuple[str, ...]]

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[Any]:
        """The predictions for a file in the form of a data set; the run's if `dataset` is not given.

        Raises:
          DataError: the file is missing or malformed.
        """
        raise NotImplementedError

    def cells(self, prediction: Any) -> tuple[str, ...]:
        """A prediction as a row of a table with `columns`."""
        raise NotImplementedError

    def score(self, file: Path, dataset: str | None = None, label: str | None = None) -> CorpusScore:
        name = self._data_set_name(dataset)
        if find_data_set(name).kind != self.kind:
            raise UserError(f"the model takes {self.kind}, the data set '{name}' has others; choose another --dataset")
        return self._score(file, dataset, label)

    def _score(self, file: Path, dataset: str | None, label: str | None) -> CorpusScore:
        """`score` of a file of the kind's own data sets."""
        raise NotImplementedError


def in_batches(
    run: Callable[[list[Any]], Sequence[np.ndarray]],
    items: Sequence[Any],
    size: int,
    length: Callable[[Any], int] | None = None,
) -> list[np.ndarray]:
    """What a function of a batch gives for each item, in the items' order.

    Args:
      run: up to `size` items -> a result for each.
      length: of an item. Items of like length are put side by side then, because a batch is as wide as its longest.
    """
    order = list(range(len(items)))
    if length is not None:
        order.sort(key=lambda i: length(items[i]))
    found: list[Any] = [None] * len(items)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        for i, result in zip(chosen, run([items[i] for i in chosen]), strict=True):
            found[i] = result
    return found
