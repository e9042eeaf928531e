"""Sweeps: as many settings for every entry of a suite, chosen on dev over tuning seeds, then run on other seeds."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.files import csv_text, write_atomically
from tff_re.comparison.edges import MOST_STEPS, edges, further
from tff_re.errors import UserError
from tff_re.recipes.metric_names import require_known
from tff_re.recipes.reading import SEEDS

if TYPE_CHECKING:
    from tff_re.comparison.outcome import Outcome
    from tff_re.comparison.write_tables import Report

Setting = Mapping[str, Any]
"""Key of a recipe, such as `algorithm.learning_rate` -> value."""

Attempt = tuple[str, int, Setting, int]
"""(entry, number of the setting, setting, seed)"""

TUNABLE = ("algorithm", "model", "client_model", "training", "aggregation", "personalise")
"""Tables whose keys may be swept: the others are what is compared on, or how it is chosen."""

FILE = "sweep.csv"

BEYOND = " and "
"""Between the settings that were listed, as many for each entry, and those beyond the edge."""

MOST_SETTINGS = 1000
"""Of an entry; each is a run for every tuning seed."""


@dataclass(frozen=True)
class Sweep:
    """What is tried before a suite is run.

    Attributes:
      seeds: of the tuning runs, none of the suite's.
      choose_by: a metric of dev; of losses the lowest is best.
      settings: entry -> its settings, as many for each.
      extend: whether to go further where the best setting lies at an edge.
    """

    seeds: tuple[int, ...]
    choose_by: str
    settings: Mapping[str, tuple[Setting, ...]]
    extend: bool = True

    @property
    def runs(self) -> int:
        """How many there are, without those beyond an edge."""
        return len(self.seeds) * sum(map(len, self.settings.values()))


@dataclass(frozen=True)
class Tuned:
    """The best setting of an entry.

    Attributes:
      setting: the first of the best.
      tried: how many of those listed were.
      edges: which of its keys have the first or last of their values, so that a better one may lie beyond.
      equals: how many others came out the same, so that the metric did not choose among them.
      beyond: how many were tried beyond the edge of those listed.
    """

    setting: Setting
    tried: int
    edges: tuple[str, ...] = ()
    equals: int = 0
    beyond: int = 0

    @property
    def words(self) -> str:
        """How many settings were tried, for a table."""
        return f"{self.tried} on dev" + (f"{BEYOND}{self.beyond} beyond the edge" if self.beyond else "")


def read_sweep(
    table: Mapping[str, Any],
    axes_by_entry: Mapping[str, Mapping[str, Any] | None],
    *,
    seeds: Sequence[int],
    choose_by: str | None,
    overrides: Sequence[str],
    source: str,
) -> Sweep | None:
    """The sweep of a suite, or None if it has none.

    Args:
      table: [sweep]: `seeds` of tuning; `choose_by`, the suite's by default; either lists under recipe keys in quotes,
        of which all combinations are tried, or `settings`, a list of tables of recipe keys; `budget`, so many of the
        settings for each entry, drawn at random, the same of the same list for all entries unless `same_draw` is
        false; `extend = false` to stay within them where the best lies at an edge.
      axes_by_entry: entry -> its own axes or `settings` in place of the suite's.
      seeds: the suite's.
      choose_by: the suite's.
      overrides: of the command line, none of which may set what is swept.
      source: the file, for messages.

    Raises:
      UserError: a key or value that cannot be, or entries with different numbers of settings.
    """
    if not table:
        if wrong := next((name for name, axes in axes_by_entry.items() if axes), None):
            raise UserError(f"{source}: entry '{wrong}' has a sweep, but the suite has no [sweep] with its seeds")
        return None
    tuning = tuple(table.get("seeds", ()))
    if not tuning or len(set(tuning)) != len(tuning) or not all(_is_seed(seed) for seed in tuning):
        raise UserError(f"{source}: 'sweep.seeds' must be one or more different whole numbers, e.g. [100, 101]")
    if both := sorted(set(tuning) & set(seeds)):
        raise UserError(f"{source}: seed {both[0]} is in 'seeds' and in 'sweep.seeds'; use separate seeds for tuning")
    by = table.get("choose_by", choose_by)
    if not isinstance(by, str) or not by.startswith("dev/"):
        raise UserError(
            f"{source}: [sweep] selects on dev; add [choice] to the recipe, or set 'sweep.choose_by' to a metric of "
            "the server's dev split"
        )
    require_known([by], f"{source}: sweep.choose_by")
    budget = table.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise UserError(f"{source}: 'sweep.budget' must be a positive integer, got {budget!r}")
    switches = {key: table.get(key, True) for key in ("extend", "same_draw")}
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise UserError(f"{source}: 'sweep.{key}' must be true or false, got {value!r}")
    axes = {key: value for key, value in table.items() if key not in ("seeds", "choose_by", "budget", *switches)}
    settings = {}
    for number, (name, entry_axes) in enumerate(axes_by_entry.items()):
        where = f"{source}: [sweep]" if entry_axes is None else f"{source}: entry '{name}': sweep"
        combinations = _settings(axes if entry_axes is None else entry_axes, where, overrides)
        if budget is not None:
            if len(combinations) < budget:
                raise UserError(f"{where}: has only {len(combinations)} settings, fewer than sweep.budget = {budget}")
            # An entry that draws its own may miss a setting that the others have, by which it would lose.
            of_draw = 0 if switches["same_draw"] else number
            drawn = np.random.default_rng([tuning[0], of_draw]).choice(len(combinations), budget, replace=False)
            combinations = tuple(combinations[index] for index in sorted(drawn))
        settings[name] = combinations
    sizes = {len(combinations): name for name, combinations in settings.items()}
    if len(sizes) > 1:
        (few, smallest), (many, largest) = min(sizes.items()), max(sizes.items())
        raise UserError(
            f"{source}: entry '{largest}' would be tuned over {many} settings but '{smallest}' over {few}; give all "
            "entries the same number, or set sweep.budget"
        )
    return Sweep(tuning, by, settings, switches["extend"])


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SEEDS


def _settings(axes: Mapping[str, Any], where: str, overrides: Sequence[str]) -> tuple[Setting, ...]:
    """All combinations of the axes' values, or the list under `settings`."""
    listed = axes.get("settings")
    if listed is not None and (len(axes) > 1 or not isinstance(listed, list) or not listed):
        raise UserError(f"{where}: 'settings' must be a list of tables of recipe keys, with no other keys next to it")
    if listed is not None:
        _require_few(len(listed), where)
    else:
        _require_few(math.prod(len(values) for values in axes.values() if isinstance(values, list)), where)
        for key, values in axes.items():
            if not isinstance(values, list) or not values or any(values.count(value) > 1 for value in values):
                raise UserError(f"{where}: '{key}' must be a list of different values, got {values!r}")
        if not axes:
            raise UserError(f'{where}: has no key; give e.g. "algorithm.learning_rate" = [1e-4, 1e-3]')
    if listed is None:
        combinations = tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    else:
        combinations = tuple(listed)
    for key in dict.fromkeys(key for setting in combinations for key in _keys(setting, where)):
        if key.partition(".")[0] not in TUNABLE or "." not in key:
            raise UserError(f"{where}: '{key}' cannot be swept; keys of these tables can: {', '.join(TUNABLE)}")
        for override in overrides:
            fixed = override.partition("=")[0].strip()
            if key == fixed or key.startswith(f"{fixed}.") or fixed.startswith(f"{key}."):
                raise UserError(f"--set {fixed}: {where} tries values of '{key}'; leave one of the two out")
    return combinations


