"""A comparison on a Dask cluster: which worker does which run, what is repeated, and that the files are the same."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import pickle
import signal
import sys
import threading
import uuid
from types import SimpleNamespace

import psutil
import pytest

from tests.comparison.test_parallel import files, plain_suite
from tests.comparison.test_workers import ROOT, Heard, alive, grid, pid_of, planned, wait_until
from tests.upper_floors import Process, command, refusal, rounds_in
from tff_re.comparison import cluster, cluster_node, parallel
from tff_re.comparison.planning import Watcher
from tff_re.comparison.worker import SetUp
from tff_re.errors import Diverged, UserError
from tff_re.tasks.data_paths import DataPaths


class Future(concurrent.futures.Future):
    """Dask's, as far as it is used."""

    def __init__(self, key):
        super().__init__()
        self.key, self.cancelled_by_us = key, False

    def cancel(self):
        self.cancelled_by_us = True
        return True

    def result(self, timeout=None):
        if self.cancelled_by_us:
            raise concurrent.futures.CancelledError(self.key)
        return super().result(timeout)


class Client:
    """Dask's client with a cluster in this process, each of whose workers has a stub process."""

    def __init__(self, cores):
        self.cores, self.others, self.topics, self.orders = dict(cores), {}, {}, []
        self.closed = False

    def subscribe_topic(self, topic, handler):
        self.topics[topic] = handler

    def nthreads(self):
        return dict(self.cores)

    def close(self, timeout):
        self.closed = True

    def submit(self, function, *arguments, key, workers, allow_other_workers, pure, retries):
        assert not allow_other_workers and not pure and not retries
        future, (address,) = Future(key), workers
        work = {cluster_node.run: self._run, cluster_node.look: self._look, cluster_node.end: self._end}[function]
        threading.Thread(target=self._do, args=(future, work, address, *arguments), daemon=True).start()
        return future

    def _do(self, future, work, address, *arguments):
        try:
            future.set_result(work(future, address, *arguments))
        except Exception as error:
            future.set_exception(error)

    def _run(self, future, address, start, order):
        self.orders.append((address, pickle.loads(start.set_up), pickle.loads(order)))
        topic = self.topics[start.comparison]

        def report(kind, value):
            topic((0.0, (future.key, kind, value)))

        apart = dataclasses.replace(start, comparison=f"{start.comparison}@{address}")
        return cluster_node.do(apart, order, report, lambda: not future.cancelled_by_us)

    def _look(self, future, address, *arguments):
        other = self.others.get(address, {})
        if isinstance(other, Exception):
            raise other
        return {**cluster_node.look(*arguments), **other}

    def _end(self, future, address, comparison):
        cluster_node.end(f"{comparison}@{address}")


@pytest.fixture
def started(monkeypatch):
    """Makes clusters of stub workers, and ends them with the test."""
    monkeypatch.setattr(parallel, "_PROGRAM", "from tests.comparison.stub_worker import main; main()")
    monkeypatch.setattr(parallel, "GRACE", 0.5)
    monkeypatch.setattr(cluster, "TICK", 0.05)
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 5.0)
    monkeypatch.setattr(cluster_node, "_TICK", 0.05)
    with contextlib.ExitStack() as stack:

        def start(cores, watcher=None, **others):
            client = Client(cores)
            client.others = others
            monkeypatch.setattr(cluster, "connect", lambda address: client)
            here = SimpleNamespace(finished=lambda run: None)
            set_up = SetUp(DataPaths(), "in-process", clients=None, resume=False, check=None)
            made = cluster.Cluster(here, "tcp://a:1", set_up, watcher or Watcher())
            return stack.enter_context(contextlib.closing(made)), client

        yield start


# Which worker does which run


