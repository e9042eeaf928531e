"""Checks in the process table that all processes a test started have ended when its module ends."""

import os
import shutil
import time
import uuid

import psutil
import pytest

from tff_re.runtime.local import supervised

_MARK = "TFF_RE_RUNTIME_TEST"
_PROGRAMS = ("worker_binary", "supervisor.py")


class Processes:
    """Workers and supervisors started by one test module, in any process, including orphans."""

    def __init__(self, mark):
        self._mark = mark

    def running(self):
        """Their process ids; zombies do not count, since not every container has an init that reaps."""
        pids = []
        for process in psutil.process_iter():
            try:
                if (
                    any(name in argument for argument in process.cmdline() for name in _PROGRAMS)
                    and process.environ().get(_MARK) == self._mark
                ):
                    pids.append(process.pid)
            except psutil.Error:
                continue
        return pids

    @staticmethod
    def alive(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def wait_until_gone(self, *pids, seconds=5.0):
        """Whether all these processes end within `seconds`."""
        return wait_until(lambda: not any(map(self.alive, pids)), seconds)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def supervisor_without_namespaces(folder):
    """Path of a copy of `supervisor.py` that cannot enter a network namespace."""
    for name in ("supervisor.py", "private_network.py"):
        shutil.copy(supervised._SUPERVISOR.with_name(name), folder)
    with open(folder / "private_network.py", "a") as module:
        module.write("\n\ndef _enter():\n    return 'not on this machine'\n")
    return folder / "supervisor.py"


@pytest.fixture(scope="module", autouse=True)
def processes():
    """The processes of this module; fails at its end if one still runs. Fixtures that start processes require it."""
    mark = uuid.uuid4().hex
    os.environ[_MARK] = mark  # inherited by everything that is started
    table = Processes(mark)
    try:
        yield table
    finally:
        del os.environ[_MARK]
    gone = wait_until(lambda: not table.running(), 5)
    remaining = table.running()
    for pid in remaining:
        psutil.Process(pid).kill()
    assert gone, f"processes left behind: {remaining}"
