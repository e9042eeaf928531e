"""How long shipped suites take on 1 to 40 workers: computed, not run.

The code that hands out runs is that of `compare --jobs` and `--cluster`; only the workers and the clock are made up. A
run takes the seconds a round that the suite's results have; what a worker does once is in `COSTS`.
"""

from __future__ import annotations

import csv
import dataclasses
import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tff_re.comparison.planning import PlannedRun, Watcher
from tff_re.comparison.pool import Event, Pool
from tff_re.comparison.suite import Entry, Suite, load_suite, run_folder, slug, sweep_folder
from tff_re.comparison.sweep import as_overrides

WORKERS = (1, 2, 10, 40)
RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Costs:
    """Seconds that a worker needs once.

    Attributes:
      start: for itself.
      data: for each data set and seed.
      frozen: for the outputs of frozen layers, of each model on each data set and seed.
      compiling: for each algorithm.
      run: for each run, in addition to its rounds: evaluation and files.
    """

    start: float
    data: float
    frozen: float
    compiling: float
    run: float


COSTS = {
    "flcmc-synthetic": Costs(start=4.0, data=0.3, frozen=0.0, compiling=1.0, run=1.0),
    "label-skew": Costs(start=4.0, data=4.0, frozen=0.0, compiling=1.5, run=3.3),
}
"""Suite -> what its runs cost besides rounds.

Starts and compiling are as measured (docs/lab/performance.md) and data is an estimate. What a run costs besides rounds
is for label-skew such that 672 of its runs, without steps beyond the edge, take about the 72 minutes that they took in
one process; for flcmc-synthetic it is an estimate.
"""


@dataclass(eq=False)
class Worker:
    """A worker that only adds up seconds, see `pool.Worker`."""

    pool: Simulated = field(repr=False)
    busy_with: str | None = None
    number: int | None = None
    started: bool = False
    data: Any = None
    frozen: set = field(default_factory=set)
    compiled: set = field(default_factory=set)

    def send(self, message: Any, what: str | None) -> None:
        """Takes a run, which ends later."""
        self.busy_with = what
        self.pool.begin(self, message.folder)


class Simulated(Pool):
    """Workers whose clock is made up.

    Attributes:
      now: seconds since the start.
      spent: on what -> seconds of all workers.
    """

    def __init__(self, workers: int, costs: Costs, seconds: Mapping[str, float]):
        """Args:
        workers: how many there are.
        costs: of a worker.
        seconds: entry -> of a run's rounds.
        """
        super().__init__(SimpleNamespace(finished=lambda run: None), Watcher())
        self._workers = [Worker(self) for _ in range(workers)]
        self._costs, self._seconds = costs, seconds
        self._runs: dict[Path, PlannedRun] = {}
        self._ends: list[tuple[float, int, Worker]] = []
        self._order = itertools.count()
        self.now, self.spent = 0.0, dict.fromkeys(("rounds", "run", "start", "data", "frozen", "compiling"), 0.0)

    def close(self) -> None:
        """Nothing is open."""

    def ahead(self, runs: Sequence[PlannedRun]) -> None:
        """See `Pool`."""
        self._runs |= {run.folder: run for run in runs}
        super().ahead(runs)

    def begin(self, worker: Worker, folder: Path) -> None:
        """A worker begins a run."""
        run = self._runs[folder]
        recipe = run.recipe
        data, algorithm = (recipe.task, recipe.partition, recipe.seed), (recipe.model, recipe.algorithm)
        what = {"rounds": self._seconds[run.unit[0]], "run": self._costs.run}
        if not worker.started:
            what["start"], worker.started = self._costs.start, True
        if worker.data != data:
            what["data"], worker.data = self._costs.data, data
            worker.frozen.clear()
        if getattr(recipe.model.options, "frozen_layers", 0) and recipe.model not in worker.frozen:
            what["frozen"] = self._costs.frozen
            worker.frozen.add(recipe.model)
        if algorithm not in worker.compiled:
            what["compiling"] = self._costs.compiling
            worker.compiled.add(algorithm)
        for name, seconds in what.items():
            self.spent[name] += seconds
        heapq.heappush(self._ends, (self.now + sum(what.values()), next(self._order), worker))

    def _first_workers(self):
        return self._workers

    def _started(self, number):
        return self._workers[:number]

    def _next_event(self):
        self.now, _, worker = heapq.heappop(self._ends)
        return Event(worker, "ended")


