"""What the benchmarks share: a race in turns, and the words of their tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment


def in_turn(contenders: Mapping[Hashable, Callable[[Any], Any]], data: Sequence, turns: int) -> dict:
    """Contender -> for each turn the seconds that it takes for each of `data`; a turn before them compiles."""
    seconds = {name: [] for name in contenders}
    for turn in range(-1, turns):
        for name, run in contenders.items():
            times = []
            for one in data:
                began = time.perf_counter()
                run(one)
                times.append(time.perf_counter() - began)
            if turn >= 0:
                seconds[name].append(tuple(times))
    return seconds


def machine() -> str:
    """Where a benchmark ran: cores and versions."""
    about = environment()
    return f"{about['cores']} cores, TensorFlow {about['tensorflow']}, {DISTRIBUTION} {about[DISTRIBUTION]}"


def spread(values: Sequence[float], digits: int) -> str:
    """Median, least and greatest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios, turn by turn."""
    return statistics.median(n / d for n, d in zip(numerators, denominators, strict=True))


def met(holds: bool) -> str:
    """Whether an expectation is met, in words."""
    return "met" if holds else "not met"
