"""What a model is fed with, as far as building it needs to know."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class DenseInput:
    """Feature vectors `x`, float32 [B, width]."""

    width: int


@dataclass(frozen=True)
class TokenInput:
    """Word or character ids `tokens`, int32 [B, max_length], right-padded with 0; 1 is out of vocabulary.

    `vectors` float32 [vocabulary_size, d] are the initial word vectors; None: the model learns its own.
    """

    vocabulary_size: int
    max_length: int
    vectors: np.ndarray | None = field(default=None, repr=False)
