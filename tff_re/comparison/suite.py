"""Suites: several algorithms on the same partitions and the same seeds, so that differences are paired."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tff_re import tasks
from tff_re.comparison.suggestions import require_recipes, require_suite
from tff_re.comparison.sweep import Sweep, as_overrides, read_sweep
from tff_re.comparison.values import metric_options
from tff_re.errors import UserError, nearest
from tff_re.recipes import reading
from tff_re.recipes.metric_names import SPLITS, require_known
from tff_re.recipes.options import DEFAULT_METRIC
from tff_re.recipes.reading import SEEDS, Recipe, file_name_problem, load, read_toml, suites
from tff_re.recipes.structuring import structure


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """Attributes:
    name: as the table shows it.
    group: the table that the row belongs to; a group's first entry is what differences refer to.
    recipe: a recipe in place of the suite's.
    algorithm: the recipe's table [algorithm], replaced.
    set: further keys, as --set takes them; after the suite's.
    unread: keys that the entry does not take where --set gives them, such as the tokenizer of a model of words.
    control: not a published method but a control of one.
    sweep: its own keys and values, or `settings`, in place of the suite's [sweep].
    published: metric -> what the paper reports.
    tried: the settings of the method that were tried before its own was taken, and on what, for the table to say; what
      one method had tried and another had not is no difference of the methods.
    line, at: its line and its place along the axis in the picture over `over`, e.g. a method and its epsilon.
    """

    name: str
    group: str = ""
    recipe: str | None = None
    algorithm: dict | None = None
    set: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    control: bool = False
    sweep: dict | None = None
    published: dict[str, float] = field(default_factory=dict)
    tried: str = ""
    line: str = ""
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """A published gain, for which the report says whether it shows. Those of the entries' `published` on their group's
    first entry are claims without being listed.

    Attributes:
    method, baseline: entries of one group.
    metric: that the gain is in.
    published: method - baseline in the paper, in the metric's own unit, as an entry's `published`; not 0.
    """

    method: str
    baseline: str
    metric: str
    published: float


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
    by_seed: seed -> further keys of all entries on it, after `set`, e.g. the files of its fold of a cross-validation;
      also of seeds of a sweep.
    metrics: columns, best value over the rounds; the first is that of the curves and differences.
    choose_by: a metric of the dev split; in place of the best value stands that of the round which is best by it. Where
      it is left out and all entries choose by one metric on their clients' dev examples ([choice]), it is that.
    sweep: settings that are tried for every entry before, on seeds of their own; see `sweep.read_sweep`.
    entry: the rows.
    claim: published gains to judge.
    gain: differences to split into the step size's part and the rest.
    targets: metric -> value; the table says in which round an entry first comes up to it (losses: down).
    median: whether the table has the medians over the seeds, too.
    classes: whether there is a table of F1 by class, at the end of the runs.
    steps: whether the table says how many local steps all clients took together, over all rounds.
    over: what the entries' `at` is: then each table has a picture of its metrics over it.
    made_up: whether the data were made up for this comparison, by this project; then every verdict says so.
    """

    title: str
    text: str = ""
    recipe: str | None = None
    set: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    by_seed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("test/accuracy", "train/loss")
    choose_by: str | None = None
    sweep: dict = field(default_factory=dict)
    entry: tuple[EntryOptions, ...] = ()
    claim: tuple[ClaimOptions, ...] = ()
    gain: tuple[GainOptions, ...] = ()
    targets: dict[str, float] = field(default_factory=dict)
    median: bool = False
    classes: bool = False
    steps: bool = False
    over: str = ""
    made_up: bool = False


@dataclass(frozen=True)
class Entry:
    """A row: its name, its recipe for a seed (and further keys, as --set takes them), and what `EntryOptions` says of
    it."""

    name: str
    recipe_for: Callable[..., Recipe]
    group: str = ""
    control: bool = False
    published: dict[str, float] = field(default_factory=dict)
    tried: str = ""
    line: str = ""
    at: str = ""

    @property
    def title(self) -> str:
        """The name within its group's table, see `title_of`."""
        return title_of(self.name, self.group)


