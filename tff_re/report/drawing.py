"""Shared by the pictures: names that a font can show, axes, cells with numbers, files written whole.

matplotlib is imported on first use and without pyplot: no global state, no display.
"""

from __future__ import annotations

import functools
import io
import math
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from datasets.files import write_atomically

DPI = 200
# Okabe and Ito's colours without the yellow, then three of Paul Tol's: told apart with every kind of colour vision.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#882255", "#999933", "#332288"),
)
SPLIT_COLOURS = dict(zip(("test", "train", "dev", "local"), COLOURS, strict=False))
"""Split of a metric -> its colour in every chart of a run."""

MARKERS = "osD^vP*X<>"
DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
MAX_TICKS = 40
GREY = "#595959"
BAND = "band: lowest to highest over seeds"
"""What a legend says of the shaded bands."""

# matplotlib's own font has no Chinese, and shows a box for each character that it lacks.
_OWN = "DejaVu Sans"
_PREFERRED = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"),
    *("Microsoft YaHei", "PingFang SC", "SimHei", "Droid Sans Fallback"),
)
# They have a glyph for every code point: a box.
_BOXES = ("last resort", "lastresort", "notdef")


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Metric (`test/loss`, `train_accuracy`) -> the colour of its split.

    If a split has several metrics, the first gets its colour. The others, and metrics without a split, get the
    remaining colours in order.
    """
    colour_of: dict[str, str] = {}
    for name in names:
        colour = SPLIT_COLOURS.get(re.split("[/_]", name)[0])
        if colour is not None and colour not in colour_of.values():
            colour_of[name] = colour
    free = [colour for colour in COLOURS if colour not in SPLIT_COLOURS.values()]
    others = (name for name in names if name not in colour_of)
    return colour_of | {name: free[number % len(free)] for number, name in enumerate(others)}


# Names


def families_for(texts) -> list[str] | None:
    """Font families that together show every character of the texts, or None if no installed font does."""
    characters = frozenset(c for text in texts for c in text)
    return _families(frozenset(map(ord, characters))) if all(map(str.isprintable, characters)) else None


@functools.lru_cache(maxsize=8)
def _families(characters: frozenset[int]) -> list[str] | None:
    from matplotlib.font_manager import fontManager

    files = {}
    for entry in fontManager.ttflist:
        if entry.style != "normal" or any(mark in entry.name.lower() for mark in _BOXES):
            continue
        # The regular weight stands for its family: it is the one that gets drawn.
        if entry.name not in files or entry.weight in (400, "normal", "regular"):
            files[entry.name] = entry.fname
    missing = characters - (_covered(files[_OWN]) if _OWN in files else set())
    if not missing:
        return [_OWN]
    for name in [*_PREFERRED, *sorted(files)]:
        if name in files and missing <= _covered(files[name]):
            return [_OWN, name]
    return None


@functools.lru_cache(maxsize=512)
def _covered(file: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):  # a font file that is gone or broken
        return frozenset()


class ClassNames:
    """Class names as far as a font can show them, else numbers and a file that explains them.

    Attributes:
      names: what to write at an axis, in these fonts:
      font: or None for matplotlib's own.
      title: of that axis.
    """

    def __init__(self, path: str | os.PathLike, names: Sequence[str]):
        self._path, self._names = Path(path), [str(name) for name in names]
        self._legend = self._path.with_suffix(".labels.txt")
        self.font = families_for(self._names)
        self.names = self._names if self.font else [str(number) for number in range(len(names))]
        self.title = "class" if self.font else f"class (names in {self._legend.name})"

    def save(self, figure) -> list[Path]:
        files = save_png(figure, self._path)
        if self.font:
            return files
        lines = [f"{number}\t{' '.join(name.split())}\n" for number, name in enumerate(self._names)]
        write_atomically(self._legend, "".join(lines).encode("utf-8", "replace"))
        return [*files, self._legend]


def display_names(names: list[str], kind: str) -> tuple[list[str], list[str] | None]:
    """(names, fonts that show them), or where no font does numbers after `kind`, and None."""
    font = families_for(names)
    return (names, font) if font else ([f"{kind} {number}" for number in range(1, len(names) + 1)], None)


def literal(text, font: list[str] | None = None):
    """Shows a name literally: a dollar sign in it does not start a formula."""
    text.set_parse_math(False)
    if font:
        text.set_fontfamily(font)
    return text


# Axes


def name_ticks(axis, names: list[str], font: list[str] | None, *, rotate: bool = False) -> None:
    """Names at the middles of the cells 0..n: all of at most 40, of more every second, fifth, tenth …"""
    steps = (s * 10**p for p in range(9) for s in (1, 2, 5))
    step = next(s for s in steps if len(names) <= s * MAX_TICKS)
    labels = [name if len(name) <= 24 else name[:23] + "…" for name in names[::step]]
    axis.set_ticks(np.arange(0, len(names), step) + 0.5, labels)
    upright = rotate and max(map(len, labels)) > 3
    for label in axis.get_ticklabels():
        literal(label, font)
        label.set_fontsize(8 if len(labels) <= 25 else 7)
        if upright:
            label.set_rotation(90)
    axis.set_tick_params(length=0 if step == 1 else 2)


def heatmap(axes, matrix, **colours):
    """Draws cells [rows, columns] from the top down with white lines between them and returns the image."""
    width = 0.8 if max(np.shape(matrix)) <= 60 else 0.2
    image = axes.pcolormesh(matrix, edgecolors="white", linewidth=width, **colours)
    axes.invert_yaxis()
    hide_spines(axes, "left", "bottom", "top", "right")
    return image


def annotate_counts(axes, counts: np.ndarray, levels: np.ndarray) -> None:
    """Writes the counts that are above 0 into their cells."""

    def text(count) -> str:
        return "" if count <= 0 else f"{count:g}" if count < 1e5 else f"{count / 1000:.0f}k"

    annotate(axes, counts, levels, text, 5.5 if counts.max() > 999 else 7)


def annotate(axes, values: np.ndarray, levels: np.ndarray, text: Callable[[float], str], size: float) -> None:
    """Writes the text of each value into its cell, white where the level of its colour (0 to 1) is dark."""
    for cell, value in np.ndenumerate(values):
        if label := text(value):
            color = "white" if levels[cell] > 0.55 else "black"
            row, column = cell
            axes.text(column + 0.5, row + 0.5, label, ha="center", va="center", fontsize=size, color=color)


def require_shape(what: str, array: np.ndarray, *shape: int) -> None:
    """Raises ValueError for an array of another shape, or an empty one."""
    if array.shape != shape or not array.size:
        raise ValueError(f"{what} has shape {array.shape}, but must be {list(shape)}, at least 1 each")


def sequential():
    """The colours for numbers and shares of samples."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Without the palest tenth, which could not be told from white, i.e. from none.
    return ListedColormap(colormaps["Blues"](np.linspace(0.12, 1, 256)))


