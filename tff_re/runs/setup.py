"""How a run gets its experiment and its runtime: `Setup` and `Simulation`.

For sites see `tff_re.sites.run.AcrossSites`.
"""

from __future__ import annotations

import contextlib
import dataclasses

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.building import expected_clients
from tff_re.runs.experiment import Experiment, ExperimentBuilder, require_messages
from tff_re.runs.folder import RunFolder
from tff_re.runs.training import RoundReport
from tff_re.runs.warm_start import WarmStart
from tff_re.runtime import DEFAULT_RUNTIME, Runtime, open_runtime, require_runtime
from tff_re.tasks.data_paths import DataPaths


class Setup:
    """Where the data of a run are, and where it is computed. `train_in` calls the methods in this order."""

    def check(self, folder: RunFolder, data_paths: DataPaths, *, resume: bool) -> None:
        """Raises UserError if the run in the folder, or a path, does not fit."""

    def build(
        self, recipe: Recipe, folder: RunFolder, data_paths: DataPaths, start: WarmStart | None, *, resume: bool
    ) -> Experiment:
        """Builds the experiment without writing anything.

        Raises UserError or DataError if the recipe cannot run here.
        """
        raise NotImplementedError

    def open(self, folder: RunFolder, stack: contextlib.ExitStack) -> Runtime:
        """Opens the runtime, which `stack` closes."""
        raise NotImplementedError

    def begun(self, folder: RunFolder) -> None:
        """Called before the first round, with the folder locked."""

    def after_round(self, folder: RunFolder, report: RoundReport) -> None:
        """Called after every round."""

    def finish(self) -> None:
        """Called after the results are written."""

    def close(self) -> None:
        """Called at the end, also of a run that failed."""


class Simulation(Setup):
    """All data are on this machine, and the clients are simulated.

    Args:
      runtime: its name, or one that is open.
      builder: builds the experiment; the same one for several runs builds only once what they share.
    """

    def __init__(self, runtime: str | Runtime = DEFAULT_RUNTIME, builder: ExperimentBuilder | None = None):
        self._runtime, self._builder = runtime, builder

    def check(self, folder, data_paths, *, resume):
        """See `Setup`."""
        if folder.sites.exists():
            raise UserError(
                f"{folder.path}: holds a run across sites; continue it with --runtime flower:SOCKET --sites …, or "
                "give another --out"
            )

    def build(self, recipe, folder, data_paths, start, *, resume):
        """See `Setup`."""
        if resume and data_paths.partition is None and folder.partition.exists():
            data_paths = dataclasses.replace(data_paths, partition=folder.partition)
        if start is not None:
            data_paths = dataclasses.replace(data_paths, words=start.words)
        self._clients = expected_clients(recipe)
        name = self._runtime if isinstance(self._runtime, str) else self._runtime.name
        if isinstance(self._runtime, str):
            require_runtime(name, clients=self._clients)
        experiment = (self._builder or ExperimentBuilder(data_paths)).build(recipe)
        require_messages(experiment, name)
        return experiment

    def open(self, folder, stack):
        """See `Setup`."""
        if not isinstance(self._runtime, str):
            return self._runtime
        return stack.enter_context(open_runtime(self._runtime, log_path=folder.log, clients=self._clients))
