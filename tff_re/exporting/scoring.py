"""An exported model against the labels of a corpus file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.bags.loading import load_bags
from datasets.bags.records import BagCorpus
from datasets.catalogue import find_data_set
from datasets.dialogues.loading import load_corpus
from datasets.documents.encoding import identified_pairs
from datasets.documents.scoring import gold_facts
from datasets.relations.loading import load_relations
from tff_re.errors import UserError
from tff_re.exporting.corpus_prediction import BagPredictor, CorpusPredictor, DocumentPredictor
from tff_re.exporting.prediction import Predictor
from tff_re.tasks.metrics import classification_metrics
from tff_re.tasks.pair_metrics import pair_metrics
from tff_re.tasks.ranking_metrics import ranking_metrics


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


@dataclass(frozen=True)
class CorpusScore:
    """Result of scoring a model of bags or of documents.

    Attributes:
      size: what was scored, in words: so many bags, or documents, of so many facts.
      metrics: of bags `ranking_metrics`; of documents `pair_metrics` at the export's threshold, which stands with them.
    """

    size: str
    metrics: dict[str, float]


def score(
    predictor: Predictor | CorpusPredictor, file: Path, dataset: str | None = None, label: str | None = None
) -> Score | CorpusScore:
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
    if isinstance(predictor, CorpusPredictor):
        return _score_records(predictor, file, dataset, label)
    if dataset is None:
        dataset, label = details.get("dataset"), label or details.get("label")
        if not isinstance(dataset, str):
            raise UserError("the export does not say what data set it was trained on; give --dataset")
    relations = find_data_set(dataset).relations
    if predictor.kind == "vectors" or relations != predictor.takes_relations:
        wanted = {True: "two mentions in a text", False: "texts"}.get(predictor.takes_relations)
        wanted = "feature vectors" if predictor.kind == "vectors" else wanted
        raise UserError(f"the model takes {wanted}, the data set '{dataset}' has others; choose another --dataset")
    if relations:
        corpus = load_relations(dataset, path=file, label=label, split="given")
    else:
        corpus = load_corpus(dataset, path=file, label=label, split="given")
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


def _score_records(predictor: CorpusPredictor, file: Path, dataset: str | None, label: str | None) -> CorpusScore:
    name = dataset or predictor.dataset
    if name is None:
        raise UserError("the export does not say what data set it was trained on; give --dataset")
    if find_data_set(name).kind != predictor.kind:
        raise UserError(f"the model takes {predictor.kind}, the data set '{name}' has others; choose another --dataset")
    if isinstance(predictor, DocumentPredictor):
        return _score_documents(predictor, file, dataset, label)
    if label is not None:
        raise UserError(f"the data set '{name}' has no label choices; leave --label out")
    return _score_bags(predictor, file, name)


def _score_bags(predictor: BagPredictor, file: Path, dataset: str) -> CorpusScore:
    corpus = load_bags(dataset, path=file, split="given", **predictor.reading(dataset))
    true = _labels(corpus, predictor.labels, file)
    facts = int(true[:, 1:].sum())
    if not facts:
        raise UserError(f"{file}: none of its {len(true)} pairs is related, so that there is no recall; give another")
    metrics = ranking_metrics(predictor.scores(corpus)[:, 1:], true[:, 1:])
    return CorpusScore(f"{len(true)} bags, {facts} facts", metrics)


def _score_documents(predictor: DocumentPredictor, file: Path, dataset: str | None, label: str | None) -> CorpusScore:
    corpus = predictor.read(file, dataset=dataset, label=label)
    if corpus.relation_names != predictor.labels:
        raise UserError(
            f"{file}: its relations ({', '.join(corpus.relation_names)}) are not the model's "
            f"({', '.join(predictor.labels)}); choose another --dataset"
        )
    pairs = identified_pairs(corpus.samples)
    scores = np.zeros([len(pairs), max(map(len, pairs), default=0), len(predictor.labels)], np.float32)
    for row, found in zip(scores, predictor.scores(corpus), strict=True):
        row[: len(found)] = found
    gold = gold_facts(corpus)
    metrics = pair_metrics(scores, pairs, gold, predictor.threshold)
    return CorpusScore(f"{len(pairs)} documents, {len(gold)} facts", {**metrics, "threshold": predictor.threshold})


def _labels(corpus: BagCorpus, labels: tuple[str, ...], file: Path) -> np.ndarray:
    """bool [B, C]: which of the model's relations each pair of the corpus has."""
    foreign = [name for name in corpus.relation_names if name not in labels]
    if foreign:
        raise UserError(
            f"{file}: {len(foreign)} of its {len(corpus.relation_names)} relations are not among the model's "
            f"{len(labels)}; choose a file and --dataset as in training"
        )
    true = np.zeros([len(corpus.pairs), len(labels)], bool)
    for pair, label in corpus.triples:
        true[pair, labels.index(corpus.relation_names[label])] = True
    return true
