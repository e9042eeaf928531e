"""The pages under docs/papers name files, functions, tests, recipes, suites and keys that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
PAPERS = [page for page in PAGES if page.name != "README.md"]
REFERENCE = re.compile(r"`([\w./-]+\.(?:py|toml))(?:::([\w.]+))?`")
COMMAND = re.compile(r"`(python -m tff_re\.run [^`]+)`")


@cache
def defined(path: Path) -> frozenset[str]:
    """Names of the functions, classes and methods of a file, however deep, and of its module-level assignments."""
    tree = ast.parse(path.read_text("utf-8"))
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return frozenset(names | {target.id for target in assigned if isinstance(target, ast.Name)})


def missing(text: str) -> list[str]:
    """The references of a page that lead nowhere. The name of a test may be a part of it, as for `pytest -k`."""
    lost = []
    for file, name in REFERENCE.findall(text):
        path = ROOT / file
        names = defined(path) if path.is_file() and path.suffix == ".py" else frozenset()
        if file.startswith("tests/"):
            there = any(n.startswith("test_") and name in n for n in names) and bool(name)
        else:
            there = path.is_file() and (not name or name in names)
        if not there:
            lost.append(f"{file}::{name}")
    return lost


def section(page: Path, title: str) -> str:
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return text


def rows(text: str) -> list[str]:
    """The rows of a Markdown table without its head."""
    return [line for line in text.splitlines() if line.startswith("| ")][2:]


def shipped(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob("*.toml")}


def tables_of_keys() -> dict[str, set[str]]:
    """Heading of docs/recipes.md ("task", "partition", …) -> keys of all choices under it."""
    keys: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "recipes.md").read_text("utf-8").splitlines():
        if heading := re.match(r"## \[(\w+)\]", line):
            table = keys.setdefault(heading[1], {"name"})
        elif row := re.match(r"\| `(\w+)` \|", line):
            table.add(row[1])
    return keys


def test_the_five_papers_have_a_page_which_the_list_names():
    assert [page.stem for page in PAPERS] == ["fedcmc", "fedds", "feded", "fedlcc", "flcmc"]
    assert set(re.findall(r"\]\((\w+)\.md\)", (ROOT / "docs/papers/README.md").read_text("utf-8"))) == {
        page.stem for page in PAPERS
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_functions_and_tests_are_there(page):
    assert not missing(page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_every_equation_has_its_file_and_every_difference_its_test(page):
    differences = rows(section(page, "Differences"))
    assert len(differences) > 10
    assert not [row for row in differences if not re.search(r"`tests/[\w/]+\.py::\w+` \|$", row)]
    equations = rows(section(page, "Where the equations are"))
    assert len(equations) > 8 and not [row for row in equations if "`" not in row and "not computed" not in row]


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_commands_name_what_is_shipped(page):
    recipes, suites, keys = shipped("tff_re/recipes"), shipped("tff_re/recipes/suites"), tables_of_keys()
    commands = COMMAND.findall(section(page, "Commands of the tables and figures"))
    assert len(commands) > 2
    for command in commands:
        words = command.split()
        if words[3] in ("train", "partition"):
            assert words[4] in recipes, command
        elif words[3] == "compare":
            assert words[words.index("--suite") + 1] in suites, command
        else:
            assert words[3] == "cases", command
        for table, key in re.findall(r"--set '?(\w+)\.(\w+)=", command):
            assert key in keys[table], f"{command}: no key {table}.{key}"
        for table in re.findall(r"--set '(\w+)=\{", command):
            assert table in keys, command


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_algorithms_are_registered(page):
    registered = "".join(p.read_text("utf-8") for p in (ROOT / "computations" / "algorithms").glob("*.py"))
    named = re.findall(r'name="(\w+)"', page.read_text("utf-8"))
    assert not [name for name in named if f'"{name}"' not in registered.lower()]
