"""scripts/setup-venv, with a Python whose pip and uv install nothing; scripts/uv-as-pip, with configurations of pip."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import pytest

pytestmark = pytest.mark.tools

ROOT = pathlib.Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-language.lock")

# Makes environments of itself, and records the calls of pip and compileall.
PYTHON = """#!/bin/bash
case "$*" in
    *"import sys, bz2"*) echo "${VERSION:-3.11} $PWD/python";;
    *'print("%d.%d" % sys.version_info[:2])'*) echo "${VERSION:-3.11}";;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo "venv" >>calls;;
    *" install "*build-tools*)
        names=$(sed -n 's/==.*//p' .venv/build-tools.lock | xargs)
        echo "pip: $names" >>calls
        case $names in *uv*) eval "$UV_MISSING"; cp uv .venv/bin/uv;; esac;;
    *" --editable .") echo "pip: project" >>calls;;
    *" install "*.lock) echo "pip: $(grep -c == "${!#}") packages" >>calls; exit ${STATUS_OF_PIP:-0};;
    *compileall*) echo "compiled" >>calls;;
    *sysconfig*) ;;
    *) exec REAL "$@";;
esac
"""
UV = """#!/bin/bash
case "$*" in
    "cache dir") echo "$HOME/.cache/uv";;
    *)
        echo "uv: $UV_CACHE_DIR: $*" >>calls
        mkdir -p "$UV_CACHE_DIR"
        echo "no such package" >&2
        exit ${STATUS_OF_UV:-0};;
esac
"""


@pytest.fixture
def setup(tmp_path):
    """Function that calls scripts/setup-venv in a temporary folder: (completed process, recorded calls)."""
    folder = tmp_path / "project"
    for name in ("scripts/setup-venv", "scripts/uv-as-pip", "setup.cfg", "pyproject.toml", *LOCKS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "tff_re").mkdir()
    (folder / "tff_re/__init__.py").touch()
    for name, script in {"python": PYTHON.replace("REAL", sys.executable), "uv": UV}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)

    def run(**variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        environment |= {"PYTHON": "./python", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull} | variables
        (folder / "calls").write_text("")
        done = subprocess.run([folder / "scripts/setup-venv"], capture_output=True, text=True, env=environment)
        return done, (folder / "calls").read_text().splitlines()

    run.folder = folder
    return run


def locked(lock):
    return sum(1 for line in (ROOT / lock).read_text().splitlines() if line[0] not in " #")


PACKAGES = locked(LOCKS[0])
TOOLS = "setuptools uv wheel"


def pip_calls(calls):
    """(pip's other calls, number of packages in its two parallel calls, which end in any order)."""
    counted = [call.split()[1] for call in calls if call.endswith(" packages")]
    return [call for call in calls if not call.endswith(" packages")], sum(map(int, counted))


def test_uv_installs_all_that_is_locked_and_pip_the_project(setup):
    done, calls = setup()
    assert done.returncode == 0 and done.stderr.splitlines()[-1] == "tff-re: ready"
    assert [calls[0], calls[1], *calls[3:]] == ["venv", f"pip: {TOOLS}", "compiled", "pip: project"]
    cache, _, words = calls[2].removeprefix("uv: ").partition(": ")
    assert cache == str(setup.folder / ".uv/cache") and not (setup.folder / ".uv").exists()
    assert words.endswith("--quiet --require-hashes --no-deps --no-build-isolation -r requirements.lock")
    done, calls = setup()
    assert (done.returncode, done.stderr, calls) == (0, "", []), "a second call has nothing to do"


def test_who_has_a_cache_of_uv_has_it_used_and_kept(setup, tmp_path):
    cache = tmp_path / ".cache/uv"
    cache.mkdir(parents=True)
    assert setup()[1][2].startswith(f"uv: {cache}: ") and cache.exists()
    shutil.rmtree(setup.folder / ".venv")
    chosen = tmp_path / "of its own"
    assert setup(UV_CACHE_DIR=str(chosen))[1][2].startswith(f"uv: {chosen}: ") and chosen.exists()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"STATUS_OF_UV": "2"}, "no such package"),
        ({"UV_MISSING": "echo no uv here; exit 1"}, "no uv here"),
        ({"PIP_CONSTRAINT": "mine.txt"}, "pip's configuration has constraint, which uv has no"),
    ],
)
def test_where_uv_cannot_pip_installs_the_same_and_it_is_told(variables, reason, setup):
    done, calls = setup(**variables)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "uv" in line]
    assert reason in line
    calls, packages = pip_calls([call for call in calls if not call.startswith("uv: ")])
    tools = TOOLS.replace("uv ", "")
    assert calls == ["venv", f"pip: {TOOLS}", "venv", f"pip: {tools}", "compiled", "pip: project"]
    assert packages == PACKAGES - 1, "all but uv"
    assert not (setup.folder / ".uv").exists()


def test_pip_alone_can_be_asked_for(setup):
    done, calls = setup(INSTALLER="pip")
    calls, packages = pip_calls(calls)
    assert done.returncode == 0 and packages == PACKAGES - 1
    assert calls == ["venv", "pip: setuptools wheel", "compiled", "pip: project"]
    done, calls = setup(INSTALLER="conda")
    assert done.returncode == 1 and not calls and done.stderr == "tff-re: INSTALLER=conda is neither uv nor pip.\n"


