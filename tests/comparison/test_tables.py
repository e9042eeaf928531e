"""Tables of a comparison from plain numbers."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from rich.console import Console

from tff_re.comparison.statistics import MetricSummary, paired_difference
from tff_re.comparison.tables import ComparisonRow, comparison_csv, comparison_markdown, comparison_rich


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


def test_a_round_that_was_chosen_stands_in_place_of_the_best(tmp_path):
    values = {0: [0.2, 0.9, 0.5], 1: [0.3, 0.1, 0.7]}
    base = MetricSummary.from_rounds(values, {0: 0.2, 1: 0.1})
    assert base.chosen and base.best == {0: 0.2, 1: 0.1} and base.final == {0: 0.5, 1: 0.7}
    other = MetricSummary.from_rounds(values, {0: 0.5, 1: 0.7})
    rows = [ComparisonRow("A", {"test/auc": base}), ComparisonRow("B", {"test/auc": other})]
    lines = comparison_markdown(rows, "A").splitlines()
    assert lines[0].startswith("| algorithm | test/auc chosen | test/auc final | test/auc chosen − A |")
    assert lines[3].startswith("| B | 60.00 ± 14.14 | 60.00 ± 14.14 | +45.00 ± 21.21 (2/2) |")
    assert "Chosen: in the round with the best dev score." in lines[-1] and "Best:" not in lines[-1]
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


def test_csv_reads_back(tmp_path):
    path = tmp_path / "table.csv"
    comparison_csv(path, ROWS, "FedAvg")
    with open(path, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [r["algorithm"] for r in records] == ["FedAvg", "FedPAP", "uniform | mean"]
    assert float(records[1]["accuracy_final_difference_mean"]) == pytest.approx(0.08)
    assert (records[2]["control"], records[2]["accuracy_published"]) == ("1", "")


def test_terminal_tables_fit_into_80_columns():
    console = Console(width=80)
    with console.capture() as capture:
        console.print(comparison_rich(ROWS, "FedAvg"))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "81.00 ± 1.41" in text and "FedPAP" in text
