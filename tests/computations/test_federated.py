"""The choice of the stack, and that both have the same names."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

from computations.federated import core
from computations.stack import PACKAGES, VARIABLE, choose_stack

PACKAGE = pathlib.Path(__file__).parents[2] / "computations" / "federated"


@pytest.fixture(autouse=True)
def _in_the_session_worker():
    """No test here calls a computation."""


@pytest.mark.parametrize(
    ("forced", "installed", "chosen"),
    [
        (None, ["tff"], "tff"),
        ("", ["language"], "language"),
        ("language", ["tff", "language"], "language"),
        ("tff", ["tff"], "tff"),
    ],
)
def test_the_stack_is_the_forced_one_or_the_one_that_is_installed(forced, installed, chosen):
    packages = {PACKAGES[name] for name in installed}
    assert choose_stack(forced, packages.__contains__) == chosen


@pytest.mark.parametrize(
    ("forced", "installed", "message"),
    [
        ("language", ["tff"], "TFF_RE_STACK is 'language', but federated_language is not installed"),
        ("jax", ["tff"], "TFF_RE_STACK is 'jax'; choose one of tff, language"),
        (
            None,
            [],
            "neither tensorflow_federated nor federated_language is installed; `make setup` installs one",
        ),
        (
            None,
            ["tff", "language"],
            "tensorflow_federated and federated_language are both installed; uninstall one of them, or set "
            "TFF_RE_STACK to tff or language",
        ),
    ],
)
def test_a_stack_that_cannot_be_chosen_is_said_in_one_line(forced, installed, message):
    with pytest.raises(ImportError) as refused:
        choose_stack(forced, {PACKAGES[name] for name in installed}.__contains__)
    assert str(refused.value) == message


def test_a_command_says_it_in_one_line(tmp_path):
    for package in PACKAGES.values():
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    paths = os.pathsep.join([str(PACKAGE.parents[1]), str(tmp_path)])
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"PYTHONPATH": paths}
    words = [sys.executable, "-m", "tff_re.run", "train"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 2 and ran.stderr.startswith("tff-re: tensorflow_federated and federated_language are both")
    assert ran.stderr.count("\n") == 1


def names_of(file):
    """What a module imports, assigns and defines."""
    names = set()
    for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names.add(node.targets[0].id)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return names


def test_both_stacks_have_the_same_names():
    listed = set(core.__all__)
    assert listed and listed <= names_of("on_tff.py") and listed <= names_of("language/__init__.py")
