"""A finished run's adapter alone, without the encoder that it belongs to."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tff_re import models
from tff_re.errors import UserError
from tff_re.exporting import places
from tff_re.exporting.layout import LABELS_FILE
from tff_re.models import adapter_files
from tff_re.models.inputs import pieces_of
from tff_re.runs.finished import BuilderOf, may_be_written, open_run
from tff_re.runs.folder import RunFolder, permissions
from tff_re.tasks.data_paths import DataPaths


def export_adapter(
    path: Path,
    out: Path | None,
    overwrite: bool,
    data_paths: DataPaths,
    runtime_name: str,
    *,
    last: bool = False,
    builder_of: BuilderOf | None = None,
) -> Path:
    """Writes the adapter of a run's newest checkpoint as safetensors and returns the folder.

    The folder is `adapter` in the run's own by default.

    Where a round was chosen on dev, it is that round's, unless `last`. A recipe starts from it with
    `model.adapter.path`. `builder_of` is `open_run`'s.

    Raises:
      UserError: the run has no adapter, or the folder is taken or cannot be written.
    """
    if out is None and not may_be_written(path):
        raise UserError(f"{path}: cannot be written; give --out another folder")
    folder = out or RunFolder(path).path / "adapter"
    with open_run(path, data_paths, runtime_name, only_read=True, last=last, builder_of=builder_of) as (run, _):
        experiment = run.experiment
        choice, prepared = experiment.recipe.model, experiment.prepared
        adapter = getattr(choice.options, "adapter", None)
        if adapter is None:
            raise UserError(f"{path}: the run's model has no adapter; leave --adapter-only out")
        _check_folder(folder, overwrite)
        trained = experiment.model.keras_model(run.weights)
        adapted = models.MODELS[choice.name].adapted(choice.options, prepared.inputs, trained)
        source = choice.options.encoder or pieces_of(prepared.inputs).tokenizer or ""
        base = Path(source).name if os.path.exists(source) else source
        files = adapter_files.contents(adapted, prepared.inputs, adapter, base, prepared.output_names)
        with permissions(run.folder.usual_mask), places.new_folder(folder) as draft:
            for name, content in files.items():
                (draft / name).write_bytes(content)
            places.write(draft / LABELS_FILE, json.dumps(list(prepared.output_names), ensure_ascii=False, indent=1))
    return folder


def _check_folder(folder: Path, overwrite: bool) -> None:
    if not folder.parent.is_dir():
        raise UserError(f"{folder.parent}: no such folder; create it first")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / adapter_files.CONFIG_FILE).is_file():
        raise UserError(f"{folder}: exists but holds no adapter; choose another folder")
    if not overwrite:
        raise UserError(f"{folder}: already holds an adapter; choose another folder or ask to overwrite it")
