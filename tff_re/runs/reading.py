"""Reading the files of a run's folder, without TensorFlow."""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tff_re.errors import UserError
from tff_re.report.precision_recall import COLUMNS, Points
from tff_re.runs.folder import RunFolder, as_table
from tff_re.runs.tables import Rows
from tff_re.tasks.measured_units import DAMAGED, MeasuredUnits

ANSWER_COLUMNS = ["round", "attempt", "client", "outcome"]
STATE_COLUMNS = ["round", "client", "name"]
"""Of client_states.csv; its other columns are the classes."""

_NAMES = ("client", "class", "split", "sites", "site")
"""Columns of text in the tables of `read_table`; all others are numbers."""

_BY_CHECKPOINT = "train with --resume restores it from the checkpoint, or put it back"
_ANEW = "remove it and the folder's checkpoints, then train with --resume"


def csv_rows(text: str) -> list[list[str]]:
    """The rows of a CSV text, the heading first. Raises ValueError for another text."""
    try:
        return list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(*error.args) from None


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
        raise UserError(f"{path}: is damaged (not JSON); put it back, or continue with --resume") from None


def read_recipe(folder: RunFolder) -> dict[str, Any]:
    """The tables of recipe.toml. Raises UserError for a file that is missing or damaged."""
    try:
        return tomllib.loads(read_text(folder.recipe))
    except tomllib.TOMLDecodeError:
        raise UserError(f"{folder.recipe}: is damaged; put it back, or continue the run with --resume") from None


def clients_at_sites(folder: RunFolder) -> list[tuple[str, int]]:
    """(site, training examples) of each client of a run across sites. Raises UserError for a damaged file."""
    try:
        return [(str(client["site"]), int(client["train"])) for client in read_json(folder.sites)["clients"]]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder.sites}: is damaged; put the original back") from None


def read_table(path: Path, *columns: str) -> Sequence[dict[str, Any]]:
    """The rows of a CSV file or table, with names as text and all else as numbers, or none without a file.

    Raises:
      UserError: the file is damaged, or lacks one of these columns.
    """
    path = as_table(path)
    if not path.exists():
        return []
    try:
        if path.suffix == ".npz":
            return Rows(path, columns)
        heading, *rows = csv_rows(read_text(path)) or [[]]
        if not set(columns) <= set(heading):
            raise ValueError(heading)
        return [
            {name: cell if name in _NAMES else float(cell or "nan") for name, cell in zip(heading, row, strict=True)}
            for row in rows
        ]
    except ValueError:
        raise UserError(f"{path}: is damaged; put it back, or continue the run with --resume") from None


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
    """Rows of metrics.csv: `round` and the metrics that the row has.

    Raises:
      UserError: the file is damaged.
    """
    if not folder.metrics.exists():
        return []
    rows = rows_up_to(folder.metrics.read_bytes().decode("utf-8", "replace"), "metrics", math.inf)
    if rows is None:
        raise UserError(f"{folder.metrics}: is damaged; {_BY_CHECKPOINT}")
    return [{name: float(value) for name, value in row.items()} for row in rows]


def rows_up_to(text: str | None, name: str, round_num: float) -> list[dict[str, str]] | None:
    """Rows without empty cells up to a round of a file that grows by round, or None if the text is not such a file.

    Args:
      text: of the file.
      name: of the file in RunFolder; `metrics` and `timings` have one row for each round.
      round_num: the last round.
    """
    if text is None:
        return None
    try:
        heading, *rows = csv_rows(text) or [[]]
        if heading[:1] != ["round"] or len(set(heading)) != len(heading):
            return None
        # Python refuses to convert thousands of digits.
        if not all(len(row) == len(heading) and row[0].isdecimal() and len(row[0]) < 19 for row in rows):
            return None
        if name in ("metrics", "timings"):
            numbers = [[float(cell or "nan") for cell in row] for row in rows]
            if [row[0] for row in numbers] != list(range(1, len(rows) + 1)):
                return None
    except ValueError:
        return None
    upto = (row for row in rows if int(row[0]) <= round_num)
    return [{key: cell for key, cell in zip(heading, row, strict=True) if cell != ""} for row in upto]


def read_answers(folder: RunFolder) -> list[list[str]]:
    """Rows of answers.csv after its heading: round, attempt, client id, outcome.

    Without the file there are none.

    Raises:
      UserError: the file is damaged.
    """
    heading, rows = _rows(folder.answers)
    for number, row in enumerate([heading, *rows] if heading else [], 1):
        if (row != ANSWER_COLUMNS) if number == 1 else len(row) != 4 or not (row[0] + row[1]).isdecimal():
            raise UserError(f"{folder.answers}: row {number} is damaged; {_ANEW}")
    return rows


def read_client_states(folder: RunFolder, label_names: Sequence[str]) -> dict[str, dict[int, dict[str, np.ndarray]]]:
    """What a run recorded of its clients: name -> round -> client id -> float32 [C].

    Empty if it recorded nothing.

    Raises:
      UserError: the file is damaged, or its columns are not these classes.
    """
    states: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    for round_num, client, name, *values in client_state_rows(folder, label_names):
        states.setdefault(name, {}).setdefault(int(round_num), {})[client] = np.array(values, np.float32)
    return states


def client_state_rows(folder: RunFolder, label_names: Sequence[str]) -> list[list[str]]:
    """Rows of client_states.csv after its heading, or none without the file.

    Raises UserError as above.
    """
    heading, rows = _rows(folder.client_states)
    if heading not in (None, [*STATE_COLUMNS, *label_names]):
        raise UserError(f"{folder.client_states}: its columns do not match this run's classes; {_ANEW}")
    for number, row in enumerate(rows, 2):
        try:
            int(row[0]), np.array(row[len(STATE_COLUMNS) :], np.float32).reshape(len(label_names))
        except (IndexError, ValueError):
            raise UserError(f"{folder.client_states}: row {number} is damaged; {_ANEW}") from None
    return rows


def _rows(path: Path) -> tuple[list[str] | None, list[list[str]]]:
    """(heading, the other rows) of a CSV file, with an empty heading without a file."""
    if not path.exists():
        return None, []
    try:
        heading, *rows = csv_rows(path.read_bytes().decode("utf-8")) or [[]]
    except ValueError:
        raise UserError(f"{path}: is not a CSV file in UTF-8; {_ANEW}") from None
    return heading, rows


def read_precision_recall(path: Path) -> Points | None:
    """The curve of a run's precision_recall.csv, or None without the file.

    Raises:
      UserError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        heading, *rows = csv_rows(path.read_bytes().decode("utf-8")) or [[]]
        points = np.array(rows, np.float64)
        recall, precision, _ = points.T  # a ValueError for another number of columns
        shares = np.stack([recall, precision])
        bad = (np.diff(recall) < 0).any() or (np.abs(shares - 0.5) > 0.5).any() or not np.isfinite(points).all()
        if tuple(heading) != COLUMNS or bad:
            raise ValueError
        return points
    except ValueError:
        raise UserError(f"{path}: is not a precision-recall curve; remove it, then continue with --resume") from None


def read_test_units(path: Path) -> MeasuredUnits | None:
    """What a run measured on its test units, or None without test_units.npz, as in folders of older runs.

    Raises:
      UserError: it is damaged.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return MeasuredUnits.from_arrays(arrays)
    except DAMAGED:
        raise UserError(f"{path}: is damaged; put it back") from None