@dataclass(frozen=True, kw_only=True, repr=False)
class Suite(SuiteOptions):
    """A comparison to run.

    `command` is the command line that repeats it, `tuning` the search that runs before it.
    """

    command: str
    entries: tuple[Entry, ...]
    tuning: Sweep | None = None

    def __repr__(self) -> str:
        return f"Suite({self.title}: {len(self.entries)} entries, seeds {', '.join(map(str, self.seeds))})"

    def groups(self) -> dict[str, list[Entry]]:
        """Table -> its entries, in the suite's order."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.group, []).append(entry)
        return groups

    def same_task(self) -> bool:
        """Whether all entries have the same task and evaluation, and so the same metrics."""
        recipes = [entry.recipe_for(self.seeds[0]) for entry in self.entries]
        return all((r.task, r.evaluation) == (recipes[0].task, recipes[0].evaluation) for r in recipes)


def load_suite(
    name_or_path: str,
    overrides: tuple[str, ...] = (),
    seeds: tuple[int, ...] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Suite:
    """A suite that comes with the project, or one from a TOML file.

    `sweep` replaces its own.

    Raises:
      UserError: unknown suite or key, or an entry that is not there.
    """
    known = suites()
    path = known.get(name_or_path, Path(name_or_path))
    require_suite(name_or_path)
    options = structure(SuiteOptions, read_toml(path), section="", source=str(path))
    if not options.entry:
        raise UserError(f"{path}: has no [[entry]]")
    names = [entry.name for entry in options.entry]
    for text in (options.title, *names, *(text for entry in options.entry for text in (entry.group, entry.tried))):
        if reading.has_control_character(text):
            raise UserError(f"{path}: {text[:40]!r} has a control character; remove it")
    if problem := _separator_problem(options.title):
        raise UserError(f"{path}: 'title' is a name, not a path: {problem}")
    for group in {entry.group for entry in options.entry}:
        if problem := _separator_problem(group) or file_name_problem(slug(group)):
            raise UserError(f"{path}: the name of a group is used in file names: {problem}")
    _require_folders_apart(names, str(path))
    _require_rows_apart(options.entry, str(path))
    if not options.seeds or len(set(options.seeds)) != len(options.seeds):
        raise UserError(f"{path}: 'seeds' must be one or more different whole numbers")
    if min(options.seeds) < 0 or max(options.seeds) >= SEEDS:
        raise UserError(f"{path}: 'seeds' must be whole numbers from 0 to 2^32 - 1")
    for text in options.by_seed:
        if not re.fullmatch("0|[1-9][0-9]{0,9}", text) or int(text) >= SEEDS:
            raise UserError(f"{path}: [by_seed]: {text[:40]!r} is no seed; seeds are whole numbers from 0 to 2^32 - 1")
    compared = [name for claim in options.claim for name in (claim.method, claim.baseline)]
    for wanted in (*compared, *(name for gain in options.gain for name in vars(gain).values())):
        if wanted not in names:
            raise UserError(f"{path}: there is no entry '{wanted}'; {nearest(wanted, names)}")
    _require_claims(options, str(path))
    _require_metrics(options, str(path))
    entries = tuple(_suite_entry(options, entry, str(path), overrides) for entry in options.entry)
    for entry in entries:
        for seed in {options.seeds[0], *map(int, options.by_seed)}:
            entry.recipe_for(seed)  # a bad entry is refused before anything runs
    command = _command(f"--suite {name_or_path}", overrides, seeds, sweep)
    chosen = {"seeds": seeds or options.seeds, "choose_by": options.choose_by or _chosen_by(entries, options.seeds[0])}
    of_entries = {entry.name: None if sweep else entry.sweep for entry in options.entry}
    tuning = read_sweep(sweep or options.sweep, of_entries, **chosen, overrides=overrides, source=str(path))
    run_on = {*chosen["seeds"], *(() if tuning is None else tuning.seeds)}
    if options.by_seed and (without := run_on - {int(seed) for seed in options.by_seed}):
        raise UserError(f"{path}: [by_seed] has nothing for seed {min(without)}; add it, or leave that seed out")
    _try_settings(entries, tuning)
    return Suite(**{**vars(options), **chosen}, command=command, entries=entries, tuning=tuning)


def _try_settings(entries: tuple[Entry, ...], tuning: Sweep | None) -> None:
    """Raises UserError for a setting that an entry's recipe cannot take, before anything runs."""
    for entry in entries if tuning is not None else ():
        for setting in tuning.settings[entry.name]:
            entry.recipe_for(tuning.seeds[0], as_overrides(setting))


