"""What `.ci/run` calls before and after the tests: programs that they need, and what was skipped."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

CI = pathlib.Path(__file__).parents[1] / ".ci"


@pytest.fixture
def install(tmp_path):
    """Runs `.ci/install` where apt-get and id are these shell scripts."""

    def run(*programs, apt, user=0):
        for name, script in (("apt-get", f'echo "$*" >>{tmp_path}/calls\n{apt}'), ("id", f"echo {user}")):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TFF_RE_CI_PAUSE": "0"}
        done = subprocess.run([CI / "install", *programs], capture_output=True, text=True, env=environment)
        calls = tmp_path / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    return run


def made(folder, name):
    """Shell code: installing puts a program on the PATH."""
    return f'case "$*" in *install*) printf "#!/bin/sh\\n" >{folder}/{name}; chmod +x {folder}/{name};; esac'


def test_what_is_there_is_not_installed(install):
    done, calls = install("sh", "env", apt="exit 1")
    assert (done.returncode, done.stdout, done.stderr, calls) == (0, "", "", [])


def test_what_is_missing_is_installed(install, tmp_path):
    done, calls = install("sh", "tff-re-proxy", apt=made(tmp_path, "tff-re-proxy"))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and calls[0].endswith("update") and calls[1].endswith("--no-install-recommends tff-re-proxy")


def test_it_is_tried_three_times(install, tmp_path):
    flaky = f'[ "$(wc -l <{tmp_path}/calls)" -ge 3 ] || exit 100\n' + made(tmp_path, "tff-re-proxy")
    done, calls = install("tff-re-proxy", apt=flaky)
    assert done.returncode == 0 and len(calls) == 4
    done, calls = install("tff-re-other", apt="echo no network >&2; exit 100")
    assert done.returncode == 1 and len(calls) == 4 + 3
    assert "no network" in done.stderr and "failed: tff-re-other could not be installed" in done.stderr


def test_who_is_not_root_is_told(install):
    done, calls = install("tff-re-proxy", apt="exit 0", user=1000)
    assert done.returncode == 1 and not calls
    assert done.stderr.count("\n") == 1 and "apt-get install tff-re-proxy)" in done.stderr


def test_skipped_tests_are_told_with_their_reasons(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_two(n): pytest.skip('HAProxy is not installed')\n"
        "@pytest.mark.skipif(True, reason='no GPU')\n"
        "def test_three(): pass\n"
    )
    results = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", "test_some.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    told = subprocess.run([sys.executable, CI / "skipped", results], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == [
        "skipped: 3 of 4 tests",
        "     2  HAProxy is not installed (test_some)",
        "     1  no GPU (test_some)",
    ]


def test_the_whole_check_installs_what_its_tests_need_and_tells_what_was_skipped():
    lines = (CI / "run").read_text().splitlines()
    steps = [line for line in lines if line.startswith(("step ", ".venv"))]
    assert steps[0] == "step .ci/install haproxy openssl" and "--junitxml" in steps[1]
    assert steps[-1].startswith(".venv/bin/python .ci/skipped")
