"""Reading what runs and comparisons left in their folders, without TensorFlow."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.record import rows_up_to

_NAMES = ("client", "class", "split", "sites")
"""Columns of text; all others are numbers."""


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """summary.json of a finished run. Raises UserError for one that lacks something."""
    summary = read_json(folder.summary)
    needed = {
        *("recipe", "algorithm", "seed", "rounds", "final", "best"),
        *("bytes_down_per_client_and_round", "bytes_up_per_client_and_round"),
    }
    whole = isinstance(summary, dict) and not needed - set(summary)
    if not whole or not all(isinstance(summary[name], dict) for name in ("final", "best")):
        raise UserError(f"{folder.summary}: is damaged; remove it, then continue with --resume")
    return summary


def read_history(folder: RunFolder) -> list[dict[str, float]]:
    """metrics.csv, at least a round; as `tff_re.runs.results.read_history`. Raises UserError."""
    rows = rows_up_to(read_text(folder.metrics), "metrics", math.inf)
    if not rows:
        raise UserError(f"{folder.metrics}: is damaged or empty; train with --resume restores it from the checkpoint")
    return [{name: float(value) for name, value in row.items()} for row in rows]


def read_text(path: Path) -> str:
    """Raises UserError for a file that is missing or not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; put it back, or continue the run with --resume") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is damaged (not UTF-8); put it back, or continue the run with --resume") from None


def read_json(path: Path) -> Any:
    """Raises UserError for a file that is missing or no JSON."""
    try:
        return json.loads(read_text(path))
    except ValueError:
        raise UserError(f"{path}: is damaged (no JSON); put it back, or continue with --resume") from None


def read_csv(path: Path, *columns: str) -> list[dict[str, Any]]:
    """The rows of a CSV file, with names as text and all else as numbers; empty where there is none.

    Raises:
      UserError: the file is damaged, or lacks one of these columns.
    """
    if not path.exists():
        return []
    try:
        heading, *rows = list(csv.reader(io.StringIO(read_text(path), newline=""), strict=True)) or [[]]
        if not set(columns) <= set(heading):
            raise ValueError(heading)
        return [
            {name: cell if name in _NAMES else float(cell or "nan") for name, cell in zip(heading, row, strict=True)}
            for row in rows
        ]
    except (ValueError, csv.Error):
        raise UserError(f"{path}: is damaged; put it back, or continue the run with --resume") from None
