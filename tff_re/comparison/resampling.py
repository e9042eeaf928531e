"""The file of a comparison with the counts of its runs' test units.

Intervals are computed from them by `tff_re.runs.units`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from datasets.files import write_atomically
from tff_re.errors import UserError

UNITS = "test_units.npz"
"""The file of a comparison's folder with the counts of all its runs."""

Units = Mapping[tuple[str, str, int], np.ndarray]
"""(group, entry, seed) -> the units' counts of a run, [n, 3]."""


def write_units(path: Path, units: Units) -> None:
    """Writes the units' counts of (group, entry, seed), without ids. Raises DataError where it cannot be written."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{json.dumps(key, ensure_ascii=False): counts for key, counts in units.items()})
    write_atomically(path, buffer.getvalue())


def read_units(path: Path) -> dict[tuple[str, str, int], np.ndarray]:
    """The content that `write_units` wrote, or nothing without the file.

    Raises:
      UserError: it is damaged.
    """
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {tuple(json.loads(name)): arrays[name] for name in arrays.files}
    except (ValueError, OSError, zipfile.BadZipFile):
        raise UserError(f"{path}: is damaged; run its `compare` again with --resume") from None
