"""What a comparison costs, said before it starts and while it runs."""

from __future__ import annotations

from types import SimpleNamespace

from tff_re.comparison.costs import in_words
from tff_re.comparison.estimate import Estimate
from tff_re.comparison.suite import run_folder, sweep_folder
from tff_re.comparison.sweep import Sweep


def suite(tuning=None):
    return SimpleNamespace(entries=[SimpleNamespace(name=n) for n in ("fast", "slow")], seeds=(0, 1), tuning=tuning)


def sweep():
    return Sweep((100,), "dev/f1", {"fast": ({"training.rounds": 1}, {"training.rounds": 2}), "slow": ({},)})


def test_the_first_run_is_the_pilot_and_each_entry_has_its_own(tmp_path):
    now = [0.0]
    estimate = Estimate(suite(), tmp_path, lambda: now[0])
    assert estimate.before() == "cost: 4 runs (2 entries on 2 seeds); no estimate until the first run has finished"
    for name, seconds, said in (
        ("fast", 10, None),
        ("slow", 200, "left: 3 runs, about 30 s, estimated from the runs so far"),
        ("fast", 10, "left: 2 runs, about 3 min 30 s, estimated from the runs so far"),
        ("slow", 200, "left: 1 run, about 3 min 20 s, estimated from the runs so far"),
    ):
        assert estimate.start(name, 5) == said
        now[0] += seconds
        for _ in range(5):
            estimate.round()


def test_the_time_of_a_cluster_is_said_once_its_workers_are_known(tmp_path):
    now = [0.0]
    estimate = Estimate(suite(), tmp_path, lambda: now[0], jobs=None)
    assert estimate.before() == "cost: 4 runs (2 entries on 2 seeds); no estimate until the workers are known"
    estimate.begin(0, "fast", 1)
    now[0] = 10.0
    estimate.round(0)
    estimate.end(0)
    assert estimate.left() is None
    estimate.jobs = 3
    assert estimate.left() == "left: 3 runs, about 10 s, estimated from the runs so far"


def test_runs_that_are_finished_are_not_ahead_and_are_timed(tmp_path):
    folder = run_folder(tmp_path, "fast", 0)
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}", "utf-8")
    (folder / "timings.csv").write_text("round,seconds/training\n1,40\n2,20\n", "utf-8")
    estimate = Estimate(suite(), tmp_path, lambda: 0.0)
    assert estimate.before() == (
        "cost: 4 runs (2 entries on 2 seeds); 1 finished; about 3 min 0 s, estimated from the runs so far"
    )
    # Found finished: no round ends, and nothing is learned from it.
    assert (
        estimate.start("fast", 2)
        == estimate.start("slow", 2)
        == "left: 3 runs, about 3 min 0 s, estimated from the runs so far"
    )
    (folder / "timings.csv").write_text("damaged", "utf-8")
    assert "no estimate until the first run" in Estimate(suite(), tmp_path).before()


def test_the_runs_of_a_sweep_are_counted_and_a_resumed_run_is_not_taken_for_a_whole_one(tmp_path):
    now = [0.0]
    estimate = Estimate(suite(sweep()), tmp_path, lambda: now[0])
    assert estimate.before().startswith("cost: 7 runs (2 entries on 2 seeds, after 3 of the sweep); no estimate")
    estimate.start("fast, rate=1", 10)
    now[0] += 20
    for _ in range(5):  # the other five were trained before
        estimate.round()
    assert estimate.start("fast, rate=2", 10) == "left: 6 runs, about 4 min 0 s, estimated from the runs so far"


def test_the_runs_of_a_sweep_that_finished_or_diverged_are_not_ahead(tmp_path):
    for setting, name in enumerate(("summary.json", "diverged.txt")):
        folder = sweep_folder(tmp_path, "fast", setting, 100)
        folder.mkdir(parents=True)
        (folder / name).write_text("{}", "utf-8")
    cost = Estimate(suite(sweep()), tmp_path).before()
    assert cost.startswith("cost: 7 runs (2 entries on 2 seeds, after 3 of the sweep); 2 finished;")


def test_the_finished_runs_of_a_sweep_are_timed(tmp_path):
    folder = sweep_folder(tmp_path, "fast", 0, 100)
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}", "utf-8")
    (folder / "timings.csv").write_text("round,seconds/training\n1,5\n2,5\n", "utf-8")
    cost = Estimate(suite(sweep()), tmp_path).before()
    assert cost.endswith("; 1 finished; about 1 min 0 s, estimated from the runs so far")


def test_durations_in_words():
    assert [in_words(s) for s in (1.26, 59.6, 200, 7500)] == ["1.3 s", "1 min 0 s", "3 min 20 s", "2 h 5 min"]
