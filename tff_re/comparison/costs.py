"""Bytes, local steps and seconds of a run, from its history and timings.

Imports no TensorFlow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

History = Sequence[dict[str, float]]
"""Rows of a run's metrics.csv."""


def steps_by_round(history: History) -> dict[float, float] | None:
    """Round -> local steps of all clients up to its end, or None if a round does not say."""
    return _up_to(history, [row.get("local/steps") for row in history])


def megabytes_by_round(history: History, each: float) -> dict[float, float] | None:
    """Round -> millions of bytes to and from all clients up to its end.

    None if a round does not say how many took part. `each`: bytes down and up of a client in a round, as the
    algorithm sends them.
    """
    clients = [row.get("clients/counted") for row in history]
    if None in clients:
        return None
    left_out = [row.get("clients/non_finite", 0.0) for row in history]  # which have sent all the same
    return _up_to(
        history, [each / 1e6 * (counted + refused) for counted, refused in zip(clients, left_out, strict=True)]
    )


def _up_to(history: History, values: list[float | None]) -> dict[float, float] | None:
    if not values or None in values:
        return None
    return dict(zip((row["round"] for row in history), itertools.accumulate(values), strict=True))


def seconds_of(timings: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of training and evaluation, without the start, from the rows of timings.csv.

    Zero if no round says them.
    """
    names = ("seconds/training", "seconds/evaluation")
    return sum(value for row in timings for name in names if math.isfinite(value := row.get(name, math.nan)))


def in_words(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
