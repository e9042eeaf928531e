"""Writes the tables of a comparison from values.csv and values.json, without importing TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from datasets.files import write_atomically
from tff_re.comparison.rows import Table
from tff_re.comparison.statistics import explain_gain
from tff_re.comparison.suite import GainOptions, slug
from tff_re.comparison.tables import comparison_csv, comparison_markdown, comparison_rich, gain_lines
from tff_re.comparison.units_file import UNITS, read_units
from tff_re.comparison.values import Value, best_values, read_values, tables_of


@dataclass(frozen=True)
class Report:
    """Tables for the terminal, the sentences under them, the files written."""

    tables: list[Any]
    text: list[str]
    files: list[Path]


def rewrite(folder: Path, out: Path | None) -> Report:
    """Makes the tables of a comparison anew from its values.csv and values.json, without its runs.

    Writes the same `comparison*.csv` as `compare`, and tables.md with the same tables and sentences as comparison.md.

    Args:
      folder: with the two files.
      out: where to write; made if it is not there; None: nothing is written.

    Raises:
      UserError, DataError: a file is missing or damaged, or cannot be written.
    """
    values, facts = read_values(folder)
    made = tables_of(values, facts, read_units(folder / UNITS))
    tables, text, markdown = [], [], [f"# {facts['title']}", "", f"`{facts['command']}`", ""]
    for table in made:
        show(table, tables, markdown, text)
    explain(values, facts, markdown, text)
    if out is None:
        return Report(tables, text, [])
    out.mkdir(parents=True, exist_ok=True)
    files = [write_csv(table, out) for table in made]
    write_atomically(out / "tables.md", "\n".join(markdown).encode("utf-8"))
    return Report(tables, text, [*files, out / "tables.md"])


def stem_of(table: Table) -> str:
    """The name of its files without their endings."""
    return f"comparison-{slug(table.group)}" if table.group else "comparison"


def write_csv(table: Table, out: Path) -> Path:
    """Writes a table's numbers and returns the file."""
    path = out / f"{stem_of(table)}.csv"
    comparison_csv(path, table)
    return path


def show(table: Table, tables: list[Any], markdown: list[str], text: list[str]) -> None:
    """Adds a table to `tables` (of the terminal) and `markdown`, and its published gains to `markdown` and `text`."""
    said = gain_lines(table)
    if table.group:
        tables.append(Text(table.group, "bold"))
        markdown += [f"## {table.group}", ""]
    tables.append(comparison_rich(table))
    markdown.append(comparison_markdown(table))
    if said:
        markdown += ["Published gains:", "", *(f"- {line}" for line in said), ""]
    text += [f"{table.group}: {line}" if table.group else line for line in said]


def explain(values: Sequence[Value], facts: Mapping[str, Any], markdown: list[str], text: list[str]) -> list[str]:
    """Adds a sentence on the share of the server's step for each [[gain]] of the suite, and returns the sentences."""
    best = best_values(values, facts)
    sentences = [explain_gain(GainOptions(**gain), best) for gain in facts["explained"]]
    if sentences:
        heading = "## How much of a gain is the step size and counting clients alike"
        markdown += [heading, "", *(f"- {sentence}" for sentence in sentences), ""]
    text += sentences
    return sentences
