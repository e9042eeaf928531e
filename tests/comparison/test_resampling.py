"""The bootstrap over test units and seeds, against plain NumPy, and its file."""

from dataclasses import replace

import numpy as np
import pytest
import tomli_w

from tests.documents_for_tests import document_table
from tests.upper_floors import builder, command, write_recipe
from tff_re.comparison.outcome import compare
from tff_re.comparison.report import write_report
from tff_re.comparison.resampling import read_units, write_units
from tff_re.comparison.suite import load_suite
from tff_re.errors import UserError
from tff_re.runs.units import METRICS, difference_interval


def counts(seed: int, units: int, correct: float) -> np.ndarray:
    drawn = np.random.default_rng(seed)
    stated, predicted = drawn.integers(1, 6, (2, units))
    return np.stack([drawn.binomial(np.minimum(stated, predicted), correct), predicted, stated], axis=-1)


def by_hand(ours, theirs, draws: int) -> tuple[float, float]:
    """The same with loops and another generator."""
    drawn, means = np.random.RandomState(7), []
    for _ in range(draws):
        units = drawn.randint(len(ours[0]), size=len(ours[0]))
        differences = []
        for seed in drawn.randint(len(ours), size=len(ours)):
            (a, p, g), (b, q, h) = ours[seed][units].sum(0), theirs[seed][units].sum(0)
            differences.append(2 * a / (p + g) - 2 * b / (q + h))
        means.append(np.mean(differences))
    return tuple(np.percentile(means, [2.5, 97.5]))


def rows(units: int):
    return [{seed: counts(10 * seed + n, units, level) for seed in range(4)} for n, level in enumerate((0.8, 0.6))]


def test_the_interval_is_that_of_a_plain_bootstrap():
    ours, theirs = rows(60)
    assert difference_interval(ours, theirs, "test/f1", draws=6000) == pytest.approx(
        by_hand(ours, theirs, 6000), abs=6e-3
    )


def test_one_unit_and_one_seed_vary_nothing():
    ours, theirs = {0: np.array([[1, 2, 2]])}, {0: np.array([[0, 1, 2]])}
    assert difference_interval(ours, theirs, "test/f1") == (0.5, 0.5)
    assert difference_interval(ours, {1: theirs[0]}, "test/f1") is None
    assert difference_interval(ours, {0: np.zeros((2, 3))}, "test/f1") is None


def test_the_interval_is_wider_with_fewer_units():
    widths = [np.ptp(difference_interval(*rows(units), "test/f1")) for units in (15, 150, 1500)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2] > 0


def test_rows_are_paired():
    ours, _ = rows(40)
    assert difference_interval(ours, ours, "test/recall") == (0, 0)


def test_metrics_of_nothing_are_zero():
    assert [of(np.zeros(3)) for of in METRICS.values()] == [0, 0, 0]


def test_the_file(tmp_path):
    units = {("A: α", "FedAvg", 3): np.array([[1, 2, 3]]), ("", "x/y", 0): np.zeros((2, 3), np.int64)}
    write_units(tmp_path / "test_units.npz", units)
    again = read_units(tmp_path / "test_units.npz")
    assert again.keys() == units.keys() and all((again[key] == units[key]).all() for key in units)
    assert read_units(tmp_path / "none.npz") == {}
    (tmp_path / "test_units.npz").write_bytes(b"junk")
    with pytest.raises(UserError, match="is damaged"):
        read_units(tmp_path / "test_units.npz")


@pytest.mark.slow
def test_a_comparison_of_documents_has_the_column(runtime, tmp_path, capsys):
    write_recipe(tmp_path / "documents.toml", document_table())
    named = [{"name": name, "set": [f"algorithm.learning_rate={rate}"]} for name, rate in (("A", 0.001), ("B", 0.05))]
    table = {"title": "Tiny", "recipe": str(tmp_path / "documents.toml"), "seeds": [0, 1], "entry": named}
    table |= {"metrics": ["test/f1", "dev/f1"], "choose_by": "dev/f1"}
    (tmp_path / "suite.toml").write_text(tomli_w.dumps(table), "utf-8")
    suite, out = load_suite(str(tmp_path / "suite.toml")), tmp_path / "out"
    outcomes = compare(suite, out, builder=builder())
    for outcome in (outcome for by_seed in outcomes.values() for outcome in by_seed.values()):
        correct, predicted, stated = outcome.test_units.sum(axis=0)
        f1 = 2 * correct / (predicted + stated)
        assert f1 == pytest.approx(outcome.at_best("dev/f1")["test/f1"]), "the counts make the metric"
    write_report(suite, outcomes, out)
    written = (out / "comparison.md").read_text("utf-8")
    assert "| 95 %, test sample |" in written and "dev/f1 chosen − A | 95 % interval" in written
    # The command makes the same from the files, without the runs.
    typed = command(capsys, "tables", out, "--out", tmp_path / "again")
    assert typed.code == 0
    for line in written.splitlines():
        assert not line.startswith("| B ") or line in (tmp_path / "again" / "tables.md").read_text("utf-8")
    # A run that is resumed keeps its file; one of an older version has none, and the table says nothing.
    kept = {path: path.read_bytes() for path in out.glob("runs/*/test_units.npz")}
    again = compare(suite, out, builder=builder(), resume=True)
    assert len(kept) == 4 and kept == {path: path.read_bytes() for path in out.glob("runs/*/test_units.npz")}
    assert (again["B"][1].test_units == outcomes["B"][1].test_units).all()
    old = {name: {s: replace(o, test_units=None) for s, o in by_seed.items()} for name, by_seed in outcomes.items()}
    (tmp_path / "old").mkdir()
    write_report(suite, old, tmp_path / "old")
    assert "test sample" not in (tmp_path / "old" / "comparison.md").read_text("utf-8")
