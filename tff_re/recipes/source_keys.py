"""Keys of options whose classes import TensorFlow, read off their source, so that a misspelt key is refused at once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import computations


@functools.cache
def keys_in(path: str) -> frozenset[str]:
    """The keys of all classes of options in a file, or in the files of a folder, of `computations`."""
    place = Path(computations.__file__).parent / path
    files = [place] if place.is_file() else sorted(place.glob("*.py"))
    return frozenset(
        line.target.id
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and "options_class" in map(ast.unparse, node.decorator_list)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and "init=False" not in ast.unparse(line)
    )