def test_runs_go_to_the_workers_in_shares_and_all_is_heard_of_once(started, tmp_path):
    heard = Heard()
    pool, client = started({"a": 3, "b": 1}, heard)
    runs = [planned(tmp_path / f"ends-{n}", n % 2, unit=str(n // 2)) for n in range(6)]
    pool.ahead(runs)
    assert [pool.outcome(run).split(" in ")[0] for run in runs] == [run.title for run in runs]
    by_worker = {address: [o.folder.name for a, _, o in client.orders if a == address] for address in "ab"}
    assert (by_worker["a"][0], by_worker["b"][0]) == ("ends-0", "ends-4")
    assert sorted(by_worker["a"] + by_worker["b"]) == [run.title for run in runs]
    assert {address: set_up.cores for address, set_up, _ in client.orders} == {"a": 3, "b": 1}
    for number, run in enumerate(runs):
        of_run = [event for event in heard.events if len(event) > 1 and event[1] == number and event[0] != "plan"]
        rounds = [("round", number, f"{run.title}, {which}") for which in ("first", "second")]
        assert of_run == [("begin", number), *rounds, ("end", number)]


def test_a_worker_keeps_its_process_and_it_ends_with_the_comparison(started, tmp_path):
    pool, client = started({"a": 1})
    runs = [planned(tmp_path / f"ends-{n}") for n in range(3)]
    pool.ahead(runs[:2])
    pool.ahead(runs[2:])
    (pid,) = {int(pool.outcome(run).split(" in ")[1]) for run in runs}
    assert alive(pid)
    pool.close()
    assert not alive(pid) and client.closed


def test_a_process_that_has_had_no_run_for_long_ends(started, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_node, "IDLE_SECONDS", 0.1)
    pool, _ = started({"a": 1})
    run = planned(tmp_path / "ends")
    pool.ahead([run])
    wait_until(lambda: not alive(pid_of(run.folder)))
    pool.ahead([again := planned(tmp_path / "ends-2")])
    assert pool.outcome(again)


def test_a_worker_that_joins_takes_runs(started, tmp_path):
    pool, client = started({"a": 1})

    class Join(Watcher):
        def round(self, number, report):
            client.cores["b"] = 1

    pool._watcher = Join()
    runs = [planned(tmp_path / f"naps-{n}") for n in range(4)]
    pool.ahead(runs)
    assert {address for address, _, _ in client.orders} == {"a", "b"} and all(map(pool.outcome, runs))


# What is repeated


def test_the_run_of_a_lost_worker_is_repeated_by_another_one(started, tmp_path, capsys):
    heard = Heard()
    pool, client = started({"a": 1, "b": 1}, heard)

    class Lose(Heard):
        def round(self, number, report):
            super().round(number, report)
            if report == "oncesleeps, second":
                client.cores.pop("a", None)

    pool._watcher = heard = Lose()
    runs = [planned(tmp_path / "oncesleeps"), planned(tmp_path / "ends")]
    pool.ahead(runs)
    assert all(pool.outcome(run) for run in runs)
    orders = [(address, order.folder.name, order.again) for address, _, order in client.orders]
    assert orders == [("a", "oncesleeps", False), ("b", "ends", False), ("b", "oncesleeps", True)]
    assert heard.events.count(("begin", 0)) == heard.events.count(("end", 0)) == 1
    assert [event[2] for event in heard.events if event[:2] == ("round", 0)] == [
        "oncesleeps, first",
        "oncesleeps, second",
    ]
    err = capsys.readouterr().err
    assert err == "oncesleeps, seed 0: worker a was lost (it is gone); the run is repeated\n"
    wait_until(lambda: pid_of(tmp_path / "oncesleeps"))


def test_a_killed_process_is_replaced_and_its_run_repeated(started, tmp_path, capsys):
    pool, client = started({"a": 1})
    pool.ahead([run := planned(tmp_path / "onceexits")])
    assert pool.outcome(run) and [order.again for _, _, order in client.orders] == [False, True]
    assert "ended with exit code 3); the run is repeated" in capsys.readouterr().err


def test_a_process_that_is_killed_between_runs_is_replaced(started, tmp_path, capsys):
    pool, _ = started({"a": 1})
    pool.ahead([run := planned(tmp_path / "ends")])
    os.kill(pid_of(run.folder), signal.SIGKILL)
    wait_until(lambda: not alive(pid_of(run.folder)))
    pool.ahead([again := planned(tmp_path / "ends-2")])
    assert pool.outcome(again) and capsys.readouterr().err.count("was killed by SIGKILL") == 1


def done(pool, client, run, reports, wanted):
    """What a worker answers to the first order with another run in it, after noting its reports."""
    _, set_up, order = client.orders[0]
    start = cluster_node.Start(f"{pool._comparison}@a", os.getcwd(), {}, pickle.dumps(set_up))
    order = pickle.dumps(dataclasses.replace(order, folder=run.folder))
    answer = cluster_node.do(start, order, lambda *report: reports.append(report), wanted)
    return answer.kind, pickle.loads(answer.value)


def test_a_run_that_always_reports_ends_when_it_is_not_wanted_any_more(started, tmp_path):
    pool, client = started({"a": 1})
    pool.ahead([planned(tmp_path / "ends")])
    run, reports = planned(tmp_path / "talks"), []
    assert done(pool, client, run, reports, lambda: len(reports) < 10) == ("lost", "it is no longer wanted")
    assert len(reports) == 10 and not alive(pid_of(run.folder))


def test_nothing_is_started_for_a_comparison_that_has_ended(started, tmp_path):
    pool, client = started({"a": 1})
    pool.ahead([planned(tmp_path / "ends")])
    pool.close()
    late = planned(tmp_path / "ends-2")
    assert done(pool, client, late, [], lambda: True) == ("lost", "the comparison has ended")
    assert not alive(pid_of(tmp_path / "ends")) and not (tmp_path / "ends-2.pid").exists()


def test_a_run_that_loses_worker_after_worker_is_an_error(started, tmp_path, capsys):
    pool, client = started({"a": 1, "b": 1})
    with pytest.raises(
        UserError, match=r"^exits, seed 0: worker . was lost \(its process .* code 3\), as were 2 before"
    ):
        pool.ahead([planned(tmp_path / "exits")])
    assert len(client.orders) == 3 and capsys.readouterr().err.count("\n") == 2


def test_a_cluster_whose_workers_are_all_gone_is_an_error(started, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.3)
    pool, client = started({"a": 1})

    class Lose(Watcher):
        def round(self, number, report):
            client.cores.clear()

    pool._watcher = Lose()
    with pytest.raises(UserError, match="all workers are gone; finished runs are kept, continue with --resume"):
        pool.ahead([planned(tmp_path / "oncesleeps")])
    with pytest.raises(UserError, match="has no worker; start some"):
        pool.ahead([planned(tmp_path / "ends")])


# Errors


def test_an_error_of_a_run_ends_the_others(started, tmp_path):
    pool, client = started({"a": 1, "b": 1})
    with pytest.raises(Diverged, match="no client had a finite update"):
        pool.ahead([planned(tmp_path / "sleeps"), planned(tmp_path / "diverges")])
    pool.close()
    assert {order.folder.name for _, _, order in client.orders} == {"sleeps", "diverges"}
    begun = (tmp_path / "sleeps.pid").exists()  # on a busy machine it may not have begun
    assert not begun or not alive(pid_of(tmp_path / "sleeps"))


def test_a_full_disk_of_a_worker_is_the_error_that_it_is_here(started, tmp_path):
    pool, _ = started({"a": 1})
    with pytest.raises(OSError, match="No space left") as raised:
        pool.ahead([planned(tmp_path / "full")])
    assert (raised.value.errno, raised.value.filename) == (28, "f")


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"tensorflow": "9.9"}, r"worker a has another tensorflow \(9\.9\) than this command \("),
        ({"problem": "has no folder /x"}, "worker a has no folder /x"),
        (ModuleNotFoundError("no", name="tff_re"), "worker a cannot import tff_re; install the same tff-re there"),
        (OSError("broken"), r"worker a does not answer \(broken\)"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused(other, line, started, tmp_path, capsys):
    pool, client = started({"a": 1}, a=other)
    with pytest.raises(UserError, match=line):
        pool.ahead(grid(tmp_path, ["ends"], (0,)))
    pool, client = started({"b": 1}, a=other)
    client.cores["a"] = 1
    assert [worker.address for worker in pool._fitting(pool._new({"a": 1, "b": 1}))] == ["b"]
    assert capsys.readouterr().err.endswith("; it is not used\n")
    assert pool._new({"a": 1}) == []  # nor asked again


def test_the_file_system_must_be_shared(tmp_path):
    (tmp_path / "mark").write_text("c", "utf-8")
    assert cluster_node.look(str(tmp_path), str(tmp_path / "mark"), "c")["problem"] == ""
    for name, comparison in (("mark", "d"), ("other", "c")):
        problem = cluster_node.look(str(tmp_path), str(tmp_path / name), comparison)["problem"]
        assert problem == f"does not share the file system of {tmp_path}"
    assert cluster_node.look(str(tmp_path / "no"), None, "c")["problem"] == f"has no folder {tmp_path / 'no'}"


def test_workers_have_the_commands_variables_for_data_and_threads(monkeypatch):
    made = []
    monkeypatch.setattr(cluster_node, "WorkerProcess", lambda *arguments: made.append(arguments))
    for name, value in {"OMP_NUM_THREADS": "1", "TFF_RE_DATA": "/here", "OTHER": "x"}.items():
        monkeypatch.setenv(name, value)
    cluster_node._Slot().started(cluster_node.Start("c", "/work", {"TFF_RE_DATA": "/data"}, b"s"))
    set_up, folder, environment = made[0]
    assert (set_up, str(folder)) == (b"s", "/work")
    assert (
        environment["TFF_RE_DATA"] == "/data" and environment["OTHER"] == "x" and "OMP_NUM_THREADS" not in environment
    )


@pytest.mark.parametrize("address", ["node1", "node1:8786", "http://a:1", "tcp://a", "inproc://a:1"])
def test_what_is_no_address_is_refused(address, capsys):
    typed = command(capsys, "compare", "--suite", "flcmc-synthetic", "--cluster", address)
    refusal(typed, f"--cluster {address}: must be a scheduler's address, e.g. tcp://node1:8786")


@pytest.mark.parametrize(("name", "value"), [("jobs", "2"), ("part", "1/2")])
def test_a_cluster_excludes_other_ways(name, value, capsys):
    typed = command(capsys, "compare", "--suite", "flcmc-synthetic", "--cluster", "tcp://a:1", f"--{name}", value)
    refusal(typed, f"--cluster and --{name} exclude each other")


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"--cluster needs Dask; run: pip install 'distributed>=2026\.8'"):
        cluster.connect("tcp://localhost:8786")


# With Dask

MARK = "TFF_RE_TEST_CLUSTER"
"""An environment variable of the processes of this file's cluster."""

MOST_SECONDS = 400
"""Until a command has done what a test waits for, on a busy machine."""


@pytest.fixture(scope="module")
def dask_cluster():
    """The address of a scheduler with two workers of one core, each a process."""
    distributed = pytest.importorskip("distributed", reason="needs Dask (the extra `cluster` of setup.cfg)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
        patch.setenv(MARK, mark := uuid.uuid4().hex)
        settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with distributed.LocalCluster(host="127.0.0.1", **settings) as made:
            made.mark = mark
            yield made


def processes(dask_cluster):
    """The cluster's processes of runs, the oldest first, also those of a worker that was killed."""
    running = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if process.environ().get(MARK) == dask_cluster.mark and parallel._PROGRAM in process.cmdline():
                running.append(process)
    return sorted(running, key=psutil.Process.create_time)


def none_is_left(dask_cluster):
    """Waits until the cluster has no process of runs."""
    wait_until(lambda: not processes(dask_cluster))


def of_runs(out):
    return {name: content for name, content in files(out).items() if name.startswith("runs/")}


@pytest.fixture(scope="module")
def whole(dask_cluster, tmp_path_factory):
    """A suite, and its runs one after the other."""
    folder = tmp_path_factory.mktemp("whole")
    path = plain_suite(folder, ("fedavg", "fedpa"), (0,), rounds=200)
    process = Process("compare", "--suite", path, "--out", folder / "out")
    assert process.end(seconds=MOST_SECONDS).code == 0
    return SimpleNamespace(path=path, files=of_runs(folder / "out"))


@contextlib.contextmanager
def under_way(path, out, dask_cluster):
    """The command on a cluster, both of whose workers train."""
    address = dask_cluster.scheduler_address
    process = Process("compare", "--suite", path, "--out", out, "--cluster", address, start_new_session=True)
    try:
        runs = [out / "runs" / f"{name}-seed0" / "metrics.csv" for name in ("fedavg", "fedpa")]
        process.wait_for(lambda: any(rounds_in(run) > 2 for run in runs), "a run is under way", MOST_SECONDS)
        first = processes(dask_cluster)[0]
        first.suspend()  # or its run may be finished when the second process has imported TensorFlow
        process.wait_for(lambda: all(rounds_in(run) > 2 for run in runs), "two runs are under way", MOST_SECONDS)
        first.resume()
        yield process
    finally:
        process.close()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_file(dask_cluster, whole, tmp_path):
    with under_way(whole.path, tmp_path / "out", dask_cluster) as process:
        next(iter(dask_cluster.workers.values())).process.process.kill()  # Dask starts it again
        ended = process.end(seconds=MOST_SECONDS)
    assert ended.code == 0 and ended.err.count("was lost") == 1, ended
    assert of_runs(tmp_path / "out") == whole.files and (tmp_path / "out" / "comparison.csv").exists()
    assert not list((tmp_path / "out" / "runs").glob(".*"))
    none_is_left(dask_cluster)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_comparison_leaves_no_process_and_continues(number, dask_cluster, whole, tmp_path):
    out, address = tmp_path / "out", dask_cluster.scheduler_address
    with under_way(whole.path, out, dask_cluster) as process:
        os.killpg(process.popen.pid, number)
        ended = process.end(seconds=MOST_SECONDS)
    if number == signal.SIGINT:
        assert ended.code == 130 and ended.err.count("\n") == 1 and "continues with --resume" in ended.err, ended
    none_is_left(dask_cluster)
    resumed = Process("compare", "--suite", whole.path, "--out", out, "--cluster", address, "--resume")
    ended = resumed.end(seconds=MOST_SECONDS)
    assert ended.code == 0 and of_runs(out) == whole.files


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_one_line(dask_cluster, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    process = Process("compare", "--suite", whole.path, "--out", tmp_path, "--cluster", "tcp://127.0.0.1:9")
    refusal(process.end(), "--cluster tcp://127.0.0.1:9: no scheduler answers there")
