"""Precision, recall and F1 over document-level pairs, as the task's scorer counts (BioCreative V CDR).

What counts is a relation of two identifiers in a document, once, however often they are mentioned. A stated relation
whose entities are no candidates can be found by nobody and counts as missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datasets.documents.encoding import PairId
from datasets.documents.graph import sentence_index, sentences_of
from datasets.documents.records import DocumentCorpus
from datasets.errors import DataError

FactKey = tuple[str, str, int, str]
"""Document, head, index of the relation, tail."""

GoldFacts = Mapping[FactKey, bool]
"""The stated relations, and whether a sentence mentions both entities."""


@dataclass(frozen=True)
class PairScores:
    """Counts of relations, and the shares that follow: 0 where nothing is predicted or stated."""

    correct: int
    predicted: int
    stated: int

    @property
    def precision(self) -> float:
        """correct / predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """correct / stated."""
        return self.correct / self.stated if self.stated else 0.0

    @property
    def f1(self) -> float:
        """2 correct / (predicted + stated)."""
        total = self.predicted + self.stated
        return 2 * self.correct / total if total else 0.0


@dataclass(frozen=True)
class DocumentScores:
    """Scores of all pairs, and apart of those that a sentence mentions (`intra`) and of the others (`inter`)."""

    all: PairScores
    intra: PairScores
    inter: PairScores
    threshold: float


def gold_facts(corpus: DocumentCorpus) -> dict[FactKey, bool]:
    """What the documents state, each fact once; relations of an entity with itself are left out.

    A fact is intra-sentence if a sentence mentions both entities; one whose entities are not mentioned is not.
    """
    result = {}
    for sample in corpus.samples:
        document = sample.document
        sentences = sentences_of(document)
        places = {
            entity_id: {sentence_index(mention, sentences) for mention in mentions}
            for entity_id, mentions in document.entities().items()
        }
        for fact in document.facts:
            if fact.head_id != fact.tail_id:
                key = (document.document_id, fact.head_id, corpus.relation_names.index(fact.relation), fact.tail_id)
                result[key] = bool(places.get(fact.head_id, set()) & places.get(fact.tail_id, set()))
    return result


def score_pairs(
    scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: GoldFacts, threshold: float
) -> DocumentScores:
    """Counts the pairs whose score reaches the threshold against the gold.

    Args:
      scores: Of each relation, float [D, P, R]; what lies beyond a document's pairs is not looked at.
      pairs: For each document its at most P pairs.
      gold: What the documents state.
      threshold: Smallest score of a prediction.

    Raises:
      DataError: shapes that do not fit, or a score that is NaN.
    """
    values, keys, intra = _flat(scores, pairs)
    stated = np.array([key in gold for key in keys], bool)
    chosen = values >= threshold

    def counts(mask: np.ndarray, facts: int) -> PairScores:
        return PairScores(int((chosen & stated & mask).sum()), int((chosen & mask).sum()), facts)

    within = sum(gold.values())
    return DocumentScores(
        counts(np.ones_like(intra), len(gold)),
        counts(intra, within),
        counts(~intra, len(gold) - within),
        float(threshold),
    )


def best_threshold(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: GoldFacts) -> float:
    """The threshold with the largest F1 over all pairs, for the dev documents; the largest such threshold on a tie.

    It is one of the scores; infinity where no threshold finds a stated relation.

    Raises:
      DataError: as `score_pairs`.
    """
    values, keys, _ = _flat(scores, pairs)
    if not len(values):
        return float("inf")
    order = np.argsort(-values, kind="stable")
    correct = np.cumsum(np.array([key in gold for key in keys], np.int64)[order])
    f1 = 2 * correct / (np.arange(1, len(values) + 1) + len(gold))
    f1[:-1][np.diff(values[order]) == 0] = -1.0  # equal scores are predicted together
    best = int(np.argmax(f1))
    return float(values[order][best]) if correct[best] else float("inf")


def _flat(scores: np.ndarray, pairs: Sequence[Sequence[PairId]]) -> tuple[np.ndarray, list[FactKey], np.ndarray]:
    """The scores of all pairs and relations, float [n]; what they are of; whether that is intra, bool [n]."""
    scores = np.asarray(scores)
    if scores.ndim != 3 or len(scores) != len(pairs) or any(len(mine) > scores.shape[1] for mine in pairs):
        raise DataError("the scores do not fit the pairs", remedy="give float [documents, pairs, relations]")
    flat = [scores[row, : len(mine)].ravel() for row, mine in enumerate(pairs)]
    values = np.concatenate(flat) if flat else np.zeros(0, scores.dtype)
    if np.isnan(values).any():
        raise DataError("a score is NaN", remedy="repair the model's output")
    flattened = [(pair, relation) for mine in pairs for pair in mine for relation in range(scores.shape[2])]
    keys = [(pair.document_id, pair.head_id, relation, pair.tail_id) for pair, relation in flattened]
    return values, keys, np.array([pair.intra for pair, _ in flattened], bool)