def _require_few(number: int, where: str) -> None:
    if number > MOST_SETTINGS:
        raise UserError(f"{where}: has {number} settings, more than the limit of {MOST_SETTINGS}; give fewer values")


def _keys(setting: Any, where: str) -> list[str]:
    if not isinstance(setting, dict) or not setting:
        raise UserError(f"{where}: 'settings' must be a list of tables of recipe keys, got {setting!r} in it")
    return list(setting)


def as_overrides(setting: Setting) -> tuple[str, ...]:
    """As --set takes them."""
    return tuple(f"{key}={json.dumps(value)}" for key, value in setting.items())


def describe(setting: Setting) -> str:
    """A setting in a few words."""
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in setting.items())


def tune(
    sweep: Sweep,
    run: Callable[[str, int, Setting, int], Outcome | None],
    out: Path,
    fits: Callable[[str, Setting], bool] = lambda entry, setting: True,
    ahead: Callable[[list[Attempt]], None] = lambda attempts: None,
) -> dict[str, Tuned]:
    """Runs all settings of all entries on the tuning seeds and chooses the best.

    Writes `FILE` into `out`.

    A run's value is the best of the metric over its rounds, a setting's the mean over the seeds; the first of equals. A
    setting that diverged on a seed is out. Where the best one lies at the edge of its numbers, the sweep goes one step
    further along each such key, at most `edges.MOST_STEPS` times; from each of equals, because they say nothing of the
    direction.

    Args:
      sweep: what to try.
      run: (entry, number of the setting, setting, seed) -> its outcome; None: it diverged.
      out: the comparison's folder.
      fits: (entry, setting) -> whether the entry's recipe takes a setting beyond the edge.
      ahead: called with attempts that do not depend on each other, before `run` is called with each of them in order.

    Raises:
      UserError: all settings of an entry diverged.
    """
    settings = {entry: list(of_entry) for entry, of_entry in sweep.settings.items()}
    values: dict[tuple[str, int], list[float]] = {}

    def try_all(first: Mapping[str, int]) -> None:
        """Runs the settings from these numbers on."""
        attempts = [
            (entry, n, setting, seed)
            for seed in sweep.seeds  # what the runs of a seed share is built once
            for entry, number in first.items()
            for n, setting in enumerate(settings[entry][number:], number)
        ]
        ahead(attempts)
        for entry, n, setting, seed in attempts:
            outcome = run(entry, n, setting, seed)
            best = {} if outcome is None else outcome.at_best(sweep.choose_by)
            values.setdefault((entry, n), []).append(best.get(sweep.choose_by, math.nan))

    def best_of(entry: str) -> list[int]:
        return _best([values[entry, n] for n in range(len(settings[entry]))], entry, sweep.choose_by)

    try_all(dict.fromkeys(settings, 0))
    for _ in range(MOST_STEPS if sweep.extend else 0):
        new = {}
        for entry, of_entry in settings.items():
            steps = [step for number in best_of(entry) for step in further(of_entry[number], of_entry)]
            known = len(of_entry)
            for step in steps:
                if step not in of_entry and fits(entry, step):
                    new[entry] = known
                    of_entry.append(step)
        try_all(new)
    chosen, rows = {}, []
    for entry, of_entry in settings.items():
        best, *equals = best_of(entry)
        listed = len(sweep.settings[entry])
        chosen[entry] = Tuned(
            of_entry[best], listed, edges(of_entry[best], of_entry), len(equals), len(of_entry) - listed
        )
        rows += [
            [entry, number, describe(setting), *values[entry, number], int(number == best), int(number >= listed)]
            for number, setting in enumerate(of_entry)
        ]
    by_seed = (f"{sweep.choose_by}, seed {seed}" for seed in sweep.seeds)
    heading = ["entry", "number", "setting", *by_seed, "chosen", "beyond_the_edge"]
    write_atomically(out / FILE, csv_text([heading, *rows]).encode("utf-8"))
    return chosen


