"""The progress of runs that are under way at once, in a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from tests.comparison.test_workers import planned
from tff_re.cli import display, parallel_progress
from tff_re.cli.display import Terminal
from tff_re.cli.parallel_progress import ParallelProgress
from tff_re.comparison.estimate import Estimate
from tff_re.runs.training import RoundReport


def suite():
    entries = [SimpleNamespace(name=name) for name in ("fast", "slow")]
    return SimpleNamespace(title="Tiny", entries=entries, seeds=(0, 1), tuning=None)


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """Feeds a display with runs of which the second one ends first; what it printed."""

    def show(**terminal):
        output, now = io.StringIO(), [0.0]
        console = Terminal(file=output, width=120, markup=False, **terminal)
        for module in (display, parallel_progress):
            monkeypatch.setattr(module, "console", console)
        monkeypatch.setattr(parallel_progress, "show_suite", lambda suite: console.print(f"suite {suite.title}"))
        estimate = Estimate(suite(), tmp_path, lambda: now[0], jobs=2)
        with ParallelProgress(suite(), estimate, 4) as progress:
            progress.plan([planned(tmp_path / name, seed) for seed in (0, 1) for name in ("fast", "slow")])
            progress.begin(0)
            progress.begin(1)
            for number in (1, 0):
                for round_num in (1, 2):
                    now[0] += 5
                    report = RoundReport(round_num, 2, {"test/accuracy": 0.5 + number / 10}, 0.25)
                    progress.round(number, report)
                progress.end(number)
                if number == 1:
                    progress.begin(2)
            progress.end(2)  # it was finished before
            progress.begin(3)
            progress.end(3)
        return output.getvalue()

    return show


def test_lines_of_a_run_are_together_and_in_the_suites_order(shown):
    lines = [line for line in shown(force_terminal=False).splitlines() if not line.startswith("left: ")]
    assert lines == [
        "suite Tiny",
        *(f"[1/4] fast, seed 0: round {n}/2, accuracy 0.5000, 0.25 s" for n in (1, 2)),
        *(f"[2/4] slow, seed 0: round {n}/2, accuracy 0.6000, 0.25 s" for n in (1, 2)),
    ]


def test_a_terminal_has_a_bar_for_the_suite_and_one_for_each_run(shown):
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(force_terminal=True))
    assert "Tiny" in text and "4/4" in text
    assert "left: 2 runs, about 15 s, estimated from the runs so far" in text


def test_time_left_is_divided_by_the_runs_at_once(tmp_path):
    now = [0.0]
    estimate = Estimate(suite(), tmp_path, lambda: now[0], jobs=2)
    estimate.begin(0, "fast", 4)
    estimate.begin(1, "slow", 4)
    now[0] = 10.0
    for _ in range(4):
        estimate.round(0)
    estimate.end(0)
    assert estimate.left() == "left: 3 runs, about 15 s, estimated from the runs so far"  # 3 × 10 s on two workers
    now[0] = 30.0
    for _ in range(4):
        estimate.round(1)
    estimate.end(1)
    assert estimate.left() == "left: 2 runs, about 20 s, estimated from the runs so far"  # 10 + 30
    estimate.begin(2, "fast", 4)
    estimate.end(2)  # no round of it: it was finished before
    assert estimate.left() == "left: 2 runs, about 20 s, estimated from the runs so far"
