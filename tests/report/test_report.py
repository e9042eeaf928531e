"""Tables and pictures from plain numbers."""

from __future__ import annotations

import csv
import math
import struct
import subprocess
import sys
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from datasets.errors import DataError
from tff_re.comparison.statistics import MetricSummary, paired_difference
from tff_re.comparison.tables import ComparisonRow, comparison_csv, comparison_markdown, comparison_rich
from tff_re.report import confusion_png, curves, partition_heatmap, partition_table, run_curves


def pixels(path) -> tuple[int, int]:
    """Width and height of a PNG whose chunks are whole."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place = 8
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        body = data[place + 4 : place + 8 + size]
        assert zlib.crc32(body) == struct.unpack(">I", data[place + 8 + size : place + 12 + size])[0]
        place += 12 + size
    assert kind == b"IEND"
    return struct.unpack(">II", data[16:24])


def row(name: str, best: dict, final: dict, **options) -> ComparisonRow:
    published = options.pop("published", None)
    metric = MetricSummary(best, final, published=published)
    return ComparisonRow(name, {"accuracy": metric}, bytes_up=2484, bytes_down=2452, seconds_per_round=0.25, **options)


ROWS = [
    row("FedAvg", {0: 0.70, 1: 0.74}, {0: 0.68, 1: 0.70}, published=0.72),
    row("FedPAP", {0: 0.80, 1: 0.82}, {0: 0.78, 1: 0.76}, published=0.79),
    row("uniform | mean", {0: 0.69, 1: 0.83}, {0: 0.60, 1: 0.75}, control=True),
]


def test_paired_difference_by_hand():
    found = paired_difference([0.8, 0.7, 0.6], [0.7, 0.7, 0.8])
    assert found.mean == pytest.approx(0.0 - 0.1 / 3)
    assert found.std == pytest.approx(np.std([0.1, 0.0, -0.2], ddof=1))
    assert (found.wins, found.n) == (1, 3)
    alone = paired_difference([0.5], [0.25])
    assert alone == (0.25, None, 1, 1)


def test_summary_of_rounds():
    values = {0: [0.1, math.nan, 0.9, *[0.5] * 15, 0.2, 0.4], 1: [0.3]}
    summary = MetricSummary.from_rounds(values)
    assert summary.best == {0: 0.9, 1: 0.3}
    assert summary.final == {0: pytest.approx(0.3), 1: 0.3}  # the last tenth of 20 rounds are two
    losses = MetricSummary.from_rounds({0: [3.0, 1.0, 2.0]}, higher_is_better=False)
    assert losses.best == {0: 1.0} and losses.final == {0: 2.0}
    with pytest.raises(ValueError, match="seed 1"):
        MetricSummary.from_rounds({1: []})


def test_a_round_that_was_chosen_stands_in_place_of_the_best(tmp_path):
    values = {0: [0.2, 0.9, 0.5], 1: [0.3, 0.1, 0.7]}
    base = MetricSummary.from_rounds(values, {0: 0.2, 1: 0.1})
    assert base.chosen and base.best == {0: 0.2, 1: 0.1} and base.final == {0: 0.5, 1: 0.7}
    other = MetricSummary.from_rounds(values, {0: 0.5, 1: 0.7})
    rows = [ComparisonRow("A", {"test/auc": base}), ComparisonRow("B", {"test/auc": other})]
    lines = comparison_markdown(rows, "A").splitlines()
    assert lines[0].startswith("| algorithm | test/auc chosen | test/auc final | test/auc chosen − A |")
    assert lines[3].startswith("| B | 60.00 ± 14.14 | 60.00 ± 14.14 | +45.00 ± 21.21 (2/2) |")
    assert "Chosen: in the round that is best on dev." in lines[-1] and "Best:" not in lines[-1]
    comparison_csv(tmp_path / "t.csv", rows, "A")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        record = list(csv.DictReader(file))[1]
    assert float(record["test/auc_chosen_mean"]) == pytest.approx(0.6) and "test/auc_best_mean" not in record
    assert float(record["test/auc_chosen_difference_wins"]) == 2
    diverged = ComparisonRow("C", {"test/auc": MetricSummary.from_rounds(values, {0: math.nan, 1: 0.7})})
    assert "| C | nan ± nan |" in comparison_markdown([*rows, diverged], "A")


def test_a_lower_loss_is_a_win():
    low = MetricSummary({0: 1.0, 1: 3.0}, {0: 1.0, 1: 3.0}, higher_is_better=False)
    high = MetricSummary({0: 2.0, 1: 2.0}, {0: 2.0, 1: 2.0}, higher_is_better=False)
    assert low.difference(high)[:3] == (0.0, pytest.approx(np.sqrt(2)), 1)


def test_markdown_has_the_numbers():
    text = comparison_markdown(ROWS, "FedAvg")
    lines = text.splitlines()
    assert lines[0] == (
        "| algorithm | accuracy best | accuracy final | accuracy final − FedAvg | accuracy published "
        "| kB up | kB down | s a round |"
    )
    assert lines[2] == "| FedAvg | 72.00 ± 2.83 | 69.00 ± 1.41 | – | 72.00 | 2.5 | 2.5 | 0.25 |"
    assert lines[3] == "| FedPAP | 81.00 ± 1.41 | 77.00 ± 1.41 | +8.00 ± 2.83 (2/2) | 79.00 | 2.5 | 2.5 | 0.25 |"
    assert lines[4].startswith(r"| uniform \| mean (control) | 76.00 ± 9.90 |") and "| – | 2.5" in lines[4]
    assert "2 seeds" in text and "paired by seed" in text


def test_no_column_without_a_number():
    text = comparison_markdown([row("a", {0: 0.5}, {0: 0.5})])
    assert "published" not in text and "One seed." in text


def test_csv_reads_back(tmp_path):
    path = tmp_path / "table.csv"
    comparison_csv(path, ROWS, "FedAvg")
    with open(path, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [r["algorithm"] for r in records] == ["FedAvg", "FedPAP", "uniform | mean"]
    assert float(records[1]["accuracy_final_difference_mean"]) == pytest.approx(0.08)
    assert (records[2]["control"], records[2]["accuracy_published"]) == ("1", "")


def test_terminal_tables_fit_into_80_columns():
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_rich(ROWS, "FedAvg"))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "81.00 ± 1.41" in text and "FedPAP" in text
    console.file.close()


@pytest.mark.parametrize("call", [comparison_markdown, comparison_rich])
def test_rows_that_do_not_fit(call):
    with pytest.raises(ValueError, match="no row is called 'x'"):
        call(ROWS, "x")
    with pytest.raises(ValueError, match="same name"):
        call([ROWS[0], ROWS[0]])


@pytest.mark.parametrize("clients", [1, 5, 160])
def test_heatmap(tmp_path, clients):
    counts = np.random.default_rng(0).integers(0, 50, (clients, 3))
    path = tmp_path / "heatmap.png"
    partition_heatmap(path, counts, [f"client-{i}" for i in range(clients)], ["a", "b", "c"])
    width, height = pixels(path)
    assert width > 300 and height > 200


def test_chinese_names_are_drawn_or_numbered_with_a_legend(tmp_path):
    path = tmp_path / "confusion.png"
    written = confusion_png(path, np.array([[3, 1], [0, 4]]), ["发热", "咳嗽"])
    pixels(path)
    assert path in written
    for legend in set(written) - {path}:
        assert "发热" in legend.read_text("utf-8")


def test_curves(tmp_path):
    path = tmp_path / "curves.png"
    points = [(r, 0.5 + r / 100, 0.4, 0.8) for r in range(1, 21)]
    alone = [(1, 0.5, 0.5, 0.5)]
    assert curves(path, {"A": points, "B": points, "C": alone}, "accuracy", controls=["B"]) == [path]
    with_controls = path.read_bytes()
    curves(path, {"A": points, "B": points, "C": alone}, "accuracy")
    assert path.read_bytes() != with_controls  # a control looks different
    pixels(path)


def test_run_curves(tmp_path):
    path = tmp_path / "run.png"
    rows = [{"round": "1", "local/loss": "0.7"}, {"round": "2", "local/loss": "0.5", "test/accuracy": "0.6"}]
    run_curves(path, rows, "a run")
    pixels(path)
    with pytest.raises(ValueError, match="no round"):
        run_curves(path, [{"local/loss": "0.7"}])


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "curves.png"
    curves(path, {"A": [(1, 0.5, 0.5, 0.5)]}, "accuracy")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        curves(path, {"A": [(1, 0.9, 0.9, 0.9)]}, "accuracy")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["curves.png"]


def test_partition_table_shows_the_largest_and_the_smallest():
    sizes = list(range(1, 101))
    rows = [{"client": f"c{n}", "train": n, "test": 1, "classes": 2, "largest_share": 0.5} for n in sizes]
    summary = {
        "clients": 100,
        "train": sum(sizes),
        "test": 100,
        "classes": 2.0,
        "smallest": 1,
        "largest": 100,
        "median": 50.5,
        "label_skew": 0.1,
    }
    table = partition_table(SimpleNamespace(rows=lambda: rows, summary=lambda: summary), max_clients=10)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    text = console.export_text()
    assert "c100 " in text and "c1 " in text and "c50 " not in text and "… 90 more" in text and "5,050" in text


def test_the_report_needs_no_tensorflow():
    code = "import sys, tff_re.report; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
