"""The table of a partition for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text


def partition_table(statistics, max_clients: int = 30) -> Table:
    """How the samples and labels spread: a row for each client, all clients in the last row and the caption.

    Args:
      statistics: `datasets.partition` LabelCounts.
      max_clients: The most rows; of more clients the largest and the smallest are shown.
    """
    rows, total = statistics.rows(), statistics.summary()
    table = Table(title="Partition", title_justify="left", title_style="bold", caption_justify="left", show_footer=True)
    footers = (f"{total['clients']} clients", total["train"], total["test"], f"{total['classes']:.1f} on average", "")
    headers = ("client", "train", "test", "classes", "largest share of a class")
    for number, (header, footer) in enumerate(zip(headers, footers, strict=True)):
        footer = f"{footer:,}" if isinstance(footer, int) else footer
        table.add_column(header, footer=footer, justify="right" if number else "left", overflow="fold")
    chosen = largest_and_smallest([row["train"] for row in rows], max_clients)
    left_out = 0
    for number, row in enumerate([*rows, None]):
        if row is not None and number not in chosen:
            left_out += 1
            continue
        if left_out:
            table.add_row(Text(f"… {left_out} more"), style="dim")
            left_out = 0
        if row is not None:
            counts = [f"{row[key]:,}" for key in ("train", "test", "classes")]
            table.add_row(Text(str(row["client"])), *counts, f"{row['largest_share']:.0%}")
    table.caption = (
        f"Training samples per client: {total['smallest']:,} to {total['largest']:,}, median {total['median']:,.0f}. "
        f"Label skew {total['label_skew']:.3f} (0: all equal)."
    )
    return table


def largest_and_smallest(sizes: Sequence[int], count: int) -> set[int]:
    """Indices of the clients that a table shows: all, or of more than `count` the largest and the smallest."""
    if len(sizes) <= count:
        return set(range(len(sizes)))
    by_size = np.argsort(-np.asarray(sizes), kind="stable").tolist()
    return {*by_size[: count - count // 2], *by_size[len(sizes) - count // 2 :]}
