"""Charts for a page: to hover over, to zoom into, with lines that a click hides. Bokeh, with nothing fetched from
elsewhere; the page holds Bokeh's JavaScript itself.

Which charts a page has: `run_page.py`, `comparison_page.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tff_re.report.drawing import COLOURS

Curve = Sequence[tuple[float, float, float, float]]
"""(x, mean, least, greatest)."""

_HEIGHT, _LEGEND_ROW, _MOST_NAMED = 300, 20, 45
_DASHES = ("solid", "dashed", "dotdash")

MOST_DOTS = 2_000
"""Names that `dots` draws."""


def embedded(charts: Sequence[Any]) -> tuple[str, list[str]]:
    """(JavaScript of Bokeh and of the charts as one `script` element each, the `div` of each chart)."""
    from bokeh.embed import components
    from bokeh.resources import Resources

    library = Resources(mode="inline", components=["bokeh"], minified=True).render_js()
    if not charts:
        return "", []
    script, places = components(list(charts))
    return f"{library}\n{script}", list(places)


def lines(
    series: Mapping[str, Curve],
    xlabel: str,
    ylabel: str,
    *,
    controls: Collection[str] = (),
    percent: bool = False,
    band: str = "least, greatest",
    colours: Mapping[str, str] | None = None,
):
    """A line for each algorithm, with the band between its last two values, called `band`.

    Controls are dashed. `colours`: of all lines; by default they are assigned in order.
    """
    from bokeh.models import ColumnDataSource, HoverTool

    several = any(high > low for points in series.values() for _, _, low, high in points)
    figure = _figure(xlabel, ylabel)
    _percent_axis(figure.yaxis[0], percent)
    figure.y_range.default_span = 0.1  # about a line that is level
    drawn, hovered = [], []
    for number, (name, points) in enumerate(series.items()):
        points = sorted(points, key=lambda point: point[0])
        if not points:
            continue
        x, mean, low, high = np.array(points, float).T
        source = ColumnDataSource({"x": x, "mean": mean, "low": low, "high": high})
        colour = COLOURS[number % len(COLOURS)] if colours is None else colours[name]
        dash = "dashed" if name in controls else _DASHES[number // len(COLOURS) % len(_DASHES)]
        parts = [figure.line("x", "mean", source=source, color=colour, line_dash=dash, line_width=2)]
        dots = figure.scatter("x", "mean", source=source, color=colour, size=5, name=_plain(name))
        parts.append(dots)
        hovered.append(dots)
        if np.any(high > low):
            parts.append(figure.varea("x", "low", "high", source=source, fill_color=colour, fill_alpha=0.12))
        drawn.append((_plain(name), parts))
    digits = "0.00 %" if percent else "0.0000"
    tips = [("", "$name"), (_plain(xlabel), "@x{0,0.[00]}"), (_plain(ylabel), f"@mean{{{digits}}}")]
    if several:
        tips += [(band, f"@low{{{digits}}}, @high{{{digits}}}")]
    figure.add_tools(HoverTool(renderers=hovered, tooltips=tips))
    _legend(figure, drawn)
    return figure


def cells(
    matrix: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_title: str,
    column_title: str,
    value: str,
    percent: bool = False,
    logarithmic: bool = False,
    by_row: bool = False,
):
    """A matrix as coloured cells, white where a value is 0 or not finite.

    Args:
      value: what a cell's number is.
      percent: shown in percent, and coloured from 0 to 1.
      logarithmic: counts of very different size; the colours are of their logarithm.
      by_row: the colours are shares of a row.
    """
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.palettes import Blues256

    values = np.array(matrix, float).reshape(len(rows), len(columns))
    finite = np.where(np.isfinite(values), values, 0)
    if by_row:
        levels = finite / np.maximum(finite.sum(axis=1, keepdims=True), 1)
    elif percent:
        levels = finite
    else:
        scaled = np.log1p(finite) if logarithmic else finite
        levels = scaled / max(scaled.max(initial=0), 1e-12)
    shades = (230 - np.clip(levels, 0, 1) * 230).astype(int)  # Blues256 begins with the darkest
    colours = np.where(finite > 0, np.array(Blues256)[shades], "#ffffff")
    index = np.indices(values.shape).reshape(2, -1)
    source = ColumnDataSource(
        {
            "x": index[1] + 0.5,
            "y": index[0] + 0.5,
            "row": [_plain(rows[number]) for number in index[0]],
            "column": [_plain(columns[number]) for number in index[1]],
            "value": values.ravel(),
            "colour": colours.ravel(),
        }
    )
    height = min(max(26 * len(rows), 60), 900)
    figure = _figure(
        column_title,
        row_title,
        height + 90 + (50 if sum(map(len, columns)) > 40 else 0),
        (0, len(columns)),
        (len(rows), 0),
    )
    drawn = figure.rect("x", "y", 1, 1, source=source, fill_color="colour", line_color="#e5e5e5", line_width=0.5)
    if len(columns) <= 12 and values.size <= 300:
        texts = [f"{100 * v:.1f}" if percent else f"{v:,.0f}" for v in finite.ravel()]
        texts = [text if v else "" for text, v in zip(texts, finite.ravel(), strict=True)]
        data = {"x": index[1] + 0.5, "y": index[0] + 0.5, "text": texts}
        data["colour"] = np.where(levels.ravel() > 0.55, "#ffffff", "#1b1f24")
        ways = {"text_align": "center", "text_baseline": "middle", "text_font_size": "11px", "text_color": "colour"}
        figure.text("x", "y", "text", source=ColumnDataSource(data), **ways)
    number_format = "@value{0.0 %}" if percent else "@value{0,0.[00]}"
    tips = [(_plain(row_title), "@row"), (_plain(column_title), "@column"), (_plain(value), number_format)]
    figure.add_tools(HoverTool(renderers=[drawn], tooltips=tips))
    _name_ticks(figure.xaxis[0], columns, upright=True)
    _name_ticks(figure.yaxis[0], rows)
    figure.grid.visible = False
    return figure


def bars(names: Sequence[str], series: Mapping[str, Sequence[float]], ylabel: str, *, percent: bool = False):
    """Bars for each name, next to each other.

    Values that are not finite have no bar.
    """
    from bokeh.models import ColumnDataSource, HoverTool

    figure = _figure("", ylabel, x_range=(0, len(names)))
    _percent_axis(figure.yaxis[0], percent)
    labels, width, drawn, renderers = [_plain(name) for name in names], 0.8 / max(len(series), 1), [], []
    for number, (title, values) in enumerate(series.items()):
        height = np.nan_to_num(np.array(values, float))
        data = {"x": np.arange(len(names)) + 0.1 + (number + 0.5) * width, "height": height}
        source, colour = ColumnDataSource(data | {"of": labels}), COLOURS[number % len(COLOURS)]
        part = figure.vbar("x", width * 0.92, "height", source=source, color=colour, name=_plain(title))
        drawn.append((_plain(title), [part]))
        renderers.append(part)
    tips = [("", "@of"), ("", "$name"), (_plain(ylabel), "@height{0.0 %}" if percent else "@height{0,0.[0000]}")]
    figure.add_tools(HoverTool(renderers=renderers, tooltips=tips))
    figure.y_range.start = 0
    _name_ticks(figure.xaxis[0], names, upright=True)
    if len(series) > 1:
        _legend(figure, drawn)
    return figure


def dots(names: Sequence[str], series: Mapping[str, Sequence[float]], xlabel: str, ylabel: str):
    """A share for each name, with a colour for each series.

    The names appear on hovering. Of more than `MOST_DOTS` names some are drawn, evenly spaced in the order of the first
    series' values: a page of 100,000 dots would be too large for a browser.
    """
    from bokeh.models import ColumnDataSource, HoverTool

    total, which = f"{len(names)} in all", ""
    if len(names) > MOST_DOTS:
        order = np.argsort(np.array(next(iter(series.values())), float), kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, MOST_DOTS).round().astype(int)].tolist()
        total, which = f"{MOST_DOTS:,} of {len(names):,}", ", evenly spaced from the lowest to the highest"
        names = [names[number] for number in chosen]
        series = {title: [values[number] for number in chosen] for title, values in series.items()}
    figure = _figure(f"{xlabel} ({total}{which})", ylabel, x_range=(0, len(names)))
    _percent_axis(figure.yaxis[0], True)
    labels, drawn, renderers = [_plain(name) for name in names], [], []
    for number, (title, values) in enumerate(series.items()):
        # Side by side, so that equal values of two series are both seen.
        shift = (number + 1) / (len(series) + 1)
        data = {"x": np.arange(len(names)) + shift, "value": np.array(values, float)}
        source, colour = ColumnDataSource(data | {"of": labels}), COLOURS[number % len(COLOURS)]
        part = figure.scatter("x", "value", source=source, size=7, color=colour, alpha=0.8, name=_plain(title))
        drawn.append((_plain(title), [part]))
        renderers.append(part)
    figure.add_tools(
        HoverTool(renderers=renderers, tooltips=[("", "@of"), ("", "$name"), (_plain(ylabel), "@value{0.0 %}")])
    )
    _name_ticks(figure.xaxis[0], names, upright=True)
    if len(series) > 1:
        _legend(figure, drawn)
    return figure


def _figure(xlabel: str, ylabel: str, height: int = _HEIGHT, x_range=None, y_range=None):
    from bokeh.models import BoxZoomTool, PanTool, ResetTool, WheelZoomTool
    from bokeh.plotting import figure

    ranges = {name: limits for name, limits in (("x_range", x_range), ("y_range", y_range)) if limits is not None}
    # The wheel and a finger scroll the page until the reader picks a tool; with the control key the wheel zooms.
    wheel = WheelZoomTool(modifiers={"ctrl": True})
    made = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[PanTool(), BoxZoomTool(), wheel, ResetTool()],
        active_drag=None,
        active_scroll=wheel,
        x_axis_label=_plain(xlabel),
        y_axis_label=_plain(ylabel),
        toolbar_location="above",
        **ranges,
    )
    made.toolbar.logo = None
    made.outline_line_color = None
    made.axis.axis_label_text_font_style = "normal"
    made.grid.grid_line_color = "#e5e5e5"
    return made


def _legend(figure, drawn: Sequence[tuple[str, list]]) -> None:
    from bokeh.models import Legend

    columns = 1 if max((len(name) for name, _ in drawn), default=0) > 18 else 2
    shape = {"ncols": columns, "location": "top_left", "border_line_color": None, "padding": 0, "margin": 4}
    legend = Legend(items=list(drawn), click_policy="hide", **shape)
    legend.label_text_font_size = "12px"
    legend.spacing, legend.glyph_height = 2, 16
    figure.add_layout(legend, "below")
    figure.height += math.ceil(len(drawn) / columns) * _LEGEND_ROW


def _name_ticks(axis, names: Sequence[str], *, upright: bool = False) -> None:
    """Names at the middles of the cells 0..n, or of every second, fifth … if there are many."""
    from bokeh.models import FixedTicker

    steps = (s * 10**p for p in range(9) for s in (1, 2, 5))
    step = next(s for s in steps if len(names) <= s * _MOST_NAMED)
    label_at = {
        n + 0.5: _plain(names[n] if len(names[n]) <= 16 else names[n][:15] + "…") for n in range(0, len(names), step)
    }
    axis.ticker = FixedTicker(ticks=list(label_at))
    axis.major_label_overrides = label_at
    if upright and sum(map(len, label_at.values())) > 40:  # on a phone there is room for some forty letters
        axis.major_label_orientation = 0.9


def _percent_axis(axis, percent: bool) -> None:
    from bokeh.models import NumeralTickFormatter

    if percent:
        axis.formatter = NumeralTickFormatter(format="0.[00] %")


def _plain(text: str) -> str:
    """Bokeh takes what stands between two pairs of dollars for a formula, and would fetch a library to set it."""
    return " ".join(str(text).split()).replace("$$", "$\u200b$").replace("\\(", "\\\u200b(").replace("\\[", "\\\u200b[")
