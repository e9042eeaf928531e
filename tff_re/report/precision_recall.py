"""Curves of precision over recall: of one run, and of several methods over their seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from datasets.files import csv_text, write_atomically
from tff_re.report.drawing import BAND, COLOURS, display_names, line_axes, save_png, side_legend

Points = np.ndarray
"""float64 [n, 3]: recall, precision, least score; from the most certain prediction down."""

COLUMNS = ("recall", "precision", "score")
GRID = np.linspace(0, 1, 101)
"""The recalls at which several curves are averaged."""


def write_precision_recall(path: str | os.PathLike, points: Points) -> None:
    """Writes a curve as a CSV file with the columns recall, precision, score. Raises DataError if it cannot."""
    write_atomically(path, csv_text([COLUMNS, *np.asarray(points, np.float64).tolist()]).encode("utf-8"))


def on_grid(points: Points) -> np.ndarray:
    """Precision at each recall of `GRID`: that of the first prediction which reaches it.

    It is NaN beyond the curve's end, which may be below a recall of one (facts that are not candidates are never
    found).
    """
    recall, precision = points[:, 0], points[:, 1]
    return np.append(precision, np.nan)[np.searchsorted(recall, GRID - 1e-12)]


def precision_recall_png(
    path: str | os.PathLike, series: Mapping[str, Sequence[Points]], title: str = ""
) -> list[Path]:
    """Precision over recall, a line for each method: the mean over its seeds, from least to greatest shaded.

    Args:
      path: The PNG file.
      series: Method to its curves, one for each seed.
      title: Above the picture.

    Returns:
      The files written.

    Raises:
      DataError: the file cannot be written; an older one is still whole then.
    """
    names, font = display_names(list(series), "algorithm")
    figure, axes = line_axes(title, "recall", "precision")
    several = any(len(seeds) > 1 for seeds in series.values())
    for number, seeds in enumerate(series.values()):
        values, colour = np.array([on_grid(points) for points in seeds]), COLOURS[number % len(COLOURS)]
        axes.plot(GRID, values.mean(0), color=colour, linewidth=1.5)
        if len(values) > 1:
            axes.fill_between(GRID, values.min(0), values.max(0), color=colour, alpha=0.1, linewidth=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.grid(color="#E5E5E5", linewidth=0.6)
    side_legend(axes, axes.get_lines(), [name or " " for name in names], font, BAND if several else None)
    return save_png(figure, path)


def precision_recall_table(path: str | os.PathLike, series: Mapping[str, Sequence[Points]]) -> Path:
    """The same as a CSV file: recall, and the mean precision of each method, empty where a seed does not reach the
    recall. Raises DataError as the picture does."""
    means = [np.mean([on_grid(points) for points in seeds], axis=0) for seeds in series.values()]
    rows = [[None if np.isnan(value) else value for value in row] for row in np.column_stack([GRID, *means]).tolist()]
    write_atomically(path, csv_text([("recall", *series), *rows]).encode("utf-8"))
    return Path(path)
