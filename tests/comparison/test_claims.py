"""The page of all claims: what the script makes of the results, and its numbers by hand."""

from __future__ import annotations

import ast
import csv
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tff_re.comparison.values import Value, write_values
from tff_re.comparison.verdicts import VERDICTS

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("scripts_claims", ROOT / "scripts" / "claims.py")
claims = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(claims)

PAGE = (ROOT / "docs" / "claims.md").read_text("utf-8")
ROWS = [
    line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.search(r"\]\(results/[^)]+comparison\.md\)", line)
]


TABLES = [
    path
    for path in sorted((ROOT / "docs" / "results").glob("*/comparison*.csv"))
    if not path.stem.endswith(("-classes", "-precision-recall"))
]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_table_has_a_trivial_row_and_one_of_the_pooled_data_or_an_oracle(path):
    with path.open(encoding="utf-8", newline="") as file:
        names = [row["algorithm"] for row in csv.DictReader(file)]
    assert any(name.startswith(("trivial: ", "ranking by chance")) for name in names)
    assert any(name.startswith(("pooled", "Centralised", "oracle (")) for name in names)


def test_the_page_is_what_the_script_makes_of_the_results():
    assert claims.page() == PAGE, "make it anew: python scripts/claims.py > docs/claims.md"


ALONE, VERDICT = 9, 10
"""Columns of the page."""


@pytest.mark.parametrize(
    ("claim", "data", "values", "cells"),
    [
        # Mean 10.87, deviation 1.82 of ten seeds: 2.262 · 1.82 / √10 = 1.30. The pooled row has 16.9 on FedAvgS.
        (
            "FedAttS − FedAvgS",
            "synthetic(0.5, 0.5)",
            "best",
            ["10", "+10.9 (+9.6 to +12.2)", "1.8", "+16.9", "no", "gain", "gain"],
        ),
        # Mean −3.17, deviation 1.49 of five seeds: 2.776 · 1.49 / √5 = 1.85. A loss alone (p = 0.009), not of 278.
        (
            "FedPAP − FedAvgS",
            "MIE, LSTM, Adam, 50 rounds",
            "best",
            ["5", "−3.2 (−5.0 to −1.3)", "2.5", "+0.2", "no", "loss", "no room"],
        ),
        # By seed 2.3, 4.3, 5.5, 5.1 and 2.1: mean 3.86, deviation 1.58, 2.776 · 1.58 / √5 = 1.96.
        (
            "Lazy MIL − ONE",
            "made up, noise 0.8, equal steps",
            "chosen",
            ["5", "+3.9 (+1.9 to +5.8)", "2.7", "+11.0", "–", "made up: gain", "made up: open"],
        ),
        # By seed −5.04, −4.77 and −3.00: mean −4.27, deviation 1.11, 4.303 · 1.11 / √3 = 2.75. Pooled data have 2.25.
        (
            "Lazy MIL − ONE",
            "CDR, K = 10, C = 1.0",
            "chosen",
            ["3", "−4.3 (−7.0 to −1.5)", "3.6", "+2.2", "no", "loss", "no room"],
        ),
        (
            "FedCMC − FedAvg",
            "ChemProt, PCNN, α = 0.05, micro-f1",
            "chosen",
            ["8", "−0.7 (−3.6 to +2.2)", "4.0", "+15.1", "yes", *["does not show"] * 2],
        ),
        # Mean 0.10, deviation 0.96 of nine seeds: 2.306 · 0.96 / 3 = 0.74. Tuned alike; the pooled row is below FedAvg.
        (
            "FedED − FedAvg",
            "ADE, tuned on dev",
            "chosen",
            ["9", "+0.1 (−0.6 to +0.8)", "1.0", "−0.9", "yes", *["no room"] * 2],
        ),
        # By seed 1.09, 0.48, 1.05 and 2.01: mean 1.16, deviation 0.63, 3.182 · 0.63 / 2 = 1.00. Pooled data have 1.08.
        (
            "FedLCC − FedAvg",
            "CDR, IID, 200 documents, hypernyms left out",
            "final",
            ["4", "+1.2 (+0.2 to +2.2)", "1.3", "+1.1", "no", "gain", "no room"],
        ),
        # By seed 0.25, 0.78 and 0.16: mean 0.40, deviation 0.34, 4.303 · 0.34 / √3 = 0.84. Pooled data have 26.15.
        (
            "FedLC − FedAvg",
            "ChemProt, trained encoder, α = 0.05, micro-f1",
            "chosen",
            ["3", "+0.4 (−0.4 to +1.2)", "1.1", "+26.2", "yes", "does not show", "open"],
        ),
    ],
)
def test_lines_by_hand(claim, data, values, cells):
    lines = [row[4:] for row in ROWS if row[0] == claim and f"[{data}]" in row[2] and row[3] == values]
    assert lines == [cells]


