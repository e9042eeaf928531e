"""Runs the notebooks top to bottom and writes what they show to docs/notebooks: `python -m notebooks.render`.

The notebooks in this folder have no outputs; a rendered copy names the sources that it was made from by their digest,
so that a test can tell whether it is of today's. With `--check` nothing is written, and a rendered copy whose tables
have other columns than those of today's code, or that lists other files, is refused.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent
RENDERED = FOLDER.parent / "docs" / "notebooks"
SECONDS = 900
"""A cell that takes longer hangs."""


def sources() -> list[Path]:
    """The notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def digest(notebook: nbformat.NotebookNode) -> str:
    """Of the kinds and sources of its cells."""
    cells = [f"{cell.cell_type}\n{cell.source}" for cell in notebook.cells]
    return hashlib.sha256("\0".join(cells).encode("utf-8")).hexdigest()[:16]


def stamp(path: Path) -> str:
    """The first line of the rendered copy of a notebook."""
    notebook = nbformat.read(path, as_version=4)
    return f"<!-- made from notebooks/{path.name} ({digest(notebook)}) by `make notebooks`; do not edit -->"


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, run in a folder of its own.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell failed.
    """
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    return notebook


def markdown(path: Path, notebook: nbformat.NotebookNode) -> tuple[str, dict[str, bytes]]:
    """(the rendered copy, its pictures by name) of a notebook that was executed."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_notebook_node(notebook)
    pictures = {}
    for name, data in sorted(resources.get("outputs", {}).items()):
        picture = f"{path.stem}-{len(pictures) + 1}{Path(name).suffix}"
        pictures[picture] = data if isinstance(data, bytes) else base64.b64decode(data)
        text = text.replace(f"({name})", f"({picture})")
    text = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())
    text = re.sub(r"\n{4,}", "\n\n", at_home(text))
    return f"{stamp(path)}\n\n{text.strip()}\n", pictures


def at_home(text: str) -> str:
    """The text with links as they lead from docs/notebooks, and without names of temporary folders."""
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/tmp\w+", "…", text.replace("](../docs/", "](../"))


def heads(text: str) -> list[str]:
    """What no number changes of a rendered copy: the heads of its tables, and lists of files."""
    lines = text.splitlines()
    return [
        line
        for line, below in itertools.pairwise([*lines, ""])
        if re.match(r"\| :?-", below) or re.match(r" +\['.*\.\w+'", line)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Runs all, or those that are named; the exit code is 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("names", nargs="*", help="beginnings of notebooks' names [default: all]")
    given = parser.parse_args(arguments)
    chosen = [path for path in sources() if not given.names or path.name.startswith(tuple(given.names))]
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER.parent), *([known] if known else [])])
    began = time.monotonic()
    for path in chosen:
        started = time.monotonic()
        try:
            notebook = execute(path)
        except Exception as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 1
        text, pictures = markdown(path, notebook)
        if not given.check:
            write(path, text, pictures)
        elif heads(text) != heads((RENDERED / f"{path.stem}.md").read_text("utf-8")):
            print(
                f"{path.name}: prints other tables than its rendered copy; make it anew: make notebooks",
                file=sys.stderr,
            )
            return 1
        print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)
    print(f"all: {time.monotonic() - began:.0f} s")
    return 0


def write(path: Path, text: str, pictures: dict[str, bytes]) -> None:
    """Puts a rendered copy in the place of the older one."""
    RENDERED.mkdir(parents=True, exist_ok=True)
    for older in RENDERED.glob(f"{path.stem}-*"):
        older.unlink()
    for name, data in pictures.items():
        (RENDERED / name).write_bytes(data)
    draft = RENDERED / f".{path.stem}.part"
    draft.write_text(text, "utf-8")
    shutil.move(draft, RENDERED / f"{path.stem}.md")


if __name__ == "__main__":
    sys.exit(main())
