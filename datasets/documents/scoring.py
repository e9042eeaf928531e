"""Precision, recall and F1 over document-level pairs, as the task's scorer counts (BioCreative V CDR).

What counts is a relation of two identifiers in a document, once, however often they are mentioned. A stated relation
whose entities are not candidates cannot be found and counts as missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import PairId
from datasets.documents.graph import sentence_index, sentences_of
from datasets.errors import DataError

FactKey = tuple[str, str, int, str]
"""Document, head, index of the relation, tail."""

GoldFacts = Mapping[FactKey, bool]
"""The stated relations, and whether a sentence mentions both entities."""

NOTHING = 2.0
"""A threshold that no probability reaches, not even one that rounding has put above 1."""

EQUAL_TO = 1e-6
"""Scores that differ by no more than this share of the higher one (some ten steps of float32) count as equal where a
threshold is chosen: another processor may give them in another order."""

TINY = 1e-30
"""Scores below count as 0, for the same reason."""


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
    # NumPy would round the threshold to the scores' type, and so across a score that is next to it.
    chosen = values.astype(np.float64) >= threshold

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

    It lies midway between the least score that it predicts and the next lower one, or 0 where all are predicted: the
    same model on another processor gives scores that differ in their last bits, and predicts the same. It is a number
    of float32, so that a comparison in float32 says the same as one in float64.

    Args:
      scores: probabilities of each relation, float [D, P, R], as for `score_pairs`.
      pairs, gold: as for `score_pairs`.

    Returns:
      The threshold; `NOTHING` where none finds a stated relation.

    Raises:
      DataError: as `score_pairs`.
    """
    values, keys, _ = _flat(scores, pairs)
    if not len(values):
        return NOTHING
    order = np.argsort(-values, kind="stable")
    values = values[order]
    correct = np.cumsum(np.array([key in gold for key in keys], np.int64)[order])
    f1 = 2 * correct / (np.arange(1, len(values) + 1) + len(gold))
    together = values[:-1] - values[1:] <= np.maximum(EQUAL_TO * values[:-1], TINY)
    f1[:-1][together] = -1.0
    best = int(np.argmax(f1))
    if not correct[best]:
        return NOTHING
    least, below = float(values[best]), float(values[best + 1]) if best + 1 < len(values) else 0.0
    return float(np.float32((least + below) / 2)) if least > TINY else 0.0


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
