"""Samples that the server itself holds, with their labels (FedED's D_v); no client has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.apportion import by_largest_remainder
from datasets.errors import DataError
from datasets.partition.base import Sample
from datasets.partition.split import check_test_share, test_count
from datasets.seeds import generator


def draw_server_samples(
    samples: Sequence[Sample], share: float, *, seed: int, stratified: bool = False, label_names: Sequence[str] = ()
) -> tuple[str, ...]:
    """round(share * n) ids, at least one and at most n - 1, in the order of the samples.

    Args:
      samples: n of them, for training.
      share: Of them that the server holds; 0: none.
      seed: Of the draw.
      stratified: Classes in their proportions, a class with two samples or more at least once.
      label_names: The classes, in the order of the labels, for messages.

    Raises:
      DataError: an impossible share, fewer than two samples, or a class that the server would have no sample of.
    """
    check_test_share(share)
    if not share:
        return ()
    if len(samples) < 2:
        raise DataError("the server's examples and a client's need two training samples", remedy="set server_share = 0")
    rng = generator(seed, "server samples")
    labels = np.array([sample.label for sample in samples])
    present, sizes = np.unique(labels, return_counts=True)
    count = test_count(share, len(samples))
    if stratified:
        wanted = by_largest_remainder(count, sizes)
        wanted = np.minimum(np.maximum(wanted, 1), np.maximum(sizes - 1, 0))
        chosen = np.concatenate(
            [rng.permutation(np.flatnonzero(labels == c))[:k] for c, k in zip(present, wanted, strict=True)]
        )
    else:
        chosen = rng.permutation(len(samples))[:count]
    absent = sorted(set(present) - set(labels[chosen]))
    if absent:
        name = f' "{label_names[absent[0]]}"' if label_names else f" {absent[0]}"
        more = f" (and of {len(absent) - 1} others)" if len(absent) > 1 else ""
        raise DataError(
            f"the server's examples have none of class{name}{more}",
            remedy="set server_stratified = true" if not stratified else "leave the class out, or set server_share = 0",
        )
    return tuple(samples[i].sample_id for i in sorted(chosen))
