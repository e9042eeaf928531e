"""The benchmark of other frameworks, without them: what is compared, counted, ended and skipped."""

import importlib.util
import json
import re
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from benchmarks import peers
from benchmarks.peers import FLOWER_TORCH, IN_PROCESS, JAX, LOCAL, LR, LSTM, TORCH, Measurement

pytestmark = pytest.mark.tools


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Folders of the programs and of the environment, with a lock and nothing installed."""
    programs, installed = tmp_path / "programs", tmp_path / "environment"
    programs.mkdir()
    installed.mkdir()
    (programs / "requirements.lock").write_text("torch==1\n")
    monkeypatch.setattr(peers, "PROGRAMS", programs)
    monkeypatch.setattr(peers, "ENVIRONMENT", installed)
    return installed


def test_a_missing_and_an_old_environment_are_named_in_one_line_with_the_remedy(environment):
    remedy = "make it with scripts/setup-peers"
    assert "is missing" in peers.missing() and peers.missing().endswith(remedy)
    (environment / ".installed").write_text("torch==0\n")
    assert "is older than its lock" in peers.missing() and peers.missing().endswith(remedy)
    (environment / ".installed").write_text("torch==1\n")
    assert peers.missing() is None


def test_without_the_environment_ours_alone_are_measured(environment, tmp_path, monkeypatch, capsys):
    asked = []

    def measure(problem, names, *rest):
        asked.append((problem, tuple(names)))
        return {name: Measurement([[1.0]], [0.1], [2.0], 10**9) for name in names}

    monkeypatch.setattr(peers, "measure", measure)
    monkeypatch.setattr(peers, "first_round_of_recipe", lambda *rest: 3.0)
    markdown = peers.run(1, tmp_path)
    assert asked == [(problem, (IN_PROCESS, LOCAL)) for problem in peers.SIZES]
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "are skipped" in line)
    assert line.startswith(f"peers: {TORCH}, {JAX}, {FLOWER_TORCH}, ") and line.endswith("scripts/setup-peers")
    assert TORCH not in markdown and f"| {LR} | {LOCAL} | 1.000 (1.000 to 1.000) | 1.00 |" in markdown


def test_the_lock_has_hashes_and_no_addresses():
    lock = (peers.ROOT / "scripts" / "peers" / "requirements.lock").read_text("utf-8")
    assert "://" not in lock
    packages = re.findall(r"^([a-z][\w.-]*)==[\w.]+ \\\n    --hash=sha256:[0-9a-f]{64}", lock, re.M)
    assert len(packages) == len(re.findall(r"^[a-z]", lock, re.M))
    assert {"torch", "jax", "keras", "flwr", "ray", "transformers"} <= set(packages)


def test_times_and_expectations_are_those_of_the_better_runtime():
    measured = {
        (LR, IN_PROCESS): Measurement([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], [0.25, 0.75], [8.0, 10.0], 2 * 10**9),
        (LR, LOCAL): Measurement([[9.0]] * 2, [1.0, 1.0], [9.0, 9.0], 10**9),
        (LR, FLOWER_TORCH): Measurement([[20.0], [44.0]], [5.0, 5.0], [30.0, 30.0], 3 * 10**9),
        (LSTM, IN_PROCESS): Measurement([[2.0]], [0.1], [6.0], 1),
        (LSTM, TORCH): Measurement([[1.9]], [0.1], [6.0], 1),
        (LSTM, FLOWER_TORCH): Measurement([[8.0]], [0.1], [20.0], 1),
    }
    markdown = peers.table(measured, [11.0, 13.0])
    assert f"| {LR} | {IN_PROCESS} | 3.500 (1.000 to 4.000) | 1.00 | 500.00 | 2.00 | 9.0 (8.0 to 10.0) |" in markdown
    assert f"| {LR} | {FLOWER_TORCH} | 32.000 (20.000 to 44.000) | 10.50 | 5000.00 | 3.00 |" in markdown
    assert (
        f"{LR}: {FLOWER_TORCH} takes 10.50 times as long as {IN_PROCESS}. Expected: at least 20, not met." in markdown
    )
    assert f"{LSTM}: {TORCH} takes 0.95 times as long as {IN_PROCESS}. Expected: at least 1, not met." in markdown
    assert "`train flcmc-shipped-fedpap` takes 0.60 of the time" in markdown and "at most 0.5, not met." in markdown
    assert f"{IN_PROCESS}, {LSTM} takes 0.30 of the time" in markdown
    assert JAX not in markdown


def test_contenders_that_differ_or_do_not_learn_are_refused(tmp_path):
    start = {"kernel": np.zeros([2, 3], np.float32), "bias": np.zeros(3, np.float32)}
    np.savez(tmp_path / "start.npz", **start)
    moved = {name: value + 0.1 for name, value in start.items()}
    near = {name: value + 5e-6 for name, value in moved.items()}
    far = {**moved, "bias": moved["bias"] + np.float32([0, 0, 2e-5])}
    peers.check_agreement(LR, {IN_PROCESS: moved, TORCH: near}, tmp_path)
    with pytest.raises(AssertionError, match=f"bias of {IN_PROCESS} and {JAX} differ by "):
        peers.check_agreement(LR, {IN_PROCESS: moved, TORCH: near, JAX: far}, tmp_path)
    with pytest.raises(AssertionError, match=f"kernel of {IN_PROCESS} has not moved"):
        peers.check_agreement(LR, {IN_PROCESS: {**moved, "kernel": start["kernel"]}}, tmp_path)


_LEAVES_A_CHILD = """
import subprocess, sys, time
child = "import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
own = [sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"]
subprocess.run(own, start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("error", [None, SystemExit])
def test_all_that_a_command_started_ends_with_it(error):
    mine = psutil.Process()
    before = {process.pid for process in mine.children(recursive=True)}
    seen = []
    try:
        with peers.running([sys.executable, "-c", _LEAVES_A_CHILD], {}, subprocess.PIPE, None) as process:
            assert process.stdout.readline() == b"ready\n"
            seen = [child for child in mine.children(recursive=True) if child.pid not in before]
            assert len(seen) == 3, "itself, a child in a session of its own, and an orphan"
            if error is not None:
                raise error
    except SystemExit:
        pass
    assert not any(child.is_running() for child in seen)


@pytest.fixture(scope="module")
def work():
    spec = importlib.util.spec_from_file_location("peers_work", peers.ROOT / "scripts" / "peers" / "work.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_contender_reads_its_work_and_hands_in_its_times_and_weights(work, tmp_path, monkeypatch):
    np.savez(tmp_path / "clients.npz", x=np.arange(12.0).reshape(2, 3, 2), y=np.arange(6).reshape(2, 3))
    np.savez(tmp_path / "start.npz", **{"a/kernel": np.ones(2)})
    (tmp_path / "problem.json").write_text(json.dumps({"kind": "lr"}), "utf-8")
    program = f"""
import sys
sys.path.insert(0, {str(peers.ROOT / "scripts" / "peers")!r})
import work
job = work.from_command_line()
assert job.rounds == [[3, 1], [1, 3]] and len(job.clients) == 2 and job.clients[1]["y"].tolist() == [3, 4, 5]
job.stamp(); job.stamp(); job.stamp()
job.finish({{"a/kernel": job.start["a/kernel"] + 1}})
"""
    monkeypatch.setitem(peers.CONTENDERS, "made up", peers.Contender(("-c", program), python=sys.executable))
    began = time.monotonic()
    run = peers.play("made up", tmp_path, [[3, 1], [1, 3]], tmp_path / "log")
    assert began <= run.started <= run.stamps[0] <= run.stamps[1] <= run.stamps[2] <= time.monotonic()
    assert run.weights["a/kernel"].tolist() == [2.0, 2.0]
    (tmp_path / "rounds.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match="expected"):
        work.Work(tmp_path, tmp_path).finish({"other": np.ones(2)})
    fails = peers.Contender(("-c", "raise SystemExit(3)"), python=sys.executable)
    monkeypatch.setitem(peers.CONTENDERS, "made up", fails)
    with pytest.raises(RuntimeError, match=r"made up on .* ended with exit code 3; see "):
        peers.play("made up", tmp_path, [[1, 1]], tmp_path / "log")
