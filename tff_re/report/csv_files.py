"""CSV text, by the csv module."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows with a line feed after each; None is an empty cell.

    The csv module quotes a carriage return only where that is part of the line ending, and one without quotes would end
    the row for a reader.
    """
    lines: list[str] = []
    shown = SimpleNamespace(write=lambda row: lines.append(row.removesuffix("\r\n") + "\n"))
    csv.writer(shown, lineterminator="\r\n").writerows(rows)
    return "".join(lines)
