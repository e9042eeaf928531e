"""Several algorithms on the same partitions and the same seeds, so that differences are paired."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datasets.partition import LabelCounts
from tff_re.errors import UserError, nearest
from tff_re.recipes.metric_names import SPLITS, require_known
from tff_re.recipes.reading import (
    SEEDS,
    Recipe,
    apply_override,
    file_name_problem,
    has_control_character,
    load,
    locate,
    read_toml,
    resolve,
    suites,
)
from tff_re.report import Points, read_precision_recall
from tff_re.runs.evaluation import metric_names
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder, make_private_folder, permissions
from tff_re.runs.record import is_as_it_was
from tff_re.runs.run import recorded_similarities, train_run
from tff_re.runs.training import RoundReport, best_values, read_history
from tff_re.runtime import open_runtime, require_runtime
from tff_re.settings import structure


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """Attributes:
    name: as the table shows it.
    group: the table that the row belongs to; a group's first entry is what differences refer to.
    recipe: a recipe in place of the suite's.
    algorithm: the recipe's table [algorithm], replaced.
    set: further keys, as --set takes them; after the suite's.
    control: not a published method but a control of one.
    published: metric -> what the paper reports.
    """

    name: str
    group: str = ""
    recipe: str | None = None
    algorithm: dict | None = None
    set: tuple[str, ...] = ()
    control: bool = False
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GainOptions:
    """Attributes:
    method, baseline: entries whose difference is explained.
    control: the baseline with the method's server step, but none of its idea.
    """

    method: str
    baseline: str
    control: str


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """Attributes:
    title: heading of the table.
    text: what a reader should know.
    recipe: the recipe that entries start from.
    set: keys of all entries, as --set takes them.
    seeds: the table is over these.
    metrics: columns, best value over the rounds; the first is that of the curves and differences.
    choose_by: a metric of the dev split; in place of the best value stands that of the round which is best by it.
    entry: the rows.
    gain: differences to split into the step size's part and the rest.
    targets: metric -> value; the table says in which round an entry first comes up to it (losses: down).
    median: whether the table has the medians over the seeds, too.
    classes: whether there is a table of F1 by class, at the end of the runs.
    steps: whether the table says how many local steps all clients took together, over all rounds.
    """

    title: str
    text: str = ""
    recipe: str | None = None
    set: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    metrics: tuple[str, ...] = ("test/accuracy", "train/loss")
    choose_by: str | None = None
    entry: tuple[EntryOptions, ...] = ()
    gain: tuple[GainOptions, ...] = ()
    targets: dict[str, float] = field(default_factory=dict)
    median: bool = False
    classes: bool = False
    steps: bool = False


@dataclass(frozen=True)
class Entry:
    """A row: its name, how to make its recipe for a seed, its table, and what is published."""

    name: str
    recipe_for: Callable[[int], Recipe]
    group: str = ""
    control: bool = False
    published: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name within its group's table, which repeats the group no more."""
        return self.name.removesuffix(f", {self.group}") if self.group else self.name


