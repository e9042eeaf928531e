"""Writes docs/commands.md, the help of every command: `python scripts/commands.py > docs/commands.md`."""

from __future__ import annotations

import click

from tff_re.cli.main import cli

HEADER = """# Commands

Made by `python scripts/commands.py > docs/commands.md` from what `--help` prints; a test checks it. `tff-re` is short
for `python -m tff_re.run`. Exit codes: 0, 2 for bad input (one line on standard error), 130 after Ctrl-C."""


def markdown() -> str:
    """The page, with a section for each command."""
    parts = [HEADER]
    parent = click.Context(cli, info_name="python -m tff_re.run", terminal_width=100, **cli.context_settings)
    for name, command in cli.commands.items():
        context = click.Context(command, parent, info_name=name)
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"## {name}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
