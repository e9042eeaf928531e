"""One folder for all temporary files of a test run, which is gone after it: after its end, Ctrl-C or SIGKILL.

AutoGraph, the runtimes and the tests write temporary files, and a killed process removes none of them. So the run has
one folder, `TMPDIR` for all its processes. A small shell removes it when the run's end of a pipe is closed, which the
kernel does for a killed process too.
"""

import os
import subprocess
import tempfile

import pytest

_REMOVE_AFTERWARDS = """
read -r ended
rm -rf -- "$0"
[ -z "$ended" ] || exit 0
# The run was killed, and its other processes may write for a moment longer: the folder has to stay away for 3 s.
for attempt in $(seq 60); do
    sleep 1
    gone=$((gone + 1))
    [ ! -e "$0" ] || gone=0
    [ "$gone" -lt 3 ] || exit 0
    rm -rf -- "$0" 2>/dev/null
done
"""
_KEY = pytest.StashKey[subprocess.Popen]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Makes the folder; processes of pytest-xdist inherit it. `--basetemp FOLDER` keeps the tests' own files there."""
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="tff-re-tests-")
    os.chmod(folder, 0o1777)  # as /tmp: some tests run a process as another user
    config.stash[_KEY] = subprocess.Popen(
        ["sh", "-c", _REMOVE_AFTERWARDS, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run
        cwd="/",
    )
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    if config.option.basetemp is None:
        config.option.basetemp = os.path.join(folder, "pytest")


def pytest_unconfigure(config):
    """Has the folder removed."""
    remover = config.stash.get(_KEY, None)
    if remover is not None:
        remover.communicate(b"ended\n")
