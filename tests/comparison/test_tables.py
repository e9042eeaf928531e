"""Tables of a comparison from plain numbers."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_1samp, ttest_rel

from tff_re.comparison.rows import ComparisonRow, PublishedGain, Table, judge, judge_gains
from tff_re.comparison.statistics import (
    MetricSummary,
    detectable,
    difference_of,
    half_width,
    holm,
    p_against,
    paired_difference,
)
from tff_re.comparison.tables import comparison_csv, comparison_markdown, comparison_rich
from tff_re.comparison.verdicts import Contrast, judge_all


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
    difference = paired_difference([0.8, 0.7, 0.6], [0.7, 0.7, 0.8])
    assert difference.mean == pytest.approx(0.0 - 0.1 / 3)
    assert difference.std == pytest.approx(np.std([0.1, 0.0, -0.2], ddof=1))
    assert (difference.wins, difference.n) == (1, 3)
    # The standard error is 0.08819; Student's t with two degrees of freedom: 4.3027.
    assert (difference.low, difference.high) == pytest.approx((-0.41279, 0.34612), abs=1e-4)
    assert difference.p == pytest.approx(ttest_rel([0.8, 0.7, 0.6], [0.7, 0.7, 0.8]).pvalue)
    assert paired_difference([0.5], [0.25]) == (0.25, None, 1, 1, *[None] * 6)


def word(difference, **options) -> str:
    ((_, said),) = judge_all([Contrast(difference, **options)])
    return said


@pytest.mark.parametrize(("pairs", "p"), [(2, 0.5), (3, 0.25), (6, 1 / 32)])
def test_differences_that_are_all_alike_are_judged_by_their_signs(pairs, p):
    """One test example more in each seed: the t-test would be certain of it."""
    baseline = np.arange(pairs) / 10
    difference = paired_difference(baseline + 0.01, baseline)
    assert difference.low is None and difference.detectable is None and difference.p == pytest.approx(p)
    assert word(difference) == ("gain" if p < 0.05 else "open")
    assert word(difference, higher_is_better=False) == ("loss" if p < 0.05 else "open")
    assert word(difference, published=0.5) == ("gain" if p < 0.05 else "open")
    assert paired_difference([0.5, 0.7], [0.5, 0.7]).p == 1


def test_an_interval_by_bootstrap_stands_beside_from_eight_seeds():
    gains = np.random.default_rng(0).normal(0.5, 1, 12)
    few, many = (paired_difference(gains[:n], np.zeros(n)) for n in (7, 12))
    assert few.bootstrap_low is None and few.low is not None
    resampled = gains[np.random.default_rng(1).integers(0, 12, (20_000, 12))].mean(1)
    percentiles = np.quantile(resampled, [0.025, 0.975])
    assert (many.bootstrap_low, many.bootstrap_high) == pytest.approx(percentiles, abs=0.05)
    assert paired_difference(gains, np.zeros(12)) == many  # a fixed seed


@pytest.mark.parametrize("pairs", [3, 5, 10])
def test_the_least_difference_that_a_design_shows_is_found_in_four_of_five_experiments(pairs):
    shift = detectable(1.0, pairs)
    made = np.random.default_rng(pairs).normal(shift, 1, (20_000, pairs))
    standard_error = made.std(axis=1, ddof=1) / pairs**0.5
    shows = np.abs(made.mean(axis=1)) > half_width(1.0, pairs) * pairs**0.5 * standard_error
    assert shows.mean() == pytest.approx(0.8, abs=0.01)
    if pairs == 10:
        assert shift == pytest.approx(0.996, abs=1e-3)  # of the tables for paired t-tests


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, None, 0.005]) == pytest.approx([0.03, 0.06, 0.06, None, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([None]) == [None] and holm([]) == []


def of_interval(low: float, high: float, n: int = 3):
    """A difference whose 95 % interval this is."""
    return difference_of((low + high) / 2, (high - low) / 2 / half_width(1, n), n)


@pytest.mark.parametrize(
    ("low", "high", "published", "room", "said"),
    [
        (-1, 3, 4, None, "does not show"),
        (-1, 3, 4, 5, "does not show"),
        (-1, 3, 4, 3.9, "no room"),
        (-1, 4, 4, 5, "open"),
        (-1, 4, 4, -2, "no room"),
        (-3, -1, 4, 1, "loss"),
        (1, 3, 4, 1, "gain"),
        (5, 6, 4, 5, "gain"),
        (-3, 1, -4, None, "does not show"),
        (-3, 1, -4, 1, "does not show"),  # a published loss needs no room
        (-5, -1, -4, None, "loss"),
        (-1, 5, -4, None, "does not show"),
        (-1, 3, None, 1, "open"),
    ],
)
def test_a_published_gain_against_an_interval(low, high, published, room, said):
    assert word(of_interval(low, high), published=published, room=room) == said
    assert word(of_interval(low, high, 2), published=published, room=room) == "open"
    # Of a loss, lower is better: the same in the mirror.
    mirrored = {"published": published and -published, "room": room and -room, "higher_is_better": False}
    assert word(of_interval(-high, -low), **mirrored) == said
    ((p, of_made_up),) = judge_all([Contrast(of_interval(low, high), published, room, made_up=True)])
    assert of_made_up == f"made up: {said}" and p == pytest.approx(of_interval(low, high).p)


def test_a_gain_that_is_one_of_many_is_open_and_so_is_a_denial():
    gain, short = Contrast(of_interval(0.1, 2), 4), Contrast(of_interval(-1, 3.9), 4)
    nothing = Contrast(of_interval(-3, 3.5))
    assert [said for _, said in judge_all([gain, nothing])] == ["open", "open"]
    assert [said for _, said in judge_all([short, nothing])] == ["does not show", "open"]
    assert [said for _, said in judge_all([short, short])] == ["open", "open"]
    assert word(gain.difference, published=4) == "gain" and word(short.difference, published=4) == "does not show"


def test_two_seeds_decide_nothing():
    difference = paired_difference([0.6, 0.601], [0.5, 0.5])
    assert difference.p < 0.01 and difference.low > 0 and word(difference) == "open"


def test_the_probability_of_a_difference_is_that_of_scipy():
    difference = paired_difference([0.8, 0.7, 0.65], [0.7, 0.7, 0.6])
    assert p_against(difference, 0.2) == pytest.approx(ttest_1samp([0.1, 0.0, 0.05], 0.2).pvalue)
    assert p_against(difference, 0) == pytest.approx(difference.p)
    assert difference_of(difference.mean, difference.std, 3, difference.wins) == difference


@pytest.mark.parametrize("role", ["local", "pooled", "trivial", "oracle"])
def test_verdicts_are_adjusted_over_the_rows_that_a_federation_trained(role):
    seeds = range(4)
    base = [0.5, 0.51, 0.52, 0.53]
    gains = {"a": [0.050, 0.052, 0.049, 0.051], "b": [0.02, 0.03, 0.025, 0.05], "c": [-0.1, 0.1, 0.0, 0.02]}
    rows = [row("base", dict(zip(seeds, base, strict=True)), dict(zip(seeds, base, strict=True)))]
    for name, gains_of_seed in gains.items():
        values = {seed: base[seed] + gains_of_seed[seed] for seed in seeds}
        rows.append(row(name, values, values))
    ceiling = dict.fromkeys(seeds, 1.0)
    rows.append(row("ceiling", ceiling, ceiling, role=role))
    judged = judge(Table(rows, "base"), "accuracy", "final")
    ps = [ttest_1samp(gains_of_seed, 0).pvalue for gains_of_seed in gains.values()]
    assert judged[0] is None and [j.verdict for j in judged[1:]] == ["gain", "gain", "open", None]
    assert [j.p_holm for j in judged[1:4]] == pytest.approx([3 * ps[0], 2 * ps[1], ps[2]])
    assert judged[4].p_holm is None and judged[4].difference.low > 0
    # A fourth and a fifth comparison of the same kind: what was a gain is open.
    more = [*rows, replace(rows[3], algorithm="d"), replace(rows[3], algorithm="e")]
    assert [j.verdict for j in judge(Table(more, "base"), "accuracy", "final")[1:3]] == ["gain", "open"]


def test_room_is_what_the_best_pooled_or_oracle_row_has_on_the_baseline():
    def rows_of(**values):
        return [
            row(name, dict(enumerate(v)), dict(enumerate(v)), role=ROLES.get(name, "federated"))
            for name, v in values.items()
        ]

    rows = rows_of(
        base=[0.5, 0.51, 0.52],
        method=[0.5, 0.52, 0.51],
        other=[0.56, 0.58, 0.59],
        pooled=[0.54, 0.56, 0.55],
        oracle=[0.53, 0.53, 0.53],
        trivial=[0.9] * 3,
        alone=[0.9] * 3,
    )
    gains = (
        PublishedGain("method", "base", "accuracy", 0.07),
        PublishedGain("other", "method", "accuracy", 0.02),
        PublishedGain("pooled", "base", "accuracy", 0.05),
    )
    table = Table(rows, "base", gains)
    assert table.room("base", "accuracy", "final") == pytest.approx(0.04)
    judged = judge(table, "accuracy", "final")
    assert [j and j.verdict for j in judged] == [None, "no room", "gain", None, None, None, None]
    assert (judged[1].published, judged[1].room) == (0.07, pytest.approx(0.04)) and judged[2].room is None
    of_gains = [(g.method, judged["final"][1], judged["final"][0].room) for g, judged in judge_gains(table)]
    assert of_gains == [
        ("method", "no room", pytest.approx(0.04)),
        ("other", "gain", pytest.approx(0.04)),
        ("pooled", "", pytest.approx(0.04)),
    ]
    lines = comparison_markdown(table).splitlines()
    heading = lines[0].split(" | ")
    assert [line.split(" | ")[heading.index("room")] for line in lines[2:9]] == ["–", "+4.00", *["–"] * 5]
    assert lines[-1].endswith(
        "pooled: not tuned, like the methods. kB: thousands of bytes per client and round, uncompressed."
    )
    tuned = [replace(r, tried="6 on dev") if r.role == "federated" else r for r in rows]
    assert "pooled: not tuned like the methods." in comparison_markdown(replace(table, rows=tuned))
    assert "made up: no room |" in comparison_markdown(replace(table, made_up=True))


ROLES = {"pooled": "pooled", "oracle": "oracle", "trivial": "trivial", "alone": "local"}


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
    lines = comparison_markdown(Table(rows, "A")).splitlines()
    assert lines[0].startswith("| algorithm | seeds | test/auc chosen | test/auc final | test/auc chosen − A | 95 % in")
    assert lines[3].startswith("| B | 2 | 60.00 ± 14.14 | 60.00 ± 14.14 | +45.00 (2/2) | -145.59 to +235.59 | ")
    assert "Chosen: in the round with the best dev score." in lines[-1] and "Best:" not in lines[-1]
    comparison_csv(tmp_path / "t.csv", Table(rows, "A"))
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        record = list(csv.DictReader(file))[1]
    assert float(record["test/auc_chosen_mean"]) == pytest.approx(0.6) and "test/auc_best_mean" not in record
    assert float(record["test/auc_chosen_difference_wins"]) == 2
    diverged = ComparisonRow("C", {"test/auc": MetricSummary.from_rounds(values, {0: math.nan, 1: 0.7})})
    assert "| C | 2 | nan ± nan |" in (text := comparison_markdown(Table([*rows, diverged], "A")))
    assert "| nan (1/2) | – | – | – | open |" in text


def test_differences_of_many_metrics_stand_in_tables_of_their_own():
    values = MetricSummary({0: 0.2, 1: 0.3}, {0: 0.2, 1: 0.3})
    rows = [ComparisonRow(name, dict.fromkeys(("test/a", "test/b", "test/c"), values)) for name in "AB"]
    rows.append(ComparisonRow("C", {"test/a": values}))
    text = comparison_markdown(Table(rows, "A"))
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| algorithm |")]
    assert "verdict" not in tables[0][0] and "test/c final" in tables[0][0] and tables[0][0].endswith("s a round |")
    assert [t[0].split(" | ")[1].split(" ")[0] for t in tables[1:]] == ["test/a", "test/b", "test/c"]
    assert ["".join(line[2] for line in t[2:]) for t in tables] == ["ABC", "BC", "B", "B"]


def test_a_lower_loss_is_a_win():
    low = MetricSummary({0: 1.0, 1: 3.0}, {0: 1.0, 1: 3.0}, higher_is_better=False)
    high = MetricSummary({0: 2.0, 1: 2.0}, {0: 2.0, 1: 2.0}, higher_is_better=False)
    assert low.difference(high)[:3] == (0.0, pytest.approx(np.sqrt(2)), 1)


def test_markdown_has_the_numbers():
    text = comparison_markdown(Table(ROWS, "FedAvg"))
    lines = text.splitlines()
    assert lines[0] == (
        "| algorithm | seeds | accuracy best | accuracy final | accuracy published | accuracy final − FedAvg "
        "| 95 % interval | could show | p, Holm | verdict | kB up | kB down | s a round |"
    )
    assert lines[2] == "| FedAvg | 2 | 72.00 ± 2.83 | 69.00 ± 1.41 | 72.00 | – | – | – | – | – | 2.5 | 2.5 | 0.25 |"
    assert lines[3] == (  # 10 and 6 points: the standard error is 2, times 12.706 and, for what could show, 16.334
        "| FedPAP | 2 | 81.00 ± 1.41 | 77.00 ± 1.41 | 79.00 | +8.00 (2/2) | -17.41 to +33.41 | 32.67 | 0.312 | open "
        "| 2.5 | 2.5 | 0.25 |"
    )
    assert (
        lines[4].startswith(r"| uniform \| mean (control) | 2 | 76.00 ± 9.90 |") and "| – | -1.50 (1/2) |" in lines[4]
    )
    assert "2 seeds" in text and "paired by seed" in text


def test_csv_reads_back(tmp_path):
    path = tmp_path / "table.csv"
    comparison_csv(path, Table(ROWS, "FedAvg"))
    with open(path, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [r["algorithm"] for r in records] == ["FedAvg", "FedPAP", "uniform | mean"]
    assert float(records[1]["accuracy_final_difference_mean"]) == pytest.approx(0.08)
    assert float(records[1]["accuracy_final_difference_low"]) == pytest.approx(-0.1741, abs=1e-4)
    assert (records[1]["accuracy_final_difference_verdict"], records[0]["accuracy_final_difference_verdict"]) == (
        "open",
        "",
    )
    assert float(records[1]["accuracy_final_difference_p_holm"]) == pytest.approx(2 * 0.15596, abs=1e-4)
    assert (records[2]["control"], records[2]["accuracy_published"]) == ("1", "")


def test_terminal_tables_fit_into_80_columns():
    console = Console(width=80)
    with console.capture() as capture:
        console.print(comparison_rich(Table(ROWS, "FedAvg")))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "81.00 ± 1.41" in text and "FedPAP" in text
