"""Running a suite, and what each of its runs left."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.partition import LabelCounts
from tff_re.comparison.costs import steps_by_round
from tff_re.comparison.planning import InOrder, Part, PlannedRun, Watcher, has_diverged
from tff_re.comparison.suite import Entry, Suite, require_metrics_of, run_folder, sweep_folder
from tff_re.comparison.sweep import Attempt, Setting, Sweep, Tuned, as_overrides, describe, tune
from tff_re.comparison.worker import SetUp
from tff_re.errors import Diverged, UserError
from tff_re.recipes.reading import Recipe
from tff_re.report.precision_recall import Points
from tff_re.runs.building import expected_clients
from tff_re.runs.evaluation import metric_names
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.folder import RunFolder, make_private_folder, permissions, write_text
from tff_re.runs.reading import read_history, read_json, read_precision_recall, read_table, read_test_units
from tff_re.runs.results import best_values, recorded_similarities
from tff_re.runs.resuming import is_as_it_was, recorded_data_digest
from tff_re.runs.run import train_run
from tff_re.runs.training import RoundReport
from tff_re.runtime import DEFAULT_RUNTIME, open_runtime, require_runtime
from tff_re.tasks.measured_units import MeasuredUnits

if TYPE_CHECKING:
    from tff_re.comparison.pool import Pool

LOST_PROCESS = 30.0
"""Seconds until a process that lost its cluster has ended and left its run's folder."""


@dataclass(frozen=True)
class Outcome:
    """The results of a run of a comparison, read from its folder.

    Attributes:
      history: the metrics of each round.
      seconds_per_round: median.
      bytes_down, bytes_up: per client and round.
      counts: labels by client; None unless there are similarities.
      similarities: round -> local average similarities [K, C], the first and the last round; empty but for FedCMC.
      class_f1: class -> F1 at the end, NaN where a class neither occurs nor is predicted.
      precision_recall: the curve of the chosen round, for a task that ranks.
      references: row -> metric -> value that the data give without training (`references` of summary.json).
      privacy: what the run guarantees (`privacy` of summary.json); empty without [privacy].
      chosen: the chosen round, `by` which metric, and its metrics (`chosen` of summary.json); empty where none was.
      stopped: why the run ended before its last round; None: it did not.
      tuned: the setting that a sweep chose for it, and of how many; None: there was no sweep.
      test_examples: that it was tested on; None: the run does not say.
      data_digest: SHA-256 of the examples that were read, see `with_data_digest`; None: the run does not say.
      commit, processor: of the code and of the machine that ran it; '' where the run does not say.
      test_units: what the run's weights measured on each test unit; None: the run did not keep it.
      of_run: metrics that the run has once, not by round: `personal/accuracy`, … after fine-tuning at the clients.
    """

    history: list[dict[str, float]]
    seconds_per_round: float
    bytes_down: int
    bytes_up: int
    counts: LabelCounts | None = None
    similarities: dict[int, np.ndarray] = field(default_factory=dict)
    class_f1: dict[str, float] = field(default_factory=dict)
    precision_recall: Points | None = None
    references: dict[str, dict[str, float]] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None
    tuned: Tuned | None = None
    of_run: dict[str, float] = field(default_factory=dict)
    test_units: MeasuredUnits | None = field(default=None, repr=False)
    test_examples: int | None = None
    data_digest: str | None = None
    commit: str = ""
    processor: str = ""

    @property
    def tried(self) -> int:
        """The number of settings of its entry that were tried on dev before this run.

        It is 1 without a sweep.
        """
        return 1 if self.tuned is None else self.tuned.tried

    @property
    def steps(self) -> float | None:
        """Local steps of all clients in all rounds, or None if a round does not say."""
        by_round = steps_by_round(self.history)
        return None if by_round is None else max(by_round.values())

    @property
    def best(self) -> dict[str, float]:
        """Highest accuracy and lowest loss over the rounds, as the papers report them."""
        return best_values(self.history)

    def at_best(self, criterion: str) -> dict[str, float]:
        """The row of the first evaluated round with the best value of a metric (a loss: the lowest).

        Empty if no round has a finite value. If the run chose by this metric, the row has the chosen weights'
        test values.
        """
        rows = [row for row in self.history if math.isfinite(row.get(criterion, math.nan))]
        best = (min if criterion.endswith("loss") else max)(rows, key=lambda row: row[criterion], default={})
        chosen = self.chosen if self.chosen.get("by") == criterion else {}
        return best | {name: value for name, value in chosen.items() if name.startswith("test/")}

    def rounds_to(self, metric: str, target: float) -> int | None:
        """The first evaluated round in which a metric is at least the target (a loss: at most), or None."""
        reached = (lambda value: value <= target) if metric.endswith("loss") else (lambda value: value >= target)
        return next((int(row["round"]) for row in self.history if metric in row and reached(row[metric])), None)


