"""Measures of relations between the entities of documents, at a threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.documents.encoding import PairId
from datasets.documents.scoring import Gold, score_pairs

DEFAULT_THRESHOLD = 0.5

PAIR_METRICS = ("f1", "precision", "recall", "f1_intra", "f1_inter")

MACRO_F1, IGN_F1 = "macro_f1", "ign_f1"


def pair_metric_names(relations: int, gold: Gold) -> tuple[str, ...]:
    """Names of what `pair_metrics` gives for a model with this number of relations."""
    return (
        *PAIR_METRICS,
        *((MACRO_F1,) if relations > 1 else ()),
        *((IGN_F1,) if gold.known is not None else ()),
    )


def pair_metrics(
    scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold, threshold: float
) -> dict[str, float]:
    """`f1` (micro: over all relations of all pairs), `precision`, `recall`, and `f1_intra`, `f1_inter` of the pairs
    that a sentence mentions and of the others.

    With more than one relation also `macro_f1`, the mean of the relations' F1, and where the gold tells what training
    states `ign_f1`, F1 without it (DocRED). The arguments are those of `datasets.documents.scoring.score_pairs`.
    """
    counted = score_pairs(scores, pairs, gold, threshold)
    measured = (counted.all.f1, counted.all.precision, counted.all.recall, counted.intra.f1, counted.inter.f1)
    every = dict(zip(PAIR_METRICS, measured, strict=True)) | {MACRO_F1: counted.macro_f1, IGN_F1: counted.ign_f1}
    return {name: every[name] for name in pair_metric_names(np.shape(scores)[2], gold)}


def every_pair(labels: np.ndarray) -> tuple[str, np.ndarray]:
    """The trivial model of documents: every pair has the relation that the documents state most.

    Args:
      labels: [D, P, R], 1 for a stated relation; -1 may fill it up.

    Returns:
      Its name, and its scores, float32 [D, P, R].
    """
    scores = np.zeros(labels.shape, np.float32)
    scores[..., labels.sum(axis=(0, 1)).argmax()] = 1.0
    return "every pair positive" if labels.shape[2] == 1 else "every pair the most frequent relation", scores


def document_counts(scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: Gold, threshold: float) -> np.ndarray:
    """(correct, predicted, stated) of each document, int64 [n, 3], in the order of the documents' ids.

    Documents without candidates and facts are left out: they change no sum. The arguments are those of `pair_metrics`.
    """
    rows: dict[str, list[int]] = {}
    for row, of_row in enumerate(pairs):
        for pair in of_row[:1]:
            rows.setdefault(pair.document_id, []).append(row)
    facts: dict[str, dict] = {document: {} for document in rows}
    for fact, intra in gold.facts.items():
        facts.setdefault(fact[0], {})[fact] = intra
    counts = np.zeros([len(facts), 3], np.int64)
    for number, document in enumerate(sorted(facts)):
        mine = rows.get(document, [])
        counted = score_pairs(scores[mine], [pairs[row] for row in mine], Gold(facts[document]), threshold).all
        counts[number] = counted.correct, counted.predicted, counted.stated
    return counts
