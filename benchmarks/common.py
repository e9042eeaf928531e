"""Shared by the benchmarks: timing in turns, and the cells of their tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment


def in_turn(contenders: Mapping[Hashable, Callable[[Any], Any]], inputs: Sequence, turns: int) -> dict:
    """Contender -> (seconds for each of `inputs`) of each turn. A first turn, which compiles, is not counted."""
    seconds = {name: [] for name in contenders}
    for turn in range(-1, turns):
        for name, play in contenders.items():
            times = []
            for value in inputs:
                began = time.perf_counter()
                play(value)
                times.append(time.perf_counter() - began)
            if turn >= 0:
                seconds[name].append(tuple(times))
    return seconds


def machine() -> str:
    """Cores and versions of the machine that ran the benchmark."""
    details = environment()
    return f"{details['cores']} cores, TensorFlow {details['tensorflow']}, {DISTRIBUTION} {details[DISTRIBUTION]}"


def spread(values: Sequence[float], digits: int) -> str:
    """Median (minimum to maximum)."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median over the turns of their ratios."""
    return statistics.median(n / d for n, d in zip(numerators, denominators, strict=True))


def met(holds: bool) -> str:
    """`met` or `not met`."""
    return "met" if holds else "not met"
