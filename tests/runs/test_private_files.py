"""What a run writes is for its user alone; what is made to be given away is not."""

from __future__ import annotations

import os
import stat

import pytest

from tests.stacks import needs_tff
from tests.upper_floors import command, share_computations, write_recipe
from tff_re.runs.folder import make_private_folder, permissions

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture(autouse=True)
def usual_mask():
    """Of most machines: others may read."""
    with permissions(0o022):
        yield


def open_to_others(*folders):
    """Files and folders below these, and these, that others than their user have permissions for."""
    open_paths = []
    for folder in folders:
        paths = [folder, *folder.rglob("*")]
        assert len(paths) > 5
        open_paths += [path for path in paths if path.stat().st_mode & OTHERS]
    return open_paths


@pytest.fixture(scope="module")
def commands(tmp_path_factory, request):
    """A run, and a comparison in a folder that was there before."""
    folder = tmp_path_factory.mktemp("private")
    recipe = write_recipe(folder / "r.toml")
    (folder / "compared").mkdir()
    with pytest.MonkeyPatch.context() as patch, permissions(0o022):
        share_computations(patch)
        capture = Captured()
        one_round = ("--set", "training.rounds=1", "--runtime", "in-process")
        assert command(capture, "train", recipe, "--out", folder / "deep" / "run", *one_round).code == 0
        assert command(capture, "compare", recipe, "--out", folder / "compared", *one_round).code == 0
        mask = os.umask(0o022)
    assert mask == 0o022  # the commands leave it as it was
    return folder


class Captured:
    """In the place of capsys, which a fixture of a module cannot have."""

    def readouterr(self):
        return "", ""


def test_a_run_is_its_users_alone(commands):
    assert not open_to_others(commands / "deep" / "run")
    assert open_to_others(commands / "compared") == [commands / "compared"], "it keeps its permissions"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (commands / "deep" / "run").iterdir()}
    assert modes["checkpoints"] == modes["tensorboard"] == 0o700
    assert modes["metrics.csv"] == modes["model.keras"] == modes["recipe.toml"] == 0o600
    assert stat.S_IMODE((commands / "deep").stat().st_mode) == 0o755  # holds more than runs, perhaps


def test_an_export_is_made_to_be_given_away(commands, capsys):
    out = commands / "export"
    typed = command(capsys, "export", commands / "deep" / "run", "--out", out, "--runtime", "in-process")
    assert typed.code == 0, typed
    for path in (out, *out.rglob("*")):
        wanted = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert command(capsys, "evaluate", commands / "deep" / "run", "--runtime", "in-process").code == 0
    assert not open_to_others(commands / "deep" / "run")


@needs_tff
def test_the_worker_log_is_private(tmp_path):
    from tff_re.runtime.local.worker import Worker

    with Worker(tmp_path / "logs" / "worker.log") as worker:
        assert stat.S_IMODE(worker.log_path.stat().st_mode) == 0o600


def test_permissions_come_back_after_an_error(tmp_path):
    with pytest.raises(KeyError), permissions():
        raise KeyError
    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / "c").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "c")]
    assert modes == [0o755, 0o700, 0o644]
