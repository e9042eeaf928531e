"""The runs of a comparison on the workers of a Dask cluster (`compare --cluster`).

`cluster_node` is what the workers do. Which worker does which run is decided here and not by Dask: runs that share data
or compiled computations stay together, as with `parallel.Workers`. Workers that join while runs are left take some, and
the run of a worker that is lost is repeated by another worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
import queue
import re
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_re.comparison import cluster_node
from tff_re.comparison.cluster_node import FORWARDED, Answer, Start, look, versions
from tff_re.comparison.planning import Watcher
from tff_re.comparison.pool import Event, Pool
from tff_re.comparison.worker import GRACE, SetUp
from tff_re.errors import UserError

if TYPE_CHECKING:  # it imports TensorFlow
    from tff_re.comparison.outcome import RunsHere

CONNECT_SECONDS = 10.0
"""Until a scheduler has answered."""

ANSWER_SECONDS = 60.0
"""Until a worker has answered what takes it no time, or until one is there at all."""

TICK = 1.0
"""Seconds between two looks at which workers there are."""

MOST_ATTEMPTS = 3
"""Workers that a run may lose."""

_KEPT = "finished runs are kept, continue with --resume"


def connect(address: str) -> Any:
    """A client of the Dask cluster whose scheduler has this address.

    Raises:
      UserError: it has no form of an address, Dask is not installed, or nobody answers.
    """
    if not re.fullmatch(r"(tcp|tls)://[^/\s]+:\d+", address):
        raise UserError(f"--cluster {address}: must be a scheduler's address, e.g. tcp://node1:8786")
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs Dask; run: pip install 'distributed>=2026.8'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it says of lost workers is said here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of packages that this command does not use
            return Client(address, timeout=CONNECT_SECONDS, set_as_default=False, name="tff-re")
    except (OSError, ValueError) as error:  # TimeoutError among them; ValueError: a host that is none
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"--cluster {address}: no scheduler answers there ({reason})") from None


class Remote:
    """A worker of the cluster, see `pool.Worker`.

    Attributes:
      address: as Dask has it.
      cores: that it computes with.
      future: of its run; None: it waits.
    """

    def __init__(self, address: str, cores: int, submit: Any):
        self.address, self.cores, self._submit = address, cores, submit
        self.busy_with: str | None = None
        self.number: int | None = None
        self.future: Any = None
        self.rounds = 0  # of its run, that are heard of

    def send(self, message: Any, what: str | None) -> None:
        """See `pool.Worker`."""
        self.busy_with = what
        self.future = self._submit(self, message)


class Cluster(Pool):
    """Does the runs of a comparison on a cluster whose workers share the file system with this process."""

    def __init__(self, here: RunsHere, address: str, set_up: SetUp, watcher: Watcher):
        """Args:
        here: reads the runs that are finished.
        address: of Dask's scheduler.
        set_up: of the processes.
        watcher: is told of all runs.

        Raises:
          UserError: see `connect`.
        """
        super().__init__(here, watcher)
        self._set_up, self._address, self._comparison = set_up, address, f"tff-re-{uuid.uuid4().hex[:12]}"
        self._seen: str | None = None
        self._workers: dict[str, Remote] = {}
        self._refused: set[str] = set()
        self._lost: Counter[int] = Counter()
        self._rounds: Counter[int] = Counter()
        self._messages: queue.SimpleQueue[tuple[str, str, bytes]] = queue.SimpleQueue()
        self._ready: deque[Event] = deque()
        self._looked = self._answered = time.monotonic()
        self._client = connect(address)
        self._client.subscribe_topic(self._comparison, lambda event: self._messages.put(tuple(event[1])))

    def close(self) -> None:
        """Ends the processes on the workers, and runs that are under way."""
        with contextlib.suppress(Exception):  # whatever Dask raises where the cluster is gone
            for worker in self._workers.values():
                if worker.future is not None:
                    worker.future.cancel()
            ends = [
                self._client.submit(cluster_node.end, self._comparison, **self._on(worker, "end"))
                for worker in self._workers.values()
            ]
            deadline = time.monotonic() + 2 * GRACE
            for end in ends:
                end.result(timeout=max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(Exception):
            self._client.close(timeout=GRACE)

    @contextlib.contextmanager
    def opened(self, log_path: Path) -> Iterator[None]:
        """With a file next to the log that tells workers of the same file system from others."""
        mark = log_path.with_name(".cluster")
        mark.write_text(self._comparison, "utf-8")
        try:
            self._seen = os.fspath(mark)
            self._fitting(list(self._workers.values()), first=True)
            with super().opened(log_path):
                yield
        finally:
            mark.unlink(missing_ok=True)

    def _first_workers(self):
        """Returns all workers of the cluster, after waiting for the first one if there is none."""
        self._answered = time.monotonic()
        self._ready.clear()  # of workers that are in the list
        while True:
            cores = self._cores()
            self._workers = {address: worker for address, worker in self._workers.items() if address in cores}
            joined = self._fitting(self._new(cores), first=not self._workers)
            self._workers |= {worker.address: worker for worker in joined}
            if self._workers:
                self._watcher.at_once(len(self._workers))
                return list(self._workers.values())
            if time.monotonic() > self._answered + ANSWER_SECONDS:
                raise UserError(f"--cluster {self._address}: has no worker; start some with `dask worker`")
            time.sleep(TICK)

    def _started(self, number):
        return self._first_workers()

    def _next_event(self):
        while not self._ready:
            if time.monotonic() > self._looked + TICK:
                self._look()
                continue
            with contextlib.suppress(queue.Empty):
                self._hear(*self._messages.get(timeout=TICK))
        return self._ready.popleft()

    # What is heard

    def _hear(self, key: str, kind: str, value: bytes) -> None:
        worker = next((w for w in self._workers.values() if w.future is not None and w.future.key == key), None)
        if worker is None:
            return  # of a run that was given up
        if kind != "done":
            self._tell(worker, kind, value)
            return
        future, worker.future = worker.future, None
        try:
            answer: Answer = future.result(timeout=ANSWER_SECONDS)
        except Exception as error:  # a lost worker has many names, and its run is repeated whatever it was
            self._lose(worker, " ".join(str(error).split()) or type(error).__name__)
            return
        for report in answer.reports:  # those that the topic has not brought yet
            self._tell(worker, "round", report)
        if answer.kind == "lost":
            self._lose(worker, pickle.loads(answer.value), stays=True)
        else:
            self._ready.append(Event(worker, answer.kind, pickle.loads(answer.value)))

    def _tell(self, worker: Remote, kind: str, value: bytes) -> None:
        """A report, unless the same round was heard of before: of a run that is repeated, or in another order."""
        content = pickle.loads(value)
        if kind == "round":
            if worker.number is None or content.round <= self._rounds[worker.number]:
                return
            self._rounds[worker.number] = content.round
        self._ready.append(Event(worker, kind, content))

    # Which workers there are

    def _look(self) -> None:
        """Notes which workers are gone and which have joined."""
        cores, self._looked = self._cores(), time.monotonic()
        for worker in [worker for address, worker in self._workers.items() if address not in cores]:
            if worker.future is not None:
                worker.future.cancel()
            self._lose(worker, "it is gone")
        for worker in self._fitting(self._new(cores)):
            self._workers[worker.address] = worker
            self._ready.append(Event(worker, "joined"))
            self._watcher.at_once(len(self._workers))
        if self._workers:
            self._answered = self._looked
        elif self._looked > self._answered + ANSWER_SECONDS:
            raise UserError(f"--cluster {self._address}: all workers are gone; {_KEPT}")

    def _cores(self) -> dict[str, int]:
        """Address -> number of cores of each worker. Raises UserError if the scheduler is gone."""
        try:
            return self._client.nthreads()
        except Exception as error:  # a scheduler that is gone has many names
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"--cluster {self._address}: the scheduler is gone ({reason}); {_KEPT}") from None

    def _new(self, cores: dict[str, int]) -> list[Remote]:
        """Workers that are not known yet."""
        known = self._workers.keys() | self._refused
        return [Remote(address, number, self._submit) for address, number in cores.items() if address not in known]

    def _lose(self, worker: Remote, reason: str, *, stays: bool = False) -> None:
        """Notes that a worker is lost, with its run.

        `stays`: only its process is lost, and the worker can start a new one.
        """
        worker.future = None
        self._workers.pop(worker.address, None)
        if worker.busy_with is not None:
            lost = f"{worker.busy_with}: worker {worker.address} was lost ({reason})"
            if worker.number is not None:
                self._lost[worker.number] += 1
                if self._lost[worker.number] == MOST_ATTEMPTS:
                    raise UserError(f"{lost}, as were {MOST_ATTEMPTS - 1} before with this run; {_KEPT}")
                self._say(f"{lost}; the run is repeated")
        self._ready.append(Event(worker, "lost", reason))
        if stays:
            again = Remote(worker.address, worker.cores, self._submit)
            self._workers[worker.address] = again
            self._ready.append(Event(again, "joined"))

    # What workers are asked

    def _fitting(self, workers: list[Remote], *, first: bool = False) -> list[Remote]:
        """Those of the workers that can do this comparison's runs.

        Each other worker gets a line, and is a UserError if it is among the `first`.
        """
        submit = self._client.submit
        looks = {w: submit(look, os.getcwd(), self._seen, self._comparison, **self._on(w, "look")) for w in workers}
        fitting = []
        for worker, future in looks.items():
            problem = self._problem(future)
            line = f"--cluster {self._address}: worker {worker.address} {problem}"
            if problem and first:
                raise UserError(line)
            if problem:
                self._refused.add(worker.address)
                self._say(f"{line}; it is not used")
            else:
                fitting.append(worker)
        return fitting

    def _problem(self, future: Any) -> str:
        """Returns why a worker cannot do these runs, or '' if it can.

        `future`: of its `look`.
        """
        try:
            theirs = future.result(timeout=ANSWER_SECONDS)
        except ImportError as error:
            return f"cannot import {error.name}; install the same tff-re there"
        except Exception as error:  # whatever the worker's environment raises
            return f"does not answer ({' '.join(str(error).split()) or type(error).__name__})"
        ours = versions()
        if theirs["processor"] != ours["processor"]:
            self._say("workers have other processors than this machine; last digits may differ (values.csv)")
        other = [name for name in ours if name != "processor" and theirs.get(name) != ours[name]]
        if other and not theirs["problem"]:
            there, here = (names.get(other[0]) or "unknown" for names in (theirs, ours))
            return f"has another {other[0]} ({there}) than this command ({here})"
        return theirs["problem"]

    def _submit(self, worker: Remote, message: Any) -> Any:
        """The future of an order, see `worker.Naming`."""
        variables = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        set_up = pickle.dumps(dataclasses.replace(self._set_up, cores=worker.cores))
        start = Start(self._comparison, os.getcwd(), variables, set_up)
        name = "data" if worker.number is None else message.folder.name
        future = self._client.submit(cluster_node.run, start, pickle.dumps(message), **self._on(worker, name))
        future.add_done_callback(lambda done: self._messages.put((done.key, "done", b"")))
        return future

    def _on(self, worker: Remote, name: str) -> dict[str, Any]:
        """How a task is submitted that this worker does, and no other."""
        key = f"{self._comparison}-{name}-{uuid.uuid4().hex[:8]}"
        where = {"workers": [worker.address], "allow_other_workers": False}
        return {**where, "key": key, "pure": False, "retries": 0}
