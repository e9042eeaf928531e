"""A run from its recipe to its folder: trains, writes what a run leaves, and opens finished runs again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from computations.local_model import assign_weights
from datasets.errors import DataError
from datasets.partition import read_partition, write_partition
from tff_re import models
from tff_re.runs.checkpoints import read_client_states
from tff_re.errors import UserError
from tff_re.runs.experiment import Experiment, ExperimentBuilder, require_messages
from tff_re.models.inputs import BagInput, HiddenRelationInput
from tff_re.models.keras_files import forget_layer_names, save_keras
from tff_re.models.text_layers import forget_initial_values
from tff_re.recipes.reading import Recipe, load
from tff_re.report import (
    confusion_png,
    first_and_last,
    partition_heatmap,
    precision_recall_png,
    read_precision_recall,
    run_curves,
    similarity_figure,
    write_documents,
)
from tff_re.runs.folder import RunFolder, permissions, writing
from tff_re.runtime import Runtime, open_runtime, require_runtime
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_paths import DataPaths
from tff_re.runs.training import Result, RoundReport, final_weights, read_history, train, write_results

_log = logging.getLogger("tff_re")

LOCK = ".lock"
"""What `RunFolder.locked` locks."""


class _LogFile(logging.FileHandler):
    """A full disk is for `writing` to tell in one line, not for logging to print a traceback of."""

    def handleError(self, record):
        raise


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Appends the log of this project's modules to a file, and only there: TensorFlow's company adds a handler that
    prints to the root."""
    handler = _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _log.addHandler(handler)
    previous = _log.level, _log.propagate
    _log.setLevel(logging.INFO)
    _log.propagate = False
    try:
        yield
    finally:
        _log.removeHandler(handler)
        handler.close()
        _log.setLevel(previous[0])
        _log.propagate = previous[1]


@contextlib.contextmanager
def runtime_of(folder: RunFolder, name: str) -> Iterator[Runtime]:
    """The runtime of that name, its output in the run's log."""
    with open_runtime(name, log_path=folder.log) as runtime:
        yield runtime


def train_run(
    recipe: Recipe,
    out: Path,
    *,
    builder: ExperimentBuilder | None = None,
    data_paths: DataPaths | None = None,
    resume: bool = False,
    runtime: str | Runtime = "local",
    on_start: Callable[[Experiment], None] = lambda experiment: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    details: bool = True,
) -> tuple[Experiment, Result]:
    """Trains a recipe into a folder.

    Args:
      recipe: resolved.
      out: the run's folder; new, or with `resume` a folder of the same recipe.
      workshop: builds the experiment; give one to several runs and what they share is built once.
      where: where the data are, if there is no workshop.
      resume: continue a run that was interrupted. The numbers are those of an uninterrupted run.
      runtime: a runtime's name, or one that is open.
      on_start: called with the experiment before the first round.
      on_round: called after every round.
      details: whether plots and the Keras model are written too.

    Raises:
      UserError, DataError: see the parts.
    """
    folder = RunFolder(out)
    data_paths = data_paths or DataPaths()
    if resume and data_paths.partition is None and folder.partition.exists():
        data_paths = dataclasses.replace(data_paths, partition=folder.partition)
    _require_temporary_folder()
    with writing(folder.path):
        # Before the folder is touched: a recipe that cannot run leaves nothing behind.
        if isinstance(runtime, str):
            require_runtime(runtime)
        experiment = (builder or ExperimentBuilder(data_paths)).build(recipe)
        require_messages(experiment, runtime if isinstance(runtime, str) else getattr(runtime, "name", ""))
        folder.begin(recipe.to_toml(), resume=resume)
        with folder.locked(), logging_to(folder.log), contextlib.ExitStack() as stack:
            if isinstance(runtime, str):
                runtime = stack.enter_context(runtime_of(folder, runtime))
            _keep_partition(experiment, folder)
            for note in experiment.prepared.notes:
                _log.info(note)
            on_start(experiment)
            result = train(experiment, folder, runtime, on_round=on_round)
            history = read_history(folder)
            write_results(experiment, folder, result, history)
            if details:
                _write_details(experiment, folder, result, history)
    return experiment, result


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A run opened again: its experiment and what built it, and the newest checkpoint's weights and round."""

    builder: ExperimentBuilder
    experiment: Experiment
    folder: RunFolder
    weights: object
    round: int