def test_what_is_not_finished_is_begun_again(setup):
    for installer in ("uv", "pip"):
        done, calls = setup(INSTALLER=installer, STATUS_OF_UV="1", STATUS_OF_PIP="1")
        assert done.returncode == 1 and "compiled" not in calls
        assert done.stderr.splitlines()[-1].startswith("tff-re: the installation did not finish;")
    done, calls = setup()
    assert done.returncode == 0 and calls[0] == "venv" and "compiled" in calls


def test_the_environment_of_another_folder_is_not_replaced(setup, tmp_path):
    (tmp_path / "of another").mkdir()
    (setup.folder / ".venv").symlink_to(tmp_path / "of another")
    done, calls = setup()
    assert done.returncode == 1 and not calls and done.stderr.startswith("tff-re: .venv is a link")
    assert done.stderr.count("\n") == 1 and not any((tmp_path / "of another").iterdir())


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_newer_python_gets_the_lock_of_the_language_stack(version, setup):
    done, calls = setup(VERSION=version)
    assert done.returncode == 0 and calls[2].endswith(f"-r {LOCKS[1]}"), done.stderr
    assert setup(VERSION=version, STACK="language")[1] == [], "it has what it asks for"
    done, calls = setup(VERSION=version, INSTALLER="pip")
    shutil.rmtree(setup.folder / ".venv")
    done, calls = setup(VERSION=version, INSTALLER="pip")
    assert done.returncode == 0 and pip_calls(calls)[1] == locked(LOCKS[1]) - 1, "all but uv"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"VERSION": "3.13", "STACK": "tff"}, "not a CPython 3.11 with the modules"),
        ({"STACK": "language"}, "not a CPython 3.13 or 3.12 with the modules"),
        ({"VERSION": "3.10"}, "not a CPython 3.11 or 3.13 or 3.12 with the modules"),
        ({"VERSION": "3.14"}, "not a CPython 3.11 or 3.13 or 3.12 with the modules"),
        ({"STACK": "jax"}, "STACK=jax is neither tff nor language."),
    ],
)
def test_a_python_of_another_stack_is_refused_in_one_line(variables, message, setup):
    done, calls = setup(**variables)
    assert done.returncode == 1 and not calls
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_names_no_address(lock):
    text = (ROOT / lock).read_text()
    assert "://" not in text and text.count("    --hash=sha256:") >= locked(lock) > 100


@pytest.fixture(scope="module")
def uv_as_pip():
    loader = SourceFileLoader("uv_as_pip", str(ROOT / "scripts/uv-as-pip"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("listed", "arguments", "environment"),
    [
        ("", [], {}),
        ("global.index-url='https://here.invalid/index'", ["--default-index", "https://here.invalid/index"], {}),
        (
            "global.extra-index-url='\\nhttps://a.invalid/index\\nfile:///b'\ninstall.trusted-host='a b:80'",
            [
                *("--index", "https://a.invalid/index", "--index", "file:///b"),
                *("--allow-insecure-host", "a", "--allow-insecure-host", "b:80"),
            ],
            {},
        ),
        (
            ":env:.find-links='/mine'\nglobal.find-links='/theirs'\ninstall.find-links='/ours'\ndownload.pre='1'",
            ["--find-links", "/mine"],
            {},
        ),
        (":env:.find-links=''\nglobal.find-links='/a=b'", ["--find-links", "/a=b"], {}),
        ("global.no-index='true'", ["--no-index"], {}),
        ("global.no-index='0'\n:env:.no-input='1'", [], {}),
        ("install.keyring-provider='subprocess'", ["--keyring-provider", "subprocess"], {}),
        (
            "global.cert='/a.pem'\nglobal.client-cert='/b.pem'\n:env:.default-timeout='180'\nglobal.timeout='5'\nglobal.retries='2'",
            [],
            {"SSL_CERT_FILE": "/a.pem", "SSL_CLIENT_CERT": "/b.pem", "UV_HTTP_TIMEOUT": "180", "UV_HTTP_RETRIES": "2"},
        ),
        (
            "global.proxy='http://there:3128'",
            [],
            dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"], "http://there:3128"),
        ),
    ],
)
def test_uv_is_told_what_pip_is_told(listed, arguments, environment, uv_as_pip):
    assert uv_as_pip.uv_settings(uv_as_pip.parse_settings(listed), {}) == (arguments, environment)


def test_what_uv_is_told_elsewhere_is_left_out_but_the_cache(uv_as_pip):
    before = {"UV_CACHE_DIR": "/c", "UV_SYSTEM_PYTHON": "1", "UV_INDEX": "x", "HOME": "/h", "CURL_CA_BUNDLE": "/d.pem"}
    after = {"UV_CACHE_DIR": "/c", "HOME": "/h", "CURL_CA_BUNDLE": "/d.pem", "SSL_CERT_FILE": "/d.pem"}
    assert uv_as_pip.uv_settings({}, before) == ([], after)


@pytest.mark.parametrize("option", ["constraint", "no-binary", "use-feature", "keyring-provider"])
def test_what_uv_cannot_be_told_is_named(option, uv_as_pip):
    with pytest.raises(ValueError, match=f"has {option}, "):
        uv_as_pip.uv_settings({option: "some"}, {})
