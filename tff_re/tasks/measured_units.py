"""What a model measured on each test unit, from which metrics of resampled tests are computed: numbers without ids.

A unit is what test examples share that are not independent: the document, dialogue or patient's record that they are
of; an example itself where nothing is known; a bag of sentences where bags are ranked.
"""

from __future__ import annotations

import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

DAMAGED = (
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    OSError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
"""What reading a damaged .npz file raises, by what is damaged: the archive, an array's header or its bytes."""

MOST_PREDICTIONS = 250_000
"""Rankings of more predictions are not kept: they would take hundreds of megabytes in a comparison."""

_KEPT = {
    "pairs": ("counts",),
    "classes": ("true_positives", "predicted", "actual"),
    "entities": ("true_positives", "predicted", "actual", "overlapping_predicted", "overlapping_actual"),
    "rankings": ("scores", "true"),
}
"""Kind -> its arrays."""


@dataclass(frozen=True, eq=False)
class MeasuredUnits:
    """The units of a run's test, in an order that is the same for all runs on the same test.

    Attributes:
      kind: what the arrays are.

        - `pairs`: `counts` [n, 3], correct, predicted and stated relations of a document;
        - `classes`: `true_positives`, `predicted` and `actual` [n, C], examples of each class;
        - `entities`: the same of each type's entities, [n, K], and `overlapping_predicted` and `overlapping_actual`;
        - `rankings`: `scores` and `true` [n, R], each relation of a bag.
      arrays: by name.
      positive: of classes, those that F1 counts; None: all, and there is no micro-F1.
      chosen: whether the weights are those of a round that dev chose; if not, those of the last round.
    """

    kind: Literal["pairs", "classes", "entities", "rankings"]
    arrays: Mapping[str, np.ndarray] = field(repr=False)
    positive: tuple[int, ...] | None = None
    chosen: bool = True

    def __post_init__(self):
        if self.kind not in _KEPT or set(self.arrays) != set(_KEPT[self.kind]):
            raise ValueError(f"units of kind {self.kind!r} with the arrays {', '.join(sorted(self.arrays))}")
        if len({len(array) for array in self.arrays.values()}) != 1:
            raise ValueError("arrays of different numbers of units")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def gold(self) -> np.ndarray:
        """What the test says of each unit, whatever the model."""
        if self.kind == "pairs":
            return self.arrays["counts"][:, 2]
        return self.arrays["true" if self.kind == "rankings" else "actual"]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The units as arrays for a file, see `from_arrays`."""
        about = {"kind": self.kind, "positive": self.positive, "chosen": self.chosen}
        return {"about": np.array(json.dumps(about)), **self.arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> MeasuredUnits:
        """The units that `to_arrays` gave. An older file has `counts` only.

        Raises:
          ValueError, KeyError, TypeError: the arrays are others.
        """
        arrays = dict(arrays)
        if "about" not in arrays:
            return cls("pairs", {"counts": arrays["counts"]})
        about = json.loads(str(arrays.pop("about")))
        positive = None if about["positive"] is None else tuple(map(int, about["positive"]))
        return cls(about["kind"], arrays, positive, bool(about["chosen"]))

    def to_bytes(self) -> bytes:
        """The content of a run's test_units.npz."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.to_arrays())
        return buffer.getvalue()


def summed_by_unit(keys: list[str], of_examples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Counts of examples [m, K] -> of their units int64 [n, K], in the order of the units' keys.

    `keys`: of each example's unit.
    """
    names = {name: number for number, name in enumerate(sorted(set(keys)))}
    numbers = np.array([names[key] for key in keys], np.int64)
    summed = {}
    for name, counts in of_examples.items():
        summed[name] = np.zeros([len(names), counts.shape[1]], np.int64)
        np.add.at(summed[name], numbers, np.rint(counts).astype(np.int64))
    return summed
