"""The notebooks of the repository and their rendered copies; `make notebooks-check` runs them."""

from __future__ import annotations

import asyncio
import re

import nbformat
import pytest

from notebooks import render
from notebooks.render import RENDERED, at_home, heads, sources, stamp
from tests.upper_floors import tiny


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_no_outputs_are_in_the_repository(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None and not cell.metadata
            compile(re.sub(r"^%%.*", "", cell.source), path.name, "exec")


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_the_rendered_copy_is_of_these_sources(path):
    rendered = (RENDERED / f"{path.stem}.md").read_text("utf-8")
    assert rendered.splitlines()[0] == stamp(path), "make it anew: make notebooks"
    pictures = set(re.findall(r"!\[[^]]*\]\(([^)]+)\)", rendered))
    assert pictures == {file.name for file in RENDERED.glob(f"{path.stem}-*")}
    for cell in nbformat.read(path, as_version=4).cells:
        assert at_home(cell.source.split("\n")[0]) in rendered
    assert "Traceback" not in rendered and "/tmp" not in rendered and "/home" not in rendered


def test_a_rendered_copy_with_older_tables_is_refused(tmp_path, monkeypatch, capsys):
    older = "| method | final |\n| :-- | --: |\n| A | 0.5 |\n\n    ['curves.png', 'table.md']\n    accuracy ['1.0']\n"
    assert heads(older) == ["| method | final |", "    ['curves.png', 'table.md']"]
    assert heads(older.replace("0.5", "0.7")) == heads(older) != heads(older.replace("final", "last"))
    monkeypatch.setattr(render, "RENDERED", tmp_path)
    monkeypatch.setattr(render, "execute", lambda path: None)
    for code, change in ((0, ("0.5", "0.7")), (1, ("'table.md'", "'table.md', 'values.csv'"))):
        monkeypatch.setattr(render, "markdown", lambda path, notebook, change=change: (older.replace(*change), {}))
        (tmp_path / f"{sources()[0].stem}.md").write_text(older, "utf-8")
        assert render.main(["--check", "01"]) == code
    assert "01_first_federated_model.ipynb: prints other tables" in capsys.readouterr().err


def test_a_run_from_inside_of_an_event_loop_as_notebooks_have_one(runtime, tmp_path):
    import tff_re

    async def cell():
        return tff_re.train(tiny("training.rounds=1"), tmp_path / "run", runtime=runtime)

    assert 0 <= asyncio.run(cell()).test.metrics["accuracy"] <= 1