def compare(
    suite: Suite,
    out: Path,
    *,
    builder: ExperimentBuilder,
    runtime_name: str = DEFAULT_RUNTIME,
    resume: bool = False,
    on_start: Callable[[str, int, int], None] = lambda entry, seed, rounds: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    jobs: int = 1,
    cluster: str | None = None,
    part: Part | None = None,
    watcher: Watcher | None = None,
) -> dict[str, dict[int, Outcome]]:
    """Runs all entries over all seeds.

    Returns entry name -> seed -> Outcome, with `part` only of its runs.

    Args:
      suite: to run.
      out: the comparison's folder.
      builder: of the experiments that are built in this process.
      runtime_name: where computations run.
      resume: continue what is in the folder.
      on_start: called before every run with its title, seed and number of rounds; with several jobs in the suite's
        order, as if one run came after the other.
      on_round: called after every round of that run.
      jobs: how many runs are under way at once, each in a process of its own.
      cluster: the address of a Dask cluster's scheduler, whose workers do the runs; None: this machine does them.
      part: the runs to do; None: all.
      watcher: with several jobs or a cluster, is told of all runs as they happen, in place of the two callbacks.

    Raises:
      UserError: `out` holds other runs, or these without `resume`; or two of them read other examples of the same data.
    """
    if out.exists() and any(out.iterdir()) and not resume and part is None:
        raise UserError(f"{out}: is not empty; continue it with --resume or give another --out")
    expected = [expected_clients(entry.recipe_for(suite.seeds[0])) for entry in suite.entries]
    clients = max((number for number in expected if number is not None), default=None)
    require_runtime(runtime_name, clients=clients)
    same_task = suite.same_task()
    setting = {"runtime_name": runtime_name, "clients": clients, "resume": resume}
    setting["check"] = dataclasses.replace(suite, entries=(), tuning=None) if same_task else None
    runs = RunsHere(builder, on_start=on_start, on_round=on_round, **setting)
    if jobs > 1 or cluster is not None:
        number = max(len(suite.entries) * len(suite.seeds), 0 if suite.tuning is None else suite.tuning.runs)
        set_up = SetUp(builder.data_paths, **setting)
        runs = _at_once(runs, min(jobs, number), cluster, set_up, watcher or InOrder(on_start, on_round))
    with contextlib.closing(runs):
        if not resume and same_task:
            first = suite.entries[0].recipe_for(suite.seeds[0])
            require_metrics_of(suite, runs.metric_names(first), first.name)
        if not resume and suite.tuning is not None:
            first = suite.entries[0].recipe_for(suite.tuning.seeds[0])
            chosen_by = dataclasses.replace(suite, choose_by=suite.tuning.choose_by)
            require_metrics_of(chosen_by, runs.metric_names(first), "sweep")
        make_private_folder(out)
        make_private_folder(out / "runs")
        with permissions(), runs.opened(out / "runs" / "worker.log"):
            return _run_all(suite, out, runs, part)


def _at_once(runs: RunsHere, jobs: int, cluster: str | None, set_up: SetUp, watcher: Watcher) -> Pool:
    """What does several runs at once: processes here, or those of a cluster."""
    if cluster is not None and jobs > 1:
        raise UserError("jobs and cluster exclude each other; leave one of them out")
    if cluster is None:
        from tff_re.comparison.parallel import Workers

        return Workers(runs, jobs, set_up, watcher)
    from tff_re.comparison.cluster import Cluster

    return Cluster(runs, cluster, set_up, watcher)


