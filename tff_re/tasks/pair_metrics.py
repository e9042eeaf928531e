"""Measures of relations between the entities of documents, at a threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.documents.encoding import PairId
from datasets.documents.scoring import GoldFacts, score_pairs

DEFAULT_THRESHOLD = 0.5

PAIR_METRICS = ("f1", "precision", "recall", "f1_intra", "f1_inter")


def pair_metrics(
    scores: np.ndarray, pairs: Sequence[Sequence[PairId]], gold: GoldFacts, threshold: float
) -> dict[str, float]:
    """`f1`, `precision`, `recall`, and `f1_intra`, `f1_inter` of the pairs that a sentence mentions and of the others.

    The arguments are those of `datasets.documents.scoring.score_pairs`.
    """
    counted = score_pairs(scores, pairs, gold, threshold)
    measured = (counted.all.f1, counted.all.precision, counted.all.recall, counted.intra.f1, counted.inter.f1)
    return dict(zip(PAIR_METRICS, measured, strict=True))
