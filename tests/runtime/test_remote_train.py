"""`train --runtime remote:…` as it is typed, and a run that loses a worker."""

import csv

import numpy as np
import pytest

from tests.runtime.test_remote import free_port
from tests.upper_floors import assert_same_run, builder, command, refusal, share_computations, tiny, write_recipe
from tff_re.runs.run import train_run
from tff_re.runtime import RemoteRuntime
from tff_re.runtime.local.worker import Worker


@pytest.fixture
def workers(tmp_path, processes):
    started = [Worker(tmp_path / f"{n}.log", max_concurrent_computation_calls=1, port=free_port()) for n in range(2)]
    try:
        for worker in started:
            worker.start()
        yield started
    finally:
        for worker in started:
            worker.stop()


def addresses(workers):
    return ",".join(f"127.0.0.1:{worker.port}" for worker in workers)


def rows(folder):
    with open(folder / "metrics.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_on_two_workers(workers, tmp_path, capsys, monkeypatch):
    share_computations(monkeypatch)
    recipe = write_recipe(tmp_path / "tiny.toml")
    for name, out in ((f"remote:{addresses(workers)}", "remote"), ("local", "local")):
        typed = command(capsys, "train", recipe, "--runtime", name, "--out", tmp_path / out)
        assert typed.code == 0, typed
    remote, local = rows(tmp_path / "remote"), rows(tmp_path / "local")
    assert len(remote) == len(local) == 3
    for a, b in zip(remote, local, strict=True):
        assert list(a) == list(b)
        np.testing.assert_allclose([float(v) for v in a.values()], [float(v) for v in b.values()], rtol=1e-4)


def test_a_run_that_loses_a_worker(workers, tmp_path):
    """Everything is as if it had not been lost, and the log says that it was."""
    runtime = RemoteRuntime(tmp_path / "log", addresses=addresses(workers))
    with runtime:
        train_run(tiny(), tmp_path / "quiet", builder=builder(), runtime=runtime, details=True)
        train_run(
            tiny(),
            tmp_path / "disturbed",
            builder=builder(),
            runtime=runtime,
            on_round=lambda report: workers[1].stop() if report.round == 1 else None,
        )
    assert_same_run(tmp_path / "quiet", tmp_path / "disturbed")
    assert not (tmp_path / "quiet" / "run.log").exists()  # there was nothing to say
    log = (tmp_path / "disturbed" / "run.log").read_text("utf-8")
    assert log.count(f"the worker 127.0.0.1:{workers[1].port} was lost") == 1
    assert "the others repeat the round of its clients" in log


def test_an_unreachable_worker_leaves_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(RemoteRuntime.__init__.__kwdefaults__, "connect_timeout", 0.5)
    recipe, port = write_recipe(tmp_path / "tiny.toml"), free_port()
    for arguments in (["train", recipe], ["compare", recipe]):
        typed = command(capsys, *arguments, "--runtime", f"remote:127.0.0.1:{port}", "--out", tmp_path / "run")
        refusal(typed, f"no worker answered at 127.0.0.1:{port} within 0.5 s", "python -m tff_re.run worker")
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["remote", "remote:ward3", "remote:ward3:8000,ward3:8000"])
def test_a_malformed_address(name, tmp_path, capsys):
    refusal(command(capsys, "train", write_recipe(tmp_path / "tiny.toml"), "--runtime", name), "--runtime")


def test_some_files_for_tls(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TFF_RE_TLS_CERT", "me.pem")
    typed = command(capsys, "train", write_recipe(tmp_path / "tiny.toml"), "--runtime", "remote:ward3:8000")
    refusal(typed, "missing: --tls-key (TFF_RE_TLS_KEY)")
