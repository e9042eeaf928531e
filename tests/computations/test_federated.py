"""The choice of the stack, and that both have the same names."""

import ast
import pathlib

import pytest

from computations.stack import PACKAGES, choose_stack

PACKAGE = pathlib.Path(__file__).parents[2] / "computations" / "federated"


@pytest.fixture(autouse=True)
def _in_the_session_worker():
    """No test here calls a computation."""


@pytest.mark.parametrize(
    ("forced", "installed", "chosen"),
    [
        (None, ["tff", "language"], "tff"),
        ("", ["language"], "language"),
        ("language", ["tff", "language"], "language"),
        ("tff", ["tff"], "tff"),
    ],
)
def test_the_stack_is_the_forced_one_or_the_first_that_is_installed(forced, installed, chosen):
    packages = {PACKAGES[name] for name in installed}
    assert choose_stack(forced, packages.__contains__) == chosen


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        ("language", "TFF_RE_STACK is 'language', but federated_language is not installed"),
        ("jax", "TFF_RE_STACK is 'jax'; choose one of tff, language"),
        (None, "neither tensorflow_federated nor federated_language is installed; `make setup` installs one of them"),
    ],
)
def test_a_stack_that_is_missing_is_said_in_one_line(forced, message):
    with pytest.raises(ImportError) as refused:
        choose_stack(forced, lambda package: package == "tensorflow_federated" and forced is not None)
    assert str(refused.value) == message


def names_of(file):
    """What a module's `__all__` lists."""
    (listed,) = [
        node.value
        for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    return sorted(node.value for node in ast.walk(listed) if isinstance(node, ast.Constant))


def test_both_stacks_have_the_same_names():
    assert names_of("on_tff.py") == names_of("language/__init__.py") != []
