"""`tables`: the tables of a comparison, made again from its values.csv."""

from __future__ import annotations

from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.display import console, say_written


@click.command(epilog=options.example("python -m tff_re.run tables runs/table8 --out runs/tables"))
@click.argument("folder", metavar="COMPARISON", type=click.Path(path_type=Path))
@options.path_option("--out", help="Folder to write comparison*.csv and tables.md into [default: only print].")
def tables(folder, out):
    """Make the tables of a COMPARISON anew from its values.csv (each run's values, by seed) and values.json: means,
    intervals, p-values, verdicts. The runs' folders are not needed."""
    from tff_re.comparison.write_tables import rewrite

    report = rewrite(folder, out)
    for table in report.tables:
        console.print(table)
    for line in report.text:
        console.print(line, highlight=False)
    if out is not None:
        say_written(report.files)
