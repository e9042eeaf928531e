"""What a part of an audit hands over: sentences, tables, findings with intervals, numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

CONFIDENCE = 0.95
"""Of every interval of a report."""


@dataclass(frozen=True)
class Finding:
    """A row of the table at a report's end.

    Attributes:
      what: what was measured.
      value: the number, or None where nothing could be measured.
      interval: (low, high) at `CONFIDENCE`, None where there is none (a count of what lies in a file).
      chance: what somebody without the update, the model or the files reaches; None where that means nothing.
      cover: what would lower the number.
      percent: whether value, interval and chance are shares.
    """

    what: str
    value: float | None
    interval: tuple[float, float] | None
    chance: float | None
    cover: str
    percent: bool = True

    def cells(self) -> list[str]:
        """The cells of its row."""

        def text(value: float | None) -> str:
            if value is None:
                return "–"
            if math.isinf(value):
                return "∞"
            return f"{value:.1%}" if self.percent else f"{value:,.0f}" if value == int(value) else f"{value:.2f}"

        interval = "–" if self.interval is None else " to ".join(map(text, self.interval))
        return [self.what, text(self.value), interval, text(self.chance), self.cover]


@dataclass
class Section:
    """A part of a report.

    Attributes:
      title: of the part.
      tried, results, means, not_tried: sentences.
      tables: (title, header, rows) of text, shown under what was found.
      findings: rows of the summary.
      pictures: (file, what it shows).
      numbers: for audit.json.
      files: name -> rows of a CSV file, the header first.
      not_applicable: why this part says nothing of the run; all else is empty then.
    """

    title: str
    tried: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    means: list[str] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)
    tables: list[tuple[str, Sequence[str], list[Sequence[str]]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    pictures: list[tuple[Path, str]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[Sequence[Any]]] = field(default_factory=dict)
    not_applicable: str | None = None


def exact_interval(hits: int, trials: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share, (0, 1) where nothing was tried."""
    if not trials:
        return 0.0, 1.0
    interval = binomtest(hits, trials).proportion_ci(CONFIDENCE, method="exact")
    return float(interval.low), float(interval.high)


def share(hits: float, trials: float) -> float:
    """hits / trials, 0 where nothing was tried."""
    return hits / trials if trials else 0.0
