"""What `import tff_re` offers: the commands as functions, for notebooks and other programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, load

if TYPE_CHECKING:
    from tff_re.exporting.scoring import Score
    from tff_re.runs.experiment import Experiment
    from tff_re.runs.training import Result, RoundReport

PathLike = str | os.PathLike


def load_recipe(name: PathLike, *overrides: str, seed: int | None = None) -> Recipe:
    """A recipe with all its values.

    Args:
      name: of a recipe that comes with the project, or a TOML file.
      *overrides: keys to set, as ``"training.rounds=20"``.
      seed: in place of the recipe's.

    Raises:
      UserError: there is no such recipe, or a key or value that is not valid.
    """
    return load(os.fspath(name), overrides, seed)


def build(recipe: Recipe | PathLike, *, data: PathLike | None = None) -> Experiment:
    """All that a run needs: data at clients, the model, the algorithm as a federated computation.

    Args:
      recipe: a Recipe, or what `load_recipe` takes.
      data: the data folder; by default that of the environment variable TFF_RE_DATA.

    Raises:
      UserError, DataError: what the recipe asks for does not fit together, or its data are missing or malformed.
    """
    from tff_re.runs.experiment import ExperimentBuilder

    return ExperimentBuilder(_data_paths(data)).build(_recipe(recipe))


def train(
    recipe: Recipe | PathLike,
    out: PathLike,
    *,
    data: PathLike | None = None,
    resume: bool = False,
    runtime: str = "local",
    on_round: Callable[[RoundReport], None] = lambda report: None,
) -> Result:
    """Trains a recipe into a folder; the final weights and the last evaluation.

    Args:
      recipe: a Recipe, or what `load_recipe` takes.
      out: the run's folder; new, or with `resume` that of the same recipe.
      data: the data folder; by default that of the environment variable TFF_RE_DATA.
      resume: continue a run that was interrupted.
      runtime: where computations run.
      on_round: called after every round.

    Raises:
      UserError, DataError: see `build`; or the folder holds something else.
    """
    from tff_re.runs.run import train_run

    recipe = _recipe(recipe)
    return train_run(
        recipe, Path(out), data_paths=_data_paths(data), resume=resume, runtime=runtime, on_round=on_round
    )[1]


def compare(
    what: str | Sequence[str],
    out: PathLike,
    *,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    data: PathLike | None = None,
    resume: bool = False,
    runtime: str = "local",
) -> list[Path]:
    """Runs a suite, or several recipes, on the same partitions and seeds; the tables and plots that were written.

    Args:
      what: name or TOML file of a suite, or a list of recipes.
      out: the comparison's folder.
      overrides: keys to set in all recipes, as ``"training.rounds=20"``.
      seeds: in place of the suite's.
      data: the data folder; by default that of the environment variable TFF_RE_DATA.
      resume: continue what is in the folder already.
      runtime: where computations run.

    Raises:
      UserError, DataError: see `build`; or the folder holds something else.
    """
    from tff_re.comparison.outcome import compare as run_all
    from tff_re.comparison.report import write_report
    from tff_re.comparison.suite import load_suite, suite_of_recipes
    from tff_re.runs.experiment import ExperimentBuilder

    make, given = (load_suite, what) if isinstance(what, str) else (suite_of_recipes, tuple(what))
    suite = make(given, tuple(overrides), None if seeds is None else tuple(seeds))
    outcomes = run_all(
        suite, Path(out), builder=ExperimentBuilder(_data_paths(data)), runtime_name=runtime, resume=resume
    )
    return [Path(path) for path in write_report(suite, outcomes, Path(out)).files]


def export(
    run: PathLike,
    out: PathLike | None = None,
    *,
    formats: str = "both",
    quantise: str | None = None,
    tflite: bool = False,
    overwrite: bool = False,
    data: PathLike | None = None,
    runtime: str = "local",
) -> Path:
    """Exports the newest checkpoint of a run as a model that TensorFlow alone loads; the export's folder.

    Args:
      run: a folder that `train` wrote.
      out: where to write; `export` in the run's folder by default.
      formats: `keras`, `saved_model` or `both`.
      quantise: `float16` for a second SavedModel of half the size.
      tflite: whether model.tflite is written too.
      overwrite: whether an older export of the run is replaced.
      data: the data folder; by default that of the environment variable TFF_RE_DATA.
      runtime: where the run's computations run.

    Raises:
      UserError, DataError: there is no such run, its data are missing, or its model cannot be exported.
    """
    from tff_re.runs.finished import export_run

    out = None if out is None else Path(out)
    options = {"formats": formats, "quantise": quantise, "tflite": tflite}
    return export_run(Path(run), out, overwrite, _data_paths(data), runtime, **options)


def score(
    export: PathLike, file: PathLike, *, dataset: str | None = None, label: str | None = None, trust: bool = False
) -> Score:
    """Scores an exported model on a file that one of the readers reads.

    Args:
      export: an export's folder.
      file: in the data set's format.
      dataset: a name of the catalogue; the run's if not given.
      label: one of the data set's label choices; the run's if not given.
      trust: as for `load_export`.

    Raises:
      UserError, DataError: there is no such export, or the file or its classes do not fit.
    """
    from tff_re.exporting.prediction import load_export
    from tff_re.exporting.scoring import score as score_file

    return score_file(load_export(export, trust=trust), Path(file), dataset, label)


def _recipe(recipe: Recipe | PathLike) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)


def _data_paths(data: PathLike | None):
    from tff_re.tasks.data_paths import DataPaths

    if data is not None and not Path(data).is_dir():
        raise UserError(f"{data}: no such folder")
    return DataPaths(data=None if data is None else Path(data))
