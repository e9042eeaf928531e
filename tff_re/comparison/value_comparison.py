"""Whether two runs of a comparison, such as a published one and one of your own, measured the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from attrs import frozen

from tff_re.comparison.values import Value, read_values
from tff_re.errors import UserError

OF_THE_MACHINE = ("seconds_per_round",)
"""Metrics that no two runs share."""


class UnequalPair(NamedTuple):
    """A number that differs between two comparisons."""

    here: Value
    there: Value

    @property
    def size(self) -> float:
        """The absolute difference.

        Infinite where one of them has no number (NaN, or a target never reached).
        """
        numbers = self.here.value, self.there.value
        if any(number is None or math.isnan(number) for number in numbers):
            return math.inf
        return abs(numbers[0] - numbers[1])


@frozen
class ValueComparison:
    """Attributes:
    same: how many numbers both have, equal in every digit.
    differences: the numbers that both have and that differ, the largest first.
    only_here, only_there: how many numbers only one has, of entries or seeds that the other did not run.
    """

    same: int
    differences: tuple[UnequalPair, ...]
    only_here: int
    only_there: int


def compare_values(folder: Path, other: Path) -> ValueComparison:
    """Compares values.csv of two folders that `compare` wrote.

    Numbers are matched by table, entry, seed, metric and the round's role (best, chosen, final). Seconds are left out.

    Raises:
      UserError: a file is missing or damaged, or the two have no number in common.
    """
    here, there = (_by_name(read_values(path)[0]) for path in (folder, other))
    common = here.keys() & there.keys()
    if not common:
        raise UserError(f"{folder} and {other} have no entry and seed in common; give two runs of the same suite")
    pairs = (UnequalPair(here[name], there[name]) for name in here if name in common)
    differences = sorted((pair for pair in pairs if not _equal(*pair)), key=lambda pair: -pair.size)
    return ValueComparison(
        same=len(common) - len(differences),
        differences=tuple(differences),
        only_here=len(here) - len(common),
        only_there=len(there) - len(common),
    )


def _by_name(values: Sequence[Value]) -> dict[tuple[str, str, int, str, str], Value]:
    return {(v.group, v.entry, v.seed, v.metric, v.values): v for v in values if v.metric not in OF_THE_MACHINE}


def _equal(here: Value, there: Value) -> bool:
    if here.value is None or there.value is None:
        return here.value is there.value
    return here.value == there.value or (math.isnan(here.value) and math.isnan(there.value))
