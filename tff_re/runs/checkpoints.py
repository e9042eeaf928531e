"""Checkpoints by TFF's program state manager, metrics by its release managers, from synchronous code.

What is checked and repaired when a run is resumed is in `resuming.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import functools
import logging
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from computations import federated as tff
from datasets.files import csv_text
from tff_re.errors import UserError
from tff_re.runs.client_states import ClientStates
from tff_re.runs.folder import RunFolder, write_text
from tff_re.runs.packing import blank, packed, unpacked
from tff_re.runs.reading import ANSWER_COLUMNS, STATE_COLUMNS, client_state_rows, read_answers
from tff_re.runs.resuming import (
    DataDigests,
    RunRecord,
    begin_anew,
    record_of,
    repair,
    require_same_run,
    require_undamaged,
)
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.events import RUN_INTERRUPTED

_log = logging.getLogger(__name__)

_PREFIX = "round_"
_RECORD = "record"
_CLIENTS = "clients_"
_KEPT = 2


class Records:
    """The files that a run writes while it trains. A kill at any moment leaves none half-written."""

    def __init__(self, folder: RunFolder, data: DataDigests):
        """`data`: what the run is trained on."""
        self._folder, self._data = folder, data
        self._loop = asyncio.new_event_loop()
        self._client_states: list[list[str]] | None = None
        self._answers: list[list[str]] | None = None
        self._finished: tuple[int, OrderedDict] | None = None
        for left_over in folder.path.glob("checkpoints/*_temp[0-9]*"):
            shutil.rmtree(left_over)  # from a kill in the middle of writing
        for left_over in (*folder.path.glob("*.csv_temp[0-9]*"), *folder.path.glob("checkpoints/.*.part")):
            left_over.unlink()
        self._states = tff.program.FileProgramStateManager(
            str(folder.checkpoints), prefix=_PREFIX, keep_total=_KEPT, keep_first=False
        )
        self._newest: list[set[str]] = []  # the files of client states of this process's last checkpoints

    @functools.cached_property
    def _managers(self) -> dict:
        """Opened when a round is written: files of an earlier run may have to be repaired first."""
        mode = tff.program.CSVSaveMode.WRITE  # through a temporary file, so that a kill leaves the old rows
        of_csv = functools.partial(tff.program.CSVFileReleaseManager, save_mode=mode, key_fieldname="round")
        opened = {name: of_csv(str(getattr(self._folder, name))) for name in ("metrics", "timings")}
        return {**opened, "tensorboard": tff.program.TensorBoardReleaseManager(str(self._folder.tensorboard))}

    def close(self) -> None:
        """Closes the event loop after a write that was interrupted has ended in one of the loop's threads."""
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()

    def release(self, round_num: int, metrics: dict[str, float], timings: dict[str, float]) -> None:
        """Appends a round and drops rows of this round and later ones (of a run before --resume).

        Raises:
          UserError: a file was damaged during training.
        """
        released = {"metrics": metrics, "timings": timings, "tensorboard": {**metrics, **timings}}
        with _translated(self._folder.path):
            try:
                for name, values in released.items():
                    self._run(self._managers[name].release(OrderedDict(sorted(values.items())), round_num))
            except (ValueError, KeyError, TypeError, csv.Error):  # of reading the rows before
                require_undamaged(self._folder)
                raise

    def release_client_states(
        self, round_num: int, label_names: Sequence[str], states: Mapping[str, Mapping[str, np.ndarray]]
    ) -> None:
        """Appends the recorded client states to client_states.csv and drops rows of this round and later ones.

        Args:
          round_num: the round.
          label_names: the classes, C of them; they are columns of the file.
          states: client id -> name of the value -> float32 [C].

        Raises:
          UserError: the file, of the run before --resume, is not one of these classes.
        """
        if self._client_states is None:
            self._client_states = client_state_rows(self._folder, label_names)
        self._client_states = [row for row in self._client_states if int(row[0]) < round_num] + [
            # NumPy writes a float32 as the shortest number that reads back as the same.
            [str(round_num), client, name, *map(str, np.asarray(value, np.float32))]
            for client, values in states.items()
            for name, value in values.items()
        ]
        rows = [[*STATE_COLUMNS, *label_names], *self._client_states]
        write_text(self._folder.client_states, csv_text(rows))

    def release_answers(self, round_num: int, outcomes: Iterable[tuple[int, str, str]]) -> None:
        """Appends to answers.csv who was asked in a round: (attempt, client id, outcome) each.

        Rows of this round and later ones are dropped. Raises UserError like `read_answers`.
        """
        if self._answers is None:
            self._answers = read_answers(self._folder)
        self._answers = [row for row in self._answers if int(row[0]) < round_num]
        self._answers += [[str(round_num), str(attempt), client, what] for attempt, client, what in outcomes]
        write_text(self._folder.answers, csv_text([ANSWER_COLUMNS, *self._answers]))

    def save(self, round_num: int, program_state: OrderedDict) -> None:
        """Writes the checkpoint of a round, with a record of the files that a resume relies on."""
        memory: ClientStates = program_state["memory"]
        with _translated(self._folder.path):
            self._folder.checkpoints.mkdir(exist_ok=True)
            memory.write(self._folder.checkpoints / f"{_CLIENTS}{round_num}.safetensors")
            record = record_of(self._folder, self._data, memory.files).packed()
            stored = packed(_without_memory(program_state))
            self._run(self._states.save(OrderedDict(stored, **{_RECORD: record}), round_num))
        self._newest = [*self._newest, {name for name, _ in memory.files}][-_KEPT:]
        if len(self._newest) == _KEPT:  # else the files of a checkpoint before --resume may be needed
            for path in set(self._folder.checkpoints.glob(f"{_CLIENTS}*")):
                if path.name not in set.union(*self._newest):
                    path.unlink()

    def finish_round(self, round_num: int, program_state: OrderedDict, *, write: bool) -> None:
        """Takes the state after a round whose rows are written.

        With `write` its checkpoint is written now, else only if the run is interrupted (`saved_if_interrupted`).

        The state is not copied: until the next round is finished the arrays that this one replaces stay in memory.
        """
        copies = {name: list(value) for name, value in program_state.items() if isinstance(value, list)}
        self._finished = round_num, OrderedDict(program_state, **copies, memory=program_state["memory"].snapshot())
        if write:
            self.save(round_num, program_state)
            self._finished = round_num, OrderedDict(program_state, **copies, memory=program_state["memory"].snapshot())

    @contextlib.contextmanager
    def saved_if_interrupted(self) -> Iterator[None]:
        """Within it Ctrl-C, SIGTERM and an error of the runtime leave a checkpoint of the last finished round.

        A second Ctrl-C ends the writing; what was there before is still whole.
        """
        try:
            yield
        except (KeyboardInterrupt, SystemExit, RuntimeProblem) as end:
            if self._finished is not None:
                end.add_note(self._keep_finished())
            raise

    def _keep_finished(self) -> str:
        """Writes the checkpoint of the last finished round, if it is missing, and says what was done in one line."""
        round_num, state = self._finished
        try:
            self.close()
            self._loop = asyncio.new_event_loop()
            if round_num not in (self._run(self._states.get_versions()) or []):
                self.save(round_num, state)
        except (UserError, OSError) as error:
            return f"interrupted, and the checkpoint of round {round_num} cannot be written: {error}"
        return RUN_INTERRUPTED.log(_log, round=round_num)

    def load_latest(self, structure: OrderedDict, *, resume: bool = True):
        """Returns (state, round) of the newest checkpoint, or (None, 0), and repairs the CSV files from its record.

        Args:
          structure: a state of the same structure.
          resume: whether training continues, which needs the rows of all earlier rounds.

        Raises:
          UserError: the newest checkpoint cannot be read, or is of another recipe, partition or examples, or a file is
            damaged and it cannot repair it.
        """
        versions = self._run(self._states.get_versions()) or []
        if not versions:
            if resume:
                begin_anew(self._folder)
            return None, 0
        newest = max(versions)
        state, record = self._load(newest, structure)
        require_same_run(record, self._folder, self._data)
        repair(record, self._folder, newest)
        return state, newest

    def _load(self, version: int, structure: OrderedDict) -> tuple[OrderedDict, RunRecord]:
        """A checkpoint and its record."""
        try:
            without = _without_memory(structure)
            empty = OrderedDict(blank(without), **{_RECORD: np.zeros(0, np.uint8)})
            state = self._run(self._states.load(version, empty))
            record = RunRecord.unpacked(state.pop(_RECORD))
            memory = structure["memory"].snapshot()
            memory.read(self._folder.checkpoints, record.client_states)
            return OrderedDict(unpacked(state, without), memory=memory), record
        except UserError as error:
            raise UserError(f"{self._path(version)}: {error}") from None
        except Exception as error:
            raise UserError(
                f"{self._path(version)}: cannot be read ({type(error).__name__}); remove it to "
                "continue from the checkpoint before"
            ) from None

    def _path(self, version: int) -> Path:
        return self._folder.checkpoints / f"{_PREFIX}{version}"

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


def _without_memory(program_state: OrderedDict) -> OrderedDict:
    """A state without those of the clients, which are in files of their own."""
    return OrderedDict((name, value) for name, value in program_state.items() if name != "memory")


def latest_round(folder: RunFolder) -> int:
    """The round of the newest checkpoint, from the names of the files, or 0 without a checkpoint."""
    names = (path.name.removeprefix(_PREFIX) for path in folder.checkpoints.glob(f"{_PREFIX}*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


@contextlib.contextmanager
def _translated(folder: Path):
    """TensorFlow's own errors for a full disk, as UserError with the remedy."""
    try:
        yield
    except tf.errors.OpError as error:
        if re.search(r"No space left|[Dd]isk quota|File too large", error.message or ""):
            raise UserError(f"{folder}: the disk is full; free some space, then continue with --resume") from None
        raise
