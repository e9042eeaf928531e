"""Keys of options whose classes import TensorFlow, read off their source, so that a misspelt key is refused at once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import computations

ROOT = Path(computations.__file__).parents[1]


@functools.cache
def keys_in(path: str) -> frozenset[str]:
    """The keys of all classes of options in a file, or in the files of a folder.

    The path is relative to `ROOT`.
    """
    source = ROOT / path
    files = [source] if source.is_file() else sorted(source.glob("*.py"))
    return frozenset(
        line.target.id
        for file in files
        for cls in _option_classes(ast.parse(file.read_text("utf-8")))
        for line in cls.body
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and "init=False" not in ast.unparse(line)
    )


def _option_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Classes with the decorator `options_class`, and those whose name ends in Options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (
            node.name.endswith("Options") or "options_class" in map(ast.unparse, node.decorator_list)
        ):
            yield node
