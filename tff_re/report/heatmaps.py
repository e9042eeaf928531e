"""Heatmaps of counts: a partition's samples, a confusion matrix. Each function writes a PNG file, whole or not at all,
and returns the files written; it raises DataError if one cannot be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tff_re.report.drawing import (
    COLOURS,
    MAX_TICKS,
    ClassNames,
    annotate_counts,
    display_names,
    heatmap,
    hide_spines,
    integer_locator,
    name_ticks,
    new_figure,
    plain_log_ticks,
    require_shape,
    sequential,
)
from tff_re.report.partition_table import largest_and_smallest

MOST_CLIENTS = 3000
"""Clients of a picture of a partition."""


def partition_heatmap(
    path: str | os.PathLike, counts: np.ndarray, client_ids: Sequence[str], label_names: Sequence[str]
) -> list[Path]:
    """Samples of each class at each client, with the clients' sizes above.

    Args:
      path: The PNG file.
      counts: Numbers of samples [K, C].
      client_ids: K names. Of many, some are shown; of more than `MOST_CLIENTS`, only the largest and the smallest.
      label_names: C names. If no installed font has their characters, the classes are numbered and a text file next to
        the picture says which is which.

    Raises:
      ValueError: the shapes do not fit.
    """
    counts, total, classes = np.asarray(counts), len(client_ids), len(label_names)
    require_shape("counts", counts, total, classes)
    if total > MOST_CLIENTS:
        chosen = sorted(largest_and_smallest(counts.sum(axis=1), MOST_CLIENTS))
        counts, client_ids = counts[chosen], [client_ids[number] for number in chosen]
    clients = len(client_ids)
    labels = ClassNames(path, label_names)
    ids, id_font = display_names([str(c) for c in client_ids], "client")
    width, height = min(max(0.34 * clients, 3.2), 11), min(max(0.30 * classes, 1.2), 14)
    figure = new_figure(width + 2.5, height + 2.2)
    grid = figure.add_gridspec(2, 2, height_ratios=[0.9, height], width_ratios=[width, 0.16], hspace=0.02, wspace=0.02)
    sizes, axes, bar = (figure.add_subplot(grid[cell]) for cell in ((0, 0), (1, 0), (1, 1)))

    from matplotlib.colors import LogNorm

    # A class that a client lacks stays white: absence is what a partition is about.
    norm = LogNorm(1, max(int(counts.max()), 2))
    image = heatmap(axes, np.ma.masked_less_equal(counts.T, 0), cmap=sequential(), norm=norm)
    if clients * classes <= 300 and clients <= 16:
        annotate_counts(axes, counts.T, norm(np.maximum(counts.T, 1)))
    name_ticks(axes.xaxis, ids, id_font, rotate=True)
    name_ticks(axes.yaxis, labels.names, labels.font)
    several = f"client ({clients} in total)" if clients > MAX_TICKS else "client"
    axes.set_xlabel(several if clients == total else f"client (the {clients:,} largest and smallest of {total:,})")
    axes.set_ylabel(labels.title)
    colours = figure.colorbar(image, cax=bar, label="samples")
    plain_log_ticks(colours.ax.yaxis, int(counts.max()))
    colours.outline.set_visible(False)

    sizes.bar(np.arange(clients) + 0.5, counts.sum(axis=1), width=0.8 if clients <= 60 else 1, color=COLOURS[0])
    sizes.set_xlim(0, clients)
    sizes.tick_params(bottom=False, labelbottom=False)
    sizes.yaxis.set_major_locator(integer_locator(3))
    sizes.set_ylabel("samples")
    hide_spines(sizes)
    return labels.save(figure)


def confusion_png(path: str | os.PathLike, matrix: np.ndarray, label_names: Sequence[str]) -> list[Path]:
    """A confusion matrix with true classes as rows and predictions as columns.

    Colours are shares of a row, numbers are counts.

    Args:
      path: The PNG file.
      matrix: Counts [C, C].
      label_names: C names; see `partition_heatmap` for names that no font can show.

    Raises:
      ValueError: the shapes do not fit.
    """
    matrix, classes = np.asarray(matrix), len(label_names)
    require_shape("the matrix", matrix, classes, classes)
    labels = ClassNames(path, label_names)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = min(max(0.42 * classes, 2.2), 12)
    figure = new_figure(side + 2.4, side + 1.6)
    axes = figure.add_subplot()
    image = heatmap(axes, shares, cmap=sequential(), vmin=0, vmax=1)
    if classes <= 25:
        annotate_counts(axes, matrix, shares)
    axes.set_aspect("equal")
    name_ticks(axes.xaxis, labels.names, labels.font, rotate=True)
    name_ticks(axes.yaxis, labels.names, labels.font)
    axes.set_xlabel("predicted" + labels.title.removeprefix("class"))
    axes.set_ylabel("true class")
    colours = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03, aspect=24, label="share of the true class")
    colours.outline.set_visible(False)
    return labels.save(figure)
