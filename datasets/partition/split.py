"""Training and test samples of each client."""

from __future__ import annotations

from collections.abc import Sequence

from datasets.errors import DataError
from datasets.partition.base import Sample
from datasets.ranges import one_of, require
from datasets.seeds import generator


def hold_out(
    client_id: str,
    samples: Sequence[Sample],
    test_share: float,
    *,
    seed: int,
    unit: str = "sample",
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of a client's training and test samples, each in the order given.

    Of n units max(1, round(test_share · n)) are for testing, at most n − 1; a single unit is for training, and with a
    share of 0 all are. The choice depends on the seed, the client's id and the ids of its samples alone, so neither on
    the other clients nor on the order of the samples.

    Args:
      client_id: The client.
      samples: All samples of the client.
      test_share: At least 0 and smaller than 1.
      seed: Of the choice.
      unit: What is held out: single samples, or whole documents where the samples of one resemble each other.

    Raises:
      DataError: an impossible option.
    """
    check_test_share(test_share)
    require(one_of(("sample", "document")), unit=unit)
    key_of = [sample.sample_id if unit == "sample" else sample.document_id for sample in samples]
    keys = sorted(set(key_of))
    if len(keys) < 2 or test_share == 0:
        return tuple(sample.sample_id for sample in samples), ()
    count = test_count(test_share, len(keys))
    order = generator(seed, "hold_out", client_id).permutation(len(keys))
    held_out = {keys[i] for i in order[:count]}
    train = tuple(s.sample_id for s, key in zip(samples, key_of, strict=True) if key not in held_out)
    return train, tuple(s.sample_id for s, key in zip(samples, key_of, strict=True) if key in held_out)


def test_count(test_share: float, units: int) -> int:
    """How many of at least two units are for testing: at least one, and one is left for training."""
    return min(units - 1, max(1, round(test_share * units)))


def check_test_share(test_share: float) -> None:
    """Raises DataError unless the share lies in [0, 1)."""
    if isinstance(test_share, bool) or not isinstance(test_share, int | float) or not 0 <= test_share < 1:
        raise DataError("the test share is not a number of at least 0 and below 1", remedy="use e.g. 0.1")
