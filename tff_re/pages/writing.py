"""Writes the HTML page of a run's or a comparison's folder. It holds no data and no patient's text."""

from __future__ import annotations

from pathlib import Path

from datasets.files import write_atomically
from tff_re.comparison.record import RECORD
from tff_re.errors import UserError
from tff_re.pages.comparison_page import comparison_page
from tff_re.pages.run_page import run_page
from tff_re.runs.folder import permissions


def write_page(path: Path, out: Path | None = None) -> Path:
    """Writes the page of a finished run's or comparison's folder to `out`, by default to `report.html` in the folder.

    Raises:
      UserError: the folder is neither, is not finished, or a file in it is missing or damaged.
      DataError: the page cannot be written.
    """
    if not path.is_dir():
        raise UserError(
            f"{path}: {'is a file; give the folder of a run or a comparison' if path.exists() else 'no such folder'}"
        )
    if (path / RECORD).exists():
        text = comparison_page(path)
    elif (path / "recipe.toml").exists():
        text = run_page(path)
    else:
        raise UserError(f"{path}: holds no run (recipe.toml is missing) and no comparison ({RECORD} is missing)")
    out = out or path / "report.html"
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder; give a file name, e.g. {out / 'report.html'}")
    with permissions():
        write_atomically(out, text.encode("utf-8"))
    return out
