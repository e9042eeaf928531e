"""`tables --against`: whether two runs of a comparison measured the same."""

from __future__ import annotations

import math

import pytest

from tests.upper_floors import command, refusal
from tff_re.comparison.value_comparison import compare_values
from tff_re.comparison.values import Value, write_values

FACTS = {
    **{"format": 1, "metrics": ["test/f1"], "chosen_by": None, "targets": {}, "median": False, "made_up": False},
    **{"gains": [], "explained": [], "title": "T", "command": "c", "seeds": []},
}


def value(entry="FedAvg", seed=0, number=0.5, *, metric="test/f1", which="best", commit="abc", group="", processor="P"):
    return Value(group, entry, "method", seed, metric, which, 3, number, 270, commit, processor)


RUN = (
    value(),
    value(seed=1, number=0.25),
    value("FedAtt", number=0.1 + 0.2),
    value("FedAtt", metric="rounds to test/f1 0.9", which="", number=None),
    value("FedAtt", metric="test/loss", number=math.nan),
    value(metric="seconds_per_round", which="", number=1.0),
)


@pytest.fixture
def write(tmp_path):
    def write(name, values):
        (tmp_path / name).mkdir()
        named = {(v.group, v.entry) for v in values}
        entries = [{"group": group, "title": title, "name": title} for group, title in named]
        write_values(tmp_path / name, values, {**FACTS, "entries": entries})
        return tmp_path / name

    return write


def test_the_same_values_from_another_commit_and_in_other_seconds(write, capsys):
    again = [v._replace(commit="def", value=2.0 if v.metric == "seconds_per_round" else v.value) for v in RUN]
    here, there = write("here", RUN), write("there", again[::-1])
    found = compare_values(here, there)
    assert (found.same, found.differences, found.only_here, found.only_there) == (5, (), 0, 0)
    typed = command(capsys, "tables", here, "--against", there)
    assert (typed.code, typed.err) == (0, "")
    assert typed.out == "5 of 5 values that both have are the same in every digit (seconds left out)\n"


def test_what_differs_is_listed_with_the_largest_first(write, capsys):
    others = [
        value(),
        value(seed=1, number=0.75, commit="def", processor="Q"),
        value("FedAtt", number=0.3),
        value("FedAtt", metric="rounds to test/f1 0.9", which="", number=8),
        value("FedAtt", metric="test/loss", number=math.nan),
    ]
    here, there = write("here", RUN), write("there", others)
    found = compare_values(here, there)
    assert found.same == 2  # FedAvg's first seed, and NaN, which equals NaN here
    assert [(d.here.entry, d.here.metric, d.here.seed) for d in found.differences] == [
        ("FedAtt", "rounds to test/f1 0.9", 0),
        ("FedAvg", "test/f1", 1),
        ("FedAtt", "test/f1", 0),  # 0.1 + 0.2 differs in the last digit
    ]
    assert [d.size for d in found.differences] == [math.inf, 0.5, pytest.approx(5.6e-17, abs=1e-17)]
    typed = command(capsys, "tables", here, "--against", there)
    assert typed.code == 1 and typed.err == ""
    assert typed.out.startswith("2 of 5 values") and "the 3 largest differences" in typed.out
    assert "commits: here abc; there abc, def" in typed.out and "processors: here P; there P, Q" in typed.out
    first, second = (typed.out.index(text) for text in ("rounds to", "0.75"))
    assert first < second


def test_values_that_only_one_has_are_counted(write, capsys):
    here, there = write("here", RUN), write("there", [RUN[0], value(seed=7), value(group="B"), value("FedPA")])
    found = compare_values(here, there)
    assert (found.same, found.differences, found.only_here, found.only_there) == (1, (), 4, 3)
    typed = command(capsys, "tables", here, "--against", there)
    assert typed.code == 0 and f"values that only one has: 4 here, 3 in {there}" in typed.out


def test_refusals(write, capsys, tmp_path):
    here, there = write("here", RUN), write("there", [value("FedPA")])
    refusal(command(capsys, "tables", here, "--against", there), "no entry and seed in common", here, there)
    refusal(command(capsys, "tables", here, "--against", here, "--out", tmp_path / "out"), "leave --out out")
    refusal(command(capsys, "tables", here, "--against", tmp_path), "values.json: is missing")