def _chosen_by(entries: tuple[Entry, ...], seed: int) -> str | None:
    """The metric by which all entries' [choice] choose on clients' dev examples.

    None if they differ or lack it.
    """
    metrics = set()
    for recipe in (entry.recipe_for(seed) for entry in entries):
        at_server = recipe.task.name in ("bag_relations", "document_relations")  # which have metrics of their own
        default = None if at_server else DEFAULT_METRIC
        metrics.add(recipe.choice.metric or default if recipe.has_choice else None)
    (metric,) = metrics if len(metrics) == 1 else (None,)
    return metric and f"dev/{metric}"


def _require_claims(options: SuiteOptions, source: str) -> None:
    """Raises UserError for a claim that no table of the suite can answer."""
    group = {entry.name: entry.group for entry in options.entry}
    for claim in options.claim:
        where = f"{source}: claim '{claim.method}' against '{claim.baseline}'"
        if claim.metric not in options.metrics:
            raise UserError(f"{where}: metric must be one of the suite's; {nearest(claim.metric, options.metrics)}")
        if claim.method == claim.baseline or group[claim.method] != group[claim.baseline]:
            raise UserError(f"{where}: method and baseline must be two entries of the same group")
        if claim.published == 0 or (abs(claim.published) > 1 and not claim.metric.endswith("loss")):
            raise UserError(
                f"{where}: published must be a difference in the metric's own unit, e.g. 0.047 for 4.7 points; got "
                f"{claim.published:g}"
            )


def _require_metrics(options: SuiteOptions, source: str) -> None:
    """Raises UserError for a metric that no run can have."""
    if not options.metrics:
        raise UserError(f"{source}: 'metrics' must have at least one metric, e.g. [\"test/accuracy\"]")
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
        raise UserError(f"{source}: [[gain]] uses the first metric, which must be of test, train or local")
    if options.gain and not metric_options(options.metrics[0])["higher_is_better"]:
        raise UserError(f"{source}: [[gain]] uses the first metric, of which more must be better, not a loss")


def require_metrics_of(suite: Suite, names: set[str], source: str) -> None:
    """Raises UserError where a metric of a split is none of `names`, those of the suite's run `source`.

    For suites whose entries share task and evaluation; others may have what only some entries have.
    """
    for what, wanted in (("metrics", suite.metrics), ("choose_by", [suite.choose_by]), ("targets", suite.targets)):
        for name in wanted:
            if name is not None and name.startswith(SPLITS) and name not in names:
                raise UserError(f"{what}: the runs of {source} have no metric '{name}'; {nearest(name, names)}")


