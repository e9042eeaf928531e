"""The benchmark of `compare --jobs`, in a size that measures nothing, and the schedule of suites on made-up workers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import schedule, suites
from benchmarks.schedule import Costs, Simulated, simulated
from tests.comparison.test_parallel import plain_suite
from tests.comparison.test_sweep import suite_file as sweep_file
from tests.upper_floors import write_recipe
from tff_re.comparison.suite import load_suite

pytestmark = pytest.mark.tools

FREE = Costs(0, 0, 0, 0, 0)


def test_workers_that_cost_nothing_divide_the_time(tmp_path):
    suite = load_suite(str(plain_suite(tmp_path)))
    seconds = {entry.name: 10.0 for entry in suite.entries}
    assert [simulated(suite, workers, FREE, seconds).now for workers in (1, 2, 3, 4, 6, 40)] == [60, 30, 20, 20, 10, 10]


def test_what_a_worker_needs_once_is_counted_once(tmp_path):
    suite = load_suite(str(plain_suite(tmp_path)))
    seconds = dict.fromkeys((entry.name for entry in suite.entries), 10.0)
    costs = Costs(start=100, data=1000, frozen=0, compiling=10_000, run=1)
    one, three = (simulated(suite, workers, costs, seconds) for workers in (1, 3))
    assert one.spent == {"rounds": 60, "run": 6, "start": 100, "data": 2000, "frozen": 0, "compiling": 30_000}
    assert one.now == sum(one.spent.values())
    assert (three.spent["compiling"], three.spent["data"]) == (30_000, 6000) and three.now == 12_122


def test_a_sweep_and_its_steps_come_before_the_tables(tmp_path):
    suite = load_suite(str(sweep_file(tmp_path, seeds=[0, 1])))
    pool = simulated(suite, 40, FREE, dict.fromkeys((entry.name for entry in suite.entries), 1.0))
    assert pool.now == 4.0  # as many phases, whatever the number of workers
    assert len(pool._runs) == suite.tuning.runs + 2 * 2 + 4


def test_shipped_suites_have_the_seconds_of_their_results():
    suite = load_suite("flcmc-synthetic")
    seconds = schedule.seconds_of_rounds("flcmc-synthetic", suite)
    assert list(seconds) == [entry.name for entry in suite.entries] and 10 < seconds["FedAvgS"] < 60
    row = schedule._row(
        "s", 2, SimpleNamespace(now=60.0, spent=dict.fromkeys(Simulated(1, FREE, {}).spent, 10.0)), 90.0
    )
    assert row == "| s | 2 | 1.0 | 1.5 | 17 % | 8 % | 17 % | 8 % | 50 % |"


def test_the_table_says_the_speed_up_and_whether_it_is_met():
    table = suites.table(
        {"LR": {1: [40.0, 44.0], 2: [20.0, 20.0]}, "LSTM": {1: [30.0], 2: [20.0]}}, {"LR": 8, "LSTM": 4}, 2
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:6]]
    assert rows[0] == ["LR", "8", "1", "687 (655 to 720)", "5.2", ""]
    assert rows[1] == ["LR", "8", "2", "1440 (1440 to 1440)", "2.5", "2.10"] and rows[3][-1] == "1.50"
    assert "LR: expected 1.8, here 2.10, met. LSTM: expected 1.8, here 1.50, not met." in table


def test_commands_take_turns_and_one_that_fails_is_an_error(tmp_path, monkeypatch):
    write_recipe(tmp_path / "tiny.toml")
    small = suites.Small(str(tmp_path / "tiny.toml"), ("fedavg",), {}, ("training.rounds=1",), 1.8)
    monkeypatch.setattr(suites, "SUITES", {"LR": small})
    commands = []

    def ran(command, **options):
        commands.append(command[-1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(suites.subprocess, "run", ran)
    assert "| LR | 2 | 2 |" in suites.run(2, tmp_path) and commands == ["1", "2", "2", "1"]
    path = suites.write_suite(small, tmp_path / "new", tmp_path)
    assert [entry.recipe_for(0).algorithm.name for entry in load_suite(str(path)).entries] == ["fedavg"]
    monkeypatch.setattr(suites.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=2, stderr="no"))
    with pytest.raises(RuntimeError, match="failed: no"):
        suites.seconds_of(path, tmp_path / "out", 2)


def test_the_suites_are_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "encoder", lambda folder: folder)
    for number, small in enumerate(suites.SUITES.values()):
        suite = load_suite(str(suites.write_suite(small, tmp_path / str(number), tmp_path)))
        recipes = [entry.recipe_for(0) for entry in suite.entries]
        assert [recipe.algorithm.name for recipe in recipes] == [*small.algorithms]
        assert getattr(recipes[0].model.options, "frozen_layers", 0) == (5 if small.encoder else 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LR", "PCNN"])
def test_a_small_suite_runs_with_one_and_two_jobs(name, tmp_path, monkeypatch):
    small = suites.SUITES[name]
    few = ("training.rounds=1", "evaluation.every=1", *suites.COMMON)
    monkeypatch.setattr(suites, "SUITES", {name: replace(small, algorithms=small.algorithms[:1], settings=few)})
    markdown = suites.run(1, tmp_path)
    assert f"\n| {name} | 2 | 1 | " in markdown and f"\n| {name} | 2 | 2 | " in markdown
