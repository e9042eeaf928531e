"""Pictures: partitions, curves, confusion. Each is a PNG file, written whole or not at all.

matplotlib is imported on first use and without pyplot: no global state, no display.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.files import write_atomically
from tff_re.report.fonts import families_for

DPI = 200
# Okabe and Ito's colours without the yellow, then three of Paul Tol's: told apart with every kind of colour vision.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
)
MARKERS = "osD^vP*X<>"
_MAX_TICKS = 40
_GREY = "#595959"


def partition_heatmap(
    path: str | os.PathLike, counts: np.ndarray, client_ids: Sequence[str], label_names: Sequence[str]
) -> list[Path]:
    """Samples of each class at each client, with the clients' sizes above.

    Args:
      path: The PNG file.
      counts: Numbers of samples [K, C].
      client_ids: K names. Of many, some are shown.
      label_names: C names. If no installed font has their characters, the classes are numbered and a text file beside
        the picture says which is which.

    Returns:
      The files written.

    Raises:
      ValueError: the shapes do not fit.
      DataError: a file cannot be written; older files are still whole then.
    """
    counts = np.asarray(counts)
    clients, classes = len(client_ids), len(label_names)
    if counts.shape != (clients, classes) or not counts.size:
        raise ValueError(f"counts have shape {counts.shape}, needed is [{clients}, {classes}], both at least 1")
    labels = _Labels(path, label_names)
    ids, id_font = _shown([str(c) for c in client_ids], "client")

    width = min(max(0.34 * clients, 3.2), 11)
    height = min(max(0.30 * classes, 1.2), 14)
    figure = _figure(width + 2.5, height + 2.2)
    grid = figure.add_gridspec(2, 2, height_ratios=[0.9, height], width_ratios=[width, 0.16], hspace=0.02, wspace=0.02)
    sizes, axes, bar = (figure.add_subplot(grid[cell]) for cell in ((0, 0), (1, 0), (1, 1)))

    from matplotlib.colors import LogNorm

    # A class that a client lacks stays white: absence is what a partition is about.
    shown = np.ma.masked_less_equal(counts.T, 0)
    norm = LogNorm(1, max(int(counts.max()), 2))
    image = axes.pcolormesh(shown, cmap=_sequential(), norm=norm, edgecolors="white", linewidth=_line(clients, classes))
    if clients * classes <= 300 and clients <= 16:
        _annotate(axes, counts.T, lambda c: norm(max(c, 1)), small=counts.max() > 999)
    axes.invert_yaxis()
    _ticks(axes.xaxis, ids, id_font, rotate=True)
    _ticks(axes.yaxis, labels.shown, labels.font)
    axes.set_xlabel(f"client ({clients} in all)" if clients > _MAX_TICKS else "client")
    axes.set_ylabel(labels.title)
    colours = figure.colorbar(image, cax=bar)
    colours.set_label("samples")
    _plain_log_ticks(colours.ax.yaxis, int(counts.max()))
    colours.outline.set_visible(False)

    sizes.bar(np.arange(clients) + 0.5, counts.sum(axis=1), width=0.8 if clients <= 60 else 1, color=COLOURS[0])
    sizes.set_xlim(0, clients)
    sizes.tick_params(bottom=False, labelbottom=False)
    sizes.yaxis.set_major_locator(_integer_locator(3))
    sizes.set_ylabel("samples")
    _bare(sizes)
    _bare(axes, "left", "bottom", "top", "right")
    return labels.save(figure)


def confusion_png(path: str | os.PathLike, matrix: np.ndarray, label_names: Sequence[str]) -> list[Path]:
    """A confusion matrix: rows are true classes, columns predictions; colours are shares of a row, numbers are counts.

    Args:
      path: The PNG file.
      matrix: Counts [C, C].
      label_names: C names; see `partition_heatmap` for names that no font can show.

    Returns:
      The files written.

    Raises:
      ValueError: the shapes do not fit.
      DataError: a file cannot be written; older files are still whole then.
    """
    matrix, classes = np.asarray(matrix), len(label_names)
    if matrix.shape != (classes, classes) or not classes:
        raise ValueError(f"the matrix has shape {matrix.shape}, needed is [{classes}, {classes}], at least 1")
    labels = _Labels(path, label_names)
    totals = matrix.sum(axis=1, keepdims=True)
    shares = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
    side = min(max(0.42 * classes, 2.2), 12)
    figure = _figure(side + 2.4, side + 1.6)
    axes = figure.add_subplot()
    image = axes.pcolormesh(
        shares, cmap=_sequential(), vmin=0, vmax=1, edgecolors="white", linewidth=_line(classes, classes)
    )
    if classes <= 25:
        _annotate(axes, matrix, None, shares=shares, small=matrix.max() > 999)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    _ticks(axes.xaxis, labels.shown, labels.font, rotate=True)
    _ticks(axes.yaxis, labels.shown, labels.font)
    axes.set_xlabel("predicted" + labels.title.removeprefix("class"))
    axes.set_ylabel("true class")
    colours = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03, aspect=24)
    colours.set_label("share of the true class")
    colours.outline.set_visible(False)
    _bare(axes, "left", "bottom", "top", "right")
    return labels.save(figure)


def curves(
    path: str | os.PathLike,
    series: Mapping[str, Sequence[tuple[float, float, float, float]]],
    ylabel: str,
    title: str = "",
    *,
    controls: Collection[str] = (),
    band: str = "band: least to greatest over seeds",
) -> list[Path]:
    """A metric over the rounds, a line for each algorithm.

    Args:
      path: The PNG file.
      series: Algorithm to points (round, mean, low, high); the band from low to high is shaded. A line has a gap where
        the mean is not finite. An algorithm keeps its colour as long as its place in the mapping is the same.
      ylabel: The metric.
      title: Above the picture.
      controls: Algorithms drawn dashed and without markers.
      band: What the band is, said below the legend if there is any.

    Returns:
      The files written.

    Raises:
      DataError: the file cannot be written; an older one is still whole then.
    """
    names, font = _shown(list(series), "algorithm")
    figure = _figure(6.6, 3.9)
    axes = figure.add_subplot()
    any_band = False
    for number, (key, name) in enumerate(zip(series, names, strict=True)):
        points = np.array(series[key], float).reshape(-1, 4)
        rounds, mean, low, high = points[np.argsort(points[:, 0], kind="stable")].T
        control = key in controls
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            rounds,
            mean,
            color=colour,
            linestyle=(0, (5, 2)) if control else "-",
            linewidth=1.5,
            marker="" if control and len(rounds) > 1 else MARKERS[number % len(MARKERS)],
            # Some eight markers a line, each line's a little further on, so that they do not cover each other.
            markevery=(number * max(len(rounds) // 80, 0), max(len(rounds) // 8, 1)),
            markersize=4.5,
            markeredgewidth=0,
            label=name or " ",
        )
        if np.any(high > low):
            any_band = True
            axes.fill_between(rounds, low, high, color=colour, alpha=0.13, linewidth=0)
    _round_axis(axes)
    _text(axes.set_ylabel(ylabel))
    _text(axes.set_title(title, loc="left", fontsize=10))
    if series:
        handles = axes.get_lines()
        legend = axes.legend(
            handles,
            [handle.get_label() for handle in handles],
            loc="upper left",
            bbox_to_anchor=(1.01, 1.02),
            frameon=False,
            title=band if any_band else None,
            title_fontsize=7,
            alignment="left",
            handlelength=2.6,
        )
        for text in legend.get_texts():
            _text(text, font)
    return _save(figure, path)


def run_curves(path: str | os.PathLike, rows: Sequence[Mapping[str, Any]], title: str = "") -> list[Path]:
    """Loss and accuracy of one run over its rounds, in two panels.

    Args:
      path: The PNG file.
      rows: Rows of the run's metrics, as numbers or as strings of a CSV file: `round`, and any columns whose names hold
        'loss' or 'accuracy' (`train_loss`, `test_accuracy` …). Empty or absent values are passed over.
      title: Above the picture.

    Returns:
      The files written.

    Raises:
      ValueError: a row has no `round`, or a value is no number.
      DataError: the file cannot be written; an older one is still whole then.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    figure = _figure(8.4, 3.3)
    for panel, kind in enumerate(("loss", "accuracy"), 1):
        axes = figure.add_subplot(1, 2, panel)
        names = [name for name in columns if kind in name.lower()]
        for number, name in enumerate(names):
            points = [(_number(row.get("round")), _number(row.get(name))) for row in rows]
            if any(r is None for r, _ in points):
                raise ValueError("a row of the metrics has no round")
            points = [point for point in points if point[1] is not None]
            axes.plot(
                *np.array(points, float).reshape(-1, 2).T,
                color=COLOURS[number % len(COLOURS)],
                linewidth=1.5,
                marker=MARKERS[number % len(MARKERS)] if len(points) <= 30 else "",
                markersize=4,
                markeredgewidth=0,
                label=name.replace("_", " ").strip() or " ",
            )
        _round_axis(axes)
        axes.set_ylabel(kind)
        if not names:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=_GREY)
        elif len(names) > 1 or names[0] != kind:
            # Above the panel: inside it a legend would cover some curve or other.
            legend = axes.legend(
                loc="lower left",
                bbox_to_anchor=(-0.02, 1.0),
                ncols=min(len(names), 3),
                frameon=False,
                borderaxespad=0.2,
            )
            for text in legend.get_texts():
                _text(text)
    _text(figure.suptitle(title, x=0.01, ha="left", fontsize=10))
    return _save(figure, path)


