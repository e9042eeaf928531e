"""A run's folder as it is now, while another process may train in it. Imports no TensorFlow and writes nothing."""

from __future__ import annotations

import fcntl
import math
import os
import statistics
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import (
    clients_at_sites,
    read_answers,
    read_history,
    read_recipe,
    read_summary,
    read_table,
)
from tff_re.runtime import events
from tff_re.runtime.logs import LogLine, read_line

TRAINING, FINISHED, IDLE = "training", "finished", "not running"
"""The states of a run."""

SECONDS = ("seconds/training", "seconds/evaluation")
"""The columns of timings.csv."""

_RECENT_ROUNDS = 20
_LOG_LINES = 40


@dataclass
class LiveLog:
    """What a run's log has said so far.

    Attributes:
      lines: the last lines with fixed words.
      left_out: how many lines have no fixed words, such as notes and errors.
      counts: (event, level) -> number of lines.
      last: event -> the fields of its last line.
      stages: (purpose, stage) -> round -> fields of `stage.finished`.
    """

    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))
    left_out: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Takes a further line of the log."""
        line = read_line(text, events.EVENTS)
        if line is None:
            self.left_out += bool(text.strip())
            return
        name, values = line.event.name, line.values
        self.counts[name, line.level] += 1
        self.last[name] = values
        if name == events.STAGE_FINISHED.name and None not in values.values():
            self.stages.setdefault((values["purpose"], values["stage"]), {})[values["round"]] = values
        if line.event.is_fixed:
            self.lines.append(line)
        else:
            self.left_out += 1


class _Follower:
    """Reads what is appended to a log."""

    def __init__(self, path: Path):
        self._path, self._file, self._offset, self.log = path, None, 0, LiveLog()

    def read(self) -> LiveLog:
        """The log so far, without a last line that is not whole yet."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._offset:
                    self._file, self._offset, self.log = status.st_ino, 0, LiveLog()
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    self.log.add(line.decode("utf-8", "replace").rstrip("\r\n"))
        except FileNotFoundError:
            self._file, self._offset, self.log = None, 0, LiveLog()
        return self.log


@dataclass(frozen=True)
class LiveRun:
    """A run's folder at one moment.

    Attributes:
      recipe: the tables of recipe.toml.
      state: `TRAINING`, `FINISHED` or `IDLE`.
      history: rows of metrics.csv.
      timings: round -> the seconds of its training and evaluation, where they are known.
      answers: rows of answers.csv: round, attempt, client, outcome.
      took_part: round -> the sites whose answers count.
      sites: site -> (clients, training examples).
      log: what the log has said.
      summary: summary.json of a finished run; None before.
      changed: when metrics.csv was written last, in seconds since 1970; None before the first round.
      now: the moment.
    """

    recipe: Mapping[str, Any]
    state: str
    history: list[dict[str, float]]
    timings: Mapping[int, Mapping[str, float]]
    answers: list[list[str]]
    took_part: Mapping[int, list[str]]
    sites: Mapping[str, tuple[int, int]]
    log: LiveLog
    summary: Mapping[str, Any] | None
    changed: float | None
    now: float

    @property
    def title(self) -> str:
        """The recipe and the seed."""
        return f"{self.recipe.get('name', 'run')}, seed {self.recipe.get('seed', '?')}"

    @property
    def rounds(self) -> int:
        """The number of rounds of the recipe."""
        return int(self.recipe.get("training", {}).get("rounds", 0))

    @property
    def done(self) -> int:
        """The last round whose row is written."""
        return int(self.history[-1]["round"]) if self.history else 0

    @property
    def last(self) -> dict[str, float]:
        """The last value of each metric."""
        values: dict[str, float] = {}
        for row in self.history:
            values |= row
        values.pop("round", None)
        return values

    @property
    def seconds_a_round(self) -> float | None:
        """The mean seconds of the last rounds, training and evaluation together, or None before the first."""
        recent = [sum(self.timings[number].values()) for number in sorted(self.timings)[-_RECENT_ROUNDS:]]
        return statistics.fmean(recent) if recent else None

    @property
    def end(self) -> float | None:
        """The estimated end in seconds since 1970, at the latest, or None unless the run is training."""
        each = self.seconds_a_round
        if self.state != TRAINING or each is None or self.changed is None:
            return None
        return max(self.changed + each * (self.rounds - self.done), self.now)

    @property
    def bytes_of_client(self) -> tuple[int, int] | None:
        """(bytes down, bytes up) of a client and round, or None if neither the summary nor the log says."""
        if self.summary is not None:
            down, up = (self.summary[f"bytes_{way}_per_client_and_round"] for way in ("down", "up"))
            return int(down), int(up)
        begun = self.log.last.get(events.RUN_BEGUN.name, {})
        down, up = begun.get("bytes_down"), begun.get("bytes_up")
        return None if down is None or up is None else (down, up)


class LiveFolder:
    """A run's folder that is read again and again."""

    def __init__(self, path: Path):
        """Raises UserError unless the folder holds a run."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is a file; give the folder of a run")
        self._folder = RunFolder(path)
        self._folder.require_run()
        self._log = _Follower(self._folder.log)

    def read(self) -> LiveRun:
        """The run at this moment.

        Raises:
          UserError: a file of it is damaged; OSError: it cannot be read.
        """
        folder = self._folder
        recipe, history = read_recipe(folder), read_history(folder)
        timings = {int(row.pop("round")): row for row in read_table(folder.timings, "round")}
        took_part = read_table(folder.took_part, "round", "sites")
        sites: dict[str, tuple[int, int]] = {}
        for site, examples in clients_at_sites(folder) if folder.sites.exists() else ():
            clients, before = sites.get(site, (0, 0))
            sites[site] = clients + 1, before + examples
        ends = folder.summary.exists()
        works = _is_locked(folder.lock)
        rounds = int(recipe.get("training", {}).get("rounds", 0))
        finished = ends and not (works and len(history) < rounds)
        return LiveRun(
            recipe=recipe,
            state=FINISHED if finished else TRAINING if works else IDLE,
            history=history,
            timings={number: _known(row) for number, row in timings.items()},
            answers=read_answers(folder),
            took_part={int(row["round"]): str(row["sites"]).split() for row in took_part},
            sites=sites,
            log=self._log.read(),
            summary=read_summary(folder) if finished else None,
            changed=folder.metrics.stat().st_mtime if history else None,
            now=time.time(),
        )


def _known(row: Mapping[str, float]) -> dict[str, float]:
    return {name: row[name] for name in SECONDS if math.isfinite(row.get(name, math.nan))}


def _is_locked(lock: Path) -> bool:
    """Whether a process works in the folder: its lock is tried for a moment, as a reader."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
