"""`train`: a recipe into a folder."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.configuration import show_run
from tff_re.cli.display import RoundProgress, console, metrics_table, say
from tff_re.report import headline
from tff_re.runtime import is_of_sites


@click.command(
    epilog=options.example("python -m tff_re.run train flcmc-shipped-fedpap --set training.rounds=20 --out runs/first")
)
@click.argument("recipe")
@options.overrides
@options.data
@options.trust
@options.out
@options.resume
@options.path_option(
    "--from", "from_run", metavar="RUN", help="Start from the weights of this finished run, with its vocabulary."
)
@click.option("--last", is_flag=True, help="With --from: its last round, even if another was selected on dev.")
@options.seed
@options.runtime
@options.partition
@click.option("--sites", metavar="A,B,C", help="The sites that hold the data, for the runtimes sites and flower.")
@click.option(
    "--quorum",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="Fraction of clients a round needs if a site fails.",
)
@options.stage_seconds
@options.retry_seconds(300.0)
@options.log
def train(recipe, overrides, out, seed, sites, quorum, stage_seconds, retry_seconds, **where):
    """Train RECIPE (a name that `recipes` lists, or a TOML file) into a folder."""
    from tff_re import api

    if is_of_sites(where["runtime"]):
        from tff_re.sites.asking import Patience

        where["patience"] = Patience(stage_seconds, retry_seconds, quorum)
    where["sites"] = options.names(sites)
    recipe = api.load_recipe(recipe, *overrides, seed=seed)
    named = f"{recipe.name}, seed {recipe.seed}"
    out = out or Path("runs") / f"{recipe.name}-seed{recipe.seed}"
    with RoundProgress(console, recipe.name, recipe.training.rounds) as progress:
        result = api.train(recipe, out, on_start=show_run, on_round=progress, on_line=say, **where)
    if result.test is not None:
        title = f"{named}: test examples of {over(result.test.sites)}{_chosen(result)}"
        console.print(metrics_table(title, result.test.metrics, result.test.trivial))
    if result.on_all:
        console.print(metrics_table(f"{named}: each client's own model on the test examples of all", result.on_all))
    if result.personalised is not None:
        title = f"{named}: after fine-tuning at each client, by client in clients.csv"
        console.print(metrics_table(title, result.personalised.metrics))
        if result.personalised.worst is not None:
            say(f"gains least: {result.personalised.worst}")
    if result.server_evaluation is not None:
        title = f"{named}: examples at the server{_chosen(result)}"
        console.print(metrics_table(title, result.server_evaluation.metrics))
    if (said := headline.no_better(summary_of(out))) is not None:
        say(said)
    if result.chosen_on is not None:
        say(f"chosen: {result.chosen_on}")
    for note in _notes(recipe, across_sites=is_of_sites(where["runtime"])):
        console.print(note)
    if result.privacy is not None:
        say(f"privacy: {result.privacy['statement']}")
        say(f"  the noise comes {result.privacy['noise']}")
        for line in result.privacy["not_covered"]:
            say(f"  not covered: {line}")
    if result.stopped is not None:
        say(result.stopped)
    page = f"shareable HTML report: report {out}"
    if (out / "model.keras").exists():
        files = "metrics.csv, plots, model.keras, TensorBoard"
        say(f"written: {out} ({files}; export it with: export {out}; {page})")
    else:
        say(f"written: {out} (metrics.csv, plots, TensorBoard; {page})")


def over(sites: tuple[int, int] | None) -> str:
    """Return whose examples an evaluation covers."""
    return "all clients" if sites is None or sites[0] == sites[1] else f"{sites[0]} of {sites[1]} sites"


def _notes(recipe, *, across_sites: bool) -> tuple[str, ...]:
    """Return the recipe's notes, across sites without those of [baseline] and [personalise] in simulations."""
    if across_sites:
        from tff_re.sites.comparisons import federated_recipe

        recipe = federated_recipe(recipe)
    return recipe.notes


def summary_of(out: Path) -> dict:
    """Return the run's summary.json."""
    return json.loads((out / "summary.json").read_text("utf-8"))


def _chosen(result) -> str:
    return "" if result.chosen is None else f", round {result.chosen[0]}, chosen by {result.chosen[1]}"
