"""Training a run: from its recipe to its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from datasets.partition import read_partition, write_partition
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.checkpoints import latest_round
from tff_re.runs.evaluation import arranged
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.features.guarantee import guarantee_of
from tff_re.runs.features.privacy import require_budget
from tff_re.runs.finished import BuilderOf, open_run
from tff_re.runs.folder import RunFolder, writing
from tff_re.runs.measured_units import write_test_units
from tff_re.runs.randomness import seed_of
from tff_re.runs.reading import read_history
from tff_re.runs.results import write_details, write_results
from tff_re.runs.resuming import notice
from tff_re.runs.sampling import participation
from tff_re.runs.setup import Setup, Simulation
from tff_re.runs.training import Result, RoundReport, restarting, train
from tff_re.runs.warm_start import WarmStart, stored
from tff_re.runtime import DEFAULT_RUNTIME, Runtime, events
from tff_re.runtime.logs import formatter, log_form
from tff_re.tasks.data_paths import DataPaths

_log = logging.getLogger("tff_re")


class _LogFile(logging.FileHandler):
    """Lets the error of a full disk through to `writing`, where logging itself would print a traceback."""

    def handleError(self, record):
        raise


@contextlib.contextmanager
def logging_to(path: Path, log_format: str) -> Iterator[None]:
    """Appends the log of this project's modules to a file, and only there: libraries that TensorFlow imports add a
    handler to the root logger, which prints.

    `log_format` is one of `tff_re.runtime.logs.FORMS`.
    """
    handler = _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(formatter(log_format))
    _log.addHandler(handler)
    level, propagate = _log.level, _log.propagate
    _log.setLevel(logging.INFO)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
        handler.close()
        _log.setLevel(level)
        _log.propagate = propagate


def train_run(
    recipe: Recipe,
    out: Path,
    *,
    builder: ExperimentBuilder | None = None,
    runtime: str | Runtime = DEFAULT_RUNTIME,
    **options: Any,
) -> tuple[Experiment, Result]:
    """Trains a recipe into a folder, as a simulation.

    `runtime` and `builder` are those of `Simulation`, `options` those of `run_in`.
    """
    return run_in(Simulation(runtime, builder), recipe, out, **options)


def train_in(
    setup: Setup,
    recipe: Recipe,
    out: Path,
    *,
    data_paths: DataPaths | None = None,
    resume: bool = False,
    from_run: Path | None = None,
    last: bool = False,
    builder_of: BuilderOf | None = None,
    **options: Any,
) -> tuple[Experiment, Result]:
    """Trains a recipe into a folder, maybe from another run's weights.

    Args:
      from_run, last, builder_of: see `start_of`.
      options: those of `run_in`.

    Raises:
      UserError, DataError: see `Setup.check`, `start_of` and `run_in`.
    """
    folder, data_paths = RunFolder(out), data_paths or DataPaths()
    setup.check(folder, data_paths, resume=resume)
    start = start_of(folder, from_run, data_paths, resume=resume, last=last, builder_of=builder_of)
    return run_in(setup, recipe, out, data_paths=data_paths, resume=resume, start=start, **options)


def run_in(
    setup: Setup,
    recipe: Recipe,
    out: Path,
    *,
    data_paths: DataPaths | None = None,
    resume: bool = False,
    start: WarmStart | None = None,
    on_start: Callable[[Experiment], None] = lambda experiment: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    on_line: Callable[[str], None] = lambda line: None,
    details: bool = True,
    units: bool = False,
    tested: bool = True,
) -> tuple[Experiment, Result]:
    """Trains a recipe into a folder.

    Args:
      setup: gives the experiment and the runtime.
      recipe: resolved.
      out: the run's folder; new, or with `resume` a folder of the same recipe.
      data_paths: where the data are.
      resume: continue a run that was interrupted. The numbers are those of an uninterrupted run.
      start: what the run starts from, see `start_of`; a run that is continued has it in its folder.
      on_start: called with the experiment before the first round.
      on_round: called after every round.
      on_line: called with a line for the user, such as which round a run is resumed after.
      details: whether plots and the Keras model are written too.
      units: whether a simulation measures each unit of the clients' test examples too, for a comparison.
      tested: whether the metrics `test/…` are computed. A sweep's runs, which choose on dev, do without them.

    Raises:
      UserError, DataError: the recipe cannot run, the data are missing or malformed, or the folder is in use.
    """
    folder, log_format = RunFolder(out), log_form()
    if start is None and resume:
        start = stored(folder)
    _require_temporary_folder()
    with contextlib.closing(setup), writing(folder.path):
        # Before the folder is touched: a recipe that cannot run leaves nothing behind.
        text, seed = recipe.to_toml(), seed_of(recipe)
        experiment = setup.build(recipe, folder, data_paths or DataPaths(), start, resume=resume)
        if start is not None:
            start.require_fitting(experiment)
            experiment = start.with_notes(experiment)
        if not folder.recipe.exists():
            ids, _ = arranged(experiment, "train")
            require_budget(experiment, folder, participation(experiment, seed, ids).asked)
        folder.begin(text, resume=resume, start=None if start is None else start.files())
        with folder.locked(), logging_to(folder.log, log_format), contextlib.ExitStack() as stack:
            runtime = setup.open(folder, stack)
            _keep_partition(experiment, folder)
            _say(experiment, start, latest_round(folder) if resume else None, on_line)
            setup.begun(folder)
            on_start(experiment)

            def after_round(report: RoundReport) -> None:
                events.ROUND_FINISHED.log(_log, round=report.round, rounds=report.rounds, seconds=report.seconds)
                setup.after_round(folder, report)
                on_round(report)

            weights = None if start is None else start.weights
            how = {"seed": seed, "start_weights": weights, "on_round": after_round, "tested": tested}
            result = train(experiment, folder, runtime, **how)
            history = read_history(folder)
            if result.stopped is not None:
                events.RUN_STOPPED.log(_log, reason=result.stopped, round=len(history))
            if (private := guarantee_of(experiment, history, start)) is not None:
                result = dataclasses.replace(result, privacy={**private, "stopped": result.stopped})
            if tested:
                measured = restarting(runtime) if units and not experiment.prepared.sites else None
                write_test_units(experiment, folder, result, measured)
            write_results(experiment, folder, result, history)
            if details:
                write_details(experiment, folder, result, history)
            events.RUN_FINISHED.log(_log, round=len(history), rounds=recipe.training.rounds)
        setup.finish()
    return experiment, result


def _say(experiment: Experiment, start: WarmStart | None, done: int | None, on_line: Callable[[str], None]) -> None:
    """Tells the user and the log how the run begins, and of what in its recipe does nothing.

    `done` is the last round of a run that is resumed.
    """
    rounds, traffic = experiment.recipe.training.rounds, experiment.traffic
    if done:
        on_line(events.RUN_RESUMED.log(_log, round=done, rounds=rounds))
    elif done is not None:
        on_line(events.RUN_RESUMED_AT_START.log(_log))
    elif start is not None:
        on_line(start.line)
    for note in experiment.notes:
        events.RUN_NOTE.log(_log, line=note)
    for line in experiment.warnings:
        notice(events.RUN_WARNING, reason=line)
    events.RUN_BEGUN.log(_log, rounds=rounds, bytes_down=traffic.down, bytes_up=traffic.up)


def start_of(
    folder: RunFolder,
    from_run: Path | None,
    data_paths: DataPaths,
    *,
    resume: bool = False,
    last: bool = False,
    builder_of: BuilderOf | None = None,
) -> WarmStart | None:
    """What a run starts from, or None if it starts from the initial weights of its seed.

    Args:
      folder: of the new run; with `resume` it has what it started from.
      from_run: the folder of a finished run.
      data_paths: where its data are; of a run across sites, the coordinator's.
      resume: whether the new run continues.
      last: the old run's last weights, also where a round was chosen on dev.
      builder_of: of the old run, see `open_run`.

    Raises:
      UserError: there is no such run, it is not finished, or has no model for all clients; or the continued run did not
        start from it. DataError: its data are missing.
    """
    if last and from_run is None:
        raise UserError("--last needs --from")
    if resume and folder.recipe.exists():
        start = stored(folder)
        if from_run is not None and (start is None or start.run != from_run.resolve().name):
            began = "the initial weights drawn with its seed" if start is None else start.run
            raise UserError(f"{folder.path}: the run was started from {began}, not from {from_run}; leave --from out")
        return start
    if from_run is None:
        if resume and folder.start.exists():
            raise UserError(f"{folder.path}: the run was interrupted before it started; give --from again")
        return None
    if from_run.resolve() == folder.path.resolve():
        raise UserError(f"--from {from_run}: is the folder of the new run; give another --out")
    old = RunFolder(from_run)
    old.require_run()
    if not old.summary.exists():
        raise UserError(f"--from {from_run}: the run is not finished; continue it with train --resume")
    with open_run(from_run, data_paths, "in-process", only_read=True, last=last, builder_of=builder_of) as (opened, _):
        return WarmStart.from_run(opened, json.loads(old.summary.read_text("utf-8")))


def _require_temporary_folder() -> None:
    """Raises UserError unless the folder for temporary files has room: TensorFlow's AutoGraph writes code there, and
    its error for a full disk does not say so."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 14))
    except OSError as error:
        raise UserError(
            f"the folder for temporary files cannot be written ({error.strerror}); free some space there, or set the "
            "environment variable TMPDIR to another folder"
        ) from None


def _keep_partition(experiment: Experiment, folder: RunFolder) -> None:
    partition = experiment.prepared.partition
    if partition is None:
        return
    if not folder.partition.exists():
        write_partition(partition, folder.partition)
    elif list(read_partition(folder.partition).clients.items()) != list(partition.clients.items()):
        raise UserError(f"{folder.partition}: the run was started with this partition; resume it with the same one")
