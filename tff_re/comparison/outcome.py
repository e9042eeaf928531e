"""Running a suite, and what each of its runs left."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datasets.partition import LabelCounts
from tff_re.comparison.costs import steps_by_round
from tff_re.comparison.suite import Suite, require_metrics_of, run_folder, sweep_folder
from tff_re.comparison.sweep import Setting, Tuned, as_overrides, describe, tune
from tff_re.errors import Diverged, UserError
from tff_re.recipes.reading import Recipe
from tff_re.report.precision_recall import Points
from tff_re.runs.building import expected_clients
from tff_re.runs.evaluation import metric_names
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder, make_private_folder, permissions, write_text
from tff_re.runs.reading import read_history, read_json, read_precision_recall, read_table, read_test_units
from tff_re.runs.results import best_values, recorded_similarities
from tff_re.runs.resuming import is_as_it_was
from tff_re.runs.run import train_run
from tff_re.runs.training import RoundReport
from tff_re.runtime import DEFAULT_RUNTIME, open_runtime, require_runtime
from tff_re.tasks.measured_units import MeasuredUnits


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
) -> dict[str, dict[int, Outcome]]:
    """Runs all entries over all seeds.

    Returns entry name -> seed -> Outcome.

    Raises:
      UserError: `out` holds other runs, or these without `resume`.
    """
    runs = out / "runs"
    if out.exists() and any(out.iterdir()) and not resume:
        raise UserError(f"{out}: is not empty; continue it with --resume or give another --out")
    expected = [expected_clients(entry.recipe_for(suite.seeds[0])) for entry in suite.entries]
    clients = max((number for number in expected if number is not None), default=None)
    require_runtime(runtime_name, clients=clients)
    same_task = suite.same_task()

    def check(experiment) -> None:
        if same_task:
            require_metrics_of(suite, metric_names(experiment), experiment.recipe.name)

    if not resume and same_task:
        check(builder.build(suite.entries[0].recipe_for(suite.seeds[0])))
    if not resume and suite.tuning is not None:
        first = builder.build(suite.entries[0].recipe_for(suite.tuning.seeds[0]))
        require_metrics_of(dataclasses.replace(suite, choose_by=suite.tuning.choose_by), metric_names(first), "sweep")
    make_private_folder(out)
    make_private_folder(runs)
    outcomes: dict[str, dict[int, Outcome]] = {entry.name: {} for entry in suite.entries}
    with permissions(), open_runtime(runtime_name, log_path=runs / "worker.log", clients=clients) as runtime:

        def run(title: str, recipe: Recipe, folder: RunFolder, on_built) -> Outcome:
            on_start(title, recipe.seed, recipe.training.rounds)
            outcome = _finished(recipe, folder, builder) if resume else None
            if outcome is None:
                again = {"resume": resume and folder.recipe.exists(), "details": False, "units": on_built is check}
                ways = {"builder": builder, "runtime": runtime, "on_start": on_built, "on_round": on_round}
                train_run(recipe, folder.path, **ways, **again)
                return _outcome(recipe, folder, read_history(folder), builder)
            if same_task and on_built is check:
                names = {name for row in outcome.history for name in row}
                require_metrics_of(suite, names, f"{recipe.name}, seed {recipe.seed}")
            return outcome

        tuned: dict[str, Tuned] = {}
        if suite.tuning is not None:
            entries = {entry.name: entry for entry in suite.entries}

            def attempt(name: str, number: int, setting: Setting, seed: int) -> Outcome | None:
                recipe = entries[name].recipe_for(seed, as_overrides(setting))
                folder = RunFolder(sweep_folder(out, name, number, seed))
                return _unless_diverged(
                    recipe, folder, lambda: run(f"{name}, {describe(setting)}", recipe, folder, lambda _: None)
                )

            def fits(name: str, setting: Setting) -> bool:
                try:
                    entries[name].recipe_for(suite.tuning.seeds[0], as_overrides(setting))
                except UserError:  # such as a rate above one
                    return False
                return True

            make_private_folder(out / "sweep")
            tuned = tune(suite.tuning, attempt, out, fits)
        for seed, entry in itertools.product(suite.seeds, suite.entries):
            best = tuned.get(entry.name)
            recipe = entry.recipe_for(seed, () if best is None else as_overrides(best.setting))
            outcome = run(entry.name, recipe, RunFolder(run_folder(out, entry.name, seed)), check)
            outcomes[entry.name][seed] = dataclasses.replace(outcome, tuned=best)
    return outcomes


def _unless_diverged(recipe: Recipe, folder: RunFolder, run: Callable[[], Outcome]) -> Outcome | None:
    """run(), or None if it diverges.

    A diverged run leaves a file in its folder that says so, and is not run again.
    """
    mark = folder.diverged
    if mark.exists() and folder.recipe.exists() and folder.recipe.read_bytes() == recipe.to_toml().encode("utf-8"):
        return None
    try:
        return run()
    except Diverged as error:
        write_text(mark, f"{error}\n")
        return None


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
    return {"test_examples": summary.get("test_examples"), **known}


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
