"""values.csv: every number of a table can be computed from it, by the command and by hand."""

from __future__ import annotations

import csv
import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from tests.upper_floors import command, refusal
from tff_re.comparison.outcome import Outcome
from tff_re.comparison.report import write_report
from tff_re.comparison.rows import ComparisonRow, Table
from tff_re.comparison.statistics import MetricSummary, paired_difference
from tff_re.comparison.suite import ClaimOptions, Entry, GainOptions, Suite
from tff_re.comparison.sweep import Tuned
from tff_re.comparison.tables import comparison_markdown
from tff_re.comparison.values import Value, metric_options, read_values, tables_of

DRAWN = np.random.default_rng(0)


def entry(name, role="federated", **options) -> Entry:
    recipe = SimpleNamespace(notes=("updates are rounded",) if role == "federated" else (), role=role)
    return Entry(name, lambda seed: recipe, **options)


def outcome(level: float, **options) -> Outcome:
    """Ten rounds whose dev score chooses the fourth."""
    history = [
        {
            "round": float(number),
            "test/f1": level + DRAWN.normal(0, 0.02),
            "test/loss": 1 - level + DRAWN.normal(0, 0.02),
            "dev/f1": 0.9 if number == 4 else 0.1,
            "local/steps": 3.0,
        }
        for number in range(1, 11)
    ]
    references = {"trivial: largest class": {"test/f1": 0.2}, "oracle (perfect)": {"test/f1": 0.95}}
    privacy = {"epsilon": 3.5, "delta": 1e-5, "unit": "client"}
    same = {"privacy": privacy, "references": references, "test_examples": 270, "commit": "abc", "processor": "a CPU"}
    return Outcome(history, 0.25 + DRAWN.random(), 3000, 2000, **same, **options)


