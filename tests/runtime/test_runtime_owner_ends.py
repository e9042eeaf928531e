"""However the process that started a worker ends, the worker and its supervisor are gone soon after.

A whole run that is ended in the midst of a call is in tests/cli/test_bad_input.py.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.runtime.conftest import wait_until

_PROGRAM = pathlib.Path(__file__).with_name("worker_owner.py")
_ROOT = pathlib.Path(__file__).parents[2]


class Owner:
    """A running `worker_owner.py`."""

    def __init__(self, folder, ending):
        self.record, self._output = folder / "record.json", folder / "output"
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, _PROGRAM, ending, folder / "log", self.record],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                start_new_session=True,  # as a terminal has: Ctrl-C goes to a process group
            )

    @property
    def tidied(self):
        return self.record.with_name(self.record.name + ".tidied").exists()

    @property
    def pids(self):
        return json.loads(self.record.read_text())

    def wait_until_up(self):
        up = wait_until(lambda: self.record.exists() or self.process.poll() is not None, 90)
        assert up and self.record.exists(), self._output.read_text()
        return self

    def assert_worker_gone(self, processes):
        assert processes.wait_until_gone(self.pids["worker"], self.pids["supervisor"])
        if self.pids["socket"].startswith("/"):
            assert not pathlib.Path(self.pids["socket"]).parent.exists()


def kill_all(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.fixture
def start(tmp_path, processes):
    """Starts an owner; ends it with the test."""
    with contextlib.ExitStack() as stack:

        def start_owner(ending):
            owner = Owner(tmp_path, ending)
            stack.enter_context(owner.process)
            stack.callback(kill_all, owner.process.pid)
            return owner

        yield start_owner


@pytest.mark.parametrize("ending", ["return", "raise"])
def test_worker_after_the_end_of_the_program(start, processes, ending):
    owner = start(ending)
    assert owner.process.wait(10) == (1 if ending == "raise" else 0)
    owner.assert_worker_gone(processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_worker_after_signal(start, processes, number):
    owner = start("sleep").wait_until_up()
    os.killpg(owner.process.pid, number)
    assert owner.process.wait(10) == (143 if number == signal.SIGTERM else -number)
    owner.assert_worker_gone(processes)
    assert owner.tidied == (number in (signal.SIGINT, signal.SIGTERM))


def test_worker_whose_owner_is_killed_while_a_forked_child_of_it_lives(start, processes):
    owner = start("fork").wait_until_up()
    owner.process.kill()
    owner.process.wait(10)
    owner.assert_worker_gone(processes)
    assert processes.alive(owner.pids["child"])
