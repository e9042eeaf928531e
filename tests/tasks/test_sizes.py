"""What cannot fit is refused before anything is built, and what fits today is not."""

from __future__ import annotations

import subprocess
import sys
import time
from resource import RLIMIT_AS, RLIMIT_NOFILE, setrlimit

import pytest

from tests.upper_floors import (
    SYNTHETIC,
    builder,
    command,
    consultations,
    refusal,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.errors import UserError
from tff_re.tasks import sizes


@pytest.fixture(autouse=True)
def _built_once(monkeypatch):
    share_computations(monkeypatch)


@pytest.mark.parametrize(
    ("section", "value", "part"),
    [
        ("task", {"max_length": 1_000_000_000}, "task.max_length = 1000000000: encoding 24 texts"),
        ("model", {"name": "lstm", "units": 60_000}, "model 'lstm': training its weights of 57.7 GB"),
        ("partition", {"name": "iid", "num_clients": 100_000_000}, "partition.num_clients is 100000000"),
    ],
)
def test_a_text_recipe_too_large(section, value, part, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sizes, "available_memory", lambda: 24e9)
    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    table[section] = {**table.get(section, {}), **value}
    if section == "model":
        table[section].pop("features")
    recipe, out = write_recipe(tmp_path / "r.toml", table), tmp_path / "run"
    began = time.monotonic()
    refusal(command(capsys, "train", recipe, "--out", out), part)
    assert not out.exists() and time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ({"num_clients": 10**8, "total_train": None, "total_test": None}, "task.num_clients = 100000000, num_feat"),
        ({"num_features": 1_000_000_000}, "num_features = 1000000000"),
        ({"num_classes": 10**12}, "num_classes = 1000000000000"),
        ({"total_train": 10**12}, "the generated data needs at least 2.0e+04 GB"),
    ],
)
def test_generated_data_too_large(task, wanted, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sizes, "available_memory", lambda: 24e9)
    made = {key: value for key, value in {**SYNTHETIC["task"], **task}.items() if value is not None}
    recipe, out = write_recipe(tmp_path / "r.toml", task=made), tmp_path / "run"
    refusal(command(capsys, "train", recipe, "--out", out), wanted, "24.0 GB is free; lower them")
    assert not out.exists()


def test_what_runs_today_is_not_refused(monkeypatch):
    """DistilBERT with ten clients on a machine of 16 GB; the papers' largest data."""
    monkeypatch.setattr(sizes, "available_memory", lambda: 12e9)
    distilbert = 4 * 66_000_000
    sizes.require_room_for_model(distilbert, "m")
    sizes.require_room_in_message(distilbert, "m", "local")
    sizes.require_room_for_texts(500_000, 128, arrays=4)
    sizes.require_room_for_synthetic(1000, 60, 10, None)


def test_who_does_not_train_needs_the_weights_once(monkeypatch):
    monkeypatch.setattr(sizes, "available_memory", lambda: 2e9)
    sizes.require_room_for_model(1_500_000_000, "m", trains=False)
    with pytest.raises(UserError, match=r"m: training its weights of 1\.5 GB needs at least 6\.0 GB"):
        sizes.require_room_for_model(1_500_000_000, "m")
    with pytest.raises(UserError, match=r"m: holding its weights of 2\.5 GB needs at least 2\.5 GB"):
        sizes.require_room_for_model(2_500_000_000, "m", trains=False)


def test_weights_larger_than_a_message_go_without_a_worker():
    sizes.require_room_in_message(3_000_000_000, "m", "in-process")
    with pytest.raises(
        UserError, match=r"m: its weights take 3\.0 GB, but a message to TFF's worker holds at most 2\.0 GB"
    ):
        sizes.require_room_in_message(3_000_000_000, "m", "local")


def test_the_memory_of_a_control_group_counts(monkeypatch, tmp_path):
    cached = "inactive_file 50000\nactive_file 20000\nslab_reclaimable 3000\n"
    files = {"max": "1000000", "current": "400000", "stat": f"anon 1\n{cached}"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sizes, "_CGROUPS", ([str(tmp_path / name) for name in files],))
    assert sizes.available_memory() == 673_000
    # Version 1: with and without the groups below.
    (tmp_path / "stat").write_text(
        "active_file 1\ninactive_file 2\ntotal_active_file 30000\ntotal_inactive_file 4000\n"
    )
    assert sizes.available_memory() == 634_000
    (tmp_path / "max").write_text("max")
    assert sizes.available_memory() > 1e6


@pytest.mark.parametrize(
    ("limit", "value", "wanted"),
    [
        (RLIMIT_AS, 1_000_000 * 1024, "ulimit -v allows 1.0 GB of address space, but TensorFlow needs 3 GB; raise it"),
        (RLIMIT_AS, 2_000_000 * 1024, "ulimit -v allows 2.0 GB of address space"),
        (RLIMIT_NOFILE, 30, "ulimit -n allows 30 open files, but a run needs 64; raise it, e.g. ulimit -n 1024"),
    ],
)
@pytest.mark.parametrize("arguments", [["train", "r.toml"], ["predict", "x", "y"]])
def test_limits_of_the_shell_are_told_before_tensorflow_dies_of_them(arguments, limit, value, wanted, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tff_re.run", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: setrlimit(limit, (value, value)),
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"tff-re: {wanted}") and done.stderr.count("\n") == 1


def test_what_could_not_be_trained_can_be_evaluated(monkeypatch):
    monkeypatch.setattr(sizes, "WEIGHTS_AT_ONCE", 10**12)
    builder().build(tiny(), trains=False)
    with pytest.raises(UserError, match="training its weights of"):
        builder().build(tiny())
