"""Runs the suites of a paper's own settings, one after the other: scripts/reproduce PAPER --data DATA --out FOLDER

The suites are those named paper-PAPER-… in tff_re/recipes/suites. Before the first run the files that are missing are
named, and the number of runs is printed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from datasets.catalogue import DATA_SETS, ENVIRONMENT_VARIABLE  # noqa: E402
from datasets.files import with_or_without_gz, write_atomically  # noqa: E402
from tff_re.errors import UserError, nearest  # noqa: E402
from tff_re.recipes.reading import Recipe, read_toml, suites  # noqa: E402
from tff_re.runtime.quiet import be_quiet  # noqa: E402

if TYPE_CHECKING:
    from tff_re.comparison.suite import Suite

PAPERS = ("flcmc", "fedcmc", "feded", "fedds", "fedlcc")

CUT_SEARCH = 2
"""Settings of a search that --cut leaves."""


@dataclass(frozen=True)
class Inputs:
    """What the user gives besides data sets.

    Attributes:
      encoder: folder or hub id of a pretrained encoder.
      vectors: a file of word vectors.
      mesh: a file of MeSH.
    """

    encoder: str | None = None
    vectors: Path | None = None
    mesh: Path | None = None

    def overrides(self, recipe: Recipe) -> list[str]:
        """Those that a recipe has a use for, as --set takes them."""
        made = []
        if self.encoder is not None and reads_pieces(recipe):
            made.append(f"task.tokenizer={self.encoder}")
        if self.vectors is not None and reads_words(recipe):
            made.append(f"task.vectors_path={self.vectors.resolve()}")
            if hasattr(recipe.task.options, "vectors_corpus"):
                made += ["task.vectors=file", "task.vectors_corpus=none"]
        if self.mesh is not None and getattr(recipe.task.options, "dataset", None) == "cdr":
            made.append(f"task.mesh_tree={self.mesh.resolve()}")
        return made


@dataclass(frozen=True)
class Plan:
    """A suite to run.

    Attributes:
      name: of the shipped suite.
      source: name or file that `compare --suite` takes.
      overrides: as --set takes them.
      suite: loaded.
      out: its folder.
      missing: what it needs and does not have, a line each.
    """

    name: str
    source: str
    overrides: tuple[str, ...]
    suite: Suite
    out: Path
    missing: tuple[str, ...]

    def arguments(self, more: Sequence[str], *, data: Path | None, resume: bool) -> list[str]:
        """Those of `compare`."""
        sets = [word for override in self.overrides for word in ("--set", override)]
        folder = [] if data is None else ["--data", str(data)]
        again = ["--resume"] if resume else []
        return ["compare", "--suite", self.source, "--out", str(self.out), *sets, *folder, *again, *more]


def paper_suites(paper: str) -> list[str]:
    """The names of a paper's suites, with numbers in their order."""
    names = [name for name in suites() if name.startswith(f"paper-{paper}-") or name == f"paper-{paper}"]
    return sorted(names, key=_order)


def _order(name: str) -> list[tuple[bool, Any]]:
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in name.split("-")]


def reads_pieces(recipe: Recipe) -> bool:
    """Whether a recipe needs a pretrained encoder."""
    options = recipe.task.options
    return hasattr(options, "tokenizer") and getattr(options, "encoding", "pieces") == "pieces"


def reads_words(recipe: Recipe) -> bool:
    """Whether a recipe takes word vectors."""
    options = recipe.task.options
    return hasattr(options, "vectors_path") and options.encoding == "words"