@dataclass(frozen=True)
class Suite:
    """A comparison to run. `command` is what makes it again."""

    title: str
    text: str
    command: str
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    entries: tuple[Entry, ...]
    gains: tuple[GainOptions, ...] = ()
    targets: dict[str, float] = field(default_factory=dict)
    median: bool = False
    classes: bool = False
    choose_by: str | None = None
    steps: bool = False

    def groups(self) -> dict[str, list[Entry]]:
        """Table -> its entries, in the suite's order."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.group, []).append(entry)
        return groups


def load_suite(name_or_path: str, overrides: tuple[str, ...] = (), seeds: tuple[int, ...] | None = None) -> Suite:
    """A suite that comes with the project, or a TOML file of one.

    Raises:
      UserError: unknown suite or key, or an entry that is not there.
    """
    known = suites()
    path = known.get(name_or_path, Path(name_or_path))
    if name_or_path not in known and path.suffix != ".toml":
        raise UserError(f"there is no suite '{name_or_path}'; {nearest(name_or_path, known)}")
    options = structure(SuiteOptions, read_toml(path), section="", source=str(path))
    if not options.entry:
        raise UserError(f"{path}: has no [[entry]]")
    names = [entry.name for entry in options.entry]
    for shown in (options.title, *names, *(entry.group for entry in options.entry)):
        if has_control_character(shown):
            raise UserError(f"{path}: {shown[:40]!r} holds a control character; leave it out")
    for group in {entry.group for entry in options.entry}:
        if problem := file_name_problem(slug(group)):
            raise UserError(f"{path}: a group is part of the names of its files: {problem}")
    _require_folders_apart(names, str(path))
    if not options.seeds or len(set(options.seeds)) != len(options.seeds):
        raise UserError(f"{path}: 'seeds' must be different whole numbers, at least one")
    if min(options.seeds) < 0 or max(options.seeds) >= SEEDS:
        raise UserError(f"{path}: 'seeds' must be whole numbers from 0 to 2^32 - 1")
    for wanted in [x for g in options.gain for x in (g.method, g.baseline, g.control)]:
        if wanted not in names:
            raise UserError(f"{path}: there is no entry '{wanted}'; {nearest(wanted, names)}")
    _require_metrics(options, str(path))
    entries = tuple(_suite_entry(options, entry, str(path), overrides) for entry in options.entry)
    for entry in entries:
        entry.recipe_for(options.seeds[0])  # refused before anything runs
    return Suite(
        title=options.title,
        text=options.text,
        command=_command(f"--suite {name_or_path}", overrides, seeds),
        seeds=seeds or options.seeds,
        metrics=options.metrics,
        entries=entries,
        gains=options.gain,
        targets=dict(options.targets),
        median=options.median,
        classes=options.classes,
        choose_by=options.choose_by,
        steps=options.steps,
    )


def _require_metrics(options: SuiteOptions, source: str) -> None:
    """UserError for a metric that no run can have."""
    if not options.metrics:
        raise UserError(f"{source}: 'metrics' must be at least one, e.g. [\"test/accuracy\"]")
    require_known(options.metrics, f"{source}: metrics")
    require_known(options.targets, f"{source}: [targets]")
    for entry in options.entry:
        require_known(entry.published, f"{source}: entry '{entry.name}': published")
    if options.choose_by is not None:
        require_known([options.choose_by], f"{source}: choose_by")
        if not options.choose_by.startswith("dev/"):
            raise UserError(
                f"{source}: choose_by must be a metric of the dev split, e.g. dev/f1; got {options.choose_by}"
            )
    if options.gain and not options.metrics[0].startswith(("test/", "train/", "local/")):
        raise UserError(f"{source}: [[gain]] is of the first metric, which must be of test, train or local")


def require_metrics_of(suite: Suite, names: set[str], source: str) -> None:
    """Raises UserError where a metric of the suite, of test, train or dev examples, is none that its runs have.

    Args:
      suite: one whose entries share task and evaluation; others may have what only some entries have.
      names: the metrics of its first run.
      source: that run, for messages.
    """
    for what, wanted in (("metrics", suite.metrics), ("choose_by", [suite.choose_by]), ("targets", suite.targets)):
        for name in wanted:
            if name is not None and name.startswith(SPLITS) and name not in names:
                raise UserError(f"{what}: the runs of {source} have no metric '{name}'; {nearest(name, names)}")


def _alike(suite: Suite) -> bool:
    recipes = [entry.recipe_for(suite.seeds[0]) for entry in suite.entries]
    return all((r.task, r.evaluation) == (recipes[0].task, recipes[0].evaluation) for r in recipes)


def suite_of_recipes(names: tuple[str, ...], overrides: tuple[str, ...] = (), seeds: tuple[int, ...] | None = None):
    """The suite of some recipes, which must share task, partition, model and training."""
    recipes = [load(name, overrides) for name in names]
    first = recipes[0]
    for recipe in recipes[1:]:
        for section in ("task", "partition", "model", "training", "evaluation"):
            if getattr(recipe, section) != getattr(first, section):
                raise UserError(
                    f"{recipe.source}: its [{section}] is not that of {first.source}; a comparison needs them alike"
                )
    _require_folders_apart([recipe.name for recipe in recipes], "the recipes")
    entries = tuple(
        Entry(r.name, lambda seed, n=n: load(n, overrides, seed), published=r.published)
        for n, r in zip(names, recipes, strict=True)
    )
    command = _command(" ".join(names), overrides, seeds)
    return Suite("Comparison", "", command, seeds or (first.seed,), ("test/accuracy", "train/loss"), entries)


def _require_folders_apart(names: list[str], source: str) -> None:
    """Runs lie in folders of their entries' names; UserError where two of them would share one."""
    taken: dict[str, str] = {}
    for name in names:
        folder = slug(name)
        if problem := file_name_problem(folder):
            raise UserError(f"{source}: a name of an entry is that of its run's folder: {problem}")
        if not folder:
            raise UserError(f"{source}: the name '{name}' has no letter or digit; give another")
        if folder in taken:
            raise UserError(f"{source}: the names '{taken[folder]}' and '{name}' would share a folder; change one")
        taken[folder] = name


def _command(what: str, overrides: tuple[str, ...], seeds: tuple[int, ...] | None) -> str:
    parts = ["python -m tff_re.run compare", what, *(f"--set {shlex.quote(override)}" for override in overrides)]
    return " ".join(parts + ([f"--seeds {','.join(map(str, seeds))}"] if seeds else []))


