"""scripts/coordinator, scripts/hospital and the node refuse a Flower that was not tested; no Flower runs here."""

from __future__ import annotations

import configparser
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TESTED = runpy.run_path(str(ROOT / "scripts/flower/tested_versions.py"))["TESTED"]
LOCKED = re.search(r"^flwr==(\S+)", (ROOT / "scripts/flower/requirements.lock").read_text("utf-8"), re.MULTILINE)[1]


@pytest.fixture
def programs(tmp_path):
    """Makes a folder of programs whose Python has the metadata of a version of Flower, or nothing for None."""

    def make(version):
        packages, folder = tmp_path / "packages", tmp_path / "bin"
        packages.mkdir()
        folder.mkdir()
        if version:
            (packages / f"flwr-{version}.dist-info").mkdir()
            (packages / f"flwr-{version}.dist-info/METADATA").write_text(f"Name: flwr\nVersion: {version}\n")
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        return folder

    return make


def refused(folder, *command, cwd=ROOT):
    """The one line of a command that ends with status 2."""
    environment = {**os.environ, "FLOWER": str(folder), "PYTHON": sys.executable}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, cwd=cwd, timeout=600
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("tff-re: ") and "scripts/setup-flower" in line and "FLOWER=/path/to/bin" in line
    return line


@pytest.mark.parametrize("version", ["1.40.0", "1.43.0", "2.0.0", "1.4", "1.430.1"])
def test_an_untested_flower_is_refused_in_one_line(version, programs, tmp_path):
    folder, hospital = programs(version), tmp_path / "hospital"
    hospital.mkdir()
    for name in ("site.toml", "ca.pem", "node"):
        (hospital / name).touch()
    commands = [
        (ROOT / "scripts/coordinator", tmp_path / "federation", "link", "localhost"),
        (ROOT / "scripts/coordinator", tmp_path / "federation", "relay"),
        (ROOT / "scripts/hospital", hospital, "run", "localhost:9092"),
        (folder / "python", ROOT / "scripts/flower/supernode", "--version"),
    ]
    for command in commands:
        line = refused(folder, *command)
        assert f"Flower {version} in " in line and all(tested in line for tested in TESTED)
    assert not (tmp_path / "federation").exists()


def test_an_environment_without_flower_is_refused_in_one_line(programs, tmp_path):
    command = (ROOT / "scripts/coordinator", tmp_path / "federation", "link", "localhost")
    assert "there is no Flower in " in refused(programs(None), *command)
    assert "there is no Python in /no/such/folder;" in refused("/no/such/folder", *command)


def test_a_relative_folder_is_one_of_the_shell_that_it_was_typed_in(programs, tmp_path):
    programs("1.40.0")
    command = (ROOT / "scripts/coordinator", "federation", "link", "localhost")
    assert "Flower 1.40.0 in " in refused("bin", *command, cwd=tmp_path)


@pytest.mark.parametrize("version", [f"{minor}.{patch}" for minor in TESTED for patch in (0, 7)])
def test_a_tested_flower_is_accepted(version, programs):
    command = [programs(version) / "python", ROOT / "scripts/flower/tested_versions.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_flower_of_its_own_the_projects_environment_is_asked(programs, tmp_path):
    """On the language stack, `pip install -e .[flower]` puts Flower there."""
    folder, project = programs("1.40.0"), tmp_path / "project"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    environment = {name: value for name, value in os.environ.items() if name != "FLOWER"}
    environment["PYTHON"] = str(folder / "python")
    command = [project / "scripts/coordinator", tmp_path / "federation", "link", "localhost"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "Flower 1.40.0 in " in done.stderr
    (project / ".flower").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and f"there is no Python in {project}/.flower/bin;" in done.stderr


def test_the_lock_and_the_extra_have_a_tested_version_and_the_same_one():
    assert LOCKED.rpartition(".")[0] in TESTED
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extra = Requirement(setup["options.extras_require"]["flower"].strip())
    assert extra.name == "flwr" and extra.specifier.contains(LOCKED)
    assert not extra.marker.evaluate({"python_version": "3.11"}) and extra.marker.evaluate({"python_version": "3.12"})
    assert [tested for tested in TESTED if extra.specifier.contains(f"{tested}.0")] == [LOCKED.rpartition(".")[0]]
