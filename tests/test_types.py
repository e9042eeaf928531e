"""The type checker of `make lint`: which files it checks, and that it refuses a wrong type."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]["files"]
MYPY = ROOT / ".types" / "bin" / "mypy"


def test_the_files_that_are_checked_exist_and_are_sorted():
    assert sorted(set(FILES)) == FILES and len(FILES) >= 116
    assert [file for file in FILES if not (ROOT / file).is_file()] == []


@pytest.mark.tools
@pytest.mark.skipif(
    not (ROOT / ".types" / ".installed").exists(), reason="no .types here; scripts/setup-types makes it"
)
@pytest.mark.parametrize(("line", "code"), [("x: int = 1\n", 0), ("x: int = 'one'\n", 1), ("def f(x): ...\n", 1)])
def test_a_wrong_or_missing_type_is_refused(line, code, tmp_path):
    (tmp_path / "wrong.py").write_text(line, "utf-8")
    command = [MYPY, "--cache-dir", tmp_path / "cache", tmp_path / "wrong.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
