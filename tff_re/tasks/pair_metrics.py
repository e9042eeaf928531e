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
    """Names of what `pair_metrics` gives for a model of so many relations."""
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