def _suite_entry(options: SuiteOptions, entry: EntryOptions, source: str, overrides: tuple[str, ...]) -> Entry:
    base = entry.recipe or options.recipe
    if base is None:
        raise UserError(f"{source}: entry '{entry.name}' has no recipe, and neither has the suite")
    path = locate(base)

    def recipe_for(seed: int) -> Recipe:
        table = read_toml(path)
        table["name"] = slug(entry.name)
        table.pop("published", None)
        if entry.algorithm is not None:
            table["algorithm"] = dict(entry.algorithm)
        for override in (*options.set, *entry.set):
            apply_override(table, override)
        return resolve(table, f"{source}, entry '{entry.name}'", overrides, seed)

    return Entry(entry.name, recipe_for, entry.group, entry.control, dict(entry.published))


def slug(name: str) -> str:
    """A name fit for a folder."""
    for letter, spelled in (("λ", "step"), ("μ", "mu"), ("α", "alpha")):
        name = name.replace(letter, spelled)
    return re.sub(r"[^\w.]+", "-", name).strip("-").lstrip(".-").lower()


@dataclass(frozen=True)
class Outcome:
    """What a run of a comparison left: its metrics by round, seconds per round, bytes per client and round, labels by
    client, round -> local average similarities [K, C] of the first and the last round (empty but for FedCMC),
    class -> F1 at the end (NaN where a class was neither there nor predicted), the curve of a ranking's chosen
    round, and row -> metric -> value of what its data give without training (`references` of
    summary.json)."""

    history: list[dict[str, float]]
    seconds_per_round: float
    bytes_down: int
    bytes_up: int
    counts: LabelCounts | None = None
    similarities: dict[int, np.ndarray] = field(default_factory=dict)
    class_f1: dict[str, float] = field(default_factory=dict)
    precision_recall: Points | None = None
    references: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def steps(self) -> float | None:
        """Local steps of all clients in all rounds; None where a round does not say."""
        values = [row.get("local/steps") for row in self.history]
        return None if not values or None in values else math.fsum(values)

    @property
    def best(self) -> dict[str, float]:
        """Highest accuracy, lowest loss over the rounds, as the papers report them."""
        return best_values(self.history)

    @property
    def final(self) -> dict[str, float]:
        """Mean over the last tenth of the evaluated rounds: what one gets without choosing a round."""
        means = {}
        for name in {name for row in self.history for name in row}:
            values = [row[name] for row in self.history if name in row]
            means[name] = statistics.fmean(values[-max(1, len(values) // 10) :])
        return means

    def at_best(self, criterion: str) -> dict[str, float]:
        """The row of the first evaluated round in which a metric is highest; empty if no round has a finite one."""
        rows = [row for row in self.history if math.isfinite(row.get(criterion, math.nan))]
        return max(rows, key=lambda row: row[criterion], default={})

    def rounds_to(self, metric: str, target: float) -> int | None:
        """The first evaluated round in which a metric is at least the target (a loss: at most); None: in none."""
        reached = (lambda value: value <= target) if metric.endswith("loss") else (lambda value: value >= target)
        return next((int(row["round"]) for row in self.history if metric in row and reached(row[metric])), None)


def compare(
    suite: Suite,
    out: Path,
    *,
    builder: ExperimentBuilder,
    runtime_name: str = "local",
    resume: bool = False,
    on_start: Callable[[str, int, int], None] = lambda entry, seed, rounds: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
) -> dict[str, dict[int, Outcome]]:
    """Runs all entries over all seeds; entry name -> seed -> Outcome.

    Raises:
      UserError: `out` holds other runs, or these without `resume`.
    """
    runs = Path(out) / "runs"
    if Path(out).exists() and any(Path(out).iterdir()) and not resume:
        raise UserError(f"{out}: is not empty; continue it with --resume or give another --out")
    outcomes: dict[str, dict[int, Outcome]] = {entry.name: {} for entry in suite.entries}
    require_runtime(runtime_name)
    if not resume and _alike(suite):
        first = suite.entries[0].recipe_for(suite.seeds[0])
        require_metrics_of(suite, metric_names(builder.build(first)), first.name)
    make_private_folder(Path(out))
    make_private_folder(runs)
    with permissions(), open_runtime(runtime_name, log_path=runs / "worker.log") as runtime:
        _run_all(suite, runs, outcomes, builder, runtime, resume, on_start, on_round)
    return outcomes


def _run_all(suite, runs, outcomes, builder, runtime, resume, on_start, on_round) -> None:
    alike = _alike(suite)
    for seed in suite.seeds:
        for entry in suite.entries:
            recipe = entry.recipe_for(seed)
            folder = RunFolder(runs / f"{slug(entry.name)}-seed{seed}")
            on_start(entry.name, seed, recipe.training.rounds)
            if resume and (outcome := _finished(recipe, folder, builder)):
                if alike:
                    names = {name for row in outcome.history for name in row}
                    require_metrics_of(suite, names, f"{recipe.name}, seed {seed}")
                outcomes[entry.name][seed] = outcome
                continue
            experiment, _ = train_run(
                recipe,
                folder.path,
                builder=builder,
                resume=resume and folder.recipe.exists(),
                runtime=runtime,
                on_start=lambda experiment: (
                    alike and require_metrics_of(suite, metric_names(experiment), experiment.recipe.name)
                ),
                on_round=on_round,
                details=False,
            )
            outcomes[entry.name][seed] = Outcome(
                history=read_history(folder),
                seconds_per_round=_median_seconds(folder),
                bytes_down=experiment.traffic.down,
                bytes_up=experiment.traffic.up,
                counts=experiment.prepared.counts,
                similarities=recorded_similarities(experiment.prepared, folder),
                class_f1=_class_f1(folder),
                precision_recall=read_precision_recall(folder.precision_recall),
                references=_references(json.loads(folder.summary.read_text("utf-8"))),
            )


def _references(summary: dict) -> dict[str, dict[str, float]]:
    """What a run's summary.json has of models without training; ValueError and its like for a damaged one."""
    return {
        row: {name: float(value) for name, value in values.items()}
        for row, values in summary.get("references", {}).items()
    }


def _finished(recipe: Recipe, folder: RunFolder, builder: ExperimentBuilder) -> Outcome | None:
    """The outcome of a run that has come to its end, from its folder alone; None if it has not, or is another run, or
    files in it were changed: resuming the run mends or refuses them."""
    if not (folder.summary.exists() and folder.recipe.exists() and is_as_it_was(folder)):
        return None
    if folder.recipe.read_bytes() != recipe.to_toml().encode("utf-8"):
        return None
    try:
        history = read_history(folder)
    except UserError:  # of a run without digests
        return None
    if not history or history[-1]["round"] < recipe.training.rounds:
        return None
    try:
        summary = json.loads(folder.summary.read_text("utf-8"))
        traffic = [int(summary[f"bytes_{way}_per_client_and_round"]) for way in ("down", "up")]
        references = _references(summary)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{folder.summary}: is damaged; remove it, then continue with --resume") from None
    similar = {}
    if folder.client_states.exists():
        prepared = builder.prepare(recipe)
        similar = {"counts": prepared.counts, "similarities": recorded_similarities(prepared, folder)}
    curve = read_precision_recall(folder.precision_recall)
    if curve is None and math.isfinite(history[-1].get("test/auc", math.nan)):
        return None  # the file was damaged and taken away: the run's last step writes it again
    found = {"class_f1": _class_f1(folder), "precision_recall": curve, "references": references}
    return Outcome(history, _median_seconds(folder), *traffic, **similar, **found)


def _class_f1(folder: RunFolder) -> dict[str, float]:
    if not folder.classes.exists():
        return {}
    with open(folder.classes, newline="", encoding="utf-8") as file:
        return {row["class"]: float(row["f1"]) for row in csv.DictReader(file)}


def _median_seconds(folder: RunFolder) -> float:
    """Median over the rounds; the first round of a process also compiles, which a median passes over."""
    with open(folder.timings, newline="", encoding="utf-8") as file:
        return statistics.median(float(row["seconds/training"]) for row in csv.DictReader(file))


def explain_gain(gain: GainOptions, metric: str, outcomes: dict[str, dict[int, Outcome]]) -> str:
    """How much of a method's gain over its baseline the server's step size alone brings, in a sentence or two."""

    def differences(a: str, b: str) -> list[float]:
        return [outcomes[a][s].best[metric] - outcomes[b][s].best[metric] for s in outcomes[a]]

    whole, step = differences(gain.method, gain.baseline), differences(gain.control, gain.baseline)
    rest = differences(gain.method, gain.control)
    sentence = (
        f"{gain.method} against {gain.baseline}: {_signed(whole)}. The control '{gain.control}' alone brings "
        f"{_signed(step)}, what is {gain.method}'s own beyond it {_signed(rest)}"
    )
    mean, share = statistics.fmean(whole), statistics.fmean(step)
    if mean <= 0 or (len(whole) > 1 and mean <= statistics.stdev(whole) / len(whole) ** 0.5):
        return sentence + "; there is no gain to explain."
    if share <= 0:
        return sentence + "; the control alone gains nothing."
    if share >= mean:
        return sentence + "; the control alone makes all of the gain."
    return sentence + f"; the control alone makes {100 * share / mean:.0f} % of the gain."


def _signed(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):+.3f}{spread} ({sum(v > 0 for v in values)} of {len(values)} seeds better)"
