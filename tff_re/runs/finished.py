"""Finished runs: opening them again, also in folders that may not be written."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets.errors import DataError
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, load
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.features.choice import Choice
from tff_re.runs.folder import READ_ONLY, RunFolder, writing
from tff_re.runs.reading import clients_at_sites
from tff_re.runs.training import final_weights
from tff_re.runs.warm_start import stored
from tff_re.runtime import Runtime, open_runtime
from tff_re.tasks.data_paths import DataPaths

BuilderOf = Callable[[RunFolder, Recipe, DataPaths], ExperimentBuilder]
"""(folder, recipe, data paths) -> the builder of a finished run's experiment."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run opened again: its experiment, its builder, and the weights of one round.

    The round is that of the newest checkpoint, or the selected one. `choice`: how that round was selected; None: it is
    the last one.

    `choice`: by what that round was chosen; None: it is the last one.
    """

    builder: ExperimentBuilder
    experiment: Experiment
    folder: RunFolder
    weights: object
    round: int
    choice: Choice | None = None


@contextlib.contextmanager
def open_run(
    path: Path,
    data_paths: DataPaths,
    runtime: str | Runtime,
    *,
    only_read: bool = False,
    last: bool = False,
    own_models: bool = False,
    builder_of: BuilderOf | None = None,
) -> Iterator[tuple[FinishedRun, Runtime]]:
    """Reads a run's folder, with a runtime open for as long as the caller works with it.

    Args:
      path: the folder.
      data_paths: where its data are.
      runtime: its name, or one that is not open yet.
      only_read: the caller writes nothing into the folder, so that a read-only folder is enough.
      last: the weights are those of the last round, also where a round was chosen on dev.
      own_models: whether the caller can work with a run whose clients have a model each, see `Result.weights`.
      builder_of: gives the builder, for callers that need no examples; None: the examples must be on this machine.

    Raises:
      UserError: no run there, or none with a checkpoint; DataError: its data are missing.
    """
    RunFolder(path).require_run()
    with contextlib.ExitStack() as stack:
        if only_read and not may_be_written(path):
            path = stack.enter_context(_copied(path))
        folder = RunFolder(path)
        if folder.sites.exists() and builder_of is None:
            where = ", ".join(dict.fromkeys(site for site, _ in clients_at_sites(folder)))
            raise UserError(
                f"{folder.path}: this command needs the run's examples, which are at the sites {where}; use a "
                "simulated run of the recipe (train without --sites)"
            )
        recipe = load(str(folder.recipe))
        if folder.partition.exists():
            data_paths = dataclasses.replace(data_paths, partition=folder.partition)
        if (start := stored(folder)) is not None:
            data_paths = dataclasses.replace(data_paths, words=start.words)
        opened = runtime if isinstance(runtime, Runtime) else open_runtime(runtime, log_path=folder.log)
        with folder.locked(), writing(folder.path), opened as entered:
            builder = ExperimentBuilder(data_paths) if builder_of is None else builder_of(folder, recipe, data_paths)
            experiment = builder.build(recipe, trains=False)
            if start is not None:
                experiment = start.with_notes(experiment)
            if experiment.algorithm.own_models is not None and not own_models:
                raise UserError(
                    f"{path}: this run has one model per client and no global model; use a run without baseline.kind "
                    "= 'local' and personalise.local_head"
                )
            yield FinishedRun(builder, experiment, folder, *final_weights(experiment, folder, last=last)), entered


def may_be_written(path: Path) -> bool:
    """Whether a run's folder, its lock and its log may be written.

    Other errors are left to the code that writes.
    """
    folder = RunFolder(path)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
        for file in (folder.lock, folder.log):
            if file.exists():
                file.open("ab").close()
    except OSError as error:
        return error.errno not in READ_ONLY
    return True


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A writable copy of a run's folder: its small files, and links to its checkpoints.

    Raises:
      UserError: another process trains in the run's folder, or a file of it cannot be read.

    UserError, DataError and OSError raised inside the context name the run's file in place of the copy's.
    """
    lock = RunFolder(path).lock
    with tempfile.TemporaryDirectory(prefix="tff-re-") as name, contextlib.ExitStack() as stack:
        copy = Path(name)
        try:
            if lock.exists():
                fcntl.flock(stack.enter_context(lock.open("rb")), fcntl.LOCK_SH | fcntl.LOCK_NB)
            _copy_run(path, copy)
        except BlockingIOError:
            raise UserError(f"{path}: another process is using this folder; wait until it ends") from None
        except OSError as error:
            raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
        try:
            yield copy
        except (UserError, DataError, OSError) as error:  # the user does not know the copy
            for name in ("filename", *vars(error)):
                if isinstance(value := getattr(error, name, None), str | os.PathLike):
                    setattr(error, name, os.fspath(value).replace(str(copy), str(path)))
            error.args = tuple(arg.replace(str(copy), str(path)) if isinstance(arg, str) else arg for arg in error.args)
            raise


def _copy_run(path: Path, copy: Path) -> None:
    for file in path.iterdir():
        if file.is_file() and file.name != ".lock" and file.suffix not in (".keras", ".log"):
            shutil.copyfile(file, copy / file.name)
    checkpoints = RunFolder(copy).checkpoints
    checkpoints.mkdir()
    for entry in RunFolder(path).checkpoints.glob("*"):
        if "_temp" not in entry.name:  # left by a kill in the middle of writing
            (checkpoints / entry.name).symlink_to(entry.resolve())
