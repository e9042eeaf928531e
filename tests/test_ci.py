"""What `.ci/run` calls before and after the tests: programs that they need, and what was skipped."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.tools

CI = pathlib.Path(__file__).parents[1] / ".ci"


@pytest.fixture
def install(tmp_path):
    """Runs `.ci/install` where apt-get, dpkg, id and sudo are these shell scripts."""

    def run(*programs, apt, user=0, sudo="exit 1", **variables):
        scripts = {
            "apt-get": f'echo "$*" >>{tmp_path}/calls\n{apt}',
            "dpkg": f'echo "dpkg $*" >>{tmp_path}/dpkg-calls',
            "id": f"echo {user}",
            "sudo": sudo,
        }
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TFF_RE_CI_PAUSE": "0", **variables}
        done = subprocess.run([CI / "install", *programs], capture_output=True, text=True, env=environment)
        calls = tmp_path / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    return run


def made(folder, name):
    """Shell code: installing puts a program on the PATH."""
    return f'case "$*" in *install*) printf "#!/bin/sh\\n" >{folder}/{name}; chmod +x {folder}/{name};; esac'


def test_what_is_missing_is_installed_alone(install, tmp_path):
    done, calls = install("sh", "env", apt="exit 1")
    assert (done.returncode, done.stdout, done.stderr, calls) == (0, "", "", [])
    done, calls = install("sh", "tff-re-proxy", apt=made(tmp_path, "tff-re-proxy"))
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2 and calls[0].endswith("update") and calls[1].endswith("--no-install-recommends tff-re-proxy")


def test_a_source_that_is_out_of_order_is_not_fatal(install, tmp_path):
    done, calls = install(
        "tff-re-proxy", apt='case "$*" in *update) exit 100;; esac\n' + made(tmp_path, "tff-re-proxy")
    )
    assert done.returncode == 0 and len(calls) == 2
    assert "apt-get update failed" in done.stderr and not (tmp_path / "dpkg-calls").exists()


def test_it_is_tried_five_times(install, tmp_path):
    flaky = f'[ "$(wc -l <{tmp_path}/calls)" -ge 4 ] || exit 100\n' + made(tmp_path, "tff-re-proxy")
    done, calls = install("tff-re-proxy", apt=flaky)
    assert done.returncode == 0 and len(calls) == 4
    assert (tmp_path / "dpkg-calls").read_text() == "dpkg --configure -a\n"
    done, calls = install("tff-re-other", apt="echo no network >&2; exit 100")
    assert done.returncode == 1 and len(calls) == 4 + 2 * 5
    assert "no network" in done.stderr and "failed: tff-re-other could not be installed" in done.stderr


def test_it_ends_in_time(install):
    began = time.monotonic()
    done, calls = install("tff-re-proxy", apt="exec sleep 60", TFF_RE_CI_SECONDS="1")
    assert done.returncode == 1 and len(calls) == 1 and time.monotonic() - began < 20


def test_who_is_not_root_may_have_sudo(install, tmp_path):
    sudo = f'[ "$1" = -n ] || exit 9; shift; echo "$*" >>{tmp_path}/sudo-calls; exec "$@"'
    done, calls = install("tff-re-proxy", apt=made(tmp_path, "tff-re-proxy"), user=1000, sudo=sudo)
    assert done.returncode == 0 and len(calls) == 2
    asked = (tmp_path / "sudo-calls").read_text().splitlines()
    assert asked[0] == "true" and len(asked) == 3 and all(" apt-get " in line for line in asked[1:])


def test_who_is_not_root_is_told(install):
    done, calls = install("tff-re-proxy", apt="exit 0", user=1000)
    assert done.returncode == 1 and not calls
    assert done.stderr.count("\n") == 1 and "apt-get install tff-re-proxy)" in done.stderr


def test_skipped_tests_are_told_with_their_reasons(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_two(n): pytest.skip('openssl is not installed')\n"
        "@pytest.mark.skipif(True, reason='no GPU')\n"
        "def test_three(): pass\n"
    )
    results = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", "test_some.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    printed = subprocess.run(
        [sys.executable, CI / "skipped", results], check=True, capture_output=True, text=True
    ).stdout
    assert printed.splitlines() == [
        "skipped: 3 of 4 tests",
        "     2  openssl is not installed (test_some)",
        "     1  no GPU (test_some)",
    ]


def test_the_whole_check_installs_what_its_tests_need():
    steps = [line for line in (CI / "run").read_text().splitlines() if line.startswith("step ")]
    assert steps[0] == "step .ci/install openssl ssh-keygen" and "--junitxml" in steps[1]


@pytest.mark.parametrize("failing", [None, "test", "smoke"])
@pytest.mark.parametrize("last_command", ["exit 0", "exit 1"])
def test_what_was_skipped_is_told_whatever_fails(failing, last_command, tmp_path):
    """Neither a step that fails nor a failure to tell changes the exit status."""
    scripts = {
        ".ci/install": "",
        ".ci/language-stack": "",
        ".ci/slow-tests": "",
        ".venv/bin/python": f'echo "told of $(basename "$1")"; {last_command}',
        "bin/make": 'case "$*" in *junitxml=*) echo made >"${3##*=}";; esac\n'
        f'case " $* " in *" {failing} "*) exit 3;; esac',
    }
    for name, script in scripts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    shutil.copy(CI / "run", tmp_path / ".ci/run")
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run([tmp_path / ".ci/run"], capture_output=True, text=True, env=environment)
    assert done.returncode == (0 if failing is None else 3), done.stderr
    assert done.stdout.count("told of skipped") == 1
    assert ("could not be made" in done.stdout) == (last_command == "exit 1")
    assert ("all passed" in done.stdout) == (failing is None)
    assert not list(tmp_path.glob("tmp.*"))


@pytest.fixture(scope="module")
def slow_tests():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("slow_tests", str(CI / "slow-tests"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("slow_tests", loader))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["README.md", "docs/sites.md"], []),
        (["tff_re/sites/site.py", "tests/sites/test_sites.py", "docs/sites.md"], ["tests/sites"]),
        (["computations/bags.py", "tests/runs/test_choice.py"], ["tests/computations", "tests/runs/test_choice.py"]),
        (["tff_re/run.py"], ["tests/cli"]),
        (["datasets/relations/pgr.py", "tests/relations_for_tests.py"], ["tests"]),
        (["tff_re/recipes/suites/x.toml", "setup.cfg"], ["tests"]),
        (["tests/gone/test_gone.py"], []),
    ],
)
def test_slow_tests_are_those_of_the_rooms_that_changed(slow_tests, changed, chosen):
    assert slow_tests.tests_for(changed) == chosen


def test_no_test_is_begun_after_the_deadline(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_setup\n")
    (tmp_path / "test_some.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "test_some.py"]
    for seconds, outcome in ((-1, "1 skipped"), (60, "1 passed")):
        deadline = {"TFF_RE_TEST_DEADLINE": str(time.time() + seconds), "PYTHONPATH": str(CI.parent)}
        environment = {**os.environ, **deadline}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert outcome in done.stdout and ("no time was left" in done.stdout) == (seconds < 0)
