"""`audit`: what a finished run reveals of its training texts."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from tff_re.cli import options
from tff_re.cli.display import console, say, say_written


@click.command(
    epilog=options.example(
        "python -m tff_re.run audit runs/first\n"
        "python -m tff_re.run audit runs/first --parts words,artefacts --out reports/first"
    )
)
@click.argument("run", metavar="RUN|EXPORT|SITE.TOML", type=click.Path(path_type=Path))
@click.option(
    "--parts",
    default="words,membership,canaries,artefacts",
    show_default=True,
    help="Comma-separated parts of the audit.",
)
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Canary clients in the training that the audit does; 0: none.",
)
@click.option(
    "--shadows",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Shadow models to train; 0: none.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the audit's draws and training [default: the run's].")
@options.path_option("--out", help="Folder of the report [default: audit in the run's folder].")
@options.data
@options.trust
@options.runtime
def audit(run, parts, canaries, shadows, seed, out, data, trust, runtime):
    """Try what a finished RUN (or an EXPORT in its run's folder) reveals: words in one client's update, who was trained
    on, how much of one client is in the model, and what its files hold. Writes a report; shows no texts. Of SITE.TOML:
    what the updates that the site sent tell of its words and labels."""
    if run.suffix == ".toml":
        from tff_re.cli.audit_site import audit_site

        audit_site(run, out)
        return
    from tff_re import api

    names = [part.strip() for part in parts.split(",") if part.strip()]
    ways = {"canaries": canaries, "shadows": shadows, "seed": seed, "data": data, "trust": trust, "runtime": runtime}
    report = api.audit(run, out, parts=names, on_step=say, **ways)
    for sentence in report.judgement:
        say(sentence)
    table = Table(title=f"Audit of {run}", show_lines=True)
    for name in ("part", "finding", "value", "interval", "by chance"):
        table.add_column(name, overflow="fold")
    for row in report.summary:
        table.add_row(*row[:5])
    console.print(table)
    say_written(report.files)
