"""The commands of docs/sites.md in their order, with the roles that type them, and its site.toml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "sites.md"

MACHINE, COORDINATOR, FOR_EACH, HOSPITAL, ONE = (
    *("On each machine", "At the coordinator", "At the coordinator, for each hospital"),
    *("At each hospital", "At one hospital"),
)


class Command(NamedTuple):
    """A line of the page and the role that types it."""

    role: str
    line: str


def commands() -> list[Command]:
    """The commands of the page in their order."""
    section = PAGE.read_text("utf-8").split("## Three hospitals, ten commands\n")[1].split("\n## ")[0]
    role, lines, inside = "", [], False
    for line in section.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(Command(role, line))
        elif heading := re.match(r"\*\*(.+?)\*\*", line):
            role = heading[1]
    return lines


def further_commands() -> list[str]:
    """The coordinator's commands of the rest of the page."""
    lines = re.findall(r"^scripts/coordinator .+$", PAGE.read_text("utf-8"), re.MULTILINE)
    ten = {command.line for command in commands()}
    return [line for line in lines if line not in ten]


def site_toml() -> str:
    """The page's example, without the table of files that only some recipes need."""
    example = re.search(r"^## site.toml\n+```toml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[1]
    return example.split("[set]")[0]
