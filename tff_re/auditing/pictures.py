"""The pictures of an audit.

Each function writes a PNG file, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tff_re.report.drawing import (
    COLOURS,
    GREY,
    display_names,
    hide_spines,
    line_axes,
    name_ticks,
    new_figure,
    save_png,
    side_legend,
)


def words_png(path: Path, clients: Sequence[str], precision: Sequence[float], recall: Sequence[float]) -> None:
    """Two bars a client."""
    count = len(clients)
    figure = new_figure(max(4.2, 0.7 * count + 1.8), 3.6)
    axes = figure.add_subplot()
    names, font = display_names(list(clients), "client")
    places = np.arange(count) + 0.5
    kinds = (
        ("share of the words read that are the client's", precision),
        ("share of the client's words that are read", recall),
    )
    for number, (name, values) in enumerate(kinds):
        axes.bar(places + 0.38 * (number - 0.5), values, width=0.36, color=COLOURS[number], label=name)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylabel("share")
    axes.set_title("Words read from one client's update", loc="left", fontsize=10)
    name_ticks(axes.xaxis, names, font, rotate=True)
    axes.set_xlabel("client")
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    hide_spines(axes)
    handles, labels = axes.get_legend_handles_labels()
    side_legend(axes, handles, labels, None)
    save_png(figure, path)


def membership_png(path: Path, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """ROC curves on logarithmic axes: what counts is the left end."""
    figure, axes = line_axes(
        "Who was in the training data?", "false alarms: others called members", "members that are found"
    )
    least = min(min(x[x > 0].min(initial=1.0), y[y > 0].min(initial=1.0)) for x, y in curves.values())
    least = min(least, 1e-2)
    axes.plot([least, 1], [least, 1], color=GREY, linestyle="--", linewidth=1, label="a guess")
    for number, (name, (x, y)) in enumerate(curves.items()):
        # A step each: what lies at no false alarms is drawn at the left edge.
        axes.step(np.maximum(x, least), np.maximum(y, least), where="post", color=COLOURS[number], label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, 1)
    axes.set_ylim(least, 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    handles, labels = axes.get_legend_handles_labels()
    side_legend(axes, handles, labels, None)
    save_png(figure, path)


def canaries_png(path: Path, cosines: Mapping[str, Sequence[np.ndarray]]) -> None:
    """A histogram for each adversary: canaries that took part, and directions that nobody sent."""
    figure = new_figure(4.4 * len(cosines) + 1.4, 3.2)
    for number, (who, (observed, unobserved)) in enumerate(cosines.items()):
        axes = figure.add_subplot(1, len(cosines), number + 1)
        both = np.concatenate([observed, unobserved])
        bins = np.linspace(both.min(), both.max(), 41)
        kinds = (("nobody sent it", unobserved, GREY), ("a canary sent it", observed, COLOURS[1]))
        for name, values, colour in kinds:
            shares = np.full(len(values), 1 / len(values))
            axes.hist(values, bins, weights=shares, color=colour, alpha=0.65, label=f"{name} ({len(values):,})")
        axes.set_title(f"Seen: {who}", loc="left", fontsize=10)
        axes.set_xlabel("cosine of the model's change\nwith a direction" + (", largest of the rounds" * (number > 0)))
        axes.set_ylabel("share of directions" if number == 0 else "")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        hide_spines(axes)
    handles, labels = axes.get_legend_handles_labels()
    side_legend(axes, handles, labels, None)
    save_png(figure, path)
