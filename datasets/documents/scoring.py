"""Precision, recall and F1 over document-level pairs, counted like the task's scorer (BioCreative V CDR).

What counts is a relation of two identifiers in a document, once, however often they are mentioned. A stated relation
whose entities are not candidates cannot be found and counts as missed. A relation without a direction counts once, see
`DocumentPair.uncounted`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import PairId
from datasets.documents.graph import sentence_index, sentences_of
from datasets.errors import DataError

FactKey = tuple[str, str, int, str]
"""Document, head, index of the relation, tail."""

NamedFact = tuple[str, str, str]
"""Name of the head, relation, name of the tail."""


@dataclass(frozen=True)
class Gold:
    """The facts that documents state.

    Attributes:
      facts: The stated relations, and whether a sentence mentions both entities. A relation that is none of the
        corpus's has an index beyond theirs, and no prediction finds it.
      known: Those of `facts` that training documents state, too; None: that is not asked.
    """

    facts: Mapping[FactKey, bool] = field(repr=False)
    known: frozenset[FactKey] | None = field(default=None, repr=False)


NOTHING = 2.0
"""A threshold that no probability reaches, not even one that rounding has put above 1."""

EQUAL_TO = 1e-6
"""Scores that differ by no more than this share of the higher one (some ten steps of float32) count as equal where a
threshold is chosen: another processor may give them in another order."""

TINY = 1e-30
"""Scores below count as 0, for the same reason."""


@dataclass(frozen=True)
class PairScores:
    """Counts of relations and their ratios, which are 0 if nothing is predicted or stated."""

    correct: int
    predicted: int
    stated: int

    @property
    def precision(self) -> float:
        """Return correct / predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Return correct / stated."""
        return self.correct / self.stated if self.stated else 0.0

    @property
    def f1(self) -> float:
        """Return 2 correct / (predicted + stated)."""
        total = self.predicted + self.stated
        return 2 * self.correct / total if total else 0.0


@dataclass(frozen=True)
class DocumentScores:
    """Scores of all pairs, and separately of pairs that a sentence mentions (`intra`) and of the others (`inter`).

    Attributes:
      by_relation: Of each relation, those after the model's included that the gold has.
      correct_known: How many of the correct ones training documents state, too; None: the gold does not tell.
    """

    all: PairScores
    intra: PairScores
    inter: PairScores
    threshold: float
    by_relation: tuple[PairScores, ...] = field(default=(), repr=False)
    correct_known: int | None = None

    @property
    def macro_f1(self) -> float:
        """Return the mean F1 of the relations that are stated or predicted, or 0 if there are none."""
        values = [scores.f1 for scores in self.by_relation if scores.predicted or scores.stated]
        return float(np.mean(values)) if values else 0.0

    @property
    def ign_f1(self) -> float:
        """Return F1 without the facts that training documents state, like DocRED's evaluation (Yao et al. 2019).

        Precision is without the correct predictions among them, recall is that of all facts. (Its program adds 1e-5 to
        the precision's denominator, against a division by zero.)
        """
        known = self.correct_known or 0
        predicted = self.all.predicted - known
        precision, recall = (self.all.correct - known) / predicted if predicted else 0.0, self.all.recall
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def facts_by_name(corpora: Iterable[DocumentCorpus]) -> frozenset[NamedFact]:
    """Return what the documents state, by all names of the two entities."""
    named = set()
    for corpus in corpora:
        for sample in corpus.samples:
            names = sample.document.names()
            for fact in sample.document.facts:
                heads, tails = names.get(fact.head_id, ()), names.get(fact.tail_id, ())
                named |= {(head, fact.relation, tail) for head in heads for tail in tails}
    return frozenset(named)


def gold_facts(corpus: DocumentCorpus, known: Collection[NamedFact] | None = None) -> Gold:
    """Return what the documents state, each fact once.

    Relations of an entity with itself are left out.

    A fact is intra-sentence if a sentence mentions both entities; one whose entities are not mentioned is not.

    Args:
      corpus: The documents.
      known: Facts of training documents (`facts_by_name`). A fact is known if two names of its entities are in it.
    """
    others = sorted({f.relation for s in corpus.samples for f in s.document.facts} - set(corpus.relation_names))
    index_of = {name: index for index, name in enumerate((*corpus.relation_names, *others))}
    facts, among_known = {}, set()
    for sample in corpus.samples:
        document = sample.document
        sentences, names = sentences_of(document), document.names() if known is not None else {}
        places = {
            entity_id: {sentence_index(mention, sentences) for mention in mentions}
            for entity_id, mentions in document.entities().items()
        }
        for fact in document.facts:
            head, tail = fact.head_id, fact.tail_id
            if head == tail:
                continue
            key = document.document_id, head, index_of[fact.relation], tail
            facts[key] = bool(places.get(head, set()) & places.get(tail, set()))
            if any((a, fact.relation, b) in known for a in names.get(head, ()) for b in names.get(tail, ())):
                among_known.add(key)
    return Gold(facts, None if known is None else frozenset(among_known))


def score_pairs(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold, threshold: float) -> DocumentScores:
    """Compare the pairs whose score reaches the threshold with the gold.

    Args:
      scores: Of each relation, float [D, P, R]; what lies beyond a document's pairs is not looked at.
      pairs: For each document its at most P pairs.
      gold: What the documents state.
      threshold: Smallest score of a prediction.

    Raises:
      DataError: shapes that do not fit, or a score that is NaN.
    """
    flat = _flat(scores, pairs, gold)
    # NumPy would round the threshold to the scores' type, and so across a score that is next to it.
    chosen = (flat.values.astype(np.float64) >= threshold) & flat.counted
    correct = chosen & flat.stated

    def counts(mask: np.ndarray, facts: int) -> PairScores:
        return PairScores(int(correct[mask].sum()), int(chosen[mask].sum()), facts)

    within = sum(gold.facts.values())
    relations = max(flat.values.shape[1], *(relation + 1 for _, _, relation, _ in gold.facts), 0)
    stated = np.bincount(np.array([relation for _, _, relation, _ in gold.facts], np.int64), minlength=relations)
    more = (0,) * (relations - flat.values.shape[1])
    by_relation = zip((*correct.sum(axis=0), *more), (*chosen.sum(axis=0), *more), stated, strict=True)
    return DocumentScores(
        counts(np.ones_like(flat.intra), len(gold.facts)),
        counts(flat.intra, within),
        counts(~flat.intra, len(gold.facts) - within),
        float(threshold),
        tuple(PairScores(*map(int, row)) for row in by_relation),
        None if flat.known is None else int((correct & flat.known).sum()),
    )


def best_threshold(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold) -> float:
    """Return the threshold with the largest F1 over all pairs, for the dev documents.

    On a tie it is the largest one.

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
    flat = _flat(scores, pairs, gold)
    values = flat.values[flat.counted]
    if not len(values):
        return NOTHING
    order = np.argsort(-values, kind="stable")
    values = values[order]
    correct = np.cumsum(flat.stated[flat.counted][order].astype(np.int64))
    f1 = 2 * correct / (np.arange(1, len(values) + 1) + len(gold.facts))
    together = values[:-1] - values[1:] <= np.maximum(EQUAL_TO * values[:-1], TINY)
    f1[:-1][together] = -1.0
    best = int(np.argmax(f1))
    if not correct[best]:
        return NOTHING
    least, below = float(values[best]), float(values[best + 1]) if best + 1 < len(values) else 0.0
    return float(np.float32((least + below) / 2)) if least > TINY else 0.0


def countable(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of all that can be predicted (float [n]), and whether it is stated (bool [n]), pair by pair.

    The arguments are those of `score_pairs`. Raises DataError as it does.
    """
    flat = _flat(scores, pairs, gold)
    return flat.values[flat.counted], flat.stated[flat.counted]


@dataclass(frozen=True)
class _Flat:
    """The n pairs of all documents.

    Attributes:
      values: Scores, float [n, R].
      stated, known: Bool [n, R]; see `Gold`.
      counted: Bool [n, R]; False for what pairs do not count.
      intra: Bool [n].
    """

    values: np.ndarray
    stated: np.ndarray
    known: np.ndarray | None
    counted: np.ndarray
    intra: np.ndarray


def _flat(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold) -> _Flat:
    scores = np.asarray(scores)
    if scores.ndim != 3 or len(scores) != len(pairs) or any(len(mine) > scores.shape[1] for mine in pairs):
        raise DataError("the scores do not fit the pairs", remedy="give float [documents, pairs, relations]")
    relations = scores.shape[2]
    rows = [scores[row, : len(mine)] for row, mine in enumerate(pairs)]
    values = np.concatenate(rows) if rows else np.zeros([0, relations], scores.dtype)
    if np.isnan(values).any():
        raise DataError("a score is NaN", remedy="repair the model's output")
    flattened = [pair for mine in pairs for pair in mine]
    row_of = {(pair.document_id, pair.head_id, pair.tail_id): row for row, pair in enumerate(flattened)}
    counted = np.ones(values.shape, bool)
    for row, pair in enumerate(flattened):
        if pair.uncounted:
            counted[row, list(pair.uncounted)] = False

    def marked(facts: Iterable[FactKey]) -> np.ndarray:
        marks = np.zeros(values.shape, bool)
        for document_id, head, relation, tail in facts:
            row = row_of.get((document_id, head, tail))
            if row is not None and relation < relations:
                marks[row, relation] = True
        return marks

    known = None if gold.known is None else marked(gold.known)
    intra = np.array([pair.intra for pair in flattened], bool)
    return _Flat(values, marked(gold.facts), known, counted, intra)