def _run_all(suite: Suite, out: Path, runs: RunsHere | Pool, part: Part | None) -> dict[str, dict[int, Outcome]]:
    """The sweep, then the runs of the tables."""
    pairs = _pairs(suite, out, part)
    names = {entry.name for _, entry in pairs}
    tuned: dict[str, Tuned] = {}
    if suite.tuning is not None and names:
        make_private_folder(out / "sweep")
        settings = {name: settings for name, settings in suite.tuning.settings.items() if name in names}
        tuned = _tune(suite, dataclasses.replace(suite.tuning, settings=settings), out, runs)

    def planned(seed: int, entry: Entry) -> PlannedRun:
        best = tuned.get(entry.name)
        recipe = entry.recipe_for(seed, () if best is None else as_overrides(best.setting))
        return PlannedRun(entry.name, recipe, run_folder(out, entry.name, seed), (entry.name, 0))

    of_tables = {(entry.name, seed): planned(seed, entry) for seed, entry in pairs}
    runs.ahead(list(of_tables.values()))
    outcomes: dict[str, dict[int, Outcome]] = {entry.name: {} for entry in suite.entries if entry.name in names}
    known: dict[Hashable, tuple[Path, str]] = {}
    for (name, seed), run in of_tables.items():
        outcome = runs.outcome(run)
        _require_same_examples(run, outcome, known)
        outcomes[name][seed] = dataclasses.replace(outcome, tuned=tuned.get(name))
    return outcomes


def _require_same_examples(run: PlannedRun, outcome: Outcome, known: dict[Hashable, tuple[Path, str]]) -> None:
    """Raises UserError where a run read other examples than an earlier one of the same data.

    `known`: a recipe's data -> the first run on them and its `Outcome.data_digest`. A resumed comparison would mix runs
    from before and after a file was rewritten.
    """
    if outcome.data_digest is None:
        return
    recipe = run.recipe
    first, digest = known.setdefault((recipe.task, recipe.partition, recipe.seed), (run.folder, outcome.data_digest))
    if outcome.data_digest != digest:
        raise UserError(
            f"{run.folder}: read other examples than {first}, so that a file of the data set was rewritten between the "
            "two; remove the folders of the runs from before, and continue with --resume"
        )


def _pairs(suite: Suite, out: Path, part: Part | None) -> list[tuple[int, Entry]]:
    """The seeds and entries of the tables' runs, or those of a part of them.

    All seeds of an entry that is tuned belong to one part, which tunes it.
    """
    pairs = list(itertools.product(suite.seeds, suite.entries))
    if part is None:
        return pairs
    divided = pairs if suite.tuning is None else [(suite.seeds[0], entry) for entry in suite.entries]
    runs = [
        PlannedRun(entry.name, entry.recipe_for(seed), run_folder(out, entry.name, seed), (entry.name, 0))
        for seed, entry in divided
    ]
    chosen = [divided[index] for index in sorted(part.indices(runs))]
    if suite.tuning is None:
        return chosen
    names = {entry.name for _, entry in chosen}
    return [(seed, entry) for seed, entry in pairs if entry.name in names]


def _tune(suite: Suite, sweep: Sweep, out: Path, runs: RunsHere | Pool) -> dict[str, Tuned]:
    """The best setting of each entry of a sweep."""
    entries = {entry.name: entry for entry in suite.entries}

    def planned(name: str, number: int, setting: Setting, seed: int) -> PlannedRun:
        recipe = entries[name].recipe_for(seed, as_overrides(setting))
        folder = sweep_folder(out, name, number, seed)
        return PlannedRun(f"{name}, {describe(setting)}", recipe, folder, (name, number), in_sweep=True)

    def fits(name: str, setting: Setting) -> bool:
        try:
            entries[name].recipe_for(sweep.seeds[0], as_overrides(setting))
        except UserError:  # such as a rate above one
            return False
        return True

    def ahead(attempts: list[Attempt]) -> None:
        runs.ahead([planned(*attempt) for attempt in attempts])

    return tune(sweep, lambda *attempt: runs.outcome(planned(*attempt)), out, fits, ahead)


