"""Curves of precision over recall: files that read back, means over seeds, and files that are damaged."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.report.test_report import pixels
from tff_re.errors import UserError
from tff_re.report.precision_recall import (
    GRID,
    on_grid,
    precision_recall_png,
    precision_recall_table,
    write_precision_recall,
)
from tff_re.runs.reading import read_precision_recall

STEPS = np.array([[0.25, 1.0, 0.9], [0.5, 0.5, 0.8], [0.5, 0.25, 0.7], [1.0, 0.2, 0.1]])


def test_a_curve_reads_back(tmp_path):
    path = tmp_path / "c.csv"
    write_precision_recall(path, STEPS)
    np.testing.assert_array_equal(read_precision_recall(path), STEPS)
    assert path.read_text("utf-8").splitlines()[0] == "recall,precision,score"
    assert read_precision_recall(tmp_path / "none.csv") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "recall,precision,score\n",
        "recall,precision\n1,1\n",
        "recall,precision,score\n0.5,1,0.9\n1,0.5\n",
        "recall,precision,score\n0.5,1,x\n1,1,0\n",
        "recall,precision,score\n0.5,nan,0.9\n1,1,0\n",
        "recall,precision,score\n0.5,1,0.9\n1.5,0.5,0.8\n",
        "recall,precision,score\n0.5,1,0.9\n0.2,0.5,0.8\n1,0.5,0.7\n",
    ],
)
def test_a_damaged_file_is_named(text, tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(
        UserError, match=r"c\.csv: is not a precision-recall curve; remove it, then continue with --resume"
    ):
        read_precision_recall(path)
    path.write_bytes(b"\xff\xfe\x00recall")
    with pytest.raises(UserError, match=r"c\.csv: is not a precision-recall curve"):
        read_precision_recall(path)


def test_precision_on_the_grid_is_that_of_the_first_prediction_with_so_much_recall():
    values = dict(zip(np.round(GRID, 2).tolist(), on_grid(STEPS), strict=True))
    for recall, wanted in ((0.0, 1), (0.25, 1), (0.26, 0.5), (0.5, 0.5), (0.51, 0.2), (1.0, 0.2)):
        assert values[recall] == wanted, recall


def test_a_curve_that_does_not_come_to_recall_one_ends_where_it_ends(tmp_path):
    short = np.array([[0.25, 1.0, 0.9], [0.5, 0.5, 0.8]])
    write_precision_recall(tmp_path / "c.csv", short)
    np.testing.assert_array_equal(read_precision_recall(tmp_path / "c.csv"), short)
    assert np.isnan(on_grid(short)).tolist() == (GRID > 0.5 + 1e-9).tolist() and on_grid(short)[50] == 0.5
    lines = precision_recall_table(tmp_path / "t.csv", {"A": [short, STEPS]}).read_text("utf-8").splitlines()
    assert lines[51] == "0.5,0.5" and lines[52] == "0.51,"
    pixels(*precision_recall_png(tmp_path / "pr.png", {"A": [short, STEPS], "B": [STEPS]}))


def test_the_table_has_the_means_over_seeds(tmp_path):
    flat = np.array([[1.0, 0.5, 0.5]])
    path = precision_recall_table(tmp_path / "t.csv", {"A, b": [STEPS, flat], "C": [flat]})
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["recall", "A, b", "C"] and len(rows) == 101
    np.testing.assert_allclose([float(row["recall"]) for row in rows], GRID)
    assert float(rows[10]["A, b"]) == pytest.approx((1 + 0.5) / 2) and float(rows[100]["A, b"]) == pytest.approx(0.35)
    assert {row["C"] for row in rows} == {"0.5"}


def test_the_picture(tmp_path):
    path = tmp_path / "pr.png"
    assert precision_recall_png(path, {"A": [STEPS], "$x_{$": [STEPS, STEPS[-1:]]}, "a $title") == [path]
    width, height = pixels(path)
    assert width > 600 and height > 400
    first = path.read_bytes()
    precision_recall_png(path, {"A": [STEPS], "$x_{$": [STEPS, STEPS[-1:]]}, "a $title")
    assert path.read_bytes() == first
    precision_recall_png(path, {"A": [STEPS], "$x_{$": [STEPS]}, "a $title")
    assert path.read_bytes() != first, "no band over one seed"
