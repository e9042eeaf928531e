"""A tracking service as a run sees it: a process that is fed lines and may fail, hang or be killed."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

MAX_QUEUED = 1000
"""Rounds that a tracker may be behind."""

SECONDS_AT_END = 15.0
"""How long a finished run waits for its trackers, all together."""


class TrackingEnded(Exception):
    """Why a service no longer tracks the run, as the end of the sentence "mlflow …"."""


class Tracker:
    """A process of `tracker_process` for one service, and the thread that feeds it from a bounded queue.

    A process, because the services' packages retry for minutes, capture output, ask for passwords and wait when Python
    exits. None of this can reach the run: whatever happens, the process is killed `SECONDS_AT_END` after training.
    """

    def __init__(self, service: str, first_lines: str):
        """Raises OSError if the process cannot be started."""
        self.service = service
        self._queue: queue.Queue[str | None] = queue.Queue(MAX_QUEUED)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tff_re.runs.features.tracker_process", service],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the run
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        self._deadline = 0.0
        self.send(first_lines)
        threading.Thread(target=self._feed, name=f"track {service}", daemon=True).start()

    def send(self, line: str) -> None:
        """Queues a line and returns at once.

        Raises TrackingEnded if the process has ended or is too far behind.
        """
        if self._process.poll() is not None:
            raise TrackingEnded(self._report())
        self._put(line)

    def finish(self, last_line: str) -> None:
        """Queues the last line, whose arrival `wait` reports."""
        self._deadline = time.monotonic() + SECONDS_AT_END
        with contextlib.suppress(TrackingEnded):
            self._put(last_line)
            self._put(None)

    def wait(self) -> None:
        """Waits until the process has ended, at most `SECONDS_AT_END` after `finish`.

        Raises:
          TrackingEnded: it failed, or did not end in this time.
        """
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TrackingEnded(f"did not accept all rounds within {SECONDS_AT_END:g} seconds after the end") from None
        finally:
            self.kill()
        if self._process.returncode:
            raise TrackingEnded(self._report())

    def kill(self) -> None:
        """Ends the process, those that it started, and the thread."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(queue.Full):  # then the thread is writing, which fails without the process
            self._queue.put_nowait(None)

    def _put(self, line: str | None) -> None:
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            raise TrackingEnded(f"cannot keep up: {MAX_QUEUED} rounds are waiting") from None

    def _feed(self) -> None:
        with contextlib.suppress(OSError), self._process.stdin as pipe:  # a broken pipe: `send` or `wait` says why
            while (line := self._queue.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _report(self) -> str:
        """What the process said when it ended."""
        said = self._process.stdout.read().strip()
        return f"failed ({said or f'exit code {self._process.returncode}'})"
