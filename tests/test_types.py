"""The type checker of `make lint`: what it checks, what it refuses, and that CONTRIBUTING's examples pass."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import test_docs

ROOT = Path(__file__).parents[1]
CHECKED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]["files"]
"""Folders and files."""
MYPY = ROOT / ".types" / "bin" / "mypy"


def test_what_is_checked_exists_and_is_sorted_and_named_once():
    assert sorted(set(CHECKED)) == CHECKED
    folders = [name for name in CHECKED if not name.endswith(".py")]
    assert "computations" in folders
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files += [ROOT / name for name in CHECKED if name.endswith(".py")]
    assert len(files) == len(set(files)) >= 205
    missing = [name for name in CHECKED if not (ROOT / name).exists()]
    assert missing == []


def checked(tmp_path, *files):
    """Return the exit code of the type checker for these files, and what it prints."""
    command = [MYPY, "--cache-dir", tmp_path / "cache", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


NEEDS_MYPY = pytest.mark.skipif(
    not (ROOT / ".types" / ".installed").exists(), reason="no .types here; scripts/setup-types makes it"
)


@pytest.mark.tools
@NEEDS_MYPY
@pytest.mark.parametrize(("line", "code"), [("x: int = 1\n", 0), ("x: int = 'one'\n", 1), ("def f(x): ...\n", 1)])
def test_a_wrong_or_missing_type_is_refused(line, code, tmp_path):
    (tmp_path / "wrong.py").write_text(line, "utf-8")
    status, printed = checked(tmp_path, tmp_path / "wrong.py")
    assert status == code, printed


@pytest.mark.tools
@NEEDS_MYPY
def test_the_examples_of_contributing_have_types(tmp_path):
    (algorithm,) = test_docs.blocks("python", test_docs.CONTRIBUTING)
    (tmp_path / "fedavgm.py").write_text(algorithm, "utf-8")
    status, printed = checked(tmp_path, tmp_path / "fedavgm.py", ROOT / "tests/computations/toy_rule.py")
    assert status == 0, printed