LEVELS = {
    "FedAvg": 0.5,
    "FedAtt": 0.6,
    "uniform mean": 0.58,
    "alone": 0.8,
    "pooled": 0.7,
    "FedAvg, B": 0.4,
    "FedPA, B": 0.5,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("written")
    seeds = tuple(range(9))
    published = {"FedAvg": {"test/f1": 0.4}, "FedAtt": {"test/f1": 0.45}}
    roles = {"alone": "local", "pooled": "pooled"}
    entries = tuple(
        entry(
            name,
            roles.get(name, "federated"),
            control=name in ("uniform mean", "alone"),
            group="B" if name.endswith(", B") else "A: α = 0.5",
            published=published.get(name, {}),
        )
        for name in LEVELS
    )
    tuned = {name: None if name == "pooled" else Tuned({"a.b": 1}, 6) for name in LEVELS}
    made = {name: {s: outcome(level, tuned=tuned[name]) for s in seeds} for name, level in LEVELS.items()}
    claims = (ClaimOptions(method="FedAtt", baseline="uniform mean", metric="test/f1", published=0.02),)
    gain = (GainOptions(method="FedAtt", baseline="FedAvg", control="uniform mean"),)
    suite = Suite(
        **{"title": "Made", "command": "compare made", "seeds": seeds, "metrics": ("test/f1", "test/loss")},
        **{"choose_by": "dev/f1", "entries": entries, "claim": claims, "gain": gain, "targets": {"test/f1": 0.6}},
        **{"median": True, "steps": True},
    )
    report = write_report(suite, made, out)
    return SimpleNamespace(out=out, made=made, report=report)


def test_the_command_makes_the_same_tables_from_the_two_files_alone(written, capsys, tmp_path):
    for name in ("values.csv", "values.json"):
        shutil.copy(written.out / name, tmp_path / name)
    assert {written.out / "values.csv", written.out / "values.json"} <= set(written.report.files)
    typed = command(capsys, "tables", tmp_path, "--out", tmp_path / "again")
    assert typed.code == 0 and typed.err == "", typed
    names = {"comparison-a-alpha-0.5.csv", "comparison-b.csv"}
    assert {path.name for path in (tmp_path / "again").iterdir()} == {*names, "tables.md"}
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (written.out / name).read_bytes()
    markdown = (written.out / "comparison.md").read_text("utf-8")
    sections = (tmp_path / "again" / "tables.md").read_text("utf-8").split("\n## ")[1:]
    assert len(sections) == 3 and all(section.strip() in markdown for section in sections)
    for line in written.report.text:
        assert line in typed.out.replace("\n", " ") or line.split()[0] in typed.out
    printed = command(capsys, "tables", tmp_path)
    assert printed.code == 0 and "FedAtt" in printed.out and not (tmp_path / "comparison-b.csv").exists()


def rows_of(folder):
    with open(folder / "values.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_an_interval_by_hand(written):
    """From the CSV file with NumPy and SciPy alone."""
    rows = [row for row in rows_of(written.out) if row["group"] == "A: α = 0.5"]

    def values(entry, which):
        chosen = [r for r in rows if (r["entry"], r["metric"], r["values"]) == (entry, "test/f1", which)]
        assert [int(r["seed"]) for r in chosen] == list(range(9))
        return np.array([float(r["value"]) for r in chosen])

    with open(written.out / "comparison-a-alpha-0.5.csv", newline="", encoding="utf-8") as file:
        table = {row["algorithm"]: row for row in csv.DictReader(file)}
    ps = {}
    for which in ("chosen", "final"):
        for name in ("FedAtt", "uniform mean"):
            gains = values(name, which) - values("FedAvg", which)
            standard_error = gains.std(ddof=1) / 3
            half = stats.t.ppf(0.975, 8) * standard_error
            of_table = {key: table[name][f"test/f1_{which}_difference_{key}"] for key in ("mean", "low", "high", "n")}
            expected = {"mean": gains.mean(), "low": gains.mean() - half, "high": gains.mean() + half, "n": 9}
            assert {key: float(value) for key, value in of_table.items()} == pytest.approx(expected)
            assert float(table[name][f"test/f1_{which}_median"]) == pytest.approx(np.median(values(name, which)))
            ps[name] = stats.ttest_1samp(gains, 0).pvalue
        low, high = sorted(ps, key=ps.get)
        holm = {low: 2 * ps[low], high: max(2 * ps[low], ps[high])}
        for name, p in holm.items():  # of two comparisons: neither the pooled row nor the clients alone count
            assert float(table[name][f"test/f1_{which}_difference_p_holm"]) == pytest.approx(p)
        room = (values("pooled", which) - values("FedAvg", which)).mean()
        oracle = (0.95 - values("FedAvg", which)).mean()
        assert float(table["FedAtt"][f"test/f1_{which}_difference_room"]) == pytest.approx(max(room, oracle))
        assert float(table["FedAtt"][f"test/f1_{which}_difference_published"]) == pytest.approx(0.05)
    for name in ("alone", "pooled", "trivial: largest class", "oracle (perfect)"):
        assert table[name]["test/f1_final_difference_verdict"] == table[name]["test/f1_final_difference_p_holm"] == ""


def test_what_the_file_has_of_a_run(written):
    rows, outcome = rows_of(written.out), written.made["FedAtt"][3]
    of_run = [r for r in rows if (r["entry"], r["seed"]) == ("FedAtt", "3")]
    found = {(r["metric"], r["values"]): (r["round"], r["value"]) for r in of_run}
    f1 = [row["test/f1"] for row in outcome.history]
    assert found["test/f1", "best"] == (str(int(np.argmax(f1)) + 1), repr(max(f1)))
    assert found["test/f1", "chosen"] == ("4", repr(f1[3])) and found["test/f1", "final"] == ("10", repr(f1[9]))
    assert found["test/loss", "best"][1] == repr(min(row["test/loss"] for row in outcome.history))
    assert found["bytes_up", ""] == ("", "2000") and found["epsilon", ""] == ("", "3.5")
    assert found["steps", ""] == ("", "30.0")
    reached = next((number for number, value in enumerate(f1, 1) if value >= 0.6), "")
    assert found["rounds to test/f1 0.6", ""] == ("", str(reached))
    assert {(r["group"], r["kind"]) for r in of_run} == {("A: α = 0.5", "method")}
    assert {(r["test_examples"], r["commit"], r["processor"]) for r in of_run} == {("270", "abc", "a CPU")}
    kinds = {r["entry"]: r["kind"] for r in rows}
    assert kinds == {
        **{"FedAvg": "method", "FedAtt": "method", "uniform mean": "control", "alone": "local", "pooled": "pooled"},
        **{"FedPA": "method", "trivial: largest class": "trivial", "oracle (perfect)": "oracle"},
    }


def test_the_pooled_row_that_was_not_tuned_is_told(written):
    markdown = (written.out / "comparison.md").read_text("utf-8")
    assert (
        "pooled: not tuned like the methods." in markdown
        and "FedAtt − uniform mean, test/f1, published +2.00" in markdown
    )
    verdict = next(line for line in markdown.splitlines() if line.startswith("- FedAtt − FedAvg"))
    assert "room +4" in verdict and verdict.count(": gain") == 2


def test_values_that_are_not_finite_or_never_reached_are_kept(tmp_path):
    values = [Value("", "A", "method", 0, "test/f1", which, None, math.nan) for which in ("best", "final")]
    values += [
        Value("", "A", "method", 0, name, "", None, 1.0) for name in ("bytes_up", "bytes_down", "seconds_per_round")
    ]
    values.append(Value("", "A", "method", 0, "rounds to test/f1 0.5", "", None, None))
    facts = {
        **{"format": 1, "metrics": ["test/f1"], "chosen_by": None, "targets": {"test/f1": 0.5}, "median": False},
        **{"made_up": False, "gains": [], "explained": [], "title": "T", "command": "c", "seeds": [0]},
        "entries": [
            {"name": "A", "group": "", "title": "A", "control": False, "published": {}, "tried": "", "notes": []}
            | {"privacy": None}
        ],
    }
    from tff_re.comparison.values import write_values

    write_values(tmp_path, values, facts)
    read, _ = read_values(tmp_path)
    assert str(read) == str(values)
    ((row,),) = (table.rows for table in tables_of(read, facts))
    assert math.isnan(row.metrics["test/f1"].best[0]) and row.rounds_to == {("test/f1", 0.5): (None,)}
    assert metric_options("test/loss") == {"higher_is_better": False, "percent": False}


@pytest.mark.parametrize(
    ("name", "change", "wanted"),
    [
        ("values.csv", None, "values.csv: is missing; give a folder that `compare` wrote"),
        ("values.json", None, "values.json: is missing"),
        ("values.json", lambda text: "{", "values.json: is damaged (not JSON)"),
        ("values.json", lambda text: json.dumps({"format": 0}), "values.json: was written by another version"),
        ("values.csv", lambda text: text.replace("seed", "sed", 1), "values.csv, line 1: must be group,entry,"),
        ("values.csv", lambda text: text.replace(",0,test/f1", ",zero,test/f1", 1), "values.csv, line 2: is malformed"),
        ("values.csv", lambda text: text + "a,b\n", "is malformed; run its `compare` again with --resume"),
        (
            "values.csv",
            lambda text: text.replace("FedAtt,method", "FedAt,method", 1),
            "values.csv: has values of 'FedAt', which values.json does not have; run its `compare` again",
        ),
        ("values.csv", lambda text: "\n".join(text.splitlines()[:-1]), "were written; run its `compare` again"),
        ("values.csv", lambda text: text[: text.index("FedAtt,method,8")], "is malformed; run its `compare` again"),
        ("values.json", lambda text: text.replace('"gains"', '"gain"'), "values.json: has no 'gains'; run its"),
    ],
)
def test_a_damaged_file_is_named(name, change, wanted, written, capsys, tmp_path):
    for file in ("values.csv", "values.json"):
        text = (written.out / file).read_text("utf-8")
        if file != name:
            (tmp_path / file).write_text(text, "utf-8")
        elif change is not None:
            (tmp_path / file).write_text(change(text), "utf-8")
    refusal(command(capsys, "tables", tmp_path), wanted)


def test_a_file_without_its_number_of_values_needs_every_seed(written, capsys, tmp_path):
    """As earlier versions wrote it."""
    facts = json.loads((written.out / "values.json").read_text("utf-8"))
    assert facts.pop("values") == len(rows_of(written.out))
    (tmp_path / "values.json").write_text(json.dumps(facts), "utf-8")
    lines = (written.out / "values.csv").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if ",FedAtt,method,3," not in line]
    assert len(kept) < len(lines)
    (tmp_path / "values.csv").write_text("".join(kept), "utf-8")
    refusal(command(capsys, "tables", tmp_path), "values.csv: has no values of 'FedAtt' with seed 3; run its `compare`")
    (tmp_path / "values.csv").write_bytes(b"\xff")
    refusal(command(capsys, "tables", tmp_path), "values.csv: is damaged (not UTF-8)")


def test_differences_of_rounding_are_none():
    """A value that one run kept in 32 bits and another in 64."""
    in_32_bits = [float(np.float32(x)) for x in (0.1, 0.2, 0.3, 0.7)]
    difference = paired_difference(in_32_bits, [0.1, 0.2, 0.3, 0.7])
    assert (difference.mean, difference.wins, difference.p) == (0, 0, 1)


def test_a_number_that_is_not_finite_has_no_place_in_an_order():
    metrics = [
        MetricSummary({0: level, 1: level, 2: last}, {0: level, 1: level, 2: last})
        for level, last in ((0.5, 0.5), (0.9, math.nan), (0.6, 0.6))
    ]
    roles = ("federated", "pooled", "oracle")
    rows = [
        ComparisonRow(role, {"test/f1": metric}, role=role, median=True)
        for role, metric in zip(roles, metrics, strict=True)
    ]
    for order in (rows, rows[::-1]):
        table = Table(order, "federated")
        assert table.room("federated", "test/f1", "best") == pytest.approx(0.1)
        assert comparison_markdown(table).count("| nan | nan |") >= 1
