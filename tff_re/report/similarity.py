"""FedCMC's Figure 1 (Du, He and Jin, Section 3.2), and the paper's observations on it as numbers.

The figure shows the labels of the clients next to the local average similarities d_{k,c} of their classifiers (Eq. 10).
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tff_re.report.drawing import (
    COLOURS,
    ClassNames,
    annotate,
    annotate_counts,
    display_names,
    heatmap,
    hide_spines,
    integer_locator,
    name_ticks,
    new_figure,
    require_shape,
    sequential,
)

_CELL_WIDTH, _CELL_HEIGHT = 0.42, 0.22  # inches that a number in a cell needs
_MOST_NUMBERED = (60, 24)  # clients, classes; the cells of more are too small for numbers
_ABSENT = "#E3E3E3"


def similarity_figure(
    path: str | os.PathLike,
    counts: np.ndarray,
    clients: Sequence[str],
    label_names: Sequence[str],
    similarities: Mapping[int, np.ndarray],
) -> list[Path]:
    """Samples by client and class (a), the global distribution (b), the similarities in each given round (c, d, …).

    All rounds share a scale of colours, on which a low similarity is dark, like a large number of samples.

    Args:
      path: The PNG file.
      counts: Numbers of training samples [K, C].
      clients: K names.
      label_names: C names; see `partition_heatmap` for names that no font can show.
      similarities: Round to d [K, C], NaN for a client without a value in that round; a panel each, by round.

    Returns:
      The files written.

    Raises:
      ValueError: the shapes do not fit, or there is no round or no similarity.
      DataError: a file cannot be written; older files are still whole then.
    """
    counts, shape = np.asarray(counts), (len(clients), len(label_names))
    require_shape("counts", counts, *shape)
    for round_num, matrix in similarities.items():
        require_shape(f"the matrix of round {round_num}", np.asarray(matrix), *shape)
    values = np.array([value for matrix in similarities.values() for value in np.ravel(matrix) if np.isfinite(value)])
    if not values.size:
        raise ValueError("there are no similarities to draw")
    from matplotlib.colors import LogNorm, Normalize

    labels, (ids, id_font) = ClassNames(path, label_names), display_names([str(c) for c in clients], "client")
    numbered = all(size <= limit for size, limit in zip(shape, _MOST_NUMBERED, strict=True))
    width, height = min(max(_CELL_WIDTH * shape[1], 1.9), 10), min(max(_CELL_HEIGHT * shape[0], 1.5), 14)
    panels = 1 + len(similarities)
    figure = new_figure(width * panels + 1.2, height + 2.6)
    grid = figure.add_gridspec(2, panels, height_ratios=[1.0, height])

    def panel(column: int, title: str, matrix, **colours):
        axes = figure.add_subplot(grid[1, column])
        image = heatmap(axes, matrix, **colours)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel(labels.title)
        name_ticks(axes.xaxis, labels.names, labels.font, rotate=True)
        axes.set_yticks([])
        return axes, image

    norm = LogNorm(1, max(int(counts.max()), 2))
    axes, _ = panel(0, "(a) samples", np.ma.masked_less_equal(counts, 0), cmap=sequential(), norm=norm)
    name_ticks(axes.yaxis, ids, id_font)
    axes.set_ylabel("client")
    if numbered:
        annotate_counts(axes, counts, norm(np.maximum(counts, 1)))

    low, high = values.min(), max(values.max(), values.min() + 1e-6)
    norm, decimals = Normalize(low, high), 2 if high - low >= 0.1 else 3
    for column, (round_num, matrix) in enumerate(sorted(similarities.items()), 1):
        title = f"({chr(ord('b') + column)}) similarity, round {round_num}"
        axes, image = panel(column, title, np.ma.masked_invalid(matrix), cmap=_low_is_dark(), norm=norm)
        axes.set_facecolor(_ABSENT)
        if numbered:
            annotate(axes, matrix, 1 - norm(matrix), lambda value: _digits(value, decimals), 6)

    everybody = figure.add_subplot(grid[0, 0])
    everybody.bar(np.arange(shape[1]) + 0.5, counts.sum(axis=0), color=COLOURS[0])
    everybody.set_xlim(0, shape[1])
    everybody.tick_params(bottom=False, labelbottom=False)
    everybody.yaxis.set_major_locator(integer_locator(3))
    everybody.set_title("(b) samples of all clients", loc="left", fontsize=9)
    hide_spines(everybody)

    bar = figure.add_subplot(grid[0, 1:].subgridspec(3, 1, height_ratios=[1, 0.35, 1])[1])
    colours = figure.colorbar(image, cax=bar, orientation="horizontal")
    absent = any(np.isnan(matrix).any() for matrix in similarities.values())
    colours.set_label("local average similarity" + ("; grey: none in this round" if absent else ""))
    colours.outline.set_visible(False)
    return labels.save(figure)


class RankCorrelations(NamedTuple):
    """Spearman's rank correlations of the numbers of samples N_k^c with the similarities d_{k,c} in a round.

    A correlation is NaN where there is nothing to correlate.

    Attributes:
      across_classes: in the rows, a client's classes; the mean over clients. Observation 1: below zero in the first
        rounds.
      across_clients: in the columns, the clients of a class; the mean over classes. Observation 3: below zero in all
        rounds.
    """

    across_classes: float
    across_clients: float


def rank_correlations(counts: np.ndarray, similarity: np.ndarray) -> RankCorrelations:
    """The paper's observations on a round. Rows and columns in which either side is constant do not enter the means.

    Args:
      counts: Numbers of training samples [K, C].
      similarity: d [K, C], NaN for a client without a value in the round, which is left out.

    Raises:
      ValueError: the shapes differ.
    """
    counts, similarity = np.asarray(counts), np.asarray(similarity, float)
    if counts.shape != similarity.shape or counts.ndim != 2:
        raise ValueError(f"counts have shape {counts.shape} and similarities {similarity.shape}; both must be [K, C]")
    return RankCorrelations(
        _mean_correlation(zip(counts, similarity, strict=True)),
        _mean_correlation(zip(counts.T, similarity.T, strict=True)),
    )


def first_and_last(
    recorded: Mapping[int, Mapping[str, np.ndarray]], clients: Sequence[str], num_classes: int
) -> dict[int, np.ndarray]:
    """The first and the last recorded round as matrices.

    Args:
      recorded: Round to client to d [C], as `tff_re.runs.checkpoints.read_client_states` gives it.
      clients: K names, the rows.
      num_classes: C.

    Returns:
      Round to d [K, C], NaN for a client that has no value in the round; empty if nothing is recorded.
    """
    absent = np.full(num_classes, np.nan)
    rounds = sorted({min(recorded), max(recorded)}) if recorded else []
    return {r: np.array([recorded[r].get(client, absent) for client in clients]) for r in rounds}


def _mean_correlation(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    from scipy.stats import spearmanr

    correlations = []
    for samples, similarity in pairs:
        present = np.isfinite(similarity)
        both = samples[present], similarity[present]
        if all(len(set(values)) > 1 for values in both):
            correlations.append(spearmanr(*both)[0])
    return statistics.fmean(correlations) if correlations else math.nan


def _digits(value: float, decimals: int) -> str:
    return f"{round(float(value), decimals) + 0.0:.{decimals}f}" if math.isfinite(value) else ""  # not -0.00


def _low_is_dark():
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["Oranges"](np.linspace(1, 0.08, 256)))
