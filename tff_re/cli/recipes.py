"""`recipes`: the shipped recipes and suites, or every key of a recipe."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tff_re.cli import options
from tff_re.cli.display import console
from tff_re.recipes.reading import read_toml, shipped, suites


@click.command(epilog=options.example("python -m tff_re.run recipes"))
@click.option("--keys", is_flag=True, help="Show every key of a recipe, its default and its meaning, as Markdown.")
def recipes(keys):
    """List the shipped recipes and suites."""
    if keys:
        from tff_re.recipes.keys import markdown

        print(markdown(), end="")
        return
    table = Table(title="recipes (train NAME)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for name, path in shipped().items():
        raw = read_toml(path)
        parts = ", ".join(raw[section]["name"] for section in ("task", "model", "algorithm"))
        table.add_row(name, Text.assemble(raw["description"], "\n", (parts, "dim")))
    console.print(table)
    table = Table(title="suites (compare --suite NAME)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("entries", justify="right")
    table.add_column("what", overflow="fold")
    for name, path in suites().items():
        raw = read_toml(path)
        table.add_row(name, str(len(raw["entry"])), raw["title"])
    console.print(table)
