"""Bags of sentences: the relation of two entities, from all sentences of a file that mention both."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datasets import json_values
from datasets.bags.encoding import encode_bags
from datasets.bags.loading import load_bags, load_unlabelled_bags
from datasets.bags.records import BagCorpus, BagSentence
from datasets.encoding_files import relation_encoding_from_json
from datasets.errors import counted
from datasets.json_values import Fail
from datasets.text.relation_encoding import RelationEncoding
from tff_re.errors import UserError
from tff_re.exporting.card import file_uses
from tff_re.exporting.kind import Kind, check_strings, checked_encoding
from tff_re.exporting.layout import ENCODING_FILE, REMEDY
from tff_re.exporting.predictors import OF_TEXTS, CorpusPredictor, Score

SENTENCES_AT_ONCE = 256

OWN_FORM = "nyt10"
"""The form of a file of bags where the run's sentences were made up."""

_READING = ("head_kind", "tail_kind", "misplaced")

_ARRAYS = """ones = tf.ones([3, {length}], tf.int32)
arrays = dict(input_ids=ones, attention_mask=ones, head_mask=ones, tail_mask=ones)
arrays.update(head_start=tf.constant([1, 1, 1]), tail_start=tf.constant([4, 4, 4]), bag=tf.constant([0, 0, 1]))"""

_EXPLANATION = """\
`input_ids` and `attention_mask`, int32 [n, {length}], are n sentences as the tokenizer cuts them, with
markers around the two mentions; `head_mask` and `tail_mask` have a 1 at the pieces of a mention, `head_start` and
`tail_start`, int32 [n], are the places of its opening marker. `bag`, int32 [n], is the bag of each sentence: 0, 1, …
without a gap. There is a row of probabilities for each bag, the method's pooling ({pooling}) of its sentences; a bag of
one sentence has that sentence's own. `{encoding}` has the tokenizer (`tokenizer` is what the library tokenizers reads)
and all else that makes the arrays. Texts are encoded outside, so that the model needs nothing but TensorFlow."""


@dataclass(frozen=True)
class BagPrediction:
    """What the model says about a pair of entities.

    Attributes:
      head_id, tail_id: identifiers of the pair.
      sentences: so many mention it in the file.
      label: the relation with the highest score, "no relation" aside: scores rank facts, the most certain first.
      probability: its score.
      probabilities: relation to score, in the order of the labels, "no relation" included. With some methods they do
        not sum to one.
      predicted: whether the score reaches the export's threshold; None without one.
      head_name, tail_name: how most sentences mention the two. Parts of texts, which may be patients'.
    """

    head_id: str
    tail_id: str
    sentences: int
    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)
    predicted: bool | None = None
    head_name: str = field(default="", repr=False, metadata=OF_TEXTS)
    tail_name: str = field(default="", repr=False, metadata=OF_TEXTS)


