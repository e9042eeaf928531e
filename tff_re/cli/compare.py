"""`compare`: several recipes, or a suite."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.configuration import show_suite
from tff_re.cli.display import RoundProgress, console, say, say_written
from tff_re.errors import UserError
from tff_re.recipes.reading import SEEDS, UNSET, apply_override


def _seeds(context, parameter, text):
    if text is None:
        return None
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seeds {text}: must be comma-separated integers, e.g. 0,1,2") from None
    if min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds {text}: must be different and not negative")
    if max(seeds) >= SEEDS:
        raise UserError(f"--seeds {text}: must be from 0 to 2^32 - 1")
    return seeds


def _tuning_seeds(context, parameter, text):
    try:
        return _seeds(context, parameter, text)
    except UserError as error:
        raise UserError(str(error).replace("--seeds", "--tuning-seeds", 1)) from None


def _sweep(context, parameter, texts):
    """Return {key: values} of KEY=[VALUE,…], or None if there are none."""
    axes: dict = {}
    for text in texts:
        table: dict = {}
        key = text.partition("=")[0].strip()
        if text.partition("=")[2].strip() != UNSET:
            apply_override(table, f"value={text.partition('=')[2]}")
        if not key or not isinstance(table.get("value"), list):
            raise UserError(f"--sweep {text}: must be KEY=[VALUE,VALUE], e.g. 'algorithm.learning_rate=[1e-4,1e-3]'")
        axes[key] = table["value"]
    return axes or None


def _part(context, parameter, text):
    from tff_re.comparison.planning import Part

    return None if text is None else Part.parse(text)


@click.command(epilog=options.example("python -m tff_re.run compare --suite flcmc-synthetic --out runs/table8"))
@click.argument("recipes", nargs=-1)
@click.option("--suite", help="A shipped suite, or a TOML file of a suite.")
@click.option("--seeds", callback=_seeds, help="Comma-separated seeds, e.g. 0,1,2; override the suite's.")
@click.option(
    "--sweep",
    multiple=True,
    callback=_sweep,
    metavar="KEY=[VALUE,…]",
    help="Try all combinations of these values for each on the tuning seeds, and take the best on dev.",
)
@click.option("--tuning-seeds", callback=_tuning_seeds, help="Comma-separated seeds of --sweep, none of the others.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of runs at once, a process each."
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Do the runs on a Dask cluster, which you trust, by its scheduler's address, e.g. tcp://node1:8786.",
)
@click.option("--part", callback=_part, metavar="I/N", help="Run only part I of N, e.g. 2/4, and write no tables.")
@options.overrides
@options.data
@options.trust
@options.out
@options.resume
@options.runtime
def compare(recipes, suite, seeds, sweep, tuning_seeds, overrides, out, **where):
    """Compare recipes, or the algorithms of a suite, on the same partitions and seeds."""
    from tff_re import api

    if bool(recipes) == bool(suite):
        raise UserError("give recipes to compare, or --suite NAME (one of them)")
    if (sweep is None) != (tuning_seeds is None):
        raise UserError("--sweep and --tuning-seeds belong together; give both, or none")
    for name, used in (("jobs", where["jobs"] > 1), ("part", where["part"] is not None)):
        if where["cluster"] is not None and used:
            raise UserError(f"--cluster and --{name} exclude each other; leave one of them out")
    sweep = sweep and {"seeds": list(tuning_seeds), **sweep}
    loaded = api.load_suite(suite or recipes, overrides, seeds, sweep)
    run_and_show(loaded, out or Path("runs") / (Path(suite).stem if suite else "comparison"), **where)


def run_and_show(suite, out: Path, *, jobs: int = 1, cluster: str | None = None, **where) -> None:
    """Run a suite into a folder and print its tables.

    `where` are further arguments of `api.run_suite`.
    """
    from tff_re import api
    from tff_re.comparison.estimate import Estimate

    estimate = Estimate(suite, out, jobs=None if cluster else jobs)
    say(estimate.before())
    with _progress(suite, estimate, at_once=jobs > 1 or cluster is not None) as callbacks:
        report = api.run_suite(suite, out, jobs=jobs, cluster=cluster, **callbacks, **where)
    for table in report.tables:
        console.print(table)
    for line in report.text:
        console.print(line, highlight=False)
    if report.files:  # none of a part
        say_written(report.files)
        say(f"shareable HTML report: report {out}")


@contextlib.contextmanager
def _progress(suite, estimate, at_once):
    """Return the callbacks of a comparison for `api.run_suite`.

    They show its configuration once, the progress of every run, and the number of runs left.
    """
    total = len(suite.entries) * len(suite.seeds) + (0 if suite.tuning is None else suite.tuning.runs)
    if at_once:
        from tff_re.cli.parallel_progress import ParallelProgress

        with ParallelProgress(suite, estimate, total) as watcher:
            yield {"watcher": watcher}
        return
    stack, bars = contextlib.ExitStack(), []

    def on_start(entry: str, seed: int, rounds: int) -> None:
        stack.close()
        if not bars:
            show_suite(suite)
        if (left := estimate.start(entry, rounds)) is not None:
            say(left)
        number = len(bars) + 1  # a sweep may have gone beyond its edge
        title = f"[{number}/{max(number, total)}] {entry}, seed {seed}"
        bars.append(stack.enter_context(RoundProgress(console, title, rounds)))

    def on_round(report) -> None:
        estimate.round()
        bars[-1](report)

    with stack:
        yield {"on_start": on_start, "on_round": on_round}