def needed_files(recipe: Recipe) -> dict[str, str]:
    """File in the data folder -> where to get it, for all that a recipe reads."""
    options = recipe.task.options
    data_set = DATA_SETS.get(getattr(options, "dataset", None))
    if data_set is None or not data_set.files:
        return {}
    tested_on_file = getattr(options, "test", "official") == "official"
    splits = [None if options.path else options.split]
    if tested_on_file and not getattr(options, "test_path", None):
        splits.append(options.test_split)
    splits.append(getattr(options, "dev_split", None))
    files = {data_set.files[split]: data_set.available_from for split in splits if split is not None}
    if data_set.kind == "bags" and "rel2id" in data_set.options and not options.rel2id:
        files[f"{data_set.name}/{data_set.name}_rel2id.json"] = data_set.available_from
    if data_set.vocabulary is not None and options.encoding == "words":
        files[data_set.vocabulary] = data_set.available_from
    corpus = DATA_SETS.get(getattr(options, "vectors_corpus", None))
    if corpus is not None:
        files[corpus.files["train"]] = corpus.available_from
    return files


def missing_of(recipes: Iterable[Recipe], data: Path | None) -> tuple[str, ...]:
    """What these recipes need and do not have, a line each."""
    lines = {}
    for recipe in recipes:
        if reads_pieces(recipe) and recipe.task.options.tokenizer is None:
            lines["an encoder: set ENCODER to its folder or hub id"] = None
        for file, source in needed_files(recipe).items():
            if data is None or with_or_without_gz(data / file) is None:
                lines[f"{file} ({source})"] = None
        for name, key in (("VECTORS", "vectors_path"), ("MESH", "mesh_tree")):
            path = getattr(recipe.task.options, key, None)
            if path is not None and not Path(path).is_file():
                lines[f"{name}: {path}"] = None
    return tuple(lines)


def reduced(
    table: Mapping[str, Any], *, seeds: Sequence[int] | None = None, search: int | None = None, cut: bool = False
) -> dict[str, Any]:
    """A suite's table with other seeds and fewer settings of its search.

    Args:
      table: of the suite's file.
      seeds: in place of its own, unless these are the folds of a corpus ([by_seed]).
      search: so many of the settings, drawn at random; all if None.
      cut: the first table's entries, and one seed if `seeds` is None.
    """
    made = dict(table)
    if seeds is not None and "by_seed" not in table:
        made["seeds"] = list(seeds)
    elif cut:
        made["seeds"] = list(table["seeds"][:1])
    if cut:
        group = table["entry"][0].get("group", "")
        made["entry"] = [entry for entry in table["entry"] if entry.get("group", "") == group]
        names = {entry["name"] for entry in made["entry"]}
        for section in ("gain", "claim"):
            kept = [row for row in table.get(section, ()) if {row["method"], row["baseline"]} <= names]
            made.pop(section, None)
            made |= {section: kept} if kept else {}
    if search is not None and "sweep" in table:
        made["sweep"] = {**table["sweep"], "budget": search}
    return made


