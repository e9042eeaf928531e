"""Managers that store a program's state in checkpoints, and its metrics in CSV and TensorBoard files."""

from __future__ import annotations

import csv
import enum
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tree

_STATE_FILE, _NUMBER = "state.npz", "number"


class ProgramStateNotFoundError(Exception):
    """No state of this version exists."""


class ProgramStateExistsError(Exception):
    """A state of this version already exists."""


class FileProgramStateManager:
    """Keeps program states as folders `<prefix><version>`, each with the arrays of one state.

    The folders' names are those of TFF's manager; what is in them is not, because TFF writes SavedModels.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        prefix: str = "program_state_",
        keep_total: int = 5,
        keep_first: bool = True,
    ):
        """Create the manager.

        `keep_total` is the number of states to keep: the newest and, with `keep_first`, the first. All are kept if it
        is 0.
        """
        self._folder, self._prefix = Path(root_dir), prefix
        self._keep_total, self._keep_first = keep_total, keep_first
        self._folder.mkdir(parents=True, exist_ok=True)

    async def get_versions(self) -> list[int] | None:
        """Return the existing versions in order, or None if there are none."""
        names = (path.name.removeprefix(self._prefix) for path in self._folder.glob(f"{self._prefix}*"))
        return sorted(int(name) for name in names if name.isdecimal()) or None

    async def load(self, version: int, structure: Any) -> Any:
        """Return the state of a version with NumPy arrays in the containers of `structure`.

        Raises:
          ProgramStateNotFoundError: there is no such version.
          ValueError: it is not a state of this structure.
        """
        path = self._path(version) / _STATE_FILE
        if not path.exists():
            raise ProgramStateNotFoundError(f"there is no program state of version {version}")
        size = len(tree.flatten(structure))
        with np.load(path, allow_pickle=False) as arrays:
            if arrays[_NUMBER] != size:
                raise ValueError(f"the state has {arrays[_NUMBER]} values, but {size} are expected")
            leaves = [arrays[str(index)][()] if str(index) in arrays else None for index in range(size)]
        return tree.unflatten_as(structure, leaves)

    async def load_latest(self, structure: Any) -> tuple[Any, int]:
        """Return (state, version) of the newest version, or (None, 0)."""
        versions = await self.get_versions()
        return (None, 0) if versions is None else (await self.load(versions[-1], structure), versions[-1])

    async def save(self, program_state: Any, version: int) -> None:
        """Write a state of arrays, numbers and None, and remove older versions that need not be kept.

        Raises ProgramStateExistsError if the version is there.
        """
        path = self._path(version)
        if path.exists():
            raise ProgramStateExistsError(f"there is a program state of version {version} in {self._folder}")
        leaves = tree.flatten(program_state)
        arrays = {str(index): np.asarray(leaf) for index, leaf in enumerate(leaves) if leaf is not None}
        draft = path.with_name(f"{path.name}_temp0")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        np.savez(draft / _STATE_FILE, **arrays, **{_NUMBER: len(leaves)})
        draft.rename(path)
        for old in await self._superfluous():
            shutil.rmtree(self._path(old))

    async def _superfluous(self) -> list[int]:
        versions = await self.get_versions() or []
        if self._keep_total <= 0 or len(versions) <= self._keep_total:
            return []
        first = int(self._keep_first)
        return versions[first : len(versions) - self._keep_total + first]

    def _path(self, version: int) -> Path:
        return self._folder / f"{self._prefix}{version}"


class CSVSaveMode(enum.Enum):
    """How a row is written to the file.

    Here this is only through a temporary file, so that a kill leaves the old rows.
    """

    WRITE = "write"


class CSVFileReleaseManager:
    """Writes a row for each key.

    Releasing a key again drops its row and all later ones.
    """

    def __init__(
        self,
        file_path: str | os.PathLike,
        save_mode: CSVSaveMode = CSVSaveMode.WRITE,
        key_fieldname: str = "key",
    ):
        self._path, self._key = Path(file_path), key_fieldname
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            self._write([key_fieldname], [])
        elif key_fieldname not in self._read()[0]:
            raise KeyError(f"{file_path} has no column {key_fieldname!r}")

    async def release(self, value: Mapping[str, object], key: int) -> None:
        """Write the row of a key, with names and numbers."""
        names, rows = self._read()
        rows = [row for row in rows if int(row[self._key]) < key]
        rows.append({self._key: key, **{name: np.asarray(number).tolist() for name, number in value.items()}})
        self._write([*names, *(name for name in value if name not in names)], rows)

    def _read(self) -> tuple[list[str], list[dict]]:
        with self._path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), list(reader)

    def _write(self, names: list[str], rows: list[dict]) -> None:
        draft = self._path.with_name(f"{self._path.name}_temp0")
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
        draft.replace(self._path)


class TensorBoardReleaseManager:
    """Writes numbers as scalars and arrays as histograms."""

    def __init__(self, summary_dir: str | os.PathLike):
        self._writer = tf.summary.create_file_writer(os.fspath(summary_dir))

    async def release(self, value: Mapping[str, object], key: int) -> None:
        """Write the values of a step."""
        with self._writer.as_default():
            for name, number in value.items():
                array = np.asarray(number)
                if array.dtype.kind in "biuf":
                    (tf.summary.histogram if array.shape else tf.summary.scalar)(name, array, step=key)
