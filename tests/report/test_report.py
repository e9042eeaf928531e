"""Tables and pictures from plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from datasets.errors import DataError
from datasets.partition import LabelCounts
from tff_re.report.curves import curves, over_values, run_curves
from tff_re.report.drawing import COLOURS, marker
from tff_re.report.heatmaps import confusion_png, partition_heatmap
from tff_re.report.partition_table import partition_table


def pixels(path) -> tuple[int, int]:
    """Width and height of a whole PNG."""
    return imread(path, format="png").shape[1::-1]


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


def test_many_curves_are_told_apart():
    looks = {(number % len(COLOURS), marker(number)) for number in range(100)}
    assert len(looks) == 100


def test_a_metric_over_a_setting(tmp_path):
    path = tmp_path / "over.png"
    lines = {"A": [("1", 0.5, 0.4, 0.6), ("2", 0.6, 0.6, 0.6)], "B": [("2", 0.7, 0.6, 0.8)]}
    assert over_values(path, lines, "ε", "accuracy", "Title") == [path]
    assert pixels(path)[0] > 600


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
    train = np.outer(np.arange(1, 101), [1, 0])
    counts = LabelCounts(tuple(f"c{n}" for n in range(1, 101)), ("a", "b"), train, np.ones_like(train))
    console = Console(width=100)
    with console.capture() as capture:
        console.print(partition_table(counts, max_clients=10))
    text = capture.get()
    assert "c100 " in text and "c1 " in text and "c50 " not in text and "… 90 more" in text and "5,050" in text