def one_setting(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """A suite's search with one setting, which loads faster, or None if it has no search."""
    sweep = table.get("sweep")
    if sweep is None:
        return None
    axes = {key: values[:1] for key, values in sweep.items() if "." in key}
    return {key: value for key, value in sweep.items() if "." not in key and key != "budget"} | axes


def cut_overrides(recipe: Recipe) -> list[str]:
    """The settings that make a run of a recipe small: two rounds, few clients, few samples."""
    task = recipe.task.options
    made: dict[str, Any] = {"training.rounds": 2, "evaluation.every": 1, "algorithm.local_epochs": 1}
    balanced = getattr(task, "balanced_subset", None) is not None  # which excludes the other
    sizes = {"test_subset": 40, "balanced_subset" if balanced else "subset": 8 if balanced else 40}
    made |= {f"task.{key}": size for key, size in sizes.items() if hasattr(task, key)}
    if recipe.task.name == "document_relations":
        made |= {"task.subset": 10, "task.test_subset": 10}
        made |= {} if task.dev_split else {"task.dev_share": 0.5}
    if recipe.task.name == "synthetic":
        made |= {"task.num_clients": 4, "task.total_train": 80, "task.total_test": 40}
    if hasattr(task, "max_length"):
        made["task.max_length"] = min(task.max_length, 48)
    if not getattr(recipe.partition.options, "cuts", None) and hasattr(recipe.partition.options, "num_clients"):
        made["partition.num_clients"] = 3
    if recipe.training.client_fraction is None:
        made["training.clients_per_round"] = 2
    if getattr(recipe.choice, "patience", None) is not None:
        made["choice.patience"] = 1
    return [f"{key}={value}" for key, value in made.items()]


def plan(
    name: str, inputs: Inputs, out: Path, data: Path | None, sets: Sequence[str], *, suites_in: Path, **reductions
) -> Plan:
    """A suite of a paper with what the user gives.

    `reductions` are those of `reduced`; a suite that they change is written to the folder `suites_in`.
    """
    from tff_re.api import load_suite

    source = name
    if any(reductions.values()):
        import tomli_w

        file = suites_in / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, tomli_w.dumps(reduced(read_toml(suites()[name]), **reductions)).encode("utf-8"))
        source = str(file)
    first = load_suite(source, sweep=one_setting(read_toml(suites().get(source, Path(source)))))
    recipe = first.entries[0].recipe_for(first.seeds[0])
    cuts = cut_overrides(recipe) if reductions.get("cut") else []
    overrides = (*inputs.overrides(recipe), *cuts, *sets)
    suite = load_suite(source, overrides)
    seeds = suite.seeds if suite.by_seed else suite.seeds[:1]
    recipes = (entry.recipe_for(seed) for entry in suite.entries for seed in seeds)
    return Plan(name, source, overrides, suite, out / name, missing_of(recipes, data))


def say_costs(plans: Sequence[Plan]) -> None:
    """Prints the number of runs of each suite and of all, and their time as far as runs were timed."""
    from tff_re.cli.display import say
    from tff_re.comparison.estimate import Estimate

    total = 0
    for planned in plans:
        tuning = planned.suite.tuning
        total += len(planned.suite.entries) * len(planned.suite.seeds) + (0 if tuning is None else tuning.runs)
        say(f"{planned.name}: {Estimate(planned.suite, planned.out).before()}")
    say(f"total: {total} runs in {len(plans)} suites")


def run_first(planned: Plan, data: Path | None, runtime: str) -> None:
    """Runs the first run of a suite, unless it is finished, so that the others' time can be estimated."""
    from tff_re import api
    from tff_re.comparison.suite import run_folder, sweep_folder
    from tff_re.comparison.sweep import as_overrides
    from tff_re.runs.folder import RunFolder

    entry, tuning = planned.suite.entries[0], planned.suite.tuning
    if tuning is None:
        seed = planned.suite.seeds[0]
        recipe, folder = entry.recipe_for(seed), run_folder(planned.out, entry.name, seed)
    else:
        seed = tuning.seeds[0]
        recipe = entry.recipe_for(seed, as_overrides(tuning.settings[entry.name][0]))
        folder = sweep_folder(planned.out, entry.name, 0, seed)
    if not RunFolder(folder).summary.exists():
        api.train(recipe, folder, data=data, resume=RunFolder(folder).recipe.exists(), runtime=runtime)


def require_all(plans: Sequence[Plan], skip: bool) -> list[Plan]:
    """The suites that can run. Prints what the others lack, and raises UserError unless `skip`."""
    from tff_re.cli.display import say

    lacking = [planned for planned in plans if planned.missing]
    for planned in lacking:
        for line in planned.missing:
            say(f"{planned.name} needs {line}")
    if lacking and not skip:
        names = ", ".join(planned.name for planned in lacking)
        raise UserError(f"not all is there for {names}; add it, or leave these suites out with --skip-missing")
    left = [planned for planned in plans if not planned.missing]
    if not left:
        raise UserError("no suite has all that it needs")
    return left