def _best(values: Sequence[Sequence[float]], entry: str, choose_by: str) -> list[int]:
    """Numbers of the best settings, several only if they are equal, from each setting's values over the seeds."""
    means, lower = list(map(statistics.fmean, values)), choose_by.endswith("loss")
    scores = [(-mean if lower else mean) if math.isfinite(mean) else -math.inf for mean in means]
    highest = max(scores)
    if highest == -math.inf:
        raise UserError(
            f"entry '{entry}': every setting of its sweep diverged on a tuning seed; try lower learning rates"
        )
    return [number for number, score in enumerate(scores) if score == highest]


def add_to_report(report: Report, sweep: Sweep, outcomes: Mapping[str, Mapping[int, Outcome]], out: Path) -> None:
    """Says in the report and in comparison.md what was chosen, and of how many settings."""
    said = sentences(sweep, outcomes)
    report.text.extend(said)
    report.files.append(out / FILE)
    seeds = ", ".join(map(str, sweep.seeds))
    lines = [
        "",
        "## Settings",
        "",
        f"Selected on seeds {seeds}, which are not in the tables. All results of the sweep: [{FILE}]({FILE}).",
    ]
    path = out / "comparison.md"
    text = "\n".join([*lines, "", *(f"- {line}" for line in said), ""])
    write_atomically(path, path.read_bytes() + text.encode("utf-8"))


def sentences(sweep: Sweep, outcomes: Mapping[str, Mapping[int, Outcome]]) -> list[str]:
    """What was chosen for each entry, a sentence each."""
    lines = []
    for entry, by_seed in outcomes.items():
        tuned = next(iter(by_seed.values())).tuned
        line = f"{entry}: {describe(tuned.setting)}, the best of {tuned.tried} settings by {sweep.choose_by}"
        if tuned.beyond:
            line += f", after {tuned.beyond} more beyond the edge of those listed"
        if tuned.edges:
            line += f"; {', '.join(tuned.edges)} is at the edge of the values tried"
        if tuned.equals:
            line += f"; {tuned.equals} of the others scored the same on dev, so the first of them was taken"
        lines.append(line)
    return lines
