"""`datasets`: the catalogue, and which files exist."""

from __future__ import annotations

import click
from rich.table import Table

from tff_re.cli import options
from tff_re.cli.display import console


@click.command(epilog=options.example("python -m tff_re.run datasets --data ~/corpora"))
@options.data
def datasets(data):
    """List the data sets and which of their files exist."""
    from datasets.catalogue import DATA_SETS, files_there

    table = Table(title="data sets (+ file is there, - is not)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for data_set in DATA_SETS.values():
        there = files_there(data_set.name, data)
        lines = [
            f"{data_set.title}: {data_set.task}",
            *([f"labels: {', '.join(data_set.labels)}"] if data_set.labels else []),
            *(f"{'+' if is_there else '-'} {name}" for name, is_there in there.items()),
            f"licence: {data_set.licence}",
            f"available from: {data_set.available_from}",
        ]
        table.add_row(data_set.name, "\n".join(lines))
    console.print(table)
