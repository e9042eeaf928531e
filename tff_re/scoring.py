"""An exported model against the labels of a corpus file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.catalogue import find_data_set, load_corpus
from datasets.relations.loading import load_relations
from tff_re.errors import UserError
from tff_re.prediction import Predictor
from tff_re.tasks.metrics import classification_metrics


@dataclass(frozen=True)
class Score:
    """Result of scoring.

    Attributes:
      examples: so many samples.
      metrics: see `classification_metrics`.
      confusion: int64 [C, C], rows are the file's labels, columns the predictions, both in the order of `labels`.
      labels: the export's classes.
      positive_labels: those that micro-F1 and macro-F1 count; None: all.
    """

    examples: int
    metrics: dict[str, float]
    confusion: np.ndarray
    labels: tuple[str, ...]
    positive_labels: tuple[int, ...] | None


def score(predictor: Predictor, file: Path, dataset: str | None = None, label: str | None = None) -> Score:
    """Scores an exported model on a file that one of the readers reads.

    Args:
      predictor: the exported model.
      file: in the data set's format (for i2b2_2010 a folder).
      dataset: a name of the catalogue; that of the run if not given.
      label: one of the data set's label choices; that of the run, or the data set's first one, if not given.

    Raises:
      UserError: the data set is of another kind than the model, or has a class that the model does not have.
      DataError: the file is missing or malformed.
    """
    details = predictor.description["details"]
    if dataset is None:
        dataset, label = details.get("dataset"), label or details.get("label")
        if not isinstance(dataset, str):
            raise UserError("the export does not say what data set it was trained on; give --dataset")
    relations = find_data_set(dataset).relations
    if predictor.kind == "vectors" or relations != predictor.takes_relations:
        wanted = {True: "two mentions in a text", False: "texts"}.get(predictor.takes_relations)
        wanted = "feature vectors" if predictor.kind == "vectors" else wanted
        raise UserError(f"the model takes {wanted}, the data set '{dataset}' has others; choose another --dataset")
    corpus = (load_relations if relations else load_corpus)(dataset, path=file, label=label)
    number = {name: i for i, name in enumerate(predictor.labels)}
    foreign = [i for i, name in enumerate(corpus.label_names, 1) if name not in number]
    if foreign:
        raise UserError(
            f"{file}: {len(foreign)} of its {len(corpus.label_names)} classes are not among the model's "
            f"({', '.join(predictor.labels)}); choose --dataset and --label as they were in training"
        )
    own = np.array([number[corpus.label_names[sample.label]] for sample in corpus.samples])
    given: list[Any] = list(corpus.samples) if relations else [sample.text for sample in corpus.samples]
    probabilities = predictor.probabilities(given)
    confusion = np.zeros([len(number)] * 2, np.int64)
    np.add.at(confusion, (own, probabilities.argmax(axis=1)), 1)
    loss = -np.log(np.maximum(probabilities[np.arange(len(own)), own], np.finfo(np.float32).tiny)).sum()
    positive = None
    if relations:
        kept = {corpus.label_names[i] for i in corpus.positive_labels}
        left_out = set(corpus.label_names) - kept
        positive = tuple(i for name, i in number.items() if name not in left_out)
    metrics = classification_metrics({"examples": len(own), "loss": loss, "confusion": confusion}, positive)
    return Score(len(own), metrics, confusion, predictor.labels, positive)