def test_verdicts_are_words_of_the_tables_and_few_seeds_are_open():
    assert len(ROWS) > 150 and f"Of {len(ROWS)} lines" in PAGE
    assert {row[VERDICT] for row in ROWS if int(row[4]) < claims.LEAST_SEEDS} <= {"open"}
    assert {row[VERDICT] for row in ROWS} <= {*VERDICTS, "–"}
    for row in ROWS:
        is_made_up = "[made up" in row[2] or "[bags as long" in row[2]
        assert row[VERDICT].startswith("made up: ") == (is_made_up and row[VERDICT] != "–")
        unjudged = row[0].startswith("Centralised")
        assert (row[VERDICT] == "–") == unjudged and (row[ALONE] == "–") == unjudged
        assert "(" in row[5] or row[6] == "–"


def test_verdicts_are_adjusted_over_the_whole_page():
    """Holm's adjustment by hand, from the means and deviations of the tables."""
    judged = [line for of_page in claims.lines().values() for line in of_page if line.judged]
    ps = sorted((line.difference.p, line.verdict) for line in judged if line.difference.p is not None)
    for rank, (p, verdict) in enumerate(ps):
        if (len(ps) - rank) * p >= 0.05:
            break
        assert verdict.endswith(("gain", "loss"))
    assert rank > 0 and not any(verdict.endswith(("gain", "loss")) for _, verdict in ps[rank:])


def test_a_table_with_values_by_seed_is_computed_from_them(tmp_path, monkeypatch):
    """The same claim, by values.csv; the file has a baseline that is not the first row."""
    gains = [0.02, 0.03, 0.025, 0.028, 0.031]
    entries = {"NONE": [0.5] * 5, "ONE": [0.52, 0.55, 0.51, 0.53, 0.56], "pooled": [0.6] * 5}
    entries["Lazy MIL"] = [one + gain for one, gain in zip(entries["ONE"], gains, strict=True)]
    values = [
        Value("K", name, "pooled" if name == "pooled" else "method", seed, "test/auc", which, 1, number)
        for name, numbers in entries.items()
        for seed, number in enumerate(numbers)
        for which in ("chosen", "final")
    ]
    costs = ("bytes_up", "bytes_down", "seconds_per_round")
    values += [Value("K", name, "method", 0, cost, "", None, 1.0) for name in entries for cost in costs]
    of_entry = {"group": "K", "control": False, "published": {}, "tried": "3 on dev", "notes": [], "privacy": None}
    facts = {
        **{"format": 1, "title": "T", "command": "c", "metrics": ["test/auc"], "chosen_by": "dev/auc", "targets": {}},
        **{"median": False, "made_up": True, "gains": [], "explained": [], "seeds": [0, 1, 2]},
        "entries": [{"name": name, "title": name, **of_entry} for name in entries],
    }
    (tmp_path / "new").mkdir()
    write_values(tmp_path / "new", sorted(values, key=lambda v: list(entries).index(v.entry)), facts)
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    claim = claims.Claim("Lazy MIL − ONE", 4.7, "s", "d", "new/comparison-k.csv", "Lazy MIL", "test/auc", "ONE")
    chosen, final = claims.measured(claim)
    standard_error = np.std(gains, ddof=1) / 5**0.5
    assert chosen.difference.mean == pytest.approx(np.mean(gains))
    assert chosen.difference.high - chosen.difference.mean == pytest.approx(stats.t.ppf(0.975, 4) * standard_error)
    assert (chosen.values, final.values, chosen.tuned) == ("chosen", "final", "yes")
    assert chosen.room == pytest.approx(0.6 - np.mean(entries["ONE"])) and chosen.claim.made_up
    monkeypatch.setattr(claims, "CLAIMS", {("P", "p"): [claim]})
    assert [line.verdict for line in claims.lines()["P", "p"]] == ["made up: gain"] * 2


