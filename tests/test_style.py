"""Words: patterns that make a sentence read as translated, in README, docs, --help and first lines of docstrings.

`tests/style_exceptions.txt` has the number that each file has today. It may only fall. After mending a file, write the
list anew: `python -m tests.test_style > tests/style_exceptions.txt`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXCEPTIONS = Path(__file__).parent / "style_exceptions.txt"
PATTERNS = {
    r"\bso many\b": "a number",
    r"\bbeside\b": "next to, in addition to, compared with",
    r"\bbehind\b": "after",
    r"\bhand on\b": "share",
    r"\banother one\b": "another",
    r"\bis no [a-z]+\b": "is not",
    r"\bsuch as [a-z]+ [a-z]+ is\b": "like",
    r"\bis waited for\b|\bare waited for\b": "wait for",
    r"\bgoes on\b|\bgo on\b": "continues",
    r"\b(?:with|by|in|of|on) [\w`-]+ alone\b": "only",
    r"\bwho sees\b|\bfor who\b": "anyone who",
    r"\bas [a-z]+ does\b": "like",
    r"\bwhat (?:is|are) (?:waited|handed|shown|told|kept)\b": "name the thing",
}
OFTEN = re.compile("|".join(PATTERNS), re.IGNORECASE)
PROSE = ("README.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
GENERATED = ("docs/claims.md", "docs/commands.md", "docs/recipes.md")
CODE = tuple(
    str(path.relative_to(ROOT))
    for room in ("tff_re", "computations", "datasets")
    for path in (ROOT / room).rglob("*.py")
)


def prose(file: str) -> str:
    """The sentences of a page: no code, no tables that programs made."""
    text = (ROOT / file).read_text("utf-8")
    return re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def first_lines(file: str) -> list[str]:
    """The first lines of the docstrings of a file, and of commands all that `--help` prints."""
    found = []
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            found.append(text if file.startswith("tff_re/cli/") else text.partition("\n")[0])
        elif isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            found.append(str(node.value.value))
    return found


def findings(file: str) -> list[str]:
    """What a file says that a reader reads twice."""
    text = "\n".join(first_lines(file)) if file.endswith(".py") else prose(file)
    return [match[0] for match in OFTEN.finditer(text)]


def second_thoughts() -> int:
    """First lines of docstrings with a semicolon, in all packages."""
    return sum(";" in line.partition("\n")[0] for file in CODE for line in first_lines(file))


def counts() -> dict[str, int]:
    files = sorted({*PROSE, *CODE} - set(GENERATED) - {f for f in PROSE if f.endswith("/comparison.md")})
    return {file: number for file in files if (number := len(findings(file)))}


def allowed() -> dict[str, int]:
    rows = (line.split() for line in EXCEPTIONS.read_text("utf-8").splitlines())
    return {file: int(number) for number, file in rows}


def test_no_file_has_more_of_these_words_than_its_exception():
    limits = allowed()
    more = {file: findings(file) for file, number in counts().items() if number > limits.get(file, 0)}
    assert not more, "see the patterns in tests/test_style.py and what to write in their place"


def test_what_a_stranger_reads_first_has_none():
    for file in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/README.md",
        *(f for f in PROSE if f.startswith("docs/tutorials/")),
    ):
        assert not findings(file), file
    assert not [file for file in CODE if file.startswith("tff_re/cli/") and findings(file)]


def test_first_lines_with_a_second_thought_become_fewer():
    assert second_thoughts() <= allowed()["first-lines-with-a-semicolon"]


@pytest.mark.parametrize("text", ["a page to read and hand on", "it is no list", "beside the file", "so many rounds"])
def test_the_check_finds_it(text):
    assert OFTEN.search(text)
    assert not OFTEN.search("write a shareable report next to the file")


if __name__ == "__main__":
    for name, number in [*counts().items(), ("first-lines-with-a-semicolon", second_thoughts())]:
        print(number, name)
