"""A test run leaves no temporary file behind, however it ends."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.tools

ROOT = pathlib.Path(__file__).parents[1]
FILE = """
import pathlib, tempfile, time

def test_it(tmp_path):
    (tmp_path / "own").write_text("x")
    pathlib.Path(tempfile.mkdtemp(prefix="left"), "file").write_text("x")
    pathlib.Path("begun").write_text(str(tmp_path))
    time.sleep({seconds})
"""


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("processes", ["0", "1"])
@pytest.mark.parametrize("sent", [None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_temporary_folder_is_empty_afterwards(tmp_path, sent, processes):
    temporary, tests = tmp_path / "tmp", tmp_path / "tests"
    temporary.mkdir()
    tests.mkdir()
    (tests / "test_one.py").write_text(FILE.format(seconds=0 if sent is None else 60))
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider"]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(
        [*command, "-p", "tests.session_folder", "test_one.py"],
        **{"cwd": tests, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
    )
    try:
        until((tests / "begun").exists)
        if sent is not None:
            until(lambda: (tests / "begun").read_text())
            assert str(temporary) in (tests / "begun").read_text() and list(temporary.rglob("left*"))
            run.send_signal(sent)
        run.wait(30)
    finally:
        run.kill()
        run.wait()
    until(lambda: not list(temporary.iterdir()))
    time.sleep(1)
    assert not list(temporary.iterdir())
