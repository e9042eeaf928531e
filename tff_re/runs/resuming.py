"""A checkpoint's record of the files next to it, by which a resume checks and repairs them.

A finished run's digests are here, too.

The record is part of the program state, which is written whole or not at all: a checkpoint is never without its record.
Rows of rounds after the checkpoint are not damage: a resume drops them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.errors import DataError
from datasets.files import sha256_of
from datasets.partition import Partition
from tff_re.errors import UserError
from tff_re.runs.folder import READ_ONLY, RunFolder, write_text
from tff_re.runs.reading import read_json, rows_up_to
from tff_re.runtime.events import FILE_DAMAGED, FILE_RESTORED
from tff_re.runtime.logs import Event

if TYPE_CHECKING:
    from tff_re.tasks.base import Prepared

_log = logging.getLogger(__name__)

BY_ROUND = ("metrics", "timings", "client_states", "answers")
"""Files that grow by a round's rows; a checkpoint keeps them."""

AT_THE_END = (
    *BY_ROUND,
    "start",
    "partition",
    "labels",
    "clients",
    "classes",
    "confusion",
    "precision_recall",
    "test_units",
    "summary",
)
"""Files whose digests a finished run has in digests.json."""

_MARK = "tff-re run record 2"

_EXAMPLES = "examples"
"""In digests.json, in place of a file's name."""


@dataclass(frozen=True)
class DataDigests:
    """What a run is trained on.

    Attributes:
      partition: SHA-256 of which client holds what, see `partition_digest`; None where the clients' data are generated.
      examples: SHA-256 of the examples, see `with_data_digest`; None where none were read, or in what an older version
        wrote.
    """

    partition: str | None = None
    examples: str | None = None

    @classmethod
    def from_prepared(cls, prepared: Prepared) -> DataDigests:
        """Those of a run's data."""
        return cls(partition_digest(prepared.partition), prepared.data_digest)


@dataclass(frozen=True)
class RunRecord:
    """A checkpoint's record of its run.

    Attributes:
      recipe: SHA-256 of recipe.toml.
      data: what the run was trained on.
      files: name in RunFolder -> the text of the CSV file with the rows up to the checkpoint's round.
      client_states: see `ClientStates.files`.
    """

    recipe: str | None
    data: DataDigests
    files: Mapping[str, str] = field(repr=False)
    client_states: Sequence[Sequence[str]] = ()

    def packed(self) -> np.ndarray:
        """uint8 [bytes], for a checkpoint."""
        table = {"mark": _MARK, "recipe": self.recipe, **dataclasses.asdict(self.data), "files": dict(self.files)}
        table["client_states"] = list(self.client_states)
        return np.frombuffer(zlib.compress(json.dumps(table).encode("utf-8")), np.uint8)

    @classmethod
    def unpacked(cls, array: np.ndarray) -> RunRecord:
        """The record of a checkpoint. Raises UserError for that of another version, ValueError for something else."""
        try:
            table = json.loads(zlib.decompress(np.asarray(array, np.uint8).tobytes()))
            if table["mark"] != _MARK:
                raise UserError("was written by another version of tff-re; train into another --out")
            data = DataDigests(table["partition"], table.get("examples"))
            return cls(table["recipe"], data, table["files"], table["client_states"])
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise ValueError("not a run's record") from error


def record_of(folder: RunFolder, data: DataDigests, client_states: Sequence[Sequence[str]] = ()) -> RunRecord:
    """The record of a run's folder as it is now, with its data and the files of the clients' states.

    Raises OSError, or UserError for a file that is not UTF-8.
    """
    files = {name: _text(getattr(folder, name)) for name in BY_ROUND if getattr(folder, name).exists()}
    if None in files.values():
        require_undamaged(folder)
    return RunRecord(_digest(folder.recipe), data, files, client_states)


def require_undamaged(folder: RunFolder) -> None:
    """Raises UserError where a file of BY_ROUND was damaged during training."""
    for path in _damaged(folder):
        raise UserError(f"{path}: was damaged during training; continue with --resume, which repairs it") from None


def _damaged(folder: RunFolder) -> list[Path]:
    there = {name: path for name in BY_ROUND if (path := getattr(folder, name)).exists()}
    return [path for name, path in there.items() if rows_up_to(_text(path), name, math.inf) is None]