def simulated(suite: Suite, workers: int, costs: Costs, seconds: Mapping[str, float], beyond: int = 3) -> Simulated:
    """The schedule of a suite.

    Args:
      suite: its sweep first, then two steps beyond the edge, then the runs of the tables, each waiting for the others.
      workers: how many there are.
      costs: of a worker.
      seconds: entry -> of a run's rounds.
      beyond: every `beyond`-th entry of a sweep takes each of the two steps.
    """
    pool, out = Simulated(workers, costs, seconds), Path("simulated")
    if suite.tuning is not None:
        for phase in range(3):
            entries = suite.entries if phase == 0 else suite.entries[::beyond]
            pool.ahead(
                [run for seed in suite.tuning.seeds for entry in entries for run in _tried(suite, entry, seed, phase)]
            )
    pool.ahead(
        [
            PlannedRun(entry.name, _tuned(suite, entry, seed), run_folder(out, entry.name, seed), (entry.name, 0))
            for seed in suite.seeds
            for entry in suite.entries
        ]
    )
    return pool


def _tried(suite: Suite, entry: Entry, seed: int, phase: int) -> list[PlannedRun]:
    """Returns the runs of an entry's settings on a seed.

    After phase 0 it is one setting that is not listed.
    """
    settings = suite.tuning.settings[entry.name]
    runs = []
    for number, setting in enumerate(settings if phase == 0 else settings[:1]):
        recipe = entry.recipe_for(seed, as_overrides(setting))
        if phase:  # other computations
            rate = recipe.algorithm.options.learning_rate / 3**phase
            recipe = entry.recipe_for(seed, (*as_overrides(setting), f"algorithm.learning_rate={rate}"))
        folder = sweep_folder(Path("simulated"), entry.name, number + phase * len(settings), seed)
        runs.append(PlannedRun(entry.name, recipe, folder, (entry.name, number + phase * len(settings))))
    return runs


def _tuned(suite: Suite, entry: Entry, seed: int):
    """The recipe of a table's run: with the first setting of a sweep, as if it were the best."""
    if suite.tuning is None:
        return entry.recipe_for(seed)
    return entry.recipe_for(seed, as_overrides(suite.tuning.settings[entry.name][0]))


def seconds_of_rounds(name: str, suite: Suite) -> dict[str, float]:
    """Entry -> seconds of a run's rounds, by the results of a shipped suite."""
    seconds = {}
    for group, entries in suite.groups().items():
        stem = f"comparison-{slug(group)}" if group else "comparison"
        with (RESULTS / name / f"{stem}.csv").open(encoding="utf-8", newline="") as file:
            by_title = {row["algorithm"]: row["seconds_per_round"] for row in csv.DictReader(file)}
        for entry in entries:
            seconds[entry.name] = float(by_title[entry.title]) * entry.recipe_for(suite.seeds[0]).training.rounds
    return seconds


def run(rounds: int, out: Path) -> str:
    """Returns the Markdown table of all suites in `COSTS`. Nothing is measured."""
    del rounds, out
    lines = [
        "| suite | workers | minutes | speed-up | rounds, evaluation, files | start | data | compiling | idle |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for name, costs in COSTS.items():
        suite = load_suite(name)
        seconds = seconds_of_rounds(name, suite)
        pools = {workers: simulated(suite, workers, costs, seconds) for workers in WORKERS}
        for workers, pool in pools.items():
            lines.append(_row(f"{name}, {len(pool._runs)} runs", workers, pool, pools[WORKERS[0]].now))
    costs = "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:g}" for key, value in dataclasses.asdict(costs).items())
        for name, costs in COSTS.items()
    )
    return "\n".join(lines) + f"\n\nComputed by `python -m benchmarks schedule`, not run. Seconds: {costs}.\n"


def _row(name: str, workers: int, pool: Simulated, alone: float) -> str:
    whole = pool.now * workers
    spent = pool.spent
    shares = (spent["rounds"] + spent["run"], spent["start"], spent["data"] + spent["frozen"], spent["compiling"])
    idle = whole - sum(shares)
    cells = " | ".join(f"{100 * share / whole:.0f} %" for share in (*shares, idle))
    return f"| {name} | {workers} | {pool.now / 60:.1f} | {alone / pool.now:.1f} | {cells} |"