@contextlib.contextmanager
def open_run(
    path: Path, data_paths: DataPaths, runtime_name: str, *, only_read: bool = False
) -> Iterator[tuple[FinishedRun, Runtime]]:
    """Reads a run's folder, with a runtime open for as long as the caller works with it.

    Args:
      path: the folder.
      where: where its data are.
      runtime_name: of the runtime.
      only_read: the caller writes nothing into the folder, so that one which may not be written will do.

    Raises:
      UserError: no run there, or none with a checkpoint; DataError: its data are not there any more.
    """
    RunFolder(path).require_run()
    with contextlib.ExitStack() as stack:
        if only_read and not _may_be_written(path):
            path = stack.enter_context(_copied(path))
        folder = RunFolder(path)
        recipe = load(str(folder.recipe))
        if folder.partition.exists():
            data_paths = dataclasses.replace(data_paths, partition=folder.partition)
        with folder.locked(), writing(folder.path), runtime_of(folder, runtime_name) as runtime:
            builder = ExperimentBuilder(data_paths)
            experiment = builder.build(recipe, trains=False)
            weights, done = final_weights(experiment, folder, runtime)
            yield FinishedRun(builder, experiment, folder, weights, done), runtime


_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def _may_be_written(path: Path) -> bool:
    """Whether a run's folder, its lock and its log may be written; whatever else is wrong is told by who writes."""
    folder = RunFolder(path)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
        for file in (path / LOCK, folder.log):
            if file.exists():
                file.open("ab").close()
    except OSError as error:
        return error.errno not in _READ_ONLY
    return True


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A folder that may be written and holds what a run's folder does: its small files, and links to its checkpoints.

    Raises:
      UserError: another process trains in the run's folder, or a file of it cannot be read.

    What is raised meanwhile about a file of the copy (UserError, DataError, OSError) names the run's own.
    """
    with tempfile.TemporaryDirectory(prefix="tff-re-") as name, contextlib.ExitStack() as stack:
        copy = Path(name)
        try:
            if (path / LOCK).exists():
                fcntl.flock(stack.enter_context((path / LOCK).open("rb")), fcntl.LOCK_SH | fcntl.LOCK_NB)
            _copy_run(path, copy)
        except BlockingIOError:
            raise UserError(f"{path}: another process is working in this folder; wait for its end") from None
        except OSError as error:
            raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
        try:
            yield copy
        except (UserError, DataError, OSError) as error:  # the user knows the run's folder
            if str(copy) not in str(error):
                raise
            raise _named_after(error, copy, path) from None


def _named_after(error: UserError | DataError | OSError, copy: Path, path: Path) -> Exception:
    """The error with the path of the run's folder in place of its copy's."""

    def changed(text):
        return text.replace(str(copy), str(path)) if isinstance(text, str) else text

    if isinstance(error, OSError):
        if error.filename is not None:
            error.filename = changed(os.fsdecode(error.filename))
        return error
    if isinstance(error, UserError):
        return UserError(changed(str(error)))
    parts = {name: changed(getattr(error, name)) for name in ("path", "line", "byte", "record", "remedy")}
    return DataError(changed(error.reason), **parts)


def _copy_run(path: Path, copy: Path) -> None:
    for file in path.iterdir():
        if file.is_file() and file.name != LOCK and file.suffix not in (".keras", ".log"):
            shutil.copyfile(file, copy / file.name)
    checkpoints = RunFolder(copy).checkpoints
    checkpoints.mkdir()
    for entry in RunFolder(path).checkpoints.glob("*"):
        if "_temp" not in entry.name:  # left by a kill in the middle of writing
            (checkpoints / entry.name).symlink_to(entry.resolve())


def recorded_similarities(prepared: Prepared, folder: RunFolder) -> dict[int, np.ndarray]:
    """FedCMC's local average similarities in the first and the last recorded round, see `first_and_last`; empty for an
    algorithm without them. The rows are the clients of `prepared.counts`."""
    labels = prepared.label_names
    recorded = read_client_states(folder, labels).get("similarity", {})
    return first_and_last(recorded, prepared.counts.clients, len(labels))


def keras_model(experiment: Experiment, weights):
    """The run's model from stock Keras layers, with these weights; takes encoded inputs."""
    choice, prepared = experiment.recipe.model, experiment.prepared
    module, num_classes = models.module(choice.name), len(prepared.label_names)
    forget_layer_names()
    if isinstance(prepared.inputs, HiddenRelationInput):
        return module.finished(choice.options, prepared.inputs, num_classes, weights)
    model = module.build_plain(choice.options, prepared.inputs, num_classes)
    assign_weights(model, weights)
    forget_initial_values(model)
    return model


