"""One runtime for all tests that run federated computations, and a check at the end that no worker still runs.

The run's temporary files are in one folder, see `tests/session_folder.py`.
"""

import contextlib
import gc
import os
import signal
import sys
import time
import uuid

import hypothesis
import psutil
import pytest

from computations.stack import STACK
from tests.session_folder import pytest_configure, pytest_unconfigure  # noqa: F401
from tests.stacks import NO_TFF
from tff_re.runtime.quiet import be_quiet

be_quiet()  # before TensorFlow is imported by any test, as on the command line

# Processes that a shell starts in the background (make test &) ignore Ctrl-C, and so do their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline, since the machine's speed is not a property of the code, and the same examples in every run. To look
# for new counterexamples: HYPOTHESIS_PROFILE=search make test, of a thousand examples a property instead of forty.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Tracing makes many objects and few cycles: collecting them at the default counts takes some 5 % of the suite's time.
gc.set_threshold(100_000, 20, 20)

_MARK = "TFF_RE_TEST_SESSION"

collect_ignore = []
if STACK != "tff":  # tests of TFF's worker, and comparisons with TFF itself
    collect_ignore += [f"runtime/test_{name}.py" for name in ("lean_executor", "runtime_local", "runtime_worker")]
    collect_ignore += ["runtime/test_runtime_owner_ends.py", "runtime/test_in_process_conformance.py"]
    collect_ignore += [
        f"benchmarks/test_benchmarks_{name}.py" for name in ("documents", "encoder", "runtimes", "sockets")
    ]
    collect_ignore += [f"computations/test_{name}.py" for name in ("federated_library", "native_form", "tff_face")]


@pytest.fixture(scope="session", autouse=True)
def session_mark():
    """Marks the processes of this session; at its end, kills workers that still run and fails if there are any."""
    mark = os.environ[_MARK] = uuid.uuid4().hex
    yield mark
    del os.environ[_MARK]
    deadline = time.monotonic() + 5
    while (remaining := marked_workers(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in remaining:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not remaining, f"workers left running by the tests: {remaining}"


@pytest.fixture(scope="session")
def runtime(session_mark, tmp_path_factory):
    """The open runtime of the session: the default one."""
    from tff_re.runtime import DEFAULT_RUNTIME, open_runtime

    with open_runtime(DEFAULT_RUNTIME, log_path=tmp_path_factory.mktemp("runtime") / "log", threads=2) as opened:
        yield opened


@pytest.fixture(scope="session")
def worker(session_mark, tmp_path_factory):
    """The open runtime `local`, for tests that name it; its context is current in `upper_floors.computing_on`."""
    if STACK != "tff":
        pytest.skip(NO_TFF)
    from computations import federated as tff
    from tff_re.runtime import open_runtime

    before = tff.framework.get_context_stack().current
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    with open_runtime("local", log_path=log, max_concurrent_computation_calls=2) as opened:
        tff.framework.set_default_context(before)
        yield opened


@pytest.fixture
def runtimes(runtime, request):
    """Name -> open runtime of this stack; a test that compares the two is marked `needs_tff`."""
    return {"in-process": runtime} | ({"local": request.getfixturevalue("worker")} if STACK == "tff" else {})


def pytest_collection_finish():
    """What was imported stays; the collector need not look through it again and again, nor at the end."""
    if "tensorflow" in sys.modules:
        _note_no_stacks()
    _freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_afterwards():
    """What a file of tests leaves, above all traced graphs, mostly stays, and a collection takes some seconds to look
    through all of it: a fifth of the suite's time went there."""
    yield
    _freeze()


def _freeze():
    gc.collect()
    gc.freeze()


def _note_no_stacks():
    """TensorFlow notes with every operation of a graph where in Python it was made, for its error messages. Under
    pytest that is a hundred frames, and 4 % of the suite's time; no test reads them, and they are in no file."""
    from tensorflow.python.util import tf_stack

    fixed_stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: fixed_stack


def pytest_runtest_setup(item):
    """`.ci/slow-tests` gives the run a time to end: no further test is begun after it."""
    if time.time() > float(os.environ.get("TFF_RE_TEST_DEADLINE", "inf")):
        pytest.skip("no time was left for it")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """With `--dist loadgroup`, a file's tests go to one process, unless a mark `xdist_group` says otherwise."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def marked_workers(mark):
    """Worker processes that inherited this mark, orphans too; zombies do not count."""
    workers = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.status() != psutil.STATUS_ZOMBIE
                and any("worker_binary" in argument for argument in process.cmdline())
                and process.environ().get(_MARK) == mark
            ):
                workers.append(process)
    return workers