def _number(value: Any) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return float(value)


# Names


class _Labels:
    """Class names as far as a font can show them, else numbers and a file that explains them."""

    def __init__(self, path: str | os.PathLike, names: Sequence[str]):
        self._path, self._names = Path(path), [str(name) for name in names]
        self._legend = self._path.with_suffix(".labels.txt")
        self.font = families_for(self._names)
        self.shown = self._names if self.font else [str(number) for number in range(len(names))]
        self.title = "class" if self.font else f"class (names in {self._legend.name})"

    def save(self, figure) -> list[Path]:
        files = _save(figure, self._path)
        if self.font:
            return files
        lines = [f"{number}\t{' '.join(name.split())}\n" for number, name in enumerate(self._names)]
        write_atomically(self._legend, "".join(lines).encode("utf-8", "replace"))
        return [*files, self._legend]


def _shown(names: list[str], kind: str) -> tuple[list[str], list[str] | None]:
    font = families_for(names)
    return (names, font) if font else ([f"{kind} {number}" for number in range(1, len(names) + 1)], None)


def _text(text, font: list[str] | None = None):
    """Takes a name as it stands: a dollar sign in it does not start a formula."""
    text.set_parse_math(False)
    if font:
        text.set_fontfamily(font)
    return text


# Axes


def _ticks(axis, names: list[str], font: list[str] | None, *, rotate: bool = False) -> None:
    """Names at the middles of the cells 0..n: all of at most 40, of more every second, fifth, tenth …"""
    steps = (s * 10**p for p in range(9) for s in (1, 2, 5))
    step = next(s for s in steps if len(names) <= s * _MAX_TICKS)
    shown = [name if len(name) <= 24 else name[:23] + "…" for name in names[::step]]
    axis.set_ticks(np.arange(0, len(names), step) + 0.5, shown)
    upright = rotate and max(map(len, shown)) > 3
    for label in axis.get_ticklabels():
        _text(label, font)
        label.set_fontsize(8 if len(shown) <= 25 else 7)
        if upright:
            label.set_rotation(90)
    axis.set_tick_params(length=0 if step == 1 else 2)