class BagPredictor(CorpusPredictor):
    """An exported model of bags: all sentences that mention a pair of entities say together how it is related."""

    takes, data_sets = "bags of sentences", "bags"
    columns = ("head", "tail", "sentences", "label", "probability", "predicted")
    numbers = ("sentences", "probability")
    encoding: RelationEncoding

    @property
    def threshold(self) -> float | None:
        """The probability threshold for predicting a relation, chosen on the run's dev bags.

        None if it has no dev bags.
        """
        return self._details.get("threshold")

    @property
    def caption(self) -> str:
        if self.threshold is None:
            return "sorted by probability; no threshold, because the run had no dev bags to choose one on"
        return (
            f"sorted by probability; predicted: from {self.threshold:.4g} on, the threshold with the best F1 on the "
            "run's dev bags"
        )

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[BagPrediction]:
        """The prediction for each pair of entities in a file, the most certain first.

        Args:
          path: a file in the data set's form: JSON lines for nyt10 and mirgene, whose `relation` is not read and may be
            missing; PubTator's for cdr_aligned.
          dataset: a data set of bags; the run's if not given.

        Raises:
          DataError: the file is missing or malformed. A bag without one of its sentences would have another score, so
            nothing of such a file is answered.
        """
        name = dataset or self.dataset or OWN_FORM
        predictions = self.predict(load_unlabelled_bags(name, path, **self._reading(name)))
        return sorted(predictions, key=lambda prediction: -prediction.probability)

    def predict(self, corpus: BagCorpus) -> list[BagPrediction]:
        """The prediction for each bag of a corpus, in the order of `corpus.pairs`."""
        predictions = []
        for (pair, rows), scores in zip(corpus.bags.items(), self.scores(corpus), strict=True):
            best = 1 + int(np.argmax(scores[1:]))
            predicted = None if self.threshold is None else bool(scores[best] >= self.threshold)
            best_relation = self.labels[best], float(scores[best]), self._named(scores), predicted
            predictions.append(
                BagPrediction(*pair, len(rows), *best_relation, *_names([corpus.sentences[row] for row in rows]))
            )
        return predictions

    def cells(self, prediction: BagPrediction) -> tuple[str, ...]:
        return self._cells(prediction, prediction.head_id, prediction.tail_id)

    def cells_with_texts(self, prediction: BagPrediction) -> tuple[str, ...]:
        head, tail = prediction.head_name, prediction.tail_name
        return self._cells(prediction, f"{head} ({prediction.head_id})", f"{tail} ({prediction.tail_id})")

    @staticmethod
    def _cells(prediction: BagPrediction, head: str, tail: str) -> tuple[str, ...]:
        predicted = {None: "–", True: "yes", False: "no"}[prediction.predicted]
        scored = prediction.label, f"{prediction.probability:.4f}", predicted
        return (head, tail, str(prediction.sentences), *scored)

    def scores(self, corpus: BagCorpus) -> np.ndarray:
        """p(relation | bag), float32 [B, C]: bags in the order of `corpus.pairs`, relations in that of `labels`."""
        bags, _ = encode_bags(_unlabelled(corpus), self.encoding, label_names=self.labels)
        bag, parts = bags.arrays["bag"], []
        for first, last in _groups(np.bincount(bag, minlength=len(bags.pairs)), SENTENCES_AT_ONCE):
            rows = slice(*np.searchsorted(bag, [first, last]))
            inputs = {name: bags.arrays[name][rows] for name in self.description["arrays"]}
            inputs["bag"] = inputs["bag"] - first
            parts.append(self._function(**inputs))
        return np.concatenate(parts)

    def _reading(self, dataset: str) -> dict[str, str]:
        """The `load_bags` options with which the run read that data set.

        Empty if the data set is not the run's.
        """
        return dict(self._details.get("reading") or {}) if dataset == self.dataset else {}

    def _score(self, file: Path, dataset: str, label: str | None) -> Score:
        from tff_re.tasks.ranking_metrics import CHANCE, chance_metrics, ranking_metrics  # scikit-learn is slow

        if label not in (None, self._details.get("label")):
            raise UserError(f"the data set '{dataset}' has no label choices; leave --label out")
        corpus = load_bags(dataset, path=file, split="given", **self._reading(dataset))
        foreign = [name for name in corpus.relation_names if name not in self.labels]
        if foreign:
            raise UserError(
                f"{file}: {len(foreign)} of its {len(corpus.relation_names)} relations are not among the model's "
                f"{len(self.labels)}; choose a file and --dataset as in training"
            )
        true = np.zeros([len(corpus.pairs), len(self.labels)], bool)
        for pair, relation in corpus.triples:
            true[pair, self.labels.index(corpus.relation_names[relation])] = True
        facts = int(true[:, 1:].sum())
        if not facts:
            raise UserError(
                f"{file}: none of its {len(true)} pairs has a relation, so recall is undefined; give another file"
            )
        metrics = ranking_metrics(self.scores(corpus)[:, 1:], true[:, 1:])
        counts, trivial = {"bags": len(true), "facts": facts}, {CHANCE: chance_metrics(true[:, 1:])}
        size = f"{counted(len(true), 'bag')}, {counted(facts, 'fact')}"
        return Score(size, metrics, trivial=trivial, counts=counts, seen=self._seen(corpus))