def test_a_figure_without_numbers_by_hand():
    """FLCMC's Figure 14, whose rows have different baselines, from values.csv with NumPy and SciPy."""
    with (ROOT / "docs/results/flcmc-sweeps-100-rounds/values.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["metric"], row["values"]) == ("test/accuracy", "final")]

    def by_seed(entry):
        group = "rate 0.001, (0.5, 0.5)"
        chosen = {row["seed"]: float(row["value"]) for row in rows if row["group"] == group and row["entry"] == entry}
        return np.array([chosen[seed] for seed in "01234"])

    for name, row, baseline in (
        ("FedAvgS − FedAvg", "FedAvgS", "FedAvg"),
        ("FedPAP − FedPA", "FedPAP, λ=4, μ=0.03", "FedPA, λ=4, μ=0.03"),
    ):
        gains = 100 * (by_seed(row) - by_seed(baseline))
        half = stats.t.ppf(0.975, 4) * gains.std(ddof=1) / np.sqrt(5)
        low, mean, high = (
            f"{number:+.1f}".replace("-", "−") for number in (gains.mean() - half, gains.mean(), gains.mean() + half)
        )
        assert f"{name} {mean} ({low} to {high})" in PAGE


def test_how_many_times_longer_a_round_takes_by_hand():
    """FLCMC's Table 11: the geometric mean of the ratios of the seeds, from values.csv with NumPy and SciPy."""
    with (ROOT / "docs/results/flcmc-imcs-v2-lstm/values.csv").open(encoding="utf-8", newline="") as file:
        seconds = {
            (row["entry"], row["seed"]): float(row["value"])
            for row in csv.DictReader(file)
            if (row["group"], row["metric"]) == ("symptoms, Adam", "seconds_per_round")
        }
    logarithms = np.log([seconds["FedProxP", seed] / seconds["FedAvgS", seed] for seed in "01234"])
    half = stats.t.ppf(0.975, 4) * logarithms.std(ddof=1) / np.sqrt(5)
    low, mean, high = np.exp([logarithms.mean() - half, logarithms.mean(), logarithms.mean() + half])
    assert f"FedProxP {mean:.2f} ({low:.2f} to {high:.2f}), FedAttS" in PAGE


def test_published_gains_are_those_of_the_tables():
    """Where a table has the published values of the row and of its baseline."""
    checked = 0
    for claim in (claim for group in claims.CLAIMS.values() for claim in group):
        with open(ROOT / "docs" / "results" / claim.file, newline="", encoding="utf-8") as file:
            rows = {row["algorithm"]: row for row in csv.DictReader(file)}
        base = rows[claim.baseline or next(iter(rows))]
        levels = [r[f"{claim.metric}_published"] for r in (rows[claim.row], base)]
        if all(levels):
            assert claim.published == pytest.approx(100 * (float(levels[0]) - float(levels[1])), abs=0.005), claim
            checked += 1
    assert checked > 25


def test_no_difference_or_interval_is_typed():
    """In the script's own words, numbers with a sign or an interval are computed."""
    source = (ROOT / "scripts" / "claims.py").read_text("utf-8")
    texts = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    typed = [text for text in texts if re.search(r"[+−]\d+\.\d|\(−?\d+\.\d to", text) and text != "+0.0"]
    assert typed == []
