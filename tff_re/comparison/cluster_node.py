"""What a worker of a Dask cluster does for a comparison: it keeps a process that does one run after the other.

Not in Dask's own process, so that a run can be interrupted, has all settings that must precede TensorFlow's import, and
takes its memory with it when the comparison ends. Dask's process imports no TensorFlow and reads no message of ours.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tff_re.comparison.parallel import WorkerProcess
from tff_re.comparison.worker import GRACE
from tff_re.errors import UserError
from tff_re.runs.folder import PACKAGES, environment

FORWARDED = (
    *("TFF_RE_DATA", "TF_NUM_INTRAOP_THREADS"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
)
"""Environment variables that are on all workers as they are where the comparison was started.

Dask sets the numbers of threads to 1 for its workers, and they may decide on last digits.
"""

IDLE_SECONDS = 600.0
"""After so long without a run a process ends by itself, in case the comparison was killed."""

_TICK = 0.5
"""Most seconds between two looks at whether a run is still wanted."""


@dataclass(frozen=True)
class Start:
    """How a comparison's process is started.

    Attributes:
      comparison: an identifier.
      folder: that the process works in.
      environment: values of `FORWARDED`; a variable that is not in it is not set.
      set_up: pickled, see `worker.SetUp`.
    """

    comparison: str
    folder: str
    environment: Mapping[str, str]
    set_up: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What came of a run.

    Attributes:
      kind: `ended`, `failed` or `lost`.
      value: pickled; of a lost process a text.
      reports: those of the rounds, pickled.
    """

    kind: str
    value: bytes = field(repr=False)
    reports: tuple[bytes, ...] = field(default=(), repr=False)


def look(folder: str, seen: str | None, comparison: str) -> dict[str, str]:
    """What a worker has: versions and processor, and what is wrong with its view of the file system.

    `seen`: a file that it should see, whose text is `comparison`; None: not asked.
    """
    problem = ""
    if not Path(folder).is_dir():
        problem = f"has no folder {folder}"
    elif seen is not None and _text(Path(folder) / seen) != comparison:
        problem = f"does not share the file system of {Path(seen).parent}"
    return {"problem": problem, **versions()}


def _text(path: Path) -> str | None:
    """Returns a file's text, or None if this worker does not see the file."""
    try:
        return path.read_text("utf-8")
    except OSError:
        return None


def versions() -> dict[str, str]:
    """What must be equal on all workers, and `processor`, which decides on last digits."""
    details = environment()
    python = ".".join(platform.python_version_tuple()[:2])
    names = ("tff-re", "commit", *PACKAGES, "processor")
    return {"python": python, **{name: str(details[name]) for name in names}}


def run(start: Start, order: bytes) -> Answer:
    """Does an order (see `worker`) in this comparison's process, which is started if need be.

    A task of Dask.
    """
    from distributed import get_worker

    here = get_worker()
    key = here.get_current_task()

    def wanted() -> bool:
        task = here.state.tasks.get(key)
        return task is not None and task.state == "executing"

    return do(start, order, lambda kind, value: here.log_event(start.comparison, (key, kind, value)), wanted)


def do(start: Start, order: bytes, report: Callable[[str, bytes], None], wanted: Callable[[], bool]) -> Answer:
    """See `run`.

    Args:
      start, order: see `run`.
      report: is called with each message on the way and its value, pickled.
      wanted: whether the run still is.
    """
    slot = _Slot.for_comparison(start.comparison)
    with slot.lock:
        try:
            process = slot.started(start)
            process.send(order, "a run")
        except UserError as error:
            slot.end()  # so that the next order gets another process
            return Answer("lost", pickle.dumps(str(error)))
        except OSError as error:
            failed = UserError(f"a worker on {platform.node()} cannot start a process: {error.strerror}")
            return Answer("failed", pickle.dumps(failed))
        reports = []
        try:
            while True:
                heard = process.connection.poll(_TICK)
                if not wanted():  # also asked of a run that is never silent for a tick
                    slot.end()
                    return Answer("lost", pickle.dumps("it is no longer wanted"))
                if not heard:
                    continue
                kind, value = process.connection.recv(), process.connection.recv_bytes()
                if kind in ("ended", "failed"):
                    slot.rest()
                    return Answer(kind, value, tuple(reports))
                if kind == "round":
                    reports.append(value)
                report(kind, value)
        except (EOFError, OSError):
            how = f"its process {process.how_it_ended()}" if slot.process is process else "it was ended"
            slot.end()
            return Answer("lost", pickle.dumps(how), tuple(reports))


def end(comparison: str) -> None:
    """Ends a comparison's process, and a run that is under way. None is started any more.

    A task of Dask.
    """
    _Slot.for_comparison(comparison).close()


class _Slot:
    """A comparison's process in this worker.

    A worker keeps the slots of comparisons that have ended, without a process.

    Attributes:
      lock: held by the one order that it does.
      process: None: it is not started.
    """

    all: ClassVar[dict[str, _Slot]] = {}
    _making = threading.Lock()

    def __init__(self) -> None:
        self.lock, self._ending = threading.Lock(), threading.Lock()
        self.process: WorkerProcess | None = None
        self._closed = False
        self._timer: threading.Timer | None = None

    @classmethod
    def for_comparison(cls, comparison: str) -> _Slot:
        """Returns the slot of a comparison, made if need be."""
        with cls._making:
            return cls.all.setdefault(comparison, cls())

    def started(self, start: Start) -> WorkerProcess:
        """The process, started if need be.

        Raises:
          OSError: it cannot be started.
          UserError: the comparison has ended.
        """
        with self._ending:
            if self._closed:
                raise UserError("the comparison has ended")
            if self._timer is not None:
                self._timer.cancel()
            if self.process is None:
                variables = {name: value for name, value in os.environ.items() if name not in FORWARDED}
                self.process = WorkerProcess(start.set_up, Path(start.folder), {**variables, **start.environment})
            return self.process

    def rest(self) -> None:
        """It has no run for now."""
        with self._ending:
            if self.process is None:
                return
            self.process.busy_with = None
            self._timer = threading.Timer(IDLE_SECONDS, self.end)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Ends the process, and starts none any more."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """Ends the process."""
        with self._ending:
            process, self.process = self.process, None
            if self._timer is not None:
                self._timer.cancel()
            if process is not None:
                with contextlib.suppress(OSError):
                    process.ask_to_end()
                process.wait(time.monotonic() + GRACE)
                process.kill()