class BagKind(Kind):
    names, predictor, form_name = ("bags",), BagPredictor, "BagForm"
    of_mentions = True
    cut = "around the mentions"
    limits = (
        "a bag's scores rank facts; the scores of its relations need not sum to one",
        "it was trained on what a knowledge base says about pairs; their sentences need not state it",
    )

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        check_strings(json_values.field(description, "arrays", list, fail), '"arrays"', fail)
        details = description.get("details") or {}
        value = details.get("threshold")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1):
            raise fail('"details.threshold" is not a number from 0 to 1', remedy=REMEDY)
        reading = details.get("reading")
        if reading is None:
            return
        for key, value in json_values.require(reading, dict, '"details.reading"', fail).items():
            if key not in _READING or not isinstance(value, str):
                raise fail(f'"details.reading" must have only {", ".join(_READING)}, each a string', remedy=REMEDY)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(relation_encoding_from_json, value, source, fail)

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        return description["arrays"]

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        source = description["input"]
        length, pooling = source["max_length"], source["pooling"]
        model_layers = () if source["stock"] else (f"tff_re.models.{description['model']}",)
        return file_uses(
            description,
            file="sentences.jsonl",
            printed="prediction.head_id, prediction.tail_id, prediction.label, prediction.probability",
            answer="for each pair of entities the relation with the highest score, and the scores of all",
            arrays=_ARRAYS.format(length=length),
            shape="bags, relations",
            layers=("tff_re.models.bag_layers", *model_layers),
            explanation=_EXPLANATION.format(length=length, pooling=pooling, encoding=ENCODING_FILE),
        )

    def details(self, experiment, weights, dev) -> dict[str, Any]:
        """`reading` and `threshold`.

        `reading`: options of the task that say how a file of the data set is read. `threshold`: the probability
        from which on dev's facts are predicted with the highest F1, if the server holds dev bags.
        """
        from tff_re.tasks.held_out import DEV

        options = experiment.recipe.task.options
        reading = {name: getattr(options, name, None) for name in _READING}
        reading = {name: value for name, value in reading.items() if value is not None}
        result: dict[str, Any] = {"reading": reading} if reading else {}
        held_out = experiment.prepared.held_out
        if DEV in held_out.splits:
            scores = np.asarray(experiment.scoring(weights, held_out.examples(experiment.model, DEV)))
            if (threshold := held_out.threshold(scores)) is not None:
                result["threshold"] = threshold
        return result

    def tested_on(self, corpus) -> str:
        return f"{len(corpus.pairs)} bags of {len(corpus.sentences)} sentences at the server"


def _names(sentences: Sequence[BagSentence]) -> tuple[str, str]:
    """The most frequent names of head and tail in a pair's sentences.

    Of equally frequent names it takes the first.
    """
    names = []
    for side in ("head", "tail"):
        spans = ((sentence.text, getattr(sentence, side)) for sentence in sentences)
        (name, _), *_ = Counter(text[start:end] for text, (start, end) in spans).most_common(1)
        names.append(" ".join(name.split()))
    return names[0], names[1]


def _unlabelled(corpus: BagCorpus) -> BagCorpus:
    """The corpus, whose relations may be others than the model's: they are not looked at."""
    sentences = tuple(replace(sentence, relations=(corpus.negative,), label=0) for sentence in corpus.sentences)
    return replace(corpus, sentences=sentences, relation_names=(corpus.negative,))


def _groups(sizes: np.ndarray, max_sentences: int) -> list[tuple[int, int]]:
    """Ranges of bags with at most this number of sentences in total.

    A larger bag has a range of its own.
    """
    groups, first, count = [], 0, 0
    for bag, size in enumerate(sizes):
        if count and count + size > max_sentences:
            groups.append((first, bag))
            first, count = bag, 0
        count += int(size)
    return [*groups, (first, len(sizes))]
