"""setup.cfg against the code: the Pythons that are promised, and the packages that are imported."""

from __future__ import annotations

import ast
import configparser
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from computations.stack import KERAS, PACKAGES, STACK
from tff_re.exporting import onnx_form

ROOT = pathlib.Path(__file__).parents[1]
OURS = ("tff_re", "computations", "datasets")
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
PROMISED = re.findall(r"Python :: (3\.\d+)$", SETUP["metadata"]["classifiers"], re.MULTILINE)

# Declared for other packages; a comment in setup.cfg says which.
NOT_IMPORTED = {"setuptools", KERAS, "tensorflow-hub" if STACK == "tff" else "tensorboard"}
# Imported only when a run asks for them: module -> the package, which an extra declares.
OPTIONAL = {"mlflow": "mlflow-skinny", "distributed": "distributed"}
OPTIONAL |= {"wandb": "wandb", **{name: name for name in onnx_form.PACKAGES}}
# Several packages share the name `google`.
NAMESPACES = {"google.protobuf": "protobuf"}
# Run by file name, next to the module that it imports.
SCRIPTS = {"tff_re.runtime.local.supervisor"}
STACKS = {"3.11": "tff", "3.12": "language", "3.13": "language"}
"""The stack of each Python."""

ONLY_ON = {
    "tff": ("computations.federated.on_tff", "computations.learning_process", "tff_re.runtime.local"),
    "language": ("computations.federated.language",),
}
"""The modules that are imported on one stack only."""
OTHER_STACKS = {package for stack, package in PACKAGES.items() if stack != STACK}
ELSEWHERE = tuple(name for stack, names in ONLY_ON.items() if stack != STACK for name in names)


def test_the_promised_pythons_are_the_same_everywhere():
    assert list(STACKS) == PROMISED, "the files below are written for these"
    assert SETUP["options"]["python_requires"] == ">=3.11,<3.14"
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert "python_version == '3.11'" in pyproject and 'target-version = "py311"' in pyproject
    of_language = (ROOT / "scripts/language/pyproject.toml").read_text("utf-8")
    assert "python_version >= '3.12' and python_version < '3.14'" in of_language
    assert '"") pythons=(3.11 3.13 3.12) ;;' in (ROOT / "scripts/setup-venv").read_text("utf-8")
    for page in ("README.md", "docs/security.md", "docs/architecture.md"):
        assert not re.findall(r"Python 3\.(?!1[123])\d+", (ROOT / page).read_text("utf-8")), page


def test_every_module_is_imported_on_a_promised_python():
    """CI runs the tests on both stacks; on another Python this fails."""
    assert STACKS["{}.{}".format(*sys.version_info)] == STACK
    for package in OURS:
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if module.name not in SCRIPTS and not module.name.startswith(ELSEWHERE):
                importlib.import_module(module.name)


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_another_python_is_refused_in_one_line(version):
    lie = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.version_info = {version}; sys.argv[0] = {{!r}}; "
    ran = {}
    for asked in ("-m", "-c"):
        words = [sys.executable, "-c", lie.format(asked) + "import tff_re"]
        ran[asked] = subprocess.run(words, capture_output=True, text=True, timeout=600)
    advice = f"this is Python 3.{version[1]}; install the project's own environment with `make setup`"
    assert ran["-m"].returncode == 2 and len(ran["-m"].stderr.splitlines()) == 1
    assert advice in ran["-m"].stderr
    assert ran["-c"].stderr.splitlines()[-1].startswith("ImportError: tff-re needs Python 3.11")
    assert advice in ran["-c"].stderr


def test_what_is_declared_is_what_is_imported():
    requirements = [Requirement(line) for line in SETUP["options"]["install_requires"].split("\n") if line]
    declared = {wanted.name for wanted in requirements if wanted.marker is None or wanted.marker.evaluate()}
    distributions = metadata.packages_distributions()
    imported = {}
    for path in (path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))):
        if path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").startswith(ELSEWHERE):
            continue
        for name in imported_names(path):
            top = name.partition(".")[0]
            if (
                top in {*OURS, *OTHER_STACKS, *OPTIONAL, *sys.stdlib_module_names}
                or (path.parent / f"{top}.py").exists()
            ):
                continue
            names = [NAMESPACES[key] for key in NAMESPACES if name.startswith(key)] or distributions[top]
            assert len(set(names)) == 1, f"{path.relative_to(ROOT)}: {name} is of {names}"
            imported.setdefault(names[0].lower().replace("_", "-"), path.relative_to(ROOT))
    missing = {name: str(path) for name, path in imported.items() if name not in declared}
    assert not missing, "imported, but not in install_requires of setup.cfg"
    assert declared - imported.keys() == NOT_IMPORTED


def test_optional_packages_are_in_an_extra():
    extras = "\n".join(SETUP["options.extras_require"].values())
    declared = {Requirement(line).name for line in extras.split("\n") if line and not line.startswith("#")}
    assert set(OPTIONAL.values()) <= declared


def test_optional_packages_are_declared_and_the_advice_names_what_is_declared():
    extra = [Requirement(line) for line in SETUP["options.extras_require"]["onnx"].split("\n") if line]
    of_this_python = {wanted.name: wanted for wanted in extra if wanted.marker is None or wanted.marker.evaluate()}
    advised = {name: Requirement(requirement) for name, requirement in onnx_form.PACKAGES.items()}
    assert of_this_python.keys() == advised.keys()
    assert all(of_this_python[name].specifier == advised[name].specifier for name in advised)


def imported_names(path: pathlib.Path) -> set[str]:
    """Dotted names of the modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
