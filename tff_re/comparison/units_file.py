"""The file of a comparison with what its runs measured on each test unit.

Intervals that include the test sample are computed from it (`tff_re.tasks.resampling`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from datasets.files import write_atomically
from tff_re.errors import UserError
from tff_re.tasks.measured_units import DAMAGED, MeasuredUnits

UNITS = "test_units.npz"
"""The file of a comparison's folder with the units of all its runs."""

Units = Mapping[tuple[str, str, int], MeasuredUnits]
"""(group, entry, seed) -> the units of a run."""


def write_units(path: Path, units: Units) -> None:
    """Writes the units of (group, entry, seed), without ids. Raises DataError where it cannot be written."""
    buffer, arrays = io.BytesIO(), {}
    for key, of_run in units.items():
        for name, array in of_run.to_arrays().items():
            arrays[json.dumps([*key, name], ensure_ascii=False)] = array
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def read_units(path: Path) -> dict[tuple[str, str, int], MeasuredUnits]:
    """The content that `write_units` wrote, or nothing without the file.

    An older file has an array of counts for each run, of documents in the chosen round.

    Raises:
      UserError: it is damaged.
    """
    if not path.exists():
        return {}
    stored: dict[tuple[str, str, int], dict[str, np.ndarray]] = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                group, entry, seed, *array = json.loads(name)
                stored.setdefault((group, entry, seed), {})[array[0] if array else "counts"] = arrays[name]
        return {key: MeasuredUnits.from_arrays(of_run) for key, of_run in stored.items()}
    except DAMAGED:
        raise UserError(f"{path}: is damaged; run its `compare` again with --resume") from None
