"""[track]: the metrics of each round as JSON lines, and to MLflow or Weights & Biases."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Mapping
from typing import Any

from computations.stack import STACK
from tff_re.errors import UserError
from tff_re.recipes.options import TrackOptions
from tff_re.recipes.reading import Recipe
from tff_re.recipes.structuring import structure
from tff_re.runs.features.base import Feature
from tff_re.runs.features.tracker import Tracker, TrackingEnded
from tff_re.runs.folder import RunFolder, write_text
from tff_re.runs.reading import read_history, read_table
from tff_re.runs.resuming import notice
from tff_re.runtime.events import TRACKING_ENDED

VARIABLE = "TFF_RE_TRACK"
"""The environment variable that asks for sinks without changing the recipe, e.g. `json,mlflow`."""

PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}
"""Sink -> the package that reaches its service; its module has the sink's name."""


class Track(Feature):
    """Tells each round's metrics to the sinks of `TrackOptions`. It is the last feature, so all metrics are there.

    A service is reached from another process: an error there ends the tracking with a line, never the run.
    """

    table = "track"

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self._writes_json, self._trackers = False, []

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """See `Feature`."""
        return super().is_in(recipe) or bool(_asked_by_environment())

    def refuse(self, *, at_sites):
        """See `Feature`."""
        for sink, source in sinks_of(self.recipe).items():
            if sink in PACKAGES:
                _require_package(sink, source)
            if sink == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
                raise UserError(f"{source}: mlflow needs the address of its server; set MLFLOW_TRACKING_URI")

    def start(self, training):
        """Writes the rounds before this one to rounds.jsonl, and begins a new run at each service with them."""
        sinks = sinks_of(self.recipe)
        rounds = _finished_rounds(training.folder, training.round)
        if "json" in sinks:
            self._writes_json = True
            write_text(training.folder.rounds, "".join(json_line(*row) for row in rounds))
        if training.is_last:
            return
        training.closing.push(self._close)
        for sink in sinks:
            if sink in PACKAGES:
                lines = [self._description(), *(_tracker_line(number, metrics) for number, metrics, _ in rounds)]
                self._open(sink, "".join(lines))

    def after_round(self, training, metrics):
        """See `Feature`."""
        if self._writes_json:
            with training.folder.rounds.open("a", encoding="utf-8") as file:
                file.write(json_line(training.round, metrics, training.timings))
        for tracker in tuple(self._trackers):
            try:
                tracker.send(_tracker_line(training.round, metrics))
            except TrackingEnded as end:
                self._trackers.remove(tracker)
                tracker.kill()
                _tell(tracker.service, end)

    def _open(self, service: str, first_lines: str) -> None:
        try:
            self._trackers.append(Tracker(service, first_lines))
        except OSError as error:
            _tell(service, f"its process cannot be started ({error.strerror})")

    def _close(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        """Ends the run at each service.

        `kind` is that of the error that ended the run here.
        """
        status = "finished" if kind is None else "failed"
        for tracker in self._trackers:
            tracker.finish(json.dumps({"status": status}) + "\n")
        for tracker in self._trackers:
            try:
                tracker.wait()
            except TrackingEnded as end:
                _tell(tracker.service, end)

    def _description(self) -> str:
        """The first line to a tracker. The seed of a private run stays here: noise may be drawn from it."""
        recipe = self.recipe
        parameters: dict[str, Any] = {
            "algorithm": recipe.algorithm.name,
            "model": recipe.model.name,
            "task": recipe.task.name,
            "rounds": recipe.training.rounds,
        }
        name = recipe.algorithm.name
        if recipe.privacy_unit is None:
            parameters["seed"] = recipe.seed
            name += f", seed {recipe.seed}"
        project = None if self.options is None else self.options.project
        return json.dumps({"project": project, "name": name, "parameters": parameters}) + "\n"


def sinks_of(recipe: Recipe) -> dict[str, str]:
    """Sink -> what asks for it, the recipe's key or the environment variable.

    Raises:
      UserError: the variable names something else, or a sink twice.
    """
    names, source = _asked_by_environment(), f"the environment variable {VARIABLE}"
    if names:
        structure(TrackOptions, {"sinks": names}, section="", source=source)
    of_recipe = () if recipe.track is None else recipe.track.sinks
    return dict.fromkeys(names, source) | dict.fromkeys(of_recipe, f"{recipe.source}: track.sinks")


def _asked_by_environment() -> list[str]:
    return [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]


def _require_package(sink: str, source: str) -> None:
    """Raises UserError if the sink's package is not installed."""
    spec = importlib.util.find_spec(sink)
    if spec is not None and spec.origin is not None:  # a folder ./wandb, which the service makes, has no origin
        return
    remedy = f"install {PACKAGES[sink]} (docs/tracking.md)"
    if STACK == "tff":
        remedy = (
            "it cannot be installed next to TensorFlow Federated; use Python 3.12 or 3.13 (docs/tracking.md), or json"
        )
    raise UserError(f"{source}: {sink} is not installed; {remedy}")


def _finished_rounds(folder: RunFolder, last: int) -> list[tuple[int, dict[str, float], dict[str, float]]]:
    """(round, metrics, seconds) of the rounds up to the last one, from metrics.csv and timings.csv."""
    seconds = {int(row.pop("round")): row for row in read_table(folder.timings, "round")}
    rounds = []
    for metrics in read_history(folder):
        number = int(metrics.pop("round"))
        if number <= last:
            timings = seconds.get(number, {})
            rounds.append((number, metrics, {name: value for name, value in timings.items() if not math.isnan(value)}))
    return rounds


def json_line(number: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> str:
    """A line of rounds.jsonl, in which values that are not finite are null because JSON has no NaN."""
    values = {name: float(value) for name, value in sorted([*metrics.items(), *timings.items()])}
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return json.dumps({"round": number, **finite}) + "\n"


def _tracker_line(number: int, metrics: Mapping[str, float]) -> str:
    """A round for a tracker: without seconds, which metrics.csv does not have."""
    return json.dumps({"round": number, "metrics": {name: float(value) for name, value in metrics.items()}}) + "\n"


def _tell(service: str, problem: object) -> None:
    notice(TRACKING_ENDED, service=service, reason=problem)
