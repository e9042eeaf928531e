"""Checkpoints by TFF's program state manager, metrics by its release managers, from synchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import re
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_re.errors import UserError
from tff_re.run_folder import RunFolder, write_text

_PREFIX = "round_"
_STATE_COLUMNS = ["round", "client", "name"]


class Records:
    """What a run writes while it trains. All of it is whole after a kill at any moment."""

    def __init__(self, folder: RunFolder):
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._client_states: list[list[str]] | None = None
        for left_over in folder.path.glob("checkpoints/*_temp[0-9]*"):
            shutil.rmtree(left_over)  # from a kill in the middle of writing
        for left_over in folder.path.glob("*.csv_temp[0-9]*"):
            left_over.unlink()
        write = tff.program.CSVFileReleaseManager
        mode = tff.program.CSVSaveMode.WRITE  # through a temporary file, so that a kill leaves the old rows
        with translated(folder.path):
            self._metrics = write(str(folder.metrics), save_mode=mode, key_fieldname="round")
            self._timings = write(str(folder.timings), save_mode=mode, key_fieldname="round")
            self._tensorboard = tff.program.TensorBoardReleaseManager(str(folder.tensorboard))
        self._states = tff.program.FileProgramStateManager(
            str(folder.checkpoints), prefix=_PREFIX, keep_total=2, keep_first=False
        )

    def close(self) -> None:
        """Ends the event loop."""
        self._loop.close()

    def release(self, round_num: int, metrics: dict[str, float], timings: dict[str, float]) -> None:
        """Appends a round; rows of this round and later ones (of a run before --resume) are dropped."""
        with translated(self._folder.path):
            self._run(self._metrics.release(OrderedDict(sorted(metrics.items())), round_num))
            self._run(self._timings.release(OrderedDict(sorted(timings.items())), round_num))
            self._run(self._tensorboard.release(OrderedDict(sorted({**metrics, **timings}.items())), round_num))

    def release_client_states(
        self, round_num: int, label_names: Sequence[str], states: Mapping[str, Mapping[str, np.ndarray]]
    ) -> None:
        """Appends what clients keep to client_states.csv; rows of this round and later ones are dropped.

        Args:
          round_num: the round.
          label_names: the classes, C of them; they are columns of the file.
          states: client id -> name of what it keeps -> float32 [C].

        Raises:
          UserError: the file, of the run before --resume, is not one of these classes.
        """
        if self._client_states is None:
            self._client_states = _read_rows(self._folder, label_names) if self._folder.client_states.exists() else []
        self._client_states = [row for row in self._client_states if int(row[0]) < round_num]
        for client, values in states.items():
            for name, value in values.items():
                # NumPy writes a float32 as the shortest number that reads back as the same.
                self._client_states.append([str(round_num), client, name, *map(str, np.asarray(value, np.float32))])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*_STATE_COLUMNS, *label_names], *self._client_states])
        write_text(self._folder.client_states, text.getvalue())

    def save(self, round_num: int, program_state) -> None:
        """Writes the checkpoint of a round."""
        with translated(self._folder.path):
            self._run(self._states.save(program_state, round_num))

    def load_latest(self, structure):
        """(state, round) of the newest checkpoint, or (None, 0). `structure`: a state of the same structure.

        Raises:
          UserError: the newest checkpoint cannot be read.
        """
        versions = self._run(self._states.get_versions()) or []
        if not versions:
            return None, 0
        newest = max(versions)
        try:
            return self._run(self._states.load(newest, structure)), newest
        except Exception as error:
            raise UserError(
                f"{self._folder.checkpoints}/{_PREFIX}{newest}: cannot be read ({type(error).__name__}); remove it to "
                "continue from the checkpoint before"
            ) from None

    def _run(self, coroutine):
        task = self._loop.create_task(coroutine)
        # A notebook calls us from inside of an event loop of its own, which waits until we return.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            # After Ctrl-C asyncio would print that a pending task was destroyed, or its exception not looked at.
            if not task.done():
                task.cancel()
                with contextlib.suppress(BaseException):
                    self._loop.run_until_complete(task)
            if task.done() and not task.cancelled():
                task.exception()
            raise
        finally:
            asyncio._set_running_loop(outer)


def read_client_states(folder: RunFolder, label_names: Sequence[str]) -> dict[str, dict[int, dict[str, np.ndarray]]]:
    """What a run recorded of its clients: name -> round -> client id -> float32 [C]; empty if it recorded nothing.

    Raises:
      UserError: the file is damaged, or its columns are not these classes.
    """
    states: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    if folder.client_states.exists():
        for round_num, client, name, *values in _read_rows(folder, label_names):
            states.setdefault(name, {}).setdefault(int(round_num), {})[client] = np.array(values, np.float32)
    return states


def _read_rows(folder: RunFolder, label_names: Sequence[str]) -> list[list[str]]:
    """Rows of client_states.csv below its heading."""
    columns = [*_STATE_COLUMNS, *label_names]
    remedy = "remove it and the folder's checkpoints, then train with --resume"
    try:
        with open(folder.client_states, newline="", encoding="utf-8") as file:
            heading, *rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{folder.client_states}: is no CSV file in UTF-8; {remedy}") from None
    if heading != columns:
        raise UserError(f"{folder.client_states}: its columns are not those of this run's classes; {remedy}")
    for number, row in enumerate(rows, 2):
        try:
            int(row[0]), np.array(row[len(_STATE_COLUMNS) :], np.float32).reshape(len(label_names))
        except (IndexError, ValueError):
            raise UserError(f"{folder.client_states}: row {number} is damaged; {remedy}") from None
    return rows


class translated:
    """TensorFlow's own errors for a full disk, as the one that `writing` of run_folder understands."""

    def __init__(self, folder: Path):
        self._folder = folder

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, tf.errors.OpError) and re.search(
            r"No space left|[Dd]isk quota|File too large", error.message or ""
        ):
            raise UserError(
                f"{self._folder}: no room left to write; free some space, then continue with --resume"
            ) from None
        return False
