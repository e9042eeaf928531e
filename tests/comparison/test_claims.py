"""The page of all claims: what the script makes of the results, and its numbers by hand."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("claim", "data", "values", "cells"),
    [
        # Mean 10.01, deviation 0.17 of three seeds: 4.303 · 0.17 / √3 = 0.41.
        ("FedAttS − FedAvgS", "synthetic(0.5, 0.5)", "best", ["3", "+10.0 (+9.6 to +10.4)", "0.5", "shows"]),
        # Mean −4.94, deviation 1.74 of five seeds: 2.776 · 1.74 / √5 = 2.16.
        (
            "FedPAP − FedAvgS",
            "MIE, LSTM, Adam, 50 rounds",
            "best",
            ["5", "−4.9 (−7.1 to −2.8)", "2.9", "does not show"],
        ),
        ("Lazy MIL − ONE", "CDR, K = 10, C = 0.2", "chosen", ["3", "0.0 (−6.4 to +6.3)", "8.3", "open"]),
        # Mean −0.02, deviation 0.63 of four seeds: 3.182 · 0.63 / 2 = 1.01.
        (
            "Lazy MIL − ONE",
            "CDR, K = 10, C = 0.2, 20 rounds, equal steps",
            "chosen",
            ["4", "0.0 (−1.0 to +1.0)", "1.3", "does not show"],
        ),
        (
            "FedCMC − FedAvg",
            "ChemProt, frozen encoder, α = 0.05, macro-f1",
            "chosen",
            ["8", "+2.9 (−1.1 to +6.8)", "5.5", "does not show"],
        ),
        ("Lazy MIL − ONE", "made up, noise 0.8, equal steps", "chosen", ["5", "+3.9 (+1.9 to +5.9)", "2.7", "shows"]),
        # 2.37, deviation 3.13 of four seeds: 3.182 · 3.13 / 2 = 4.99.
        (
            "FedLCC − FedAvg",
            "CDR, non-IID, 30 rounds, 100 documents",
            "chosen",
            ["4", "+2.4 (−2.6 to +7.4)", "6.7", "open"],
        ),
        ("FedLCC − FedAvg", "CDR, non-IID", "chosen", ["2", "−0.9 (−20.8 to +18.9)", "25.5", "open"]),
        (
            "FedPAP − FedAvgS",
            "MIE, logistic regression, Adam",
            "final",
            ["5", "+2.5 (+1.5 to +3.5)", "1.3", "shows, but smaller"],
        ),
    ],
)
def test_lines_by_hand(claim, data, values, cells):
    lines = [row[4:] for row in ROWS if row[0] == claim and f"[{data}]" in row[2] and row[3] == values]
    assert lines == [cells]


def test_two_seeds_are_open_and_every_link_is_to_a_table():
    assert len(ROWS) > 80 and f"Of {len(ROWS)} intervals" in PAGE
    assert {row[7] for row in ROWS if row[4] == "2"} == {"open"}
    assert {row[7] for row in ROWS} == {"shows", "shows, but smaller", "does not show", "open"}


def test_published_gains_are_those_of_the_tables():
    """Where a table has the published values of the row and of its first one."""
    checked = 0
    for claim in (claim for group in claims.CLAIMS.values() for claim in group if claim.row):
        with open(ROOT / "docs" / "results" / claim.file, newline="", encoding="utf-8") as file:
            first, *others = csv.DictReader(file)
        (row,) = (row for row in others if row["algorithm"] == claim.row)
        levels = [r[f"{claim.metric}_published"] for r in (row, first)]
        if all(levels):
            assert claim.published == pytest.approx(100 * (float(levels[0]) - float(levels[1])), abs=0.005), claim
            checked += 1
    assert checked > 25
