"""Predictions for bags of sentences, from files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from datasets.bags.encoding import encode_bags
from datasets.bags.loading import load_bags, load_unlabelled_bags
from datasets.bags.records import BagCorpus
from datasets.text.relation_encoding import RelationEncoding
from tff_re.errors import UserError
from tff_re.exporting.predictors import CorpusPredictor
from tff_re.exporting.scoring import CorpusScore

SENTENCES_AT_ONCE = 256

OWN_FORM = "nyt10"
"""The form of a file of bags where the run's sentences were made up."""


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
    """

    head_id: str
    tail_id: str
    sentences: int
    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)


class BagPredictor(CorpusPredictor):
    """An exported model of bags: all sentences that mention a pair of entities say together how it is related."""

    takes = "bags of sentences"
    columns = ("head", "tail", "sentences", "label", "probability")
    numbers = ("sentences", "probability")
    encoding: RelationEncoding

    def predict_file(self, path: str | os.PathLike, *, dataset: str | None = None) -> list[BagPrediction]:
        """The prediction for each pair of entities in a file.

        Args:
          path: a file in the data set's form: JSON lines for nyt10 and mirgene, whose `relation` is not read and may be
            missing; PubTator's for cdr_aligned.
          dataset: a data set of bags; the run's if not given.

        Raises:
          DataError: the file is missing or malformed. A bag without one of its sentences would have another score, so
            nothing of such a file is answered.
        """
        name = dataset or self.dataset or OWN_FORM
        return self.predict(load_unlabelled_bags(name, path, **self.reading(name)))

    def reading(self, dataset: str) -> dict[str, str]:
        """How the run read that data set: options of `load_bags`; none where it was not the run's."""
        return dict(self._details.get("reading") or {}) if dataset == self.dataset else {}

    def predict(self, corpus: BagCorpus) -> list[BagPrediction]:
        """The prediction for each bag of a corpus, in the order of `corpus.pairs`."""
        found = []
        for (pair, rows), scores in zip(corpus.bags.items(), self.scores(corpus), strict=True):
            best = 1 + int(np.argmax(scores[1:]))
            own = self.labels[best], float(scores[best]), self._named(scores)
            found.append(BagPrediction(*pair, len(rows), *own))
        return found

    def cells(self, prediction: BagPrediction) -> tuple[str, ...]:
        ids = prediction.head_id, prediction.tail_id
        return (*ids, str(prediction.sentences), prediction.label, f"{prediction.probability:.4f}")

    def scores(self, corpus: BagCorpus) -> np.ndarray:
        """p(relation | bag), float32 [B, C]: bags in the order of `corpus.pairs`, relations in that of `labels`."""
        bags, _ = encode_bags(_unlabelled(corpus), self.encoding, label_names=self.labels)
        bag = bags.arrays["bag"]
        names = self.description["arrays"]
        sizes = np.bincount(bag, minlength=len(bags.pairs))
        parts = []
        for first, last in _groups(sizes, SENTENCES_AT_ONCE):
            rows = slice(*np.searchsorted(bag, [first, last]))
            given = {name: bags.arrays[name][rows] for name in names}
            given["bag"] = given["bag"] - first
            parts.append(self._function(**given))
        return np.concatenate(parts)

    def _score(self, file: Path, dataset: str | None, label: str | None) -> CorpusScore:
        from tff_re.tasks.ranking_metrics import ranking_metrics  # scikit-learn is slow to import

        dataset = self._data_set_name(dataset)
        if label is not None:
            raise UserError(f"the data set '{dataset}' has no label choices; leave --label out")
        corpus = load_bags(dataset, path=file, split="given", **self.reading(dataset))
        true = self._facts(corpus, file)
        facts = int(true[:, 1:].sum())
        if not facts:
            raise UserError(
                f"{file}: none of its {len(true)} pairs is related, so that there is no recall; give another"
            )
        metrics = ranking_metrics(self.scores(corpus)[:, 1:], true[:, 1:])
        return CorpusScore(f"{len(true)} bags, {facts} facts", metrics)

    def _facts(self, corpus: BagCorpus, file: Path) -> np.ndarray:
        """bool [B, C]: which of the model's relations each pair of the corpus has."""
        foreign = [name for name in corpus.relation_names if name not in self.labels]
        if foreign:
            raise UserError(
                f"{file}: {len(foreign)} of its {len(corpus.relation_names)} relations are not among the model's "
                f"{len(self.labels)}; choose a file and --dataset as in training"
            )
        true = np.zeros([len(corpus.pairs), len(self.labels)], bool)
        for pair, label in corpus.triples:
            true[pair, self.labels.index(corpus.relation_names[label])] = True
        return true


def _unlabelled(corpus: BagCorpus) -> BagCorpus:
    """The corpus, whose relations may be others than the model's: they are not looked at."""
    if corpus.relation_names == (corpus.negative,):
        return corpus
    sentences = tuple(replace(sentence, relations=(corpus.negative,), label=0) for sentence in corpus.sentences)
    return replace(corpus, sentences=sentences, relation_names=(corpus.negative,))


def _groups(sizes: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Ranges of bags that have at most so many sentences together; a larger bag is alone."""
    found, first, count = [], 0, 0
    for bag, size in enumerate(sizes):
        if count and count + size > most:
            found.append((first, bag))
            first, count = bag, 0
        count += int(size)
    return [*found, (first, len(sizes))]
