"""`compare`: several recipes, or a suite."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.configuration import show_suite
from tff_re.cli.display import RoundProgress, console, say, say_written
from tff_re.errors import UserError
from tff_re.recipes.reading import SEEDS


def _seeds(context, parameter, text):
    if text is None:
        return None
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seeds {text}: must be whole numbers with commas between, e.g. 0,1,2") from None
    if min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds {text}: must be different and not negative")
    if max(seeds) >= SEEDS:
        raise UserError(f"--seeds {text}: must be from 0 to 2^32 - 1")
    return seeds


@click.command(epilog=options.example("python -m tff_re.run compare --suite flcmc-synthetic --out runs/table8"))
@click.argument("recipes", nargs=-1)
@click.option("--suite", help="A shipped suite, or a TOML file of a suite.")
@click.option("--seeds", callback=_seeds, help="Comma-separated seeds, e.g. 0,1,2; override the suite's.")
@options.overrides
@options.data
@options.trust
@options.out
@options.resume
@options.runtime
def compare(recipes, suite, seeds, overrides, out, **where):
    """Compare recipes, or the algorithms of a suite, on the same partitions and seeds."""
    from tff_re import api

    if bool(recipes) == bool(suite):
        raise UserError("give recipes to compare, or --suite NAME (one of them)")
    found = api.load_suite(suite or recipes, overrides, seeds)
    run_and_show(found, out or Path("runs") / (Path(suite).stem if suite else "comparison"), **where)


def run_and_show(suite, out: Path, **where) -> None:
    """Runs a suite into a folder and prints its tables; `where` are further arguments of `api.run_suite`."""
    from tff_re import api

    with _progress(suite) as shown:
        report = api.run_suite(suite, out, **shown, **where)
    for table in report.tables:
        console.print(table)
    for line in report.text:
        console.print(line, highlight=False)
    say_written(report.files)
    say(f"a page to read and hand on: report {out}")


@contextlib.contextmanager
def _progress(suite):
    """`on_start` and `on_round` of a comparison: shows its configuration once and a progress for every run."""
    total = len(suite.entries) * len(suite.seeds)
    stack, shown = contextlib.ExitStack(), []

    def on_start(entry: str, seed: int, rounds: int) -> None:
        stack.close()
        if not shown:
            show_suite(suite)
        title = f"[{len(shown) + 1}/{total}] {entry}, seed {seed}"
        shown.append(stack.enter_context(RoundProgress(console, title, rounds)))

    with stack:
        yield {"on_start": on_start, "on_round": lambda report: shown[-1](report)}
