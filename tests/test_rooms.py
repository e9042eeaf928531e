"""Who may use whom: a room uses only floors below it, and floor one's two rooms do not know of each other."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FLOOR_ONE = {"computations", "datasets"}
FLOOR_TWO = {"tff_re.models", "tff_re.runtime", "tff_re.tasks"}
FOR_ALL_OF_TFF_RE = {"tff_re.errors", "tff_re.quiet", "tff_re.settings"}
FLOOR_FOUR = {"tff_re.run", "tff_re.cli"}
OURS = re.compile(r"(tff_re|computations|datasets)(\.\w+)*")


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def used_modules(path, root):
    """Dotted names of ours that a file imports, anywhere in it; texts that are such a name count as imports.

    `from a.b import c` gives both a.b and a.b.c: c may be a module.
    """
    package = list(path.relative_to(root).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(above + ([node.module] if node.module else []))
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names.add(node.value)
    return {name for name in names if OURS.fullmatch(name)}


def is_in(name, rooms):
    return any(name == room or name.startswith(room + ".") for room in rooms)


def complaint(module, used):
    """Why this module may not use that name, or None."""
    if is_in(module, FLOOR_ONE):
        room = module.partition(".")[0]
        return None if is_in(used, {room}) else "floor one's rooms use nothing of ours but themselves"
    if is_in(used, FLOOR_ONE) or used == "tff_re":
        return None
    if is_in(module, FLOOR_TWO) and not is_in(used, FLOOR_TWO | FOR_ALL_OF_TFF_RE):
        return "floor two uses neither floor three nor four"
    if is_in(module, FOR_ALL_OF_TFF_RE) and not is_in(used, FOR_ALL_OF_TFF_RE):
        return "what all of tff_re uses may use none of it"
    if is_in(used, FLOOR_FOUR) and not is_in(module, FLOOR_FOUR):
        return "nobody uses the command line"
    return None


def complaints(root, rooms):
    found = []
    for path in sorted(path for room in rooms for path in (root / room).rglob("*.py")):
        module = module_name(path, root)
        for used in sorted(used_modules(path, root)):
            if reason := complaint(module, used):
                found.append(f"{path.relative_to(root)} uses {used}: {reason}")
    return found


@pytest.mark.parametrize("room", ["computations", "datasets", "tff_re"])
def test_rooms_use_only_floors_below(room):
    assert len(list((ROOT / room).rglob("*.py"))) > 3
    assert complaints(ROOT, [room]) == []


FORBIDDEN = {
    "computations/a.py": "import datasets.dialogues.records",
    "computations/deep/b.py": "def late():\n    from tff_re import errors",
    "computations/c.py": "import importlib\nimportlib.import_module('tff_re.models.lstm')",
    "datasets/a.py": "from computations.local_model import LocalModel",
    "datasets/b.py": "from tff_re.errors import UserError",
    "tff_re/models/a.py": "from tff_re import training",
    "tff_re/runtime/b.py": "from .. import experiment",
    "tff_re/runtime/c.py": "from ..report import table",
    "tff_re/tasks/a.py": "if True:\n    import tff_re.run",
    "tff_re/training/a.py": "from tff_re.run import main",
    "tff_re/errors.py": "from tff_re import models",
}
ALLOWED = {
    "computations/a.py": "from computations.errors import CompositionError\nfrom . import traffic\nimport numpy",
    "datasets/a.py": "from .records import Dialogue\nfrom datasets import errors",
    "tff_re/models/a.py": "from computations.randomness import step_seed\nfrom tff_re.models.inputs import DenseInput",
    "tff_re/tasks/a.py": "from tff_re import errors, models\nfrom datasets import records\nfrom ..runtime import local",
    "tff_re/runs/training.py": "from tff_re import evaluation\nfrom tff_re.runtime import open_runtime",
    "tff_re/run.py": "from tff_re import experiment, version",
}


def written(root, file, text):
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return complaints(root, [path.relative_to(root).parts[0]])


@pytest.mark.parametrize("file", FORBIDDEN)
def test_the_check_finds_it(tmp_path, file):
    assert len(written(tmp_path, file, FORBIDDEN[file])) >= 1


@pytest.mark.parametrize("file", ALLOWED)
def test_the_check_lets_pass(tmp_path, file):
    assert written(tmp_path, file, ALLOWED[file]) == []