def plain_log_ticks(axis, largest: int) -> None:
    """1, 2, 5, 10 … up to the largest, in digits."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    tens = [10**p for p in range(int(math.log10(max(largest, 1))) + 1)]
    values = [s * ten for ten in tens for s in (1, 2, 5) if s * ten <= max(largest, 2)]
    if len(values) > 7:
        values = tens
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def integer_locator(count: int):
    """At most `count` ticks and one more, at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count, integer=True)


def hide_spines(axes, *sides: str) -> None:
    """Hides the axes' lines on these sides, or on the top and the right."""
    for side in sides or ("top", "right"):
        axes.spines[side].set_visible(False)


def side_legend(axes, handles, names: Sequence[str], font: list[str] | None, title: str | None = None, **options):
    """A legend to the right of the axes, with its names in these fonts.

    `title` is printed small above it.
    """
    position = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "frameon": False, "alignment": "left"}
    legend = axes.legend(handles, names, title=title, title_fontsize=7, **position, **options)
    for text in legend.get_texts():
        literal(text, font)


def marker(number: int) -> str:
    """The marker of the line of this number.

    Where colours repeat, the markers differ.
    """
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def line_axes(title: str, xlabel: str, ylabel: str, lines: int = 1):
    """A figure and its axes for a number of lines, one for each algorithm, over x.

    It is as high as their legend.
    """
    figure = new_figure(6.6, max(3.9, 0.24 * lines))
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    literal(axes.set_ylabel(ylabel))
    literal(axes.set_title(textwrap.fill(title, 84), loc="left", fontsize=10))
    axes.set_axisbelow(True)
    hide_spines(axes)
    return figure, axes


def new_figure(width: float, height: float):
    """An empty figure of this width and height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure, path: str | os.PathLike) -> list[Path]:
    """Writes the whole figure or nothing and returns a list of the file.

    Raises:
      DataError: the file cannot be written; an older one is still whole then.
    """
    data = io.BytesIO()
    # Tight: a legend outside of the axes may need more room than planned. No date, no version: same data, same bytes.
    figure.savefig(data, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.06, metadata={"Software": None})
    write_atomically(path, data.getvalue())
    return [Path(path)]
