"""Tables of a run that have a row for each client: CSV for people, and a binary table where there are too many rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import DataError
from datasets.files import csv_text, replace_file
from datasets.tables import packed_columns, read_columns
from tff_re.runs.folder import write_text

MOST_IN_CSV = 50_000
"""Rows of a table that is written as CSV; a longer one is written as `.npz`."""


def write_table(path: Path, columns: Sequence[tuple[str, Sequence[Any]]]) -> Path:
    """Writes columns of equal length as CSV, or of more than `MOST_IN_CSV` rows as a table.

    Returns the path, which has the suffix of its form.

    A cell may be None: in CSV it is empty, in a table an empty text, or NaN in a column of numbers.
    """
    names, values = [name for name, _ in columns], [column for _, column in columns]
    if len(values[0]) <= MOST_IN_CSV:
        write_text(path, csv_text([names, *zip(*values, strict=True)]))
        return path
    path = path.with_suffix(".npz")
    packed = {f"column {number}": _column(column) for number, column in enumerate(values)}
    replace_file(path, packed_columns({"columns": names, **packed}))
    return path


class Rows(Sequence):
    """The rows of a table, which are made one at a time, as dicts."""

    def __init__(self, path: Path, columns: Collection[str] = ()):
        """Reads a table.

        Raises:
          ValueError: it is damaged, or lacks one of `columns`.
        """
        try:
            stored = read_columns(path)
        except DataError as error:
            raise ValueError(str(error)) from None
        names = stored.pop("columns", None)
        if not isinstance(names, list) or not set(columns) <= set(names) or len(stored) != len(names):
            raise ValueError(f"{path}: not the columns of this table")
        try:
            self._columns = {name: stored[f"column {number}"] for number, name in enumerate(names)}
            lengths = {len(column) for column in self._columns.values()}
        except (KeyError, TypeError):
            lengths = set()
        if len(lengths) != 1:
            raise ValueError(f"{path}: not columns of one length")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, index):
        """The row of an index, or the list of a slice's."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return {name: c[index] if isinstance(c, list) else float(c[index]) for name, c in self._columns.items()}


def _column(values: Sequence[Any]) -> list[str] | np.ndarray:
    if any(isinstance(value, str) for value in values):
        return ["" if value is None else str(value) for value in values]
    return np.array([np.nan if value is None else value for value in values])
