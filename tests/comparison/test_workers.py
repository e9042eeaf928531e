"""Worker processes of a comparison: which run goes where, what is heard of it, and that none is left behind."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tff_re.comparison import parallel
from tff_re.comparison.planning import InOrder, Part, PlannedRun, Watcher, shares
from tff_re.comparison.worker import SetUp, _sendable
from tff_re.errors import Diverged, UserError
from tff_re.runtime import RuntimeProblem, WorkerDied
from tff_re.runtime.base import cores_to_use, limit_cores, threads_an_operation, usable_cores
from tff_re.tasks.data_paths import DataPaths

ROOT = Path(__file__).parents[2]


def planned(folder, seed=0, *, unit="entry", task="task", frozen=0):
    """A run of a recipe that is none."""
    model = SimpleNamespace(frozen_layers=frozen)
    recipe = SimpleNamespace(
        **{"task": task, "partition": "iid", "seed": seed, "source": "r.toml", "to_toml": str},
        **{"model": _Model(model), "training": SimpleNamespace(rounds=2)},
    )
    return PlannedRun(folder.name, recipe, folder, (unit, 0))


class _Model:
    """A model's choice: those with equal options are equal."""

    def __init__(self, options):
        self.options = options

    def __hash__(self):
        return 0

    def __eq__(self, other):
        return self.options == other.options


def workers(jobs, watcher):
    """Workers that find no finished runs."""
    here = SimpleNamespace(finished=lambda run: None)
    set_up = SetUp(DataPaths(), "in-process", clients=None, resume=False, check=None)
    return parallel.Workers(here, jobs, set_up, watcher)


class Heard(Watcher):
    """Keeps what a watcher is told."""

    def __init__(self):
        self.events = []

    def plan(self, runs):
        self.events.append(("plan", len(runs)))

    def begin(self, number):
        self.events.append(("begin", number))

    def round(self, number, report):
        self.events.append(("round", number, report))

    def end(self, number):
        self.events.append(("end", number))


@pytest.fixture
def started(monkeypatch):
    """Starts stub workers, and ends them with the test."""
    monkeypatch.setattr(parallel, "_PROGRAM", "from tests.comparison.stub_worker import main; main()")
    monkeypatch.setattr(parallel, "GRACE", 0.5)
    with contextlib.ExitStack() as stack:
        yield lambda jobs, watcher=None: stack.enter_context(contextlib.closing(workers(jobs, watcher or Watcher())))


def pid_of(folder):
    return int(folder.with_name(f"{folder.name}.pid").read_text("utf-8") or 0)


def alive(pid):
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Which run goes where


def grid(tmp_path, entries, seeds, **options):
    return [planned(tmp_path / entry, seed, unit=entry, **options) for seed in seeds for entry in entries]


def names(runs, part):
    return [f"{runs[index].title}{runs[index].recipe.seed}" for index in part]


def test_the_seeds_of_an_entry_stay_together_and_numbers_differ_by_one_at_most(tmp_path):
    runs = grid(tmp_path, "abc", (0, 1))
    assert [names(runs, part) for part in shares(runs, 2)] == [["a0", "b0", "a1"], ["c0", "b1", "c1"]]
    assert [names(runs, part) for part in shares(runs, 3)] == [["a0", "a1"], ["b0", "b1"], ["c0", "c1"]]
    assert [len(part) for part in shares(runs, 4)] == [2, 2, 1, 1]
    assert sorted(index for part in shares(runs, 4) for index in part) == list(range(6))
    assert [len(part) for part in shares(runs[:2], 3)] == [1, 1, 0]


def test_the_outputs_of_frozen_layers_are_computed_by_one_worker(tmp_path):
    runs = grid(tmp_path, "abc", (0, 1), frozen=2)
    assert [names(runs, part) for part in shares(runs, 2)] == [["a0", "b0", "c0"], ["a1", "b1", "c1"]]


def test_entries_on_the_same_data_stay_together(tmp_path):
    runs = [planned(tmp_path / entry, unit=entry, task=task) for entry, task in zip("abcd", "xyxy", strict=True)]
    assert [names(runs, part) for part in shares(runs, 2)] == [["a0", "c0"], ["b0", "d0"]]


def test_parts_are_disjoint_and_all_together(tmp_path):
    runs = grid(tmp_path, "abcde", (0, 1, 2))
    parts = [Part.parse(f"{n}/4").indices(runs) for n in (1, 2, 3, 4)]
    assert sorted(index for part in parts for index in part) == list(range(15))
    assert str(Part(2, 4)) == "2/4"


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/2", "1/", "-1/2", "1/2/3", "1.0/2"])
def test_what_is_not_a_part_is_refused(text):
    with pytest.raises(UserError, match=r"--part .*: must be I/N with I from 1 to N, e\.g\. 2/4"):
        Part.parse(text)


# What is heard


def test_lines_come_in_the_suites_order(tmp_path):
    said = []
    watcher = InOrder(lambda title, seed, rounds: said.append((title, seed, rounds)), said.append)
    watcher.plan(grid(tmp_path, "abc", (4,)))
    watcher.begin(1)
    watcher.begin(0)
    watcher.round(1, "b, round 1")
    watcher.round(0, "a, round 1")
    watcher.end(1)
    watcher.begin(2)
    assert said == [("a", 4, 2), "a, round 1"]
    watcher.end(0)
    assert said[2:] == [("b", 4, 2), "b, round 1", ("c", 4, 2)]
    watcher.round(2, "c, round 1")
    watcher.end(2)
    watcher.plan(grid(tmp_path, "de", (5,)))
    watcher.end(3)  # a sweep's run that diverged before does not begin
    watcher.begin(4)
    assert said[5:] == ["c, round 1", ("e", 5, 2)]


