"""Whole runs with `--runtime in-process`: from the command line, resumed, and beside the same runs in the worker."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import (
    assert_same_weights,
    builder,
    command,
    share_computations,
    tiny,
    write_recipe,
)
from tff_re.runs.folder import RunFolder
from tff_re.runs.results import read_history
from tff_re.runs.run import train_run
from tff_re.runtime import open_runtime
from tff_re.runtime.in_process.interpreter import InProcessContext

PLAN = ("training.rounds=4", "training.checkpoint_every=2", "evaluation.every=2")


@pytest.fixture(autouse=True)
def _built_once(monkeypatch):
    share_computations(monkeypatch)


@pytest.fixture
def here(runtime, tmp_path):
    """Opened above the session's runtime, which is the default again afterwards."""
    with open_runtime("in-process", log_path=tmp_path / "log", threads=2) as opened:
        yield opened


def run(folder, runtime, *plan, **options):
    return train_run(tiny(*PLAN, *plan), folder, builder=builder(), runtime=runtime, **options)


def test_commands(capsys, tmp_path):
    recipe, out = write_recipe(tmp_path / "r.toml"), tmp_path / "run"
    for arguments in (
        ("train", recipe, "--out", out),
        ("evaluate", out),
        ("export", out),
        ("compare", recipe, "--seeds", "0,1", "--set", "training.rounds=1", "--out", tmp_path / "table"),
    ):
        typed = command(capsys, *arguments, "--runtime", "in-process")
        assert typed.code == 0 and typed.err == "", arguments
    assert json.loads((out / "summary.json").read_text("utf-8"))["rounds"] == 3
    assert (out / "export").is_dir() and (tmp_path / "table" / "comparison.md").exists()


def test_a_run_is_that_of_the_worker(runtime, tmp_path, monkeypatch):
    calls = []
    compute = InProcessContext._compute
    monkeypatch.setattr(InProcessContext, "_compute", lambda *a: calls.append(None) or compute(*a))
    run(tmp_path / "there", runtime, details=False)
    assert not calls
    with open_runtime("in-process", log_path=tmp_path / "log") as here:
        run(tmp_path / "here", here, details=False)
    assert len(calls) > 4
    here, there = (read_history(RunFolder(tmp_path / name)) for name in ("here", "there"))
    assert [row.keys() for row in here] == [row.keys() for row in there]
    for ours, workers in zip(here, there, strict=True):
        # The two round the last bit apart, and an accuracy is a count.
        np.testing.assert_allclose(list(ours.values()), list(workers.values()), rtol=1e-5, atol=1e-6)


def test_a_run_that_was_broken_off_continues(here, tmp_path):
    plan = ("algorithm={name='moon', local_epochs=1}",)
    _, wanted = run(tmp_path / "whole", here, *plan, details=False)
    _, result = resumed_after(functools.partial(run, tmp_path / "run", here, *plan), 3, details=False)
    assert_same_weights(result.weights, wanted.weights)
    assert_same_files(tmp_path / "run", tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
