"""A worker process of a comparison, which does one run after the other for the process that started it.

Orders come and reports go through the socket whose number is the program's argument. The process ends when the other
end is closed, which also happens when the process that started it is killed. Then nobody is left to kill a process that
does not end, so the kernel does.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import queue
import signal
import sys
import threading
import tomllib
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from computations.errors import CompositionError
from datasets.errors import DataError
from tff_re.comparison.planning import PlannedRun
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, resolve
from tff_re.runtime import RuntimeProblem, install_signal_handlers, require_runtime
from tff_re.runtime.base import limit_cores
from tff_re.runtime.quiet import be_quiet, collect_garbage_seldom
from tff_re.tasks.data_paths import DataPaths

if TYPE_CHECKING:
    from tff_re.comparison.suite import Suite

GRACE = 3.0
"""Seconds that a worker has to end a run that is interrupted."""

_EXPECTED = (UserError, DataError, RuntimeProblem, CompositionError, OSError)
"""Errors whose text is for the user."""


@dataclass(frozen=True)
class SetUp:
    """The first message to a worker.

    Attributes:
      data_paths: where the data are.
      runtime_name, clients, resume, check: see `RunsHere`.
      cores: that it computes with; a pool of workers sets them.
    """

    data_paths: DataPaths
    runtime_name: str
    clients: int | None
    resume: bool
    check: Suite | None
    cores: int = 1


@dataclass(frozen=True)
class Naming:
    """Asks for the metrics of a recipe.

    It is sent as TOML, since classes of options that are made by a function cannot be pickled.
    """

    toml: str
    source: str

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return resolve(tomllib.loads(self.toml), self.source)


@dataclass(frozen=True)
class Order(Naming):
    """Asks for a run, see `PlannedRun`.

    `log_path`: of the worker's runtime. `again`: whether another worker began the run and was lost.
    """

    folder: Path
    in_sweep: bool
    log_path: Path
    again: bool = False


def main() -> None:
    """Works until the other end of the socket is closed."""
    be_quiet()
    collect_garbage_seldom()
    install_signal_handlers()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # so that `_Link`'s timer ends this process, whatever was inherited
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    link = _Link(Connection(number))
    set_up = link.next_message()
    if set_up is not None:
        with contextlib.redirect_stderr(_Said(link)):
            _serve(link, set_up)


def _serve(link: _Link, set_up: SetUp) -> None:
    limit_cores(set_up.cores)  # before TensorFlow is imported
    from tff_re.comparison.outcome import RunsHere
    from tff_re.runs.experiment import ExperimentBuilder
    from tff_re.runs.folder import permissions

    require_runtime(set_up.runtime_name, clients=set_up.clients)
    runs = RunsHere(
        ExperimentBuilder(set_up.data_paths),
        runtime_name=set_up.runtime_name,
        clients=set_up.clients,
        resume=set_up.resume,
        check=set_up.check,
        on_round=lambda report: link.send("round", report),
    )
    with permissions(), contextlib.ExitStack() as stack:
        opened = False
        while (message := link.next_message()) is not None:
            try:
                if isinstance(message, Order) and not opened:
                    stack.enter_context(runs.opened(message.log_path))
                    opened = True
                answer = "ended", _answer(runs, message)
            except Exception as error:
                answer = "failed", _sendable(error)
            link.send(*answer)


def _answer(runs, message: Naming) -> Any:
    if not isinstance(message, Order):
        return runs.metric_names(message.recipe)
    run = PlannedRun("", message.recipe, message.folder, in_sweep=message.in_sweep)
    return runs.trained(run, again=message.again)


def _sendable(error: Exception) -> Exception:
    """The error, or a RuntimeProblem with its text if it cannot be pickled.

    A defect has its traceback as a note.
    """
    if not isinstance(error, _EXPECTED):
        error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    with contextlib.suppress(Exception):  # whatever a class does when it is pickled
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    return RuntimeProblem(str(error) if isinstance(error, _EXPECTED) else "\n".join([repr(error), *error.__notes__]))


class _Link:
    """The way to the process that started this one."""

    def __init__(self, connection: Connection):
        self._connection, self._messages = connection, queue.SimpleQueue()
        self._sending = threading.Lock()
        self._waits = True
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def next_message(self) -> Any:
        """Waits for the next message, or None if there will be no more."""
        self._waits = True
        message = self._messages.get()
        self._waits = message is None
        return message

    def send(self, kind: str, value: Any) -> None:
        """Sends a report, or ends this process if nobody is there to read it."""
        try:
            with self._sending:
                self._connection.send(kind)  # apart, for those who pass the value on without reading it
                self._connection.send(value)
        except OSError:
            raise SystemExit(128 + signal.SIGTERM) from None

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._messages.put(self._connection.recv())
        # The kernel's timer, since no thread of Python runs any more once the interpreter is ending, which may hang.
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        self._messages.put(None)
        if not self._waits:  # so that locks and the runtime's worker are released
            os.kill(os.getpid(), signal.SIGTERM)


class _Said(io.TextIOBase):
    """Standard error of a worker: whole lines are sent, and printed once by the process that started it."""

    def __init__(self, link: _Link):
        self._link, self._line = link, ""

    def write(self, text: str) -> int:
        """Sends the lines that the text ends."""
        *lines, self._line = (self._line + text).split("\n")
        for line in filter(None, lines):
            self._link.send("said", line)
        return len(text)

    def flush(self) -> None:
        """Sends the rest of a line."""
        if self._line:
            self._link.send("said", self._line)
            self._line = ""
