"""What sites tell of their own models, as tables: from the `comparisons` of a run's summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MEASURES = {"accuracy": "accuracy", "f1": "F1"}
"""What models are measured by -> its name for readers."""


@dataclass(frozen=True)
class SiteComparison:
    """A table with a row for each site.

    Attributes:
      title: which two models are compared.
      heading, rows: of the table; the first column has the sites' names.
      caption: how to read it.
    """

    title: str
    heading: tuple[str, ...]
    rows: list[list[str]]
    caption: str


def site_comparisons(comparisons: Mapping[str, Any] | None) -> Iterator[SiteComparison]:
    """Return a table for each kind of model that sites compare with the federated one."""
    for compared in (comparisons or {}).values():
        (first, second), measure = compared["models"], MEASURES.get(compared["measure"], compared["measure"])
        yield SiteComparison(
            title=f"{first.capitalize()} and {second} at the sites",
            heading=("site", f"{first}, {measure}", f"{second}, {measure}", "difference (95 %)", "verdict"),
            rows=[[str(row["site"]), *_compared(row)] for row in compared["rows"]],
            caption=(
                f"Each site compared both models on its own test examples. The difference is {second} minus {first}; "
                "gain and loss: its interval is above or below zero. A site's policy says what it tells."
            ),
        )


def _compared(row: Mapping[str, Any]) -> list[str]:
    missing = "no answer" if row["disclosed"] == "no answer" else "not told"
    numbers = [missing] * 3
    if "difference" in row:
        interval = "{difference:+.4f} ({low:+.4f} to {high:+.4f})".format(**row)
        numbers = [f"{row['before']:.4f}", f"{row['after']:.4f}", interval]
    return [*numbers, row.get("verdict", missing)]