def _annotate(axes, values: np.ndarray, dark, *, shares: np.ndarray | None = None, small: bool = False) -> None:
    for (row, column), value in np.ndenumerate(values):
        if value > 0:
            level = dark(value) if shares is None else shares[row, column]
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{value:g}" if value < 1e5 else f"{value / 1000:.0f}k",
                ha="center",
                va="center",
                fontsize=5.5 if small else 7,
                color="white" if level > 0.55 else "black",
            )


def _sequential():
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Without the palest tenth, which could not be told from white, i.e. from none.
    return ListedColormap(colormaps["Blues"](np.linspace(0.12, 1, 256)))


def _line(columns: int, rows: int) -> float:
    return 0.8 if max(columns, rows) <= 60 else 0.2


def _plain_log_ticks(axis, largest: int) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    values = [s * 10**p for p in range(int(math.log10(max(largest, 1))) + 1) for s in (1, 2, 5)]
    values = [v for v in values if v <= max(largest, 2)]
    if len(values) > 7:
        values = [v for v in values if str(v)[0] == "1"]
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _integer_locator(count: int):
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count, integer=True)


def _round_axis(axes) -> None:
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(_integer_locator(8))
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    _bare(axes)


def _bare(axes, *sides: str) -> None:
    for side in sides or ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure(width: float, height: float):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure, path: str | os.PathLike) -> list[Path]:
    data = io.BytesIO()
    # Tight: a legend outside of the axes may need more room than planned. No date, no version: same data, same bytes.
    figure.savefig(data, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.06, metadata={"Software": None})
    write_atomically(path, data.getvalue())
    return [Path(path)]
