"""Random numbers, with a stream for each seed and purpose."""

from __future__ import annotations

import hashlib

import numpy as np

from datasets.errors import DataError


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return a generator that depends only on the seed and the purpose, the same on every machine.

    Raises:
      DataError: the seed is not a whole number of zero or more.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DataError("the seed is not a whole number of zero or more", remedy="use e.g. 0")
    words = [int(seed)]
    for name in purpose:
        digest = hashlib.sha256(name.encode("utf-8")).digest()
        words.append(int.from_bytes(digest[:8], "little"))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
