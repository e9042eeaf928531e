"""Where a sweep goes on when its best setting lies at the edge of what was listed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_STEPS = 2
"""Times that a sweep goes one step further by itself."""


def edges(best: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Keys of numbers of which the best setting has the least or the greatest of at least three."""
    keys = []
    for key, value in best.items():
        numbers = _numbers(key, settings)
        if len(numbers) > 2 and value in (numbers[0], numbers[-1]):
            keys.append(key)
    return tuple(keys)


def further(best: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The best setting with each of its keys at an edge one step further, where there is a step."""
    steps = {key: next_value(best[key], _numbers(key, settings)) for key in edges(best, settings)}
    return [{**best, key: value} for key, value in steps.items() if value is not None]


def next_value(edge: float, numbers: Sequence[float]) -> float | None:
    """The number that follows an edge of sorted numbers, at least three.

    Equal distances go on linearly (8, 16, 24: 32), others by ratios, of which two alternate (1e-3, 3e-3, 1e-2: 3e-2).
    A linear axis of numbers above zero ends there, and so does an axis of whole numbers where the next is none: None.
    """
    outwards = list(numbers) if edge == numbers[-1] else list(reversed(numbers))
    before, last, outermost = outwards[-3:]
    distances = [b - a for a, b in itertools.pairwise(numbers)]
    if math.isclose(min(distances), max(distances), rel_tol=1e-6):
        value = outermost + (outermost - last)
    elif outermost > 0 and last > 0:
        value = outermost * (last / before if before > 0 else outermost / last)
    else:
        return None
    if value <= 0 < numbers[0]:
        return None
    if all(isinstance(number, int) for number in numbers):
        return int(value) if math.isclose(value, round(value)) else None
    return float(f"{value:.6g}")  # 3e-4, not 3.0000000000000003e-4


def _numbers(key: str, settings: Sequence[Mapping[str, Any]]) -> list[float]:
    """The different numbers of a key, sorted."""
    values = [setting[key] for setting in settings if key in setting]
    return sorted({value for value in values if isinstance(value, int | float) and not isinstance(value, bool)})