class RunsHere:
    """Does the runs of a comparison in this process, each when its outcome is asked for."""

    def __init__(
        self,
        builder: ExperimentBuilder,
        *,
        runtime_name: str,
        clients: int | None,
        resume: bool,
        check: Suite | None,
        on_start: Callable[[str, int, int], None] = lambda title, seed, rounds: None,
        on_round: Callable[[RoundReport], None] = lambda report: None,
    ):
        """Args:
        builder: builds the experiments.
        runtime_name, resume, on_start, on_round: see `compare`.
        clients: the most of a round, if that is known.
        check: the suite whose metrics a run of the tables must have; None: they may differ.
        """
        self._builder, self._runtime_name, self._clients = builder, runtime_name, clients
        self._resume, self._check, self._on_start, self._on_round = resume, check, on_start, on_round
        self._runtime = None

    def close(self) -> None:
        """Nothing is left open here."""

    def metric_names(self, recipe: Recipe) -> set[str]:
        """The metrics that a run of the recipe will have."""
        return metric_names(self._builder.build(recipe))

    @contextlib.contextmanager
    def opened(self, log_path: Path) -> Iterator[None]:
        """With the runtime open."""
        with open_runtime(self._runtime_name, log_path=log_path, clients=self._clients) as self._runtime:
            yield

    def ahead(self, runs: Sequence[PlannedRun]) -> None:
        """The outcomes of these runs will be asked for, in this order."""

    def outcome(self, run: PlannedRun) -> Outcome | None:
        """The outcome of a run, which is trained unless it is finished, or None if it is of a sweep and diverged."""
        if has_diverged(run):
            return None
        self._on_start(run.title, run.recipe.seed, run.recipe.training.rounds)
        outcome = self.finished(run)
        return self.trained(run) if outcome is None else outcome

    def finished(self, run: PlannedRun) -> Outcome | None:
        """The outcome of a run that is finished, when the comparison is resumed, else None."""
        outcome = _finished(run.recipe, RunFolder(run.folder), self._builder) if self._resume else None
        if outcome is not None and self._check is not None and not run.in_sweep:
            names = {name for row in outcome.history for name in row}
            require_metrics_of(self._check, names, f"{run.recipe.name}, seed {run.recipe.seed}")
        return outcome

    def trained(self, run: PlannedRun, *, again: bool = False) -> Outcome | None:
        """Trains a run, or continues it, and returns its outcome, or None if it is of a sweep and diverged.

        `again`: whether a process began it that was lost, and may still be about to end.
        """
        recipe, folder = run.recipe, RunFolder(run.folder)
        if again:
            folder.wait_until_free(LOST_PROCESS)

        def check(experiment: Experiment) -> None:
            if self._check is not None and not run.in_sweep:
                require_metrics_of(self._check, metric_names(experiment), experiment.recipe.name)

        resume = (self._resume or again) and folder.recipe.exists()
        how = {"resume": resume, "details": False, "units": not run.in_sweep, "tested": not run.in_sweep}
        ways = {"builder": self._builder, "runtime": self._runtime, "on_start": check, "on_round": self._on_round}
        self._runtime.between_runs()
        try:
            train_run(recipe, folder.path, **ways, **how)
        except Diverged as error:
            if not run.in_sweep:
                raise
            write_text(folder.diverged, f"{error}\n")
            return None
        return _outcome(recipe, folder, read_history(folder), self._builder)


def _outcome(recipe: Recipe, folder: RunFolder, history: list[dict[str, float]], builder: ExperimentBuilder) -> Outcome:
    """The outcome of a finished run, whose files are as they were."""
    summary = json.loads(folder.summary.read_text("utf-8"))
    down, up = (summary[f"bytes_{way}_per_client_and_round"] for way in ("down", "up"))
    fields = {name: summary.get(name, {}) for name in ("privacy", "chosen")} | {"stopped": summary.get("stopped")}
    personalised = summary.get("personalised", {}).items()
    fields["of_run"] = {name: value for name, value in personalised if name.startswith("personal")}
    # The first round of a process also compiles, so that the mean would not do.
    seconds = statistics.median(row["seconds/training"] for row in read_table(folder.timings, "seconds/training"))
    class_f1 = {row["class"]: row["f1"] for row in read_table(folder.classes, "class", "f1")}
    more = {"class_f1": class_f1, "precision_recall": read_precision_recall(folder.precision_recall)}
    more |= {"test_units": read_test_units(folder.test_units), **_origin(folder, summary)}
    if folder.client_states.exists():
        prepared = builder.prepare(recipe)
        more |= {"counts": prepared.counts, "similarities": recorded_similarities(prepared, folder)}
    return Outcome(history, seconds, down, up, references=summary["references"], **fields, **more)


def _origin(folder: RunFolder, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an outcome that say what it was measured on, with what code, on what machine."""
    environment = read_json(folder.environment) if folder.environment.exists() else {}
    known = {name: str(environment.get(name, "")) for name in ("commit", "processor")}
    return {"test_examples": summary.get("test_examples"), "data_digest": recorded_data_digest(folder), **known}


def _finished(recipe: Recipe, folder: RunFolder, builder: ExperimentBuilder) -> Outcome | None:
    """The outcome of a finished run, only from its folder.

    None if it is not finished, is another run, or files in it were changed: resuming the run repairs or refuses
    them. Raises UserError for a run of the other stack.
    """
    folder.require_stack()
    if not (folder.summary.exists() and folder.recipe.exists() and is_as_it_was(folder)):
        return None
    if folder.recipe.read_bytes() != recipe.to_toml().encode("utf-8"):
        return None
    return _outcome(recipe, folder, read_history(folder), builder)