def export_run(
    path: Path,
    out: Path | None,
    overwrite: bool,
    data_paths: DataPaths,
    runtime_name: str,
    *,
    formats: str = "both",
    quantise: str | None = None,
    tflite: bool = False,
) -> Path:
    """Exports the newest checkpoint of a run; returns the folder, `export` in the run's own by default.

    A run's folder that may not be written is read through a copy; `out` has to lie elsewhere then. What is exported
    computes in float32, and is checked on the run's test examples; `formats`, `quantise` and `tflite` are
    `export_model`'s.
    """
    from tff_re.exporting.details import details_of, exported_recipe, files_of, without_folders
    from tff_re.exporting.export_model import export_model

    if out is None and not _may_be_written(path):
        raise UserError(f"{path}: may not be written; give --out a folder elsewhere")
    with open_run(path, data_paths, runtime_name, only_read=True) as (run, _):
        recipe, prepared = run.experiment.recipe, run.experiment.prepared
        samples, inputs = prepared.samples("test"), prepared.inputs
        if prepared.bags is not None:
            inputs = BagInput(inputs, run.experiment.algorithm.bag_pooling)
        own = exported_recipe(recipe)
        exported = run.experiment if own is recipe else run.builder.build(own, trains=False)
        details = details_of(run.experiment, read_history(run.folder), run.round, run.weights, exported)
        with permissions(run.folder.usual_mask):  # an export is made to be given away
            return export_model(
                out or RunFolder(path).export,
                model_name=recipe.model.name,
                model_options=recipe.model.options,
                inputs=inputs,
                label_names=prepared.output_names,
                weights=run.weights,
                encoding=prepared.encoding,
                details=without_folders(details),
                probes=samples,
                files=files_of(recipe, run.folder),
                formats=formats,
                quantise=quantise,
                tflite=tflite,
                overwrite=overwrite,
            )


def _require_temporary_folder() -> None:
    """TensorFlow's AutoGraph writes code there, and without room for it fails in riddles."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 14))
    except OSError as error:
        raise UserError(
            f"the folder for temporary files cannot be written ({error.strerror}); free some space there, or name "
            "another one by the environment variable TMPDIR"
        ) from None


def _keep_partition(experiment: Experiment, folder: RunFolder) -> None:
    partition = experiment.prepared.partition
    if partition is None:
        return
    if folder.partition.exists():
        before = read_partition(folder.partition)
        if list(before.clients.items()) != list(partition.clients.items()):
            raise UserError(f"{folder.partition}: the run was begun with this partition; resume it with the same one")
    else:
        write_partition(partition, folder.partition)


def _write_details(experiment: Experiment, folder: RunFolder, result: Result, history: list[dict[str, float]]) -> None:
    """plots/ and model.keras."""
    folder.plots.mkdir(exist_ok=True)
    counts, labels = experiment.prepared.counts, experiment.prepared.label_names
    recipe = experiment.recipe
    run_curves(folder.plots / "curves.png", _measured(history), f"{recipe.name}, seed {recipe.seed}")
    partition_heatmap(folder.plots / "partition.png", counts.train, counts.clients, labels)
    if experiment.prepared.documents is not None:
        write_documents(folder.plots, experiment.prepared.documents)
    if (points := read_precision_recall(folder.precision_recall)) is not None:
        title = f"{recipe.name}, seed {recipe.seed}"
        precision_recall_png(folder.plots / "precision-recall.png", {recipe.algorithm.name: [points]}, title)
    if result.test is not None:
        confusion_png(folder.plots / "confusion-test.png", result.test.confusion, labels)
    if similarities := recorded_similarities(experiment.prepared, folder):
        similarity_figure(folder.plots / "similarity.png", counts.train, counts.clients, labels, similarities)
    temporary = folder.path / ".model.part.keras"
    try:
        save_keras(keras_model(experiment, result.weights), temporary)
        temporary.replace(folder.model)
    finally:
        temporary.unlink(missing_ok=True)


def _measured(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """What a plot of a run shows: not the spread over clients."""
    shown = ["round", "local/loss", "train/loss", "test/loss"]
    judged = [f"{split}/{name}" for name in ("auc", "f1") for split in ("dev", "test")]
    # The server's examples are what a run with such is judged by; its clients' accuracy counts "no relation".
    shown += judged if any(name in row for row in history for name in judged) else ["train/accuracy", "test/accuracy"]
    return [{name: row[name] for name in shown if name in row} for row in history]
