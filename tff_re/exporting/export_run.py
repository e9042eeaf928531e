"""A finished run as an export."""

from __future__ import annotations

from pathlib import Path

from tff_re.errors import UserError
from tff_re.exporting.details import details_of, exported_recipe, files_of, without_folders
from tff_re.exporting.export_model import export_model
from tff_re.runs.finished import may_be_written, open_run
from tff_re.runs.folder import RunFolder, permissions
from tff_re.runs.results import read_history
from tff_re.tasks.data_paths import DataPaths


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
    if out is None and not may_be_written(path):
        raise UserError(f"{path}: may not be written; give --out a folder elsewhere")
    with open_run(path, data_paths, runtime_name, only_read=True) as (run, _):
        recipe, prepared = run.experiment.recipe, run.experiment.prepared
        own = exported_recipe(recipe)
        exported = run.experiment if own is recipe else run.builder.build(own, trains=False)
        details = details_of(run.experiment, read_history(run.folder), run.round, run.weights, exported)
        with permissions(run.folder.usual_mask):  # an export is made to be given away
            return export_model(
                out or RunFolder(path).export,
                model_name=recipe.model.name,
                model_options=recipe.model.options,
                inputs=prepared.exported_inputs(run.experiment.algorithm),
                label_names=prepared.output_names,
                weights=run.weights,
                encoding=prepared.encoding,
                details=without_folders(details),
                probes=prepared.samples("test"),
                files=files_of(recipe, run.folder),
                formats=formats,
                quantise=quantise,
                tflite=tflite,
                overwrite=overwrite,
            )
