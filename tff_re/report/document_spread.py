"""How whole documents spread over clients: FedLCC's Figure 2, and the structural entropy that it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from datasets.files import csv_text, write_atomically
from tff_re.report.drawing import (
    COLOURS,
    display_names,
    hide_spines,
    integer_locator,
    name_ticks,
    new_figure,
    require_shape,
    save_png,
    side_legend,
)
from tff_re.report.partition_table import largest_and_smallest

PER_DOCUMENT = ("entities", "mentions", "pairs")


def write_documents(folder: Path, statistics) -> list[Path]:
    """Writes documents.csv and .png (a row, a bar a client) and entropy.csv and .png (a histogram) into a folder.

    Args:
      folder: There.
      statistics: `datasets.documents.statistics.DocumentStatistics`.

    Returns:
      The files written.

    Raises:
      DataError: a file cannot be written; older files are still whole then.
    """
    rows, histogram, edges = statistics.rows, statistics.histogram, statistics.edges
    clients = [row["client"] for row in rows]
    columns = (edges[:-1], edges[1:], histogram.sum(axis=0), *histogram)
    tables = {
        "documents": [list(rows[0]), *(list(row.values()) for row in rows)],
        "entropy": [["from", "to", "documents", *clients], *zip(*(c.tolist() for c in columns), strict=True)],
    }
    for name, table in tables.items():
        write_atomically(folder / f"{name}.csv", csv_text(table).encode("utf-8"))
    pictures = documents_png(folder / "documents.png", rows)
    pictures += entropy_png(folder / "entropy.png", histogram, edges, clients)
    return [*(folder / f"{name}.csv" for name in tables), *pictures]


def documents_table(rows: Sequence[Mapping[str, Any]], max_clients: int = 30) -> Table:
    """The rows for the terminal, at most `max_clients`.

    Of more clients, those with the most and the fewest documents are printed.
    """
    table = Table(title="Documents", title_justify="left", title_style="bold", caption_justify="left")
    for number, heading in enumerate(("client", "documents", *PER_DOCUMENT, "positive pairs", "entropy")):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    chosen = largest_and_smallest([row["documents"] for row in rows], max_clients)
    for number in sorted(chosen):
        row = rows[number]
        means = (f"{row[name] / max(row['documents'], 1):.1f}" for name in PER_DOCUMENT)
        cells = (f"{row['documents']:,}", *means, f"{row['positive_share']:.0%}", f"{row['entropy']:.2f}")
        table.add_row(Text(str(row["client"])), *cells)
    left_out = f" {len(rows) - len(chosen)} more clients are not shown." if len(chosen) < len(rows) else ""
    table.caption = f"Means per document: entities, mentions, pairs, structural entropy.{left_out}"
    return table


def documents_png(path: str | os.PathLike, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Six panels of document statistics over the clients.

    The panels: documents; entities, mentions and pairs of a document on average; the share of positive pairs; the mean
    structural entropy with its range.

    Args:
      path: The PNG file.
      rows: As `datasets.documents.statistics.DocumentStatistics` has them, at least one.
    """
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0] if name != "client"}
    documents = np.maximum(columns["documents"], 1)
    panels = {
        "documents": columns["documents"],
        **{f"{name} in a document": columns[name] / documents for name in PER_DOCUMENT},
        "share of positive pairs": columns["positive_share"],
        "structural entropy": columns["entropy"],
    }
    names, font = display_names([str(row["client"]) for row in rows], "client")
    figure = new_figure(min(max(1.05 * len(rows), 7.2), 13), 5.0)
    x = np.arange(len(rows)) + 0.5
    for number, (title, values) in enumerate(panels.items()):
        axes = figure.add_subplot(2, 3, number + 1)
        axes.bar(x, values, width=0.8 if len(rows) <= 60 else 1, color=COLOURS[number % len(COLOURS)])
        if title == "structural entropy":
            low, high = columns["entropy_least"], columns["entropy_greatest"]
            axes.vlines(x, low, high, color="#000000", linewidth=1.2)
            title += ", mean and range"
        if title == "documents":
            axes.yaxis.set_major_locator(integer_locator(5))
        axes.set_xlim(0, len(rows))
        name_ticks(axes.xaxis, names, font, rotate=True)
        axes.set_title(title, loc="left", fontsize=9)
        hide_spines(axes)
    return save_png(figure, path)


def entropy_png(
    path: str | os.PathLike, histogram: np.ndarray, edges: np.ndarray, clients: Sequence[str]
) -> list[Path]:
    """Documents over their structural entropy, each client's in a colour of its own where there are colours for all.

    Args:
      path: The PNG file.
      histogram: Counts [K, B].
      edges: [B + 1].
      clients: K names.

    Raises:
      ValueError: the shapes do not fit.
    """
    require_shape("the histogram", histogram, len(clients), len(edges) - 1)
    figure = new_figure(6.6, 3.6)
    axes = figure.add_subplot()
    many = len(clients) > len(COLOURS)
    layers = histogram.sum(axis=0, keepdims=True) if many else histogram
    names, font = display_names([str(client) for client in clients], "client")
    below = np.zeros(layers.shape[1])
    for colour, layer in zip(COLOURS, layers, strict=False):
        axes.bar(edges[:-1], layer, np.diff(edges), below, align="edge", color=colour, edgecolor="white", linewidth=0.6)
        below = below + layer
    axes.set_ylim(0, max(1.05 * below.max(), 1))
    axes.set_xlabel("structural entropy")
    axes.set_ylabel(f"documents of {len(clients)} clients" if many else "documents")
    axes.yaxis.set_major_locator(integer_locator(6))
    hide_spines(axes)
    if not many:
        side_legend(axes, [bars[0] for bars in axes.containers], names, font)
    return save_png(figure, path)
