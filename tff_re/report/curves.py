"""Lines: metrics over rounds or over the values of a setting. Each function writes a PNG file, whole or not at all, and
returns the files written; it raises DataError if one cannot be written."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tff_re.report.drawing import (
    BAND,
    COLOURS,
    DASHES,
    GREY,
    colours_of,
    display_names,
    hide_spines,
    integer_locator,
    line_axes,
    literal,
    marker,
    new_figure,
    save_png,
    side_legend,
)


def curves(
    path: str | os.PathLike,
    series: Mapping[str, Sequence[tuple[float, float, float, float]]],
    ylabel: str,
    title: str = "",
    *,
    xlabel: str = "round",
    controls: Collection[str] = (),
) -> list[Path]:
    """A metric over the rounds, or over what was sent or done up to their ends, a line for each algorithm.

    Args:
      path: The PNG file.
      series: Algorithm to points (x, mean, low, high); the band from low to high is shaded, where there are ten
        algorithms at most. A line has a gap where the mean is not finite. An algorithm keeps its colour as long as its
        place in the mapping is the same.
      ylabel: The metric.
      title: Above the picture.
      xlabel: What the x are.
      controls: Algorithms drawn dashed and without markers.
    """
    names, font = display_names(list(series), "algorithm")
    figure, axes = line_axes(title, xlabel, ylabel, len(series))
    any_band, few = False, len(series) <= len(COLOURS)
    for number, (key, values) in enumerate(series.items()):
        points = np.array(values, float).reshape(-1, 4)
        rounds, mean, low, high = points[np.argsort(points[:, 0], kind="stable")].T
        control, colour = key in controls, COLOURS[number % len(COLOURS)]
        axes.plot(
            rounds,
            mean,
            color=colour,
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)] if control else "-",
            linewidth=1.5,
            marker="" if control and len(rounds) > 1 else marker(number),
            # About eight markers a line, shifted from line to line, so that they do not cover each other.
            markevery=(number * max(len(rounds) // 80, 0), max(len(rounds) // 8, 1)),
            markersize=4.5,
            markeredgewidth=0,
        )
        if few and np.any(high > low):  # of more, bands would hide the lines
            any_band = True
            axes.fill_between(rounds, low, high, color=colour, alpha=0.13, linewidth=0)
    _x_axis(axes, xlabel, whole=xlabel == "round")
    if series:
        labels = [name or " " for name in names]
        side_legend(axes, axes.get_lines(), labels, font, BAND if any_band else None, handlelength=2.6)
    return save_png(figure, path)


def over_values(
    path: str | os.PathLike,
    lines: Mapping[str, Sequence[tuple[str, float, float, float]]],
    xlabel: str,
    ylabel: str,
    title: str = "",
) -> list[Path]:
    """A metric over the values of a setting, which stand at equal distances in the order of their first appearance.

    Args:
      path: The PNG file.
      lines: Line to points (value, mean, low, high); bars go from low to high.
      xlabel: The setting.
      ylabel: The metric.
      title: Above the picture.
    """
    names, font = display_names(list(lines), "line")
    figure, axes = line_axes(title, xlabel, ylabel)
    values = list(dict.fromkeys(point[0] for points in lines.values() for point in points))
    for number, points in enumerate(lines.values()):
        at, *numbers = zip(*sorted(points, key=lambda point: values.index(point[0])), strict=True)
        mean, low, high = np.array(numbers, float)
        # Side by side, so that bars do not cover each other.
        places = [values.index(value) + 0.06 * (number - (len(lines) - 1) / 2) for value in at]
        axes.errorbar(
            places,
            mean,
            yerr=np.stack([mean - low, high - mean]),
            color=COLOURS[number % len(COLOURS)],
            marker=marker(number),
            markersize=5,
            linewidth=1.3,
            elinewidth=1,
            capsize=2,
        )
    room = max(1, 60 // len(values))  # characters
    axes.set_xticks(range(len(values)), ["\n".join(textwrap.wrap(value, room)) or value for value in values])
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    side_legend(axes, axes.containers, [name or " " for name in names], font, "bars: 95 % interval over seeds (t)")
    return save_png(figure, path)


def run_curves(path: str | os.PathLike, rows: Sequence[Mapping[str, Any]], title: str = "") -> list[Path]:
    """Loss and accuracy of one run over its rounds, in two panels.

    Instead of the accuracy, a ranking has its area under the curve and a threshold its F1.

    Args:
      path: The PNG file.
      rows: Rows of the run's metrics, as numbers or as strings of a CSV file: `round`, and any columns whose names hold
        'loss', and 'accuracy', 'auc' or 'f1' (`train_loss`, `test_accuracy` …). Empty or absent values are left out.
      title: Above the picture.

    Raises:
      ValueError: a row has no `round`, or a value is not a number.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    figure = new_figure(8.4, 3.3)
    quality = next((k for k in ("accuracy", "auc", "f1") if any(k in name.lower() for name in columns)), "accuracy")
    for panel, kind in enumerate(("loss", quality), 1):
        axes = figure.add_subplot(1, 2, panel)
        names = [name for name in columns if kind in name.lower()]
        colours = colours_of(names)
        for number, name in enumerate(names):
            points = [(_number(row.get("round")), _number(row.get(name))) for row in rows]
            if any(r is None for r, _ in points):
                raise ValueError("a row of the metrics has no round")
            points = [point for point in points if point[1] is not None]
            axes.plot(
                *np.array(points, float).reshape(-1, 2).T,
                color=colours[name],
                linewidth=1.5,
                marker=marker(number) if len(points) <= 30 else "",
                markersize=4,
                markeredgewidth=0,
                label=name.replace("_", " ").strip() or " ",
            )
        _x_axis(axes, "round", whole=True)
        axes.set_ylabel(kind)
        if not names:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=GREY)
        elif len(names) > 1 or names[0] != kind:
            # Above the panel: inside it a legend would cover some curve or other.
            position = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "borderaxespad": 0.2}
            for text in axes.legend(ncols=min(len(names), 3), frameon=False, **position).get_texts():
                literal(text)
    literal(figure.suptitle(title, x=0.01, ha="left", fontsize=10))
    return save_png(figure, path)


def _number(value: Any) -> float | None:
    return None if value is None or not str(value).strip() else float(value)


def _x_axis(axes, label: str, *, whole: bool) -> None:
    axes.set_xlabel(label)
    if whole:
        axes.xaxis.set_major_locator(integer_locator(8))
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    hide_spines(axes)
