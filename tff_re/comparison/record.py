"""comparison.json: the record from which a comparison's page is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tff_re.errors import UserError
from tff_re.runs.reading import read_json

RECORD, FORMAT = "comparison.json", 1


def read_record(folder: Path) -> dict[str, Any]:
    """The record in a comparison's folder. Raises UserError for one of another version."""
    record = read_json(folder / RECORD)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UserError(f"{folder / RECORD}: was written by another version; run its `compare` again with --resume")
    return record
