"""Training and test samples of each client, and samples that the server itself holds (FedED's D_v)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.apportion import by_largest_remainder
from datasets.errors import DataError
from datasets.partition.base import Sample
from datasets.ranges import one_of, require
from datasets.seeds import generator


def hold_out(
    client_id: str, samples: Sequence[Sample], test_share: float, *, seed: int, unit: str = "sample"
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of a client's training and test samples, each in the given order.

    Of n units max(1, round(test_share · n)) are for testing, at most n − 1; a single unit is for training, and with a
    share of 0 all are. The choice depends on the seed, the client's id and the ids of its samples alone, so neither on
    the other clients nor on the order of the samples.

    Args:
      client_id: The client.
      samples: All samples of the client.
      test_share: At least 0 and smaller than 1.
      seed: Of the choice.
      unit: ``sample``, or ``document`` for whole documents where the samples of one resemble each other.

    Raises:
      DataError: an impossible option.
    """
    check_test_share(test_share)
    require(one_of(("sample", "document")), unit=unit)
    key_of = [sample.sample_id if unit == "sample" else sample.document_id for sample in samples]
    keys, held_out = sorted(set(key_of)), set()
    if len(keys) > 1 and test_share:
        order = generator(seed, "hold_out", client_id).permutation(len(keys))
        held_out = {keys[i] for i in order[: test_count(test_share, len(keys))]}
    train = tuple(s.sample_id for s, key in zip(samples, key_of, strict=True) if key not in held_out)
    return train, tuple(s.sample_id for s, key in zip(samples, key_of, strict=True) if key in held_out)


def test_count(test_share: float, units: int) -> int:
    """Return how many of at least two units are for testing.

    It is at least one, and one is left for training.
    """
    return min(units - 1, max(1, round(test_share * units)))


def check_test_share(test_share: float) -> None:
    """Raise DataError unless the share lies in [0, 1)."""
    if isinstance(test_share, bool) or not isinstance(test_share, int | float) or not 0 <= test_share < 1:
        raise DataError("the test share is not a number of at least 0 and below 1", remedy="use e.g. 0.1")


def draw_server_samples(
    samples: Sequence[Sample], share: float, *, seed: int, stratified: bool = False, label_names: Sequence[str] = ()
) -> tuple[str, ...]:
    """Draw round(share * n) ids for the server, at least one and at most n - 1, in the order of the samples.

    No client has them.

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
        raise DataError("the server and a client need at least two training samples", remedy="set server_share = 0")
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
            f"the server has no example of class{name}{more}",
            remedy="set server_stratified = true" if not stratified else "leave the class out, or set server_share = 0",
        )
    return tuple(samples[i].sample_id for i in sorted(chosen))
