"""`validations`: the signed results of all sites, checked, as a table."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from tff_re.cli import options
from tff_re.cli.display import console, say, say_written


@click.command(
    epilog=options.example(
        "python -m tff_re.run validations results --keys keys.toml\n"
        "python -m tff_re.run validations results --keys keys.toml --export runs/first/export --out sites.csv"
    )
)
@click.argument("folder", type=click.Path(path_type=Path))
@options.path_option("--keys", required=True, help="TOML file of the sites' public keys, or a folder of such files.")
@options.path_option("--export", help="Refuse results of any other export than this one.")
@options.path_option("--out", help="Also write the table to this CSV file.")
def validations(folder, keys, export, out):
    """Check the results in FOLDER (*.json) that sites made with `validate`, and print a table. A result is refused if
    its signature does not fit, its key is not listed, or it is of another export than the others."""
    from tff_re.sites.validations import notes, read_keys, read_results, to_csv, total

    digest = None
    if export is not None:
        from tff_re.exporting.digests import digest_of_export
        from tff_re.exporting.prediction import require_export

        require_export(export)
        digest = digest_of_export(export)
    results = read_results(folder, read_keys(keys), digest)
    whole = total(results)
    console.print(_table(results, whole))
    for note in notes(results):
        say(f"note: {note}")
    if out is not None:
        from datasets.files import write_atomically

        write_atomically(out, to_csv(results, whole))
        say_written([out])


def _table(results, whole) -> Table:
    """Site, samples and metrics, and the total of what can be computed over all sites."""
    from tff_re.sites.validations import columns, samples_of

    names = columns(results, "metrics")
    table = Table(title=f"{len(results)} results of export {results[0].content['export'][:12]}")
    table.add_column("site", overflow="fold")
    for name in ("examples", *names):
        table.add_column(name, justify="right", overflow="fold")

    def add(site, counts, metrics) -> None:
        size = samples_of(counts)
        numbers = ("-" if metrics.get(name) is None else f"{metrics[name]:.4f}" for name in names)
        table.add_row(site, "-" if size is None else str(size), *numbers)

    for result in results:
        add(result.site, result.content["counts"], result.content["metrics"])
    if whole is not None and len(results) > 1:
        table.add_section()
        add("total", *whole)
    return table