def test_each_worker_does_several_runs_and_all_outcomes_are_there(started, tmp_path):
    heard = Heard()
    pool = started(2, heard)
    runs = [planned(tmp_path / f"ends-{n}") for n in range(6)]
    pool.ahead(runs[:4])
    pool.ahead(runs[4:])
    outcomes = [pool.outcome(run).split(" in ") for run in runs]
    assert [name for name, _ in outcomes] == [run.title for run in runs]
    assert len({pid for _, pid in outcomes}) <= 2
    assert heard.events.count(("plan", 4)) == heard.events.count(("plan", 2)) == 1
    for number, run in enumerate(runs):
        of_run = [event for event in heard.events if len(event) > 1 and event[1] == number and event[0] != "plan"]
        assert of_run == [
            ("begin", number),
            *(("round", number, f"{run.title}, {which}") for which in ("first", "second")),
            ("end", number),
        ]


def test_what_is_left_of_anothers_share_is_done(started, tmp_path):
    runs = [planned(tmp_path / name) for name in ("sleeps", "exits", "ends-0", "ends-1", "ends-2")]
    with pytest.raises(UserError, match="exits, seed 0: its process"):
        started(2).ahead(runs)  # the first worker sleeps, and the second one does all the rest, "exits" at last
    assert all(pid_of(tmp_path / f"ends-{n}") for n in range(3))


def test_a_line_of_several_workers_is_printed_once(started, tmp_path, capsys):
    started(2).ahead([planned(tmp_path / f"says-{n}") for n in range(4)])
    assert capsys.readouterr().err == "one line\nanother\n"


# Errors


def test_an_error_of_a_run_is_raised_here_and_ends_the_others(started, tmp_path):
    pool = started(2)
    with pytest.raises(Diverged, match="no client had a finite update"):
        pool.ahead([planned(tmp_path / "sleeps"), planned(tmp_path / "diverges")])
    pids = [worker._process.pid for worker in pool._workers]
    pool.close()
    assert len(pids) == 2 and not any(map(alive, pids))


def test_a_full_disk_is_the_error_that_it_is_here(started, tmp_path):
    with pytest.raises(OSError, match="No space left") as raised:
        started(2).ahead([planned(tmp_path / "full")])
    assert (raised.value.errno, raised.value.filename) == (28, "f")


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("exits", r"exits, seed 0: its process \d+ ended with exit code 3; finished runs are kept, continue with "),
        (
            "sleeps",
            r"sleeps, seed 0: its process \d+ was killed by SIGKILL, often for lack of memory \(lower ",
        ),
    ],
)
def test_a_lost_worker_is_one_line(what, line, started, tmp_path):
    class Kill(Watcher):
        def round(self, number, report):
            if what == "sleeps":
                os.kill(pid_of(tmp_path / what), signal.SIGKILL)

    with pytest.raises(UserError, match=line):
        started(1, Kill()).ahead([planned(tmp_path / what)])


def test_errors_that_cannot_be_pickled_keep_their_text():
    died = _sendable(WorkerDied("the worker died", pid=1, log_path="log"))
    assert type(died) is RuntimeProblem and str(died) == "the worker died"
    assert type(_sendable(UserError("a: b"))) is UserError
    defect = pickle.loads(pickle.dumps(_sendable(ValueError("odd"))))
    assert type(defect) is ValueError and "in a worker process:" in defect.__notes__[0]


# No process is left behind


def test_a_worker_that_does_not_end_is_killed(started, tmp_path):
    class Stop(Watcher):
        def round(self, number, report):
            if report.endswith("second"):
                time.sleep(0.3)  # it ignores SIGTERM by now
                raise KeyboardInterrupt

    pool = started(1, Stop())
    with pytest.raises(KeyboardInterrupt):
        pool.ahead([planned(tmp_path / "stuck")])
    pool.close()
    assert not alive(pid_of(tmp_path / "stuck"))


@pytest.mark.parametrize(
    ("number", "what"),
    [*((number, "sleeps") for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)), (signal.SIGKILL, "hangs")],
)
def test_no_worker_outlives_the_process_that_started_it(number, what, tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.comparison.owner_of_workers", tmp_path, what],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        files = [tmp_path / f"{what}-{n}" for n in range(2)]
        wait_until(lambda: all(file.with_name(f"{file.name}.pid").exists() and pid_of(file) for file in files))
        pids = [pid_of(file) for file in files]
        assert all(map(alive, pids))
        if number == signal.SIGINT:
            os.killpg(owner.pid, number)  # as a terminal does
        else:
            owner.send_signal(number)
        _, err = owner.communicate(timeout=20)
        assert owner.returncode == -number and err.count("Traceback") == (number == signal.SIGINT)
        wait_until(lambda: not any(map(alive, pids)), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()


# Cores


def test_a_worker_computes_with_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    try:
        limit_cores(2)
        assert (usable_cores(), cores_to_use()) == (8, 2)
        assert threads_an_operation(1, 2) == 2 and threads_an_operation(10, 2) == 1
        limit_cores(100)
        assert cores_to_use() == 8
    finally:
        limit_cores(None)
    assert threads_an_operation(2, 8) == 4
    assert workers(3, Watcher())._set_up.cores == 2 and workers(9, Watcher())._set_up.cores == 1