def _chosen(paper: str, only: Sequence[str]) -> list[str]:
    names = paper_suites(paper)
    for name in only:
        if name not in names:
            raise UserError(f"--only {name}: {paper} has no such suite; {nearest(name, names)}")
    return [name for name in names if name in only] if only else names


def _seeds(context, parameter, text: str | None) -> tuple[int, ...] | None:
    from tff_re.cli.compare import _seeds as seeds

    return seeds(context, parameter, text)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paper", type=click.Choice(PAPERS))
@click.argument("compare_options", nargs=-1, type=click.UNPROCESSED)
@click.option("--data", type=click.Path(path_type=Path), envvar=ENVIRONMENT_VARIABLE, help="Folder of the data sets.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write [default: runs/paper-PAPER].")
@click.option("--only", multiple=True, metavar="SUITE", help="Run only this suite; may be repeated.")
@click.option("--encoder", envvar="ENCODER", help="Folder or hub id of the encoder [default: $ENCODER].")
@click.option("--vectors", type=click.Path(path_type=Path), envvar="VECTORS", help="Word vectors [default: $VECTORS].")
@click.option("--mesh", type=click.Path(path_type=Path), envvar="MESH", help="MeSH's tree, for CDR [default: $MESH].")
@click.option("--seeds", callback=_seeds, help="Seeds in place of the suites' (1,2,…), except those of folds.")
@click.option("--search", type=click.IntRange(min=1), help="Try only this number of the settings of a search.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a key of all recipes.")
@click.option("--skip-missing", is_flag=True, help="Leave out the suites whose files are missing.")
@click.option("--check", is_flag=True, help="Print what is missing and what it will take, and stop.")
@click.option("--first", is_flag=True, help="Run the first run of each suite, print the estimate, and stop.")
@click.option("--cut", is_flag=True, help="A trial of minutes: two rounds, few samples, one seed, one table a suite.")
@click.option("--resume", is_flag=True, help="Continue what is in the folder.")
def reproduce(
    paper, compare_options, data, out, only, seeds, search, sets, skip_missing, check, first, cut, resume, **given
):
    """Run PAPER's experiments at the paper's own settings.

    Options after -- go to `compare`, such as -- --runtime local.
    """
    from tff_re.cli.display import say
    from tff_re.cli.main import main

    be_quiet()
    out = out or Path("runs") / f"paper-{paper}"
    search = CUT_SEARCH if cut and search is None else search
    reductions = {"seeds": seeds, "search": search, "cut": cut}
    chosen, inputs = _chosen(paper, only), Inputs(**given)
    if check:
        with tempfile.TemporaryDirectory(prefix="tff-re-") as made:  # of suites that are cut
            plans = [plan(name, inputs, out, data, sets, suites_in=Path(made), **reductions) for name in chosen]
        say_costs(plans)
        require_all(plans, skip_missing)
        return 0
    plans = [plan(name, inputs, out, data, sets, suites_in=out / "suites", **reductions) for name in chosen]
    plans = require_all(plans, skip_missing)
    for planned in plans:
        if not resume and planned.out.exists() and any(planned.out.iterdir()):
            raise UserError(f"{planned.out}: is not empty; continue it with --resume or give another --out")
    say_costs(plans)
    if first:
        for planned in plans:
            say(f"first run of {planned.name}")
            run_first(planned, data, "in-process")
        say_costs(plans)
        return 0
    for planned in plans:
        if code := main(planned.arguments(compare_options, data=data, resume=resume)):
            return code
    return 0


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 2 for bad input with one line on standard error."""
    from tff_re.cli.main import EXIT_BAD_INPUT, EXIT_INTERRUPTED

    try:
        return reproduce.main(list(arguments), prog_name="scripts/reproduce", standalone_mode=False) or 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        message = error.format_message()
    except UserError as error:
        message = str(error)
    click.echo("tff-re: " + " ".join(message.split()), err=True)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
