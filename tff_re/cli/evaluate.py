"""`evaluate`: the newest checkpoint of a run, or an exported model on a file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.display import class_table, console, metrics_table, say, say_seen, say_written
from tff_re.errors import UserError
from tff_re.runtime import is_of_sites


@click.command(
    epilog=options.example(
        "python -m tff_re.run evaluate runs/first --split test\n"
        "python -m tff_re.run evaluate runs/first/export --file corpora/pgr/test.tsv"
    )
)
@click.argument("run", metavar="RUN|EXPORT", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["test", "dev", "train"]), help="Which of a run's examples [default: test].")
@options.path_option("--file", help="Score an export on this file (also: --data FILE).")
@click.option("--dataset", help="The data set whose format the file has [default: the run's].")
@click.option("--label", help="The data set's label choice [default: the run's].")
@click.option("--json", "as_json", is_flag=True, help="Print the scores of an export as one JSON object.")
@options.last
@options.path_option("--data", help=options.DATA_HELP)
@options.trust
@options.runtime
@click.option("--sites", metavar="A,B,C", help="The sites of the run, for the runtimes sites and flower.")
def evaluate(run, split, file, dataset, label, as_json, last, data, trust, runtime, sites):
    """Evaluate the newest checkpoint of RUN (a folder that `train` wrote) on every client or on what its server holds,
    or EXPORT on a file. Where a round was chosen on dev, that round's weights are evaluated. Clients at sites are asked
    with --runtime."""
    from tff_re import api

    if (run / "export.json").is_file():
        file = file or data
        if file is None:
            raise UserError(f"{run}: is an export; give the file to score it on by --file")
        if split is not None:
            raise UserError(f"{run}: is an export, which has no splits; leave --split out")
        if last:
            raise UserError(f"{run}: is an export, which holds one round; leave --last out")
        if sites or is_of_sites(runtime):
            raise UserError(f"{run}: is an export, which a site evaluates by itself; leave --sites and --runtime out")
        _show_score(api.score(run, file, dataset=dataset, label=label, trust=trust), file, as_json)
        return
    if as_json:
        raise UserError(f"{run}: --json is for exports, and this holds no export.json; leave it out")
    for option, value in (("file", file), ("dataset", dataset), ("label", label)):
        if value is not None:
            raise UserError(f"{run}: --{option} is for exports, and this holds no export.json; leave it out")
    options.require_data_folder(data)
    if sites and not is_of_sites(runtime):
        raise UserError("--sites needs --runtime sites:… or flower:…")
    where = api.data_paths(data, trust=trust)
    if is_of_sites(runtime):
        from tff_re.sites.run import open_at_sites
        from tff_re.sites.transport import engine_of

        opened = open_at_sites(run, where, engine_of(runtime, options.names(sites)), last=last, on_line=say)
    else:
        from tff_re.runs.finished import open_run
        from tff_re.sites.experiments import finished_builder

        opened = open_run(run, where, runtime, last=last, own_models=True, builder_of=finished_builder)
    _evaluate_run(run, split or "test", opened, is_of_sites(runtime))


def _evaluate_run(run: Path, split: str, run_opened, asks_sites: bool) -> None:
    """Evaluate on all clients, or on what the server holds."""
    from tff_re.report.heatmaps import confusion_png
    from tff_re.runs.evaluation import Evaluator, ServerEvaluator, measured_at

    with run_opened as (opened, runtime):
        for note in opened.experiment.recipe.notes:
            console.print(note)
        held_out = opened.experiment.prepared.held_out
        if held_out is not None and split in held_out.splits:
            metrics = ServerEvaluator(opened.experiment)(opened.weights).metrics
            of_split = {
                name.removeprefix(f"{split}/"): value for name, value in metrics.items() if name.startswith(split)
            }
            console.print(metrics_table(f"{split} examples at the server after round {opened.round}", of_split))
            return
        if split == "dev" and not opened.experiment.recipe.has_choice:
            raise UserError(f"{run}: its task has no dev examples; choose another --split")
        evaluator = Evaluator(opened.experiment, split)
        if evaluator.empty:
            raise UserError(f"{run}: no client has {split} examples; choose the other --split")
        if not asks_sites and opened.experiment.prepared.sites:
            names = ",".join(opened.experiment.prepared.sites)
            raise UserError(
                f"{run}: its {split} examples are at the sites; ask them with --runtime flower:SOCKET --sites {names}, "
                "or export the run and let each site evaluate the export on its own file (evaluate EXPORT --file FILE)"
            )
        result = evaluator(opened.weights)
        answered, asked = runtime.answered or (0, 0)
        whose = f"of {len(evaluator.clients)} clients" if answered == asked else f"at {answered} of {asked} sites"
        title = f"{split} examples {whose} after round {opened.round}"
        console.print(metrics_table(title, result.metrics, result.trivial))
        for site, metrics in measured_at(opened.experiment.prepared.measures, runtime.own_results).items():
            count = metrics.pop("examples")
            console.print(metrics_table(f"{count:.0f} {split} examples at {site}", metrics))
        if result.per_class is None:
            return
        prepared, pictures = opened.experiment.prepared, []
        opened.folder.plots.mkdir(exist_ok=True)
        if result.confusion is not None:
            pictures.append(opened.folder.plots / f"confusion-{split}.png")
            confusion_png(pictures[0], result.confusion, prepared.label_names)
    console.print(class_table(prepared.measured_names, result.per_class, prepared.measures.positive_labels))
    if pictures:
        say_written(pictures)


def _show_score(result, file: Path, as_json: bool) -> None:
    if as_json:
        trivial = {
            row: {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            for row, metrics in (result.trivial or {}).items()
        }
        seen = None if result.seen is None else result.seen.facts()
        whole = {"file": file.name, **result.facts(), "trivial": trivial, "notes": result.notes, "seen": seen}
        click.echo(json.dumps(whole, ensure_ascii=False))
        say_seen(result.seen, file.name, table=False)
        return
    console.print(metrics_table(result.title(file.name), result.metrics, result.trivial))
    if result.per_class is not None:
        console.print(class_table(result.labels, result.per_class, result.positive_labels))
    for note in result.notes:
        say(note)
    say_seen(result.seen, file.name)
