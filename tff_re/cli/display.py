"""What several commands print, and the console that they print on."""

from __future__ import annotations

from rich.table import Table

from tff_re.cli.terminal import Terminal

console = Terminal()


def say(text: str) -> None:
    """One line, as long as it is."""
    console.print(text, highlight=False, soft_wrap=True)


def say_written(files) -> None:
    """Names the files that a command wrote."""
    say(f"written: {', '.join(map(str, files))}")


def metrics_table(title: str, metrics: dict[str, float], trivial: dict[str, dict[str, float]] | None = None) -> Table:
    """The metrics, and beside them those of models that give every example one class."""
    table = Table(title=title)
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name in trivial or {}:
        table.add_column(name, justify="right", style="dim", overflow="fold")
    for name, value in metrics.items():
        others = (f"{own[name]:.4f}" if name in own else "" for own in (trivial or {}).values())
        table.add_row(name, f"{value:.4f}", *others)
    return table


def class_table(labels, confusion, positive) -> Table:
    """Precision, recall and F1 of each class."""
    from tff_re.tasks.metrics import per_class

    left_out = [] if positive is None else [name for label, name in enumerate(labels) if label not in positive]
    table = Table(title="by class", caption=f"micro-F1 and macro-F1 leave out {left_out[0]}" if left_out else None)
    for heading in ("class", "precision", "recall", "F1", "examples"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for label, *numbers, support in zip(labels, *per_class(confusion), strict=True):
        table.add_row(label, *(f"{n:.4f}" for n in numbers), f"{support:.0f}")
    return table
