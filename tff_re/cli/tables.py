"""`tables`: the tables of a comparison, made again from its values.csv, or its values against another run's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from tff_re.cli import options
from tff_re.cli.display import console, say, say_written
from tff_re.errors import UserError

if TYPE_CHECKING:
    from tff_re.comparison.value_comparison import ValueComparison

LISTED = 10
"""Differences that are printed."""
EXIT_DIFFERS = 1


@click.command(
    epilog=options.example(
        "python -m tff_re.run tables runs/table8 --out runs/tables\n"
        "python -m tff_re.run tables runs/table8 --against docs/results/flcmc-synthetic"
    )
)
@click.argument("folder", metavar="COMPARISON", type=click.Path(path_type=Path))
@options.path_option("--out", help="Folder to write comparison*.csv and tables.md into [default: only print].")
@options.path_option(
    "--against", help="Compare the values with those of this COMPARISON instead. The exit code is 1 if any differ."
)
@click.pass_context
def tables(context, folder, out, against):
    """Make the tables of a COMPARISON anew from its values.csv (each run's values, by seed) and values.json: means,
    intervals, p-values, verdicts. The runs' folders are not needed."""
    if against is not None:
        from tff_re.comparison.value_comparison import compare_values

        if out is not None:
            raise UserError("--against writes nothing; leave --out out")
        compared = compare_values(folder, against)
        _print_comparison(compared, against)
        context.exit(EXIT_DIFFERS if compared.differences else 0)

    from tff_re.comparison.write_tables import rewrite

    report = rewrite(folder, out)
    for table in report.tables:
        console.print(table)
    for line in report.text:
        console.print(line, highlight=False)
    if out is not None:
        say_written(report.files)


def _print_comparison(compared: ValueComparison, against: Path) -> None:
    total = compared.same + len(compared.differences)
    say(f"{compared.same:,} of {total:,} values that both have are the same in every digit (seconds left out)")
    if compared.only_here or compared.only_there:
        say(f"values that only one has: {compared.only_here:,} here, {compared.only_there:,} in {against}")
    if not compared.differences:
        return
    table = Table(title=f"the {min(LISTED, len(compared.differences))} largest differences")
    for name in ("entry", "seed", "metric", "values"):
        table.add_column(name, overflow="fold")
    for name in ("here", "there"):
        table.add_column(name, justify="right", overflow="fold")
    for here, there in compared.differences[:LISTED]:
        named = f"{here.group}: {here.entry}" if here.group else here.entry
        table.add_row(named, str(here.seed), here.metric, here.values, _number(here.value), _number(there.value))
    console.print(table)
    for name, of_pair in (("commits", "commit"), ("processors", "processor")):
        here, there = (sorted({getattr(pair[side], of_pair) for pair in compared.differences}) for side in (0, 1))
        say(f"{name}: here {_listed(here)}; there {_listed(there)}")


def _number(value: float | None) -> str:
    return "–" if value is None else repr(value)


def _listed(names: list[str]) -> str:
    return ", ".join(name or "unknown" for name in names)
