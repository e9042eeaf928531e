"""Whole documents: which relations every pair of their entities has."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets import json_values
from datasets.catalogue import find_data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import DocumentEncoding, identified_pairs
from datasets.documents.loading import load_documents, pairing_for
from datasets.documents.scoring import NOTHING, gold_facts
from datasets.encoding_files import document_encoding_from_json
from datasets.errors import counted
from datasets.json_values import Fail
from tff_re.errors import UserError
from tff_re.exporting.card import file_uses
from tff_re.exporting.kind import Kind, check_pair_types, check_strings, checked_encoding
from tff_re.exporting.kinds.documents import type_rule
from tff_re.exporting.layout import ENCODING_FILE, REMEDY
from tff_re.exporting.predictors import CorpusPredictor, Score, in_batches
from tff_re.tasks.type_shares import BY_TYPES

DOCUMENTS_AT_ONCE = 4

_ARRAYS = """arrays = dict.fromkeys(("input_ids", "attention_mask"), tf.ones([1, 8], tf.int32))
arrays.update(mention_place=tf.constant([[1, 4, 6]]), mention_entity=tf.constant([[0, 1, 0]]))
arrays.update(pair_head=tf.constant([[0, 1]]), pair_tail=tf.constant([[1, 0]]))"""

_EXPLANATION = """\
All arrays are int32, and all their dimensions are free. `input_ids` and `attention_mask` [D, L] are
D documents as the tokenizer cuts them, with a marker on either side of each mention; `mention_place` [D, M] are the
places of the opening markers, `mention_entity` [D, M] the entity of each mention, from 0 on in each document;
`pair_head` and `pair_tail` [D, P] are the entities of the pairs that are asked for. -1 fills up where a document has
fewer mentions or pairs.{types} `probabilities`, float32 [D, P, R], are of each relation on its own; a relation is
predicted from {threshold}. `{encoding}` has the tokenizer (`tokenizer` is what the
library tokenizers reads) and the marker. Texts are encoded outside, so that the model needs nothing but TensorFlow."""


_TYPE_ARRAY = "\narrays.update(entity_type=tf.constant([[0, 0]]))"

_TYPES_EXPLAINED = " `entity_type` [D, E] are the entities' types: numbers in the encoding's `types`, or -1."


@dataclass(frozen=True)
class PairPrediction:
    """What the model says about two entities of a document.

    Attributes:
      document_id, head_id, tail_id: identifiers.
      labels: the relations whose probability reaches the export's threshold; often none.
      probability: the highest of all relations.
      probabilities: relation to probability, each on its own.
    """

    document_id: str
    head_id: str
    tail_id: str
    labels: tuple[str, ...]
    probability: float
    probabilities: dict[str, float] = field(repr=False)


class DocumentPredictor(CorpusPredictor):
    """An exported model of documents: which relations every pair of their entities has."""

    takes, data_sets = "documents with their entities", "documents"
    columns = ("document", "head", "tail", "label", "probability")
    numbers = ("probability",)
    encoding: DocumentEncoding

    @property
    def threshold(self) -> float:
        """The probability threshold for predicting a relation, chosen on the run's dev documents.

        Infinity, for which JSON has null, if no probability found a stated relation.
        """
        value = self._details["threshold"]
        return math.inf if value is None else float(value)

    def predict_file(
        self, path: str | os.PathLike, *, dataset: str | None = None, label: str | None = None
    ) -> list[PairPrediction]:
        """The prediction for each candidate pair of each document of a file.

        Args:
          path: the file. Its relations, if it has any, are not looked at by the model.
          dataset: a data set of documents, whose form the file has; the run's if not given.
          label: one of the data set's label choices; the run's if not given.

        Raises:
          DataError: the file is missing or malformed.
        """
        return self.predict(self.read(path, dataset=dataset, label=label))

    def read(self, path: str | os.PathLike, *, dataset: str | None = None, label: str | None = None) -> DocumentCorpus:
        """The documents of a file with their candidate pairs, which are those of the run's types and directions.

        Raises:
          DataError: the file is missing or malformed.
        """
        if dataset is None:
            dataset, label = self.dataset, label or self._details.get("label")
        pairing: dict[str, Any] = {}
        if types := self._details.get("pair_types"):  # an older export has none
            pairing = {"relations": self.labels, "held_out": True, "pair_types": types}
            pairing = pairing_for(dataset, {**pairing, **(self._details.get("pairs") or {})})
        return load_documents(dataset, path=path, label=label, split="given", **pairing)

    def predict(self, corpus: DocumentCorpus) -> list[PairPrediction]:
        """The prediction for each candidate pair, document after document.

        A relation without a direction is only in that of the two orders in which the pair comes first.
        """
        predictions = []
        for sample, scores in zip(corpus.samples, self.scores(corpus), strict=True):
            for pair, row in zip(sample.pairs, scores, strict=True):
                named = self._named(row)
                probabilities = {
                    label: value for index, (label, value) in enumerate(named.items()) if index not in pair.uncounted
                }
                if not probabilities:
                    continue
                labels = tuple(label for label, value in probabilities.items() if value >= self.threshold)
                predictions.append(
                    PairPrediction(*sample.pair_ids(pair), labels, max(probabilities.values()), probabilities)
                )
        return predictions

    def cells(self, prediction: PairPrediction) -> tuple[str, ...]:
        ids = prediction.document_id, prediction.head_id, prediction.tail_id
        return (*ids, ", ".join(prediction.labels) or "-", f"{prediction.probability:.4f}")

    def scores(self, corpus: DocumentCorpus) -> list[np.ndarray]:
        """For each document float32 [P, R]: the probability of each relation of each of its pairs."""

        def run(samples: list[Any]) -> np.ndarray:
            arrays = self.encoding.encode(corpus, samples).arrays
            return self._function(**{name: arrays[name] for name in self.description["arrays"]})

        probabilities = in_batches(run, corpus.samples, DOCUMENTS_AT_ONCE, lambda sample: len(sample.document.text))
        return [scores[: len(sample.pairs)] for sample, scores in zip(corpus.samples, probabilities, strict=True)]

    def _score(self, file: Path, dataset: str, label: str | None) -> Score:
        from tff_re.tasks.pair_metrics import (
            DEFAULT_THRESHOLD,
            every_pair,
            pair_metrics,
        )  # TensorFlow is slow to import

        corpus = self.read(file, dataset=dataset, label=label)
        if corpus.relation_names != self.labels:
            raise UserError(
                f"{file}: its relations ({', '.join(corpus.relation_names)}) are not the model's "
                f"({', '.join(self.labels)}); choose another --dataset"
            )
        pairs = identified_pairs(corpus.samples)
        scores = np.zeros([len(pairs), max(map(len, pairs), default=0), len(self.labels)], np.float32)
        for row, probabilities in zip(scores, self.scores(corpus), strict=True):
            row[: len(probabilities)] = probabilities
        gold = gold_facts(corpus)
        metrics = pair_metrics(scores, pairs, gold, self.threshold)
        name, every = every_pair(_stated(corpus, scores.shape))
        trivial = {name: pair_metrics(every, pairs, gold, DEFAULT_THRESHOLD)}
        if (rule := type_rule.from_details(self._details, len(self.labels))) is not None:
            by_types = rule.scores(corpus, pairs, scores.shape[1])
            trivial[BY_TYPES] = pair_metrics(by_types, pairs, gold, DEFAULT_THRESHOLD)
        size = f"{counted(len(pairs), 'document')}, {counted(len(gold.facts), 'fact')}"
        counts = {"documents": len(pairs), "facts": len(gold.facts)}
        metrics["threshold"] = self.threshold
        notes = corpus.notes
        if self._details.get(_FILTERED):
            notes += (
                "the run left out negative pairs of hypernyms (task.mesh_tree), and this evaluation has them: its "
                "precision and F1 are of more pairs",
            )
        return Score(size, metrics, trivial=trivial, counts=counts, notes=notes, seen=self._seen(corpus))


def _stated(corpus: DocumentCorpus, shape: tuple[int, ...]) -> np.ndarray:
    """What the documents state of their candidate pairs, float32 [D, P, R]."""
    stated = np.zeros(shape, np.float32)
    for of_document, sample in zip(stated, corpus.samples, strict=True):
        for of_pair, pair in zip(of_document, sample.pairs, strict=False):
            of_pair[list(pair.labels)] = 1.0
    return stated


_FILTERED = "hypernyms_left_out"


class DocumentKind(Kind):
    names, predictor, form_name = ("documents",), DocumentPredictor, "DocumentForm"
    of_mentions = True
    probability = "sigmoid"

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        check_strings(json_values.field(description, "arrays", list, fail), '"arrays"', fail)
        details = description.get("details") or {}
        if "threshold" not in details:
            raise fail('has no "details.threshold"', remedy=REMEDY)
        value = 0.0 if details["threshold"] is None else details["threshold"]  # null is infinity, which JSON has not
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise fail('"details.threshold" is not a number', remedy=REMEDY)
        if not isinstance(details.get(_FILTERED, False), bool):
            raise fail(f'"details.{_FILTERED}" is not true or false', remedy=REMEDY)
        check_pair_types(description, fail)
        _check_pairs(details, fail)
        type_rule.check(details, description["classes"], fail)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(document_encoding_from_json, value, source, fail)

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        return description["arrays"]

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        threshold = threshold_in_words(
            description["details"].get("threshold"),
            of_class=(description.get("model_options") or {}).get("loss") == "adaptive_threshold",
        )
        typed = "entity_type" in description["arrays"]
        return file_uses(
            description,
            file="documents.json" if description["details"].get("dataset") == "docred" else "documents.pubtator",
            printed="prediction.document_id, prediction.head_id, prediction.tail_id, prediction.labels",
            answer="for each pair of entities in each document the relations whose probability reaches the threshold",
            arrays=_ARRAYS + (_TYPE_ARRAY if typed else ""),
            shape="documents, pairs, relations",
            layers=(f"tff_re.models.{description['model']}",),
            explanation=_EXPLANATION.format(
                threshold=threshold, encoding=ENCODING_FILE, types=_TYPES_EXPLAINED if typed else ""
            ),
        )

    def details(self, experiment, weights, dev) -> dict[str, Any]:
        """`threshold`: the probability from which on a relation is predicted.

        It is the best on dev for the exported model, or the one that the model's loss sets. Not that of metrics.csv,
        which may be another precision's.

        `pair_types`: [head type, tail type] of the candidate pairs in training, all of them. `pairs`: which relations
        are `directed` and the `separators` of identifiers, for data sets that have these options. `hypernyms_left_out`:
        whether the run had `task.mesh_tree`, which an evaluation of the export has not.

        `named_by_types`: what a rule that reads no text names, see `tff_re.exporting.kinds.documents.type_rule`.
        """
        from tff_re.tasks.held_out import DEV
        from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD

        held_out, pairs = experiment.prepared.held_out, _pairs_of(experiment)
        if DEV not in held_out.splits:
            return {"threshold": DEFAULT_THRESHOLD, **pairs}
        if dev is None:
            scores = {DEV: np.asarray(experiment.scoring(weights, held_out.examples(experiment.model, DEV)))}
            metrics = held_out.metrics(scores, experiment.model.threshold)
            dev = {name.removeprefix(f"{DEV}/"): value for name, value in metrics.items()}
        if "threshold" not in dev:
            raise UserError("the model's scores of the dev documents are not finite; training has diverged")
        return {"threshold": dev["threshold"], **type_rule.to_details(held_out.type_rule()), **pairs}

    def tested_on(self, corpus) -> str:
        return f"{len(corpus.samples)} documents at the server"


def _pairs_of(experiment) -> dict[str, Any]:
    """`pair_types`, `pairs` and `hypernyms_left_out` of the details."""
    options = experiment.recipe.task.options
    data_set = find_data_set(options.dataset)
    types = experiment.prepared.pair_types or options.pair_types or data_set.pair_types
    said = {"directed": options.directed, "separators": options.separators}
    said = {key: data_set.default(key) if value is None else value for key, value in said.items()}
    said = {key: value for key, value in said.items() if value is not None}
    return {
        **({"pair_types": [list(pair) for pair in types]} if types else {}),
        **({"pairs": said} if said else {}),
        **({_FILTERED: True} if options.mesh_tree else {}),
    }


def _check_pairs(details: Mapping[str, Any], fail: Fail) -> None:
    """Raises `fail`'s error if `pairs` differs from what `_pairs_of` gives.

    An older export has none.
    """
    pairs = details.get("pairs", {})
    if not isinstance(pairs, dict) or not set(pairs) <= {"directed", "separators"}:
        raise fail('"details.pairs" is not an object with directions and separators', remedy=REMEDY)
    directed, separators = pairs.get("directed", True), pairs.get("separators", "|")
    if not (isinstance(directed, bool) or _strings(directed)):
        raise fail('"details.pairs.directed" does not say which relations have a direction', remedy=REMEDY)
    if not isinstance(separators, str) or not separators:
        raise fail('"details.pairs.separators" is not a string', remedy=REMEDY)


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def threshold_in_words(value: float | None, *, of_class: bool = False) -> str:
    """The threshold for predicting a relation, in words for the card.

    `of_class`: whether it is the score of a threshold class.
    """
    if value is None:
        return "a threshold of your choice on"
    if of_class:
        return f"{value:g} on, where it scores as high as the model's threshold class"
    if value >= NOTHING:
        return f"{value:g} on, so that none is: the run's dev documents state nothing that the model could find"
    return f"{value:.6g} on, a threshold chosen on the run's dev documents, midway between two of their scores"
