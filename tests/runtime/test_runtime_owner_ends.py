"""However the process that started a worker ends, the worker and its supervisor are gone soon after."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

_PROGRAM = pathlib.Path(__file__).with_name("worker_owner.py")
_ROOT = pathlib.Path(__file__).parents[2]


class Owner:
    """A running `worker_owner.py`."""

    def __init__(self, folder, kind, ending, command=()):
        self.record = folder / f"{len(os.listdir(folder))}.json"
        self._output = self.record.with_suffix(".output")
        program = [sys.executable, str(_PROGRAM), kind, ending, str(self.record.with_suffix(".log")), str(self.record)]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*command, *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if command else output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                start_new_session=True,  # as a terminal has: Ctrl-C goes to a process group
            )

    @property
    def output(self):
        return self._output.read_text()

    @property
    def tidied(self):
        return self.record.with_name(self.record.name + ".tidied").exists()

    @property
    def pids(self):
        return json.loads(self.record.read_text())

    def wait_until_up(self, seconds=90):
        deadline = time.monotonic() + seconds
        while not self.record.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.output
            time.sleep(0.02)
        return self

    def assert_worker_gone(self, processes):
        assert processes.wait_until_gone(self.pids["worker"], self.pids["supervisor"])
        if self.pids["socket"].startswith("/"):
            assert not pathlib.Path(self.pids["socket"]).parent.exists()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def start(tmp_path, processes):
    """Starts an owner; ends it with the test."""
    with contextlib.ExitStack() as stack:

        def start_owner(kind, ending, command=()):
            owner = Owner(tmp_path, kind, ending, command)
            stack.callback(owner.end)
            return owner

        yield start_owner


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory, processes):
    """One owner of a whole runtime for each ending, started side by side, since each imports TensorFlow.

    To the supervisor, SIGKILL to the owner is the same whether it has a runtime or, as below, a worker alone.
    """
    folder = tmp_path_factory.mktemp("owners")
    with contextlib.ExitStack() as stack:
        owners = {}
        for name, ending, command in [
            ("pipeline", "raise", ["sh", "-c", '{ "$@"; echo "status $?"; } | cat', "sh"]),
            ("SIGINT", "call", []),
            ("SIGTERM", "call", []),
        ]:
            owners[name] = Owner(folder, "runtime", ending, command)
            stack.callback(owners[name].end)
        yield owners


def test_runtime_after_unhandled_exception_in_a_pipeline(runtimes, processes):
    owner = runtimes["pipeline"]
    output, _ = owner.process.communicate(timeout=90)  # ends only if no process holds the pipe any more
    assert output == b"up\nstatus 1\n"
    assert owner.output.count("Traceback") == 1 and "RuntimeError: as ordered" in owner.output
    owner.assert_worker_gone(processes)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_runtime_after_signal_in_the_middle_of_a_call(runtimes, processes, number, status):
    owner = runtimes[number.name].wait_until_up()
    time.sleep(0.5)  # it says so just before the call
    os.killpg(owner.process.pid, number)
    assert owner.process.wait(10) == status
    owner.assert_worker_gone(processes)
    assert owner.tidied


@pytest.mark.parametrize("ending", ["return", "raise"])
def test_worker_after_the_end_of_the_program(start, processes, ending):
    owner = start("worker", ending)
    assert owner.process.wait(10) == (1 if ending == "raise" else 0)
    owner.assert_worker_gone(processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_worker_after_signal(start, processes, number):
    owner = start("worker", "sleep").wait_until_up()
    os.killpg(owner.process.pid, number)
    owner.process.wait(10)
    owner.assert_worker_gone(processes)
    assert owner.tidied == (number in (signal.SIGINT, signal.SIGTERM))


def test_worker_whose_owner_is_killed_while_a_forked_child_of_it_lives(start, processes):
    owner = start("worker", "fork").wait_until_up()
    owner.process.kill()
    owner.process.wait(10)
    owner.assert_worker_gone(processes)
    assert processes.alive(owner.pids["child"])
