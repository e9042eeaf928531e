"""Running a suite, and what each of its runs left."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datasets.partition import LabelCounts
from tff_re.comparison.suite import Suite, require_metrics_of, slug
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.report import Points, read_precision_recall
from tff_re.runs.evaluation import metric_names
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder, make_private_folder, permissions
from tff_re.runs.record import is_as_it_was
from tff_re.runs.results import best_values, read_history, recorded_similarities
from tff_re.runs.run import train_run
from tff_re.runs.training import RoundReport
from tff_re.runtime import open_runtime, require_runtime


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
    if not resume and suite.alike():
        first = suite.entries[0].recipe_for(suite.seeds[0])
        require_metrics_of(suite, metric_names(builder.build(first)), first.name)
    make_private_folder(Path(out))
    make_private_folder(runs)
    with permissions(), open_runtime(runtime_name, log_path=runs / "worker.log") as runtime:
        _run_all(suite, runs, outcomes, builder, runtime, resume, on_start, on_round)
    return outcomes


def _run_all(suite, runs, outcomes, builder, runtime, resume, on_start, on_round) -> None:
    alike = suite.alike()
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
