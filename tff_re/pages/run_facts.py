"""What was run, as the page of a run lists it: from the recipe, the log and the timings in its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_re.comparison.costs import in_words, seconds_of
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_recipe

_STAMP = re.compile(r"^(?:\{\"time\": \")?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)", re.MULTILINE)
"""As the log's lines begin."""


def facts_of(
    folder: RunFolder, summary: Mapping[str, Any], rounds: int, clients: int, timings: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Name -> value: recipe, task, data, partition, model, algorithm, rounds, clients, seed, date, duration.

    Args:
      folder: of the run.
      summary: its summary.json.
      rounds: how many were trained.
      clients: how many there are; 0: not known.
      timings: rows of its timings.csv.

    Raises:
      UserError: the recipe is missing or damaged.
    """
    recipe = read_recipe(folder)
    task, training = recipe.get("task", {}), recipe.get("training", {})
    names = {section: str(recipe.get(section, {}).get("name", "")) for section in ("task", "partition", "model")}
    share = training.get("client_fraction")
    asked = f"{share:.0%} of them" if share is not None else training.get("clients_per_round")
    of_clients = ", ".join(
        part for part in (f"{clients:,}" if clients else "", f"{asked} a round" if asked else "") if part
    )
    facts = {
        "recipe": summary["recipe"],
        "task": names["task"].replace("_", " "),
        "data": _data(task),
        "partition": names["partition"],
        "model": names["model"],
        "algorithm": summary["algorithm"],
        "rounds": f"{rounds} of {summary['rounds']}",
        "clients": of_clients,
        "seed": summary["seed"],
        "date": _date(folder.log),
        "duration": in_words(seconds) if (seconds := seconds_of(timings)) else "",
    }
    return {name: str(value) for name, value in facts.items() if str(value)}


def needs_data_folder(folder: RunFolder) -> bool:
    """Whether a run's data are files that someone has to have: not generated, not shipped, not named by a path."""
    task = read_recipe(folder).get("task", {})
    comes_along = (None, "shipped", "planted")
    return task.get("name") != "synthetic" and task.get("dataset") not in comes_along and not task.get("path")


def _data(task: Mapping[str, Any]) -> str:
    if task.get("path"):
        return f"a file of your own, in the format of {task.get('dataset', 'the task')}"
    return str(task.get("dataset", "made up"))


def _date(log: Path) -> str:
    """The first and the last day in the run's log, or an empty text without a log."""
    stamps = _STAMP.findall(log.read_text("utf-8", "replace")) if log.is_file() else []
    if not stamps:
        return ""
    first, last = (stamps[number][:16].replace("T", " ") for number in (0, -1))
    return first if first == last else f"{first} to {last[11:] if first[:10] == last[:10] else last}"
