"""The folder of an export: what may be replaced, and that nothing in it is half-written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tff_re.errors import UserError
from tff_re.exporting.layout import DESCRIPTION_FILE, FORMAT

NEEDED = "a model of {} needs its encoding; pass the encoding it was trained with"
MISFIT = "the encoding's vocabulary or length does not fit the model; pass the encoding it was trained with"
"""Why a model is not exported with an encoding."""


class ExportError(UserError):
    """A model cannot be exported, or its exported form is not the model that was trained."""


def check_folder(folder: Path, details: Mapping[str, Any], overwrite: bool) -> None:
    """Raises ExportError unless an export of the details' run may be written to the folder."""
    if not folder.parent.is_dir():
        raise ExportError(f"{folder.parent}: no such folder; create it first")
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        older = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        older = None
    if not isinstance(older, dict) or older.get("format") != FORMAT:
        raise ExportError(f"{folder}: exists but is not an export of this project; choose another folder")
    if not overwrite:
        raise ExportError(f"{folder}: already holds an export; choose another folder or ask to overwrite it")
    known = older.get("details")
    if (known.get("run") if isinstance(known, dict) else None) != details.get("run"):
        raise ExportError(f"{folder}: holds the export of another run; choose another folder or remove it")


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A draft next to `folder` that replaces it if the block succeeds, and is removed if it fails."""
    mark = uuid.uuid4().hex
    draft, replaced = (folder.parent / f".{folder.name}.{mark}.{end}" for end in ("part", "old"))
    problem = None
    try:
        draft.mkdir()
        yield draft
        flush(draft)
        moved = folder.exists() and any(folder.iterdir())
        if moved:
            os.replace(folder, replaced)
        try:
            os.replace(draft, folder)
        except OSError:
            if moved:
                os.replace(replaced, folder)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except tf.errors.OpError as error:
        problem = type(error).__name__
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if problem is not None:
        raise ExportError(f"{folder}: cannot be written ({problem}); check the disk's space and the permissions")


def flush(folder: Path) -> None:
    """Brings what was written to the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())


def write(path: Path, text: str) -> None:
    """Writes a text file into a draft."""
    path.write_text(text + "\n", encoding="utf-8")