def suite_of_recipes(
    names: tuple[str, ...],
    overrides: tuple[str, ...] = (),
    seeds: tuple[int, ...] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Suite:
    """The suite of some recipes.

    The recipes must share task, partition, model, training and choice. `sweep` as in `SuiteOptions`.
    """
    require_recipes(names)
    recipes = [load(name, overrides) for name in names]
    first = recipes[0]
    for recipe in recipes[1:]:
        for section in ("task", "partition", "model", "training", "evaluation", "choice"):
            if getattr(recipe, section) != getattr(first, section):
                raise UserError(
                    f"{recipe.source}: its [{section}] differs from {first.source}; a comparison needs the same in "
                    "all recipes"
                )
    _require_folders_apart([recipe.name for recipe in recipes], "the recipes")
    entries = tuple(
        Entry(r.name, lambda seed, more=(), n=n: load(n, (*more, *overrides), seed), published=r.published)
        for n, r in zip(names, recipes, strict=True)
    )
    command = _command(" ".join(names), overrides, seeds, sweep)
    chosen = {"seeds": seeds or (first.seed,), "choose_by": _chosen_by(entries, first.seed)}
    loss = "train/loss" if first.evaluation.train_split else "test/loss"
    measured = {"metrics": (f"test/{tasks.TASKS[first.task.name].quality}", loss)}
    of_entries = dict.fromkeys(entry.name for entry in entries)
    tuning = read_sweep(sweep or {}, of_entries, **chosen, overrides=overrides, source="--sweep")
    _try_settings(entries, tuning)
    return Suite(title="Comparison", command=command, entries=entries, tuning=tuning, **chosen, **measured)


def _require_folders_apart(names: list[str], source: str) -> None:
    """Raises UserError if two entries' runs would share a folder.

    Folders are named after entries.
    """
    taken: dict[str, str] = {}
    for name in names:
        folder = slug(name)
        if problem := _separator_problem(name) or file_name_problem(folder):
            raise UserError(f"{source}: the name of an entry is used as the name of its run's folder: {problem}")
        if not folder:
            raise UserError(f"{source}: the name '{name}' has no letter or digit; choose another name")
        if folder in taken:
            raise UserError(f"{source}: the names '{taken[folder]}' and '{name}' would share a folder; change one")
        taken[folder] = name


def _require_rows_apart(entries: Sequence[EntryOptions], source: str) -> None:
    """Raises UserError if two entries would be the same row of a table, whose names leave out their group's name."""
    taken: dict[tuple[str, str], str] = {}
    for entry in entries:
        key = entry.group, title_of(entry.name, entry.group)
        if key in taken:
            raise UserError(
                f"{source}: the entries '{taken[key]}' and '{entry.name}' would both be the row '{key[1]}' of group "
                f"'{entry.group}'; change one"
            )
        taken[key] = entry.name


def title_of(name: str, group: str) -> str:
    """The name of an entry within its group's table, without the group's name."""
    return name.removesuffix(f", {group}") if group else name


def _separator_problem(name: str) -> str | None:
    """Why a name that reads as a path is refused, with the remedy.

    Its file would not lie where the name says.
    """
    return f"{name[:40]!r} has a path separator; remove it" if "/" in name or "\\" in name else None


def _command(
    what: str, overrides: tuple[str, ...], seeds: tuple[int, ...] | None, sweep: Mapping[str, Any] | None
) -> str:
    parts = ["python -m tff_re.run compare", what, *(f"--set {shlex.quote(override)}" for override in overrides)]
    for key, values in (sweep or {}).items():
        if key == "seeds":
            parts.append(f"--tuning-seeds {','.join(map(str, values))}")
        else:
            parts.append(f"--sweep {shlex.quote(f'{key}={json.dumps(values)}')}")
    return " ".join(parts + ([f"--seeds {','.join(map(str, seeds))}"] if seeds else []))


def _suite_entry(options: SuiteOptions, entry: EntryOptions, source: str, overrides: tuple[str, ...]) -> Entry:
    base = entry.recipe or options.recipe
    if base is None:
        raise UserError(f"{source}: neither the entry '{entry.name}' nor the suite has a recipe")
    path = reading.locate(base)
    applied = tuple(override for override in overrides if override.partition("=")[0].strip() not in entry.unread)

    def recipe_for(seed: int, more: tuple[str, ...] = ()) -> Recipe:
        table = read_toml(path)
        table["name"] = slug(entry.name)
        table.pop("published", None)
        if entry.algorithm is not None:
            table["algorithm"] = dict(entry.algorithm)
        for override in (*options.set, *options.by_seed.get(str(seed), ()), *entry.set, *more):
            reading.apply_override(table, override)
        return reading.resolve(table, f"{source}, entry '{entry.name}'", applied, seed)

    copied = {name: getattr(entry, name) for name in ("group", "control", "tried", "line", "at")}
    return Entry(entry.name, recipe_for, published=dict(entry.published), **copied)


def run_folder(out: Path, entry: str, seed: int) -> Path:
    """Where a comparison keeps a run."""
    return out / "runs" / f"{slug(entry)}-seed{seed}"


def sweep_folder(out: Path, entry: str, setting: int, seed: int) -> Path:
    """The folder of a comparison's sweep run.

    `setting` counts from 0.
    """
    return out / "sweep" / f"{slug(entry)}-{setting}-seed{seed}"


def slug(name: str) -> str:
    """The name as part of a folder's or file's name."""
    for letter, spelled in (("λ", "step"), ("μ", "mu"), ("α", "alpha")):
        name = name.replace(letter, spelled)
    return re.sub(r"[^\w.]+", "-", name).strip("-").lstrip(".-").lower()
