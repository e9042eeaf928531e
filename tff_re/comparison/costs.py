"""What a run has sent and done up to the end of each round, from its history; needs no TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

History = Sequence[dict[str, float]]
"""Rows of a run's metrics.csv."""


def steps_by_round(history: History) -> dict[float, float] | None:
    """Round -> local steps of all clients up to its end; None where a round does not say."""
    return _up_to(history, [row.get("local/steps") for row in history])


def megabytes_by_round(history: History, each: float) -> dict[float, float] | None:
    """Round -> millions of bytes to and from all clients up to its end; None where a round does not say how many took
    part. `each`: bytes down and up of a client in a round, as the algorithm sends them."""
    clients = [row.get("clients/counted") for row in history]
    if None in clients:
        return None
    left_out = [row.get("clients/non_finite", 0.0) for row in history]  # which have sent all the same
    return _up_to(history, [each / 1e6 * (one + other) for one, other in zip(clients, left_out, strict=True)])


def _up_to(history: History, values: list[float | None]) -> dict[float, float] | None:
    if not values or None in values:
        return None
    return dict(zip((row["round"] for row in history), itertools.accumulate(values), strict=True))
