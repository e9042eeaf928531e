"""`report`: a finished run or comparison as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.display import say


@click.command(
    epilog=options.example(
        "python -m tff_re.run report runs/table8\npython -m tff_re.run report runs/first --out first.html"
    )
)
@click.argument("folder", metavar="RUN|COMPARISON", type=click.Path(path_type=Path))
@options.path_option("--out", help="File to write [default: report.html in the folder].")
def report(folder, out):
    """Write one HTML page of a finished RUN or COMPARISON: what was run, tables with verdicts, curves, partition,
    classes, clients, bytes, seconds, privacy. It needs no network and holds no texts; names of clients and classes
    are in it."""
    from tff_re import api

    written = api.report(folder, out)
    say(f"written: {written} ({written.stat().st_size / 1e6:.1f} MB)")
