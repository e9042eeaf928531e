"""`site --check`: whether a site's data fit a recipe, on one page; nothing leaves the site."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from tff_re.cli.display import console, say, say_written
from tff_re.errors import UserError

SUFFIXES = (".html", ".json")


def check_site(file: Path, recipe: str, overrides: tuple[str, ...], out: Path | None) -> None:
    """Prints the page of the site that `file` describes, and writes it to `out`.

    Raises:
      UserError, DataError: the site's file, its data or the recipe cannot be read, or `out` cannot be written.
    """
    require_page(out)
    from tff_re.models.hub import offline
    from tff_re.recipes.reading import load
    from tff_re.sites.policy import read_site

    site, loaded = read_site(file), load(recipe, overrides)
    from tff_re.pages.data_check_page import data_check_sections
    from tff_re.sites.check import check_data

    with offline():
        check = check_data(site, loaded)
    for section in data_check_sections(check):
        print_section(section)
    if out is not None:
        from tff_re.pages.data_check_page import data_check_page

        write_page(out, check, data_check_page)


def require_page(out: Path | None) -> None:
    """Raise UserError unless a page can have this name."""
    if out is not None and (out.suffix not in SUFFIXES or out.is_dir()):
        raise UserError(f"--out {out}: give a file whose name ends with {' or '.join(SUFFIXES)}")


def write_page(out: Path, content: Any, to_html: Callable[[Any, str], str]) -> None:
    """Write a dataclass as JSON, or its page as HTML, and say so."""
    from datasets.files import write_atomically
    from tff_re import __version__
    from tff_re.runs.folder import permissions

    if out.suffix == ".json":
        text = json.dumps(dataclasses.asdict(content), ensure_ascii=False, indent=2) + "\n"
    else:
        text = to_html(content, f"Made by tff-re {__version__}.")
    with permissions():
        write_atomically(out, text.encode("utf-8"))
    say_written([out])


def print_section(section) -> None:
    """Print a section of a page."""
    say(section.title)
    for block in section.blocks:
        if block.kind == "table":
            table = Table()
            for number, heading in enumerate(block.heading):
                table.add_column(heading, justify="right" if number else "left", overflow="fold")
            for row in block.rows:
                table.add_row(*row)
            console.print(table)
        elif block.kind == "facts":
            for name, value in block.facts.items():
                say(f"  {name}: {value}")
        else:
            for line in block.items if block.kind == "items" else [block.text]:
                say(f"  {line}")