def partition_digest(partition: Partition | None) -> str | None:
    """SHA-256 of the clients in their order and of their samples, but not of how they were drawn."""
    if partition is None:
        return None
    digest = hashlib.sha256(json.dumps(partition.server).encode("utf-8"))
    for name, samples in partition.clients.items():
        digest.update(json.dumps([name, samples.train, samples.test]).encode("utf-8"))
    return digest.hexdigest()


def require_same_run(record: RunRecord, folder: RunFolder, data: DataDigests) -> None:
    """Raises UserError where the recipe, the partition or the examples are not those of the checkpoint."""
    remedy = "put the original back, or train into another --out"
    if record.recipe is not None and record.recipe != _digest(folder.recipe):
        raise UserError(f"{folder.recipe}: is not the recipe that the run's checkpoint was trained with; {remedy}")
    if record.data.partition != data.partition:
        raise UserError(f"{folder.partition}: is not the partition that the run's checkpoint was trained on; {remedy}")
    if None not in (record.data.examples, data.examples) and record.data.examples != data.examples:
        raise UserError(
            f"{folder.path}: the run's checkpoint was trained or tested on other data than what the data set's files "
            f"now hold; {remedy}"
        )


def repair(record: RunRecord, folder: RunFolder, round_num: int) -> None:
    """Restores CSV files whose rows up to the checkpoint's round differ from its record.

    Raises:
      UserError: a file is damaged, and the folder may not be written.
    """
    for name, text in record.files.items():
        path: Path = getattr(folder, name)
        reason = _difference(path, text, name, round_num)
        if reason is None:
            continue
        try:
            write_text(path, text)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            raise UserError(
                f"{path}: {reason}, and it cannot be restored from the checkpoint ({error.strerror}); make the "
                "folder writable"
            ) from None
        notice(FILE_RESTORED, file=path, reason=reason, round=round_num)


def begin_anew(folder: RunFolder) -> None:
    """Removes damaged CSV files of a run without a checkpoint, which trains from round 1 without their rows."""
    for path in _damaged(folder):
        path.unlink()
        notice(FILE_DAMAGED, file=path)


def _difference(path: Path, text: str, name: str, round_num: int) -> str | None:
    """What is wrong with a file's rows up to a round, or None if nothing is."""
    if not path.exists():
        return "was missing"
    there = rows_up_to(_text(path), name, round_num)
    if there is None:
        return "was damaged"
    wanted = rows_up_to(text, name, round_num) or []
    if there == wanted:
        return None
    return "lacked rows" if len(there) < len(wanted) else "held other rows"


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_digests(folder: RunFolder, data_digest: str | None) -> None:
    """Writes digests.json of a finished run, the SHA-256 of its results and, if it is known, of its examples.

    It is the last file of a run's results.
    """
    digests = {} if data_digest is None else {_EXAMPLES: data_digest}
    digests |= {p.name: _digest(p) for p in (getattr(folder, name) for name in ("recipe", *AT_THE_END)) if p.exists()}
    write_text(folder.digests, json.dumps(digests, indent=2) + "\n")


def is_as_it_was(folder: RunFolder) -> bool:
    """Whether the files of a finished run have the digests in digests.json."""
    try:
        digests = json.loads(folder.digests.read_text("utf-8"))
        of_files = {name: digest for name, digest in digests.items() if name != _EXAMPLES}
        return all(sha256_of(folder.path / name) == digest for name, digest in of_files.items())
    except (FileNotFoundError, ValueError, AttributeError, TypeError, DataError):
        return False


def recorded_data_digest(folder: RunFolder) -> str | None:
    """SHA-256 of a finished run's examples (see `with_data_digest`), or None where the run does not say.

    Raises UserError where digests.json is missing or damaged.
    """
    return read_json(folder.digests).get(_EXAMPLES)


def notice(event: Event, **fields: Any) -> None:
    """Says what was repaired or could not be checked: a line in the run's log and on standard error."""
    if logging.getLogger("tff_re").handlers:  # else it would be printed by the root's
        event.log(_log, **fields)
    with contextlib.suppress(OSError):
        print(f"tff-re: {event.line(**fields)}", file=sys.stderr)


def _digest(path: Path) -> str | None:
    return sha256_of(path) if path.exists() else None
