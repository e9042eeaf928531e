"""A comparison of methods on bags, whose rounds dev chooses: tables, curves, going on, and what is damaged."""

from __future__ import annotations

import csv
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

from tests.bags_for_tests import HIDDEN, bag_table, with_method
from tests.report.test_report import pixels
from tests.upper_floors import builder, command, share_computations, write_recipe
from tff_re.comparison.outcome import Outcome, compare
from tff_re.comparison.suite import load_suite
from tff_re.pages.writing import write_page
from tff_re.report.precision_recall import on_grid
from tff_re.runs.reading import read_precision_recall

pytestmark = pytest.mark.xdist_group("bags")

NONE, LAZY = "NONE", "Lazy MIL"


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def compared(runtime, tmp_path_factory):
    """Two methods over two seeds, the comparison's command over it."""
    folder = tmp_path_factory.mktemp("bags-compared")
    write_recipe(folder / "bags.toml", bag_table(training={"rounds": 3, "client_fraction": 0.67}))
    table = {
        "title": "Tiny bags",
        "recipe": str(folder / "bags.toml"),
        "seeds": [0, 1],
        "metrics": ["test/auc", "dev/auc"],
        "choose_by": "dev/auc",
        "entry": [
            {"name": NONE, "algorithm": with_method("mil_none")},
            {"name": LAZY, "algorithm": with_method("lazy_mil")},
        ],
    }
    (folder / "suite.toml").write_text(tomli_w.dumps(table), "utf-8")
    outcomes = compare(load_suite(str(folder / "suite.toml")), folder / "out", builder=builder())
    return SimpleNamespace(folder=folder, suite=folder / "suite.toml", out=folder / "out", outcomes=outcomes)


def chosen(outcome, metric):
    """Its value in the first round in which dev/auc is highest, from the rows alone."""
    dev = [row["dev/auc"] for row in outcome.history]
    return outcome.history[dev.index(max(dev))][metric]


def test_the_table_has_the_values_of_the_chosen_rounds(compared, capsys):
    typed = command(capsys, "compare", "--suite", compared.suite, "--out", compared.out, "--resume")
    assert typed.code == 0 and typed.err == ""
    with open(compared.out / "comparison.csv", newline="", encoding="utf-8") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    values = {
        name: [chosen(outcome, "test/auc") for outcome in by_seed.values()]
        for name, by_seed in compared.outcomes.items()
    }
    for name, by_seed in values.items():
        assert float(rows[name]["test/auc_chosen_mean"]) == pytest.approx(np.mean(by_seed))
        assert float(rows[name]["test/auc_chosen_std"]) == pytest.approx(np.std(by_seed, ddof=1))
    difference = np.subtract(values[LAZY], values[NONE])
    assert float(rows[LAZY]["test/auc_chosen_difference_mean"]) == pytest.approx(difference.mean())
    assert not any("_best" in column for column in rows[NONE])
    assert list(rows) == [NONE, LAZY, "ranking by chance"]
    chance = {name: value["test/auc"] for name, value in compared.outcomes[NONE][0].references.items()}
    assert float(rows["ranking by chance"]["test/auc_chosen_mean"]) == pytest.approx(chance["ranking by chance"])
    markdown = (compared.out / "comparison.md").read_text("utf-8")
    assert "| algorithm | seeds | test/auc chosen | test/auc final | test/auc chosen − NONE |" in markdown
    assert f"| {LAZY} | 2 | {100 * np.mean(values[LAZY]):.2f} ± {100 * np.std(values[LAZY], ddof=1):.2f} |" in markdown
    assert "Chosen: in the round with the best dev score." in markdown and "Best: over the rounds" not in markdown
    assert "comparison-precision-recall.png" in markdown
    page = write_page(compared.out).read_text("utf-8")
    assert "Precision-recall curve" in page and "in the round with the best dev/auc" in page and HIDDEN not in page
    page = write_page(compared.out / "runs" / "lazy-mil-seed1").read_text("utf-8")
    assert "selected on dev by dev/auc" in page and "Precision-recall curve" in page and HIDDEN not in page
    text = " ".join(typed.out.split())
    assert "chosen" in text and HIDDEN not in typed.out + markdown

    pixels(compared.out / "comparison-precision-recall.png")
    with open(compared.out / "comparison-precision-recall.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, by_seed in compared.outcomes.items():
        seeds = [on_grid(outcome.precision_recall) for outcome in by_seed.values()]
        np.testing.assert_allclose([float(row[name]) for row in rows], np.mean(seeds, axis=0))
    for seed, outcome in compared.outcomes[LAZY].items():
        file = compared.out / "runs" / f"lazy-mil-seed{seed}" / "precision_recall.csv"
        np.testing.assert_array_equal(read_precision_recall(file), outcome.precision_recall)


def test_a_damaged_curve_is_named_and_made_again(compared, capsys, tmp_path):
    shutil.copytree(compared.out, tmp_path / "out")
    path = tmp_path / "out" / "runs" / "lazy-mil-seed1" / "precision_recall.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b",")
    arguments = ["compare", "--suite", compared.suite, "--out", tmp_path / "out", "--resume"]
    assert command(capsys, *arguments).code == 0  # the digest tells, and the run's last step writes the file again
    assert path.read_bytes() == whole
    path.unlink()
    (path.parent / "digests.json").unlink()  # as a kill in the run's last step leaves it
    assert command(capsys, *arguments).code == 0
    assert path.read_bytes() == whole


def test_the_row_in_which_a_metric_is_highest():
    rows = [
        {"round": float(n), "dev/auc": value, "test/auc": n / 10} for n, value in enumerate((0.1, 0.6, 0.6, 0.2), 1)
    ]
    assert Outcome(rows, 1.0, 1, 1).at_best("dev/auc")["test/auc"] == 0.2, "the first of equals"
    rows[1]["dev/auc"] = math.nan
    del rows[0]["dev/auc"]
    assert Outcome(rows, 1.0, 1, 1).at_best("dev/auc")["round"] == 3
    assert Outcome([{"round": 1.0, "dev/auc": math.nan}], 1.0, 1, 1).at_best("dev/auc") == {}
