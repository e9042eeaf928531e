"""Pictures and tables of documents at clients: every number of a row is in them, whatever the clients are called."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from rich.console import Console

from datasets.documents.statistics import ROW, DocumentStatistics
from tests.report.test_report import pixels
from tff_re.report import drawing
from tff_re.report.document_spread import documents_png, documents_table, entropy_png, write_documents
from tff_re.report.drawing import COLOURS


def statistics(clients):
    rows = tuple(
        dict(zip(ROW, (f"c$_{k}", k + 1, 4 * (k + 1), 10 * (k + 1), 6 * k, k, 0.25, k + 0.5, k, k + 1.0), strict=True))
        for k in range(clients)
    )
    histogram = np.diag(np.arange(1, clients + 1))
    return DocumentStatistics(rows, histogram, np.arange(clients + 1.0), "paper", "released_code")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(drawing, "DPI", 60)


@pytest.mark.parametrize("clients", [1, len(COLOURS) + 1])
def test_what_is_written(clients, tmp_path):
    made = statistics(clients)
    files = write_documents(tmp_path, made)
    assert {path.name for path in files} == {"documents.csv", "documents.png", "entropy.csv", "entropy.png"}
    with open(tmp_path / "documents.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [{name: str(value) for name, value in row.items()} for row in made.rows] == rows
    with open(tmp_path / "entropy.csv", newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["from", "to", "documents", *(f"c$_{k}" for k in range(clients))]
    numbers = np.array(rows, float)
    np.testing.assert_array_equal(numbers[:, 0], made.edges[:-1])
    np.testing.assert_array_equal(numbers[:, 1], made.edges[1:])
    np.testing.assert_array_equal(numbers[:, 2], made.histogram.sum(axis=0))
    np.testing.assert_array_equal(numbers[:, 3:], made.histogram.T)
    for name in ("documents.png", "entropy.png"):
        assert min(pixels(tmp_path / name)) > 100


def test_pictures_show_what_changes(tmp_path):
    made = statistics(3)
    documents_png(tmp_path / "a.png", made.rows)
    documents_png(tmp_path / "b.png", made.rows)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes(), "the same data"
    for name in ("documents", "pairs", "positive_share", "entropy", "entropy_greatest"):
        changed = [{**row, name: row[name] + (2 if row["client"] == "c$_1" else 0)} for row in made.rows]
        documents_png(tmp_path / "b.png", changed)
        assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes(), name
    entropy_png(tmp_path / "a.png", made.histogram, made.edges, ["a", "b", "c"])
    entropy_png(tmp_path / "b.png", made.histogram[[1, 0, 2]], made.edges, ["a", "b", "c"])
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes(), "whose they are"


def test_a_histogram_of_another_shape_is_refused(tmp_path):
    made = statistics(3)
    with pytest.raises(ValueError, match=r"shape \(3, 3\), but must be \[2, 3\]"):
        entropy_png(tmp_path / "a.png", made.histogram, made.edges, ["a", "b"])


def test_the_table_of_the_terminal():
    def text(clients, **options):
        console = Console(width=100)
        with console.capture() as capture:
            console.print(documents_table(statistics(clients).rows, **options))
        return capture.get()

    row = next(line for line in text(3).splitlines() if "c$_2" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["c$_2", "3", "4.0", "10.0", "4.0", "25%", "2.50"]
    few = text(9, max_clients=4)
    assert [f"c$_{k}" in few for k in range(9)] == [True, True, *[False] * 5, True, True]
    assert "5 more clients are not shown" in " ".join(few.split())
