"""Sweeps: the same budget for all, chosen on dev over seeds of their own, and nothing is run twice."""

from __future__ import annotations

import csv
import math
import statistics
import time
from types import SimpleNamespace

import pytest
import tomli_w

from tests.upper_floors import Stop, builder, command, refusal, share_computations, write_recipe
from tff_re.comparison import outcome as outcomes_of
from tff_re.comparison.edges import next_value
from tff_re.comparison.outcome import Outcome, compare
from tff_re.comparison.suite import load_suite
from tff_re.comparison.sweep import Sweep, Tuned, read_sweep, sentences, tune
from tff_re.errors import UserError
from tff_re.recipes.reading import load
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history

RATE = "algorithm.learning_rate"
LARGE = 1e30
"""With it FedPA's proximal term is infinity minus infinity within a round."""


def suite_file(folder, **changes):
    recipe = write_recipe(
        folder / "tiny.toml",
        training={"rounds": 2, "clients_per_round": 2},
        algorithm={"name": "fedavg", "local_epochs": 1},
        choice={"dev_share": 0.3},
    )
    table = {
        "title": "Swept",
        "recipe": str(recipe),
        "seeds": [0],
        "metrics": ["test/accuracy"],
        "sweep": {"seeds": [7, 8], RATE: [0.001, 0.3]},
        "entry": [
            {"name": "FedAvg"},
            {"name": "FedPA", "algorithm": {"name": "fedpa", "local_epochs": 20}, "sweep": {RATE: [0.01, LARGE]}},
        ],
        **changes,
    }
    path = folder / "suite.toml"
    path.write_text(tomli_w.dumps({key: value for key, value in table.items() if value is not None}), "utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def swept(runtime, tmp_path_factory):
    """The suite, broken off twice on its way: in the sweep and in the table's runs."""
    folder = tmp_path_factory.mktemp("swept")
    suite, out, ran = load_suite(str(suite_file(folder))), folder / "out", []
    real = outcomes_of.train_run

    def counted(recipe, path, **options):
        ran.append(path.name)
        return real(recipe, path, **options)

    def stop_after(number):
        seen = []

        def stop(report):
            seen.append(report)
            if len(seen) == number:
                raise Stop

        return stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes_of, "train_run", counted)
        for rounds in (4, 9):  # at the end of a run, before its summary is written; three runs later
            with pytest.raises(Stop):
                compare(suite, out, builder=builder(), resume=rounds > 4, on_round=stop_after(rounds))
        outcomes = compare(suite, out, builder=builder(), resume=True)
        whole = list(ran)
        ran.clear()
        compare(suite, out, builder=builder(), resume=True)
    return SimpleNamespace(suite=suite, out=out, outcomes=outcomes, ran=whole, again=ran, folder=folder)


def test_nothing_is_run_twice(swept):
    finished = ["fedavg-0-seed7", "fedpa-0-seed7", "fedpa-1-seed7", "fedavg-0-seed8"]
    assert all(swept.ran.count(name) == 1 for name in finished), swept.ran
    # What was broken off is gone on with; all others run once.
    assert len(swept.ran) == 8 + 2 + 2 and len(set(swept.ran)) == 10
    assert swept.again == [], "a finished comparison is only read, and what diverged is not tried again"


def test_the_setting_is_chosen_on_dev_over_the_tuning_seeds(swept):
    with open(swept.out / "sweep.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for entry in ("FedAvg", "FedPA"):
        rows_of_entry = [row for row in rows if row["entry"] == entry]
        means = []
        for row in rows_of_entry:
            values = []
            for seed in (7, 8):
                folder = RunFolder(swept.out / "sweep" / f"{entry.lower()}-{row['number']}-seed{seed}")
                losses = [r["dev/loss"] for r in read_history(folder) if "dev/loss" in r]
                values.append(min(losses, default=math.nan))
                cell = float(row[f"dev/loss, seed {seed}"])
                assert cell == values[-1] or (math.isnan(cell) and math.isnan(values[-1]))
            means.append(statistics.fmean(values))
        best = min(range(2), key=lambda n, means=means: means[n] if math.isfinite(means[n]) else math.inf)
        assert [int(row["chosen"]) for row in rows_of_entry] == [int(n == best) for n in range(2)]
        rate = load(str(swept.out / "runs" / f"{entry.lower()}-seed0" / "recipe.toml")).algorithm.options.learning_rate
        tuned = swept.outcomes[entry][0].tuned
        assert tuned.setting == {RATE: rate} and rate == swept.suite.tuning.settings[entry][best][RATE]
        assert swept.outcomes[entry][0].tried == 2
    assert math.isnan(means[1]), "the large rate diverged, and the sweep went on"
    assert "no client had a finite update" in (swept.out / "sweep" / "fedpa-1-seed7" / "diverged.txt").read_text(
        "utf-8"
    )


def test_runs_that_tune_do_not_evaluate_test(swept):
    for run in (swept.out / "sweep").iterdir():
        names = {name for row in read_history(RunFolder(run)) for name in row}
        assert not any(name.startswith("test/") for name in names), run.name
        assert "dev/loss" in names or (run / "diverged.txt").exists(), run.name
    for run in (swept.out / "runs").iterdir():
        assert any("test/accuracy" in row for row in read_history(RunFolder(run))), run.name


def test_the_report_says_what_was_chosen_of_how_many(swept, capsys):
    typed = command(capsys, "compare", "--suite", swept.folder / "suite.toml", "--out", swept.out, "--resume")
    assert typed.code == 0, typed.err
    text = (swept.out / "comparison.md").read_text("utf-8")
    assert f"FedPA: {RATE} = 0.01, the best of 2 settings by dev/loss" in text and "on seeds 7, 8" in text
    assert "the best of 2 settings" in " ".join(typed.out.split()) and "sweep.csv" in typed.out
    assert "best (on test)" not in text and "Chosen: in the round with the best dev score." in text


def made(values):
    """A run that finds the settings' values; None diverges."""

    def run(entry, number, setting, seed):
        value = values[number][seed]
        return None if value is None else Outcome([{"round": 1.0, "dev/macro_f1": value}], 1.0, 1, 1)

    return run


@pytest.mark.parametrize(
    ("values", "best", "edges"),
    [
        ([(0.2, 0.4), (0.5, 0.3), (0.1, 0.1)], 1, ()),
        ([(0.4, 0.4), (0.5, 0.3), (0.1, 0.1)], 0, ("algorithm.mu",)),  # the first of equals
        ([(0.2, 0.2), (0.9, None), (0.3, 0.3)], 2, ("algorithm.mu",)),
    ],
)
def test_means_over_seeds_decide(values, best, edges, tmp_path):
    settings = tuple({"algorithm.mu": mu} for mu in (0.1, 1.0, 10.0))
    sweep = Sweep((0, 1), "dev/macro_f1", {"A": settings}, extend=False)
    tuned = tune(sweep, made(values), tmp_path)["A"]
    assert tuned.setting is settings[best] and tuned.tried == 3 and tuned.edges == edges
    assert tuned.equals == (values[1] == (0.5, 0.3) and values[0] == (0.4, 0.4))
    said = sentences(sweep, {"A": {0: SimpleNamespace(tuned=tuned)}})[0]
    assert ("1 of the others scored the same on dev" in said) == bool(tuned.equals)


@pytest.mark.parametrize(
    ("numbers", "edge", "value"),
    [
        ([1e-3, 3e-3, 1e-2], 1e-2, 3e-2),
        ([1e-3, 3e-3, 1e-2], 1e-3, 3e-4),
        ([1e-4, 1e-3, 1e-2], 1e-2, 0.1),
        ([1e-4, 1e-3, 1e-2], 1e-4, 1e-5),
        ([0.0, 0.01, 0.1], 0.1, 1.0),
        ([0.0, 0.01, 0.1], 0.0, None),
        ([8, 16, 24], 24, 32),
        ([8, 16, 24], 8, None),
        ([0.1, 0.2, 0.3], 0.3, 0.4),
        ([1, 2, 4], 4, 8),
        ([1, 2, 4], 1, None),
        ([-2.0, -1.0, 0.0], -2.0, -3.0),
    ],
)
def test_the_next_step_of_an_axis(numbers, edge, value):
    assert next_value(edge, numbers) == value


MU, EPOCHS = "algorithm.mu", "algorithm.local_epochs"


def swept_over(score, settings, tmp_path, **options):
    """(what was chosen, the settings that were run beyond those listed, the rows of sweep.csv)."""
    ran = []

    def run(entry, number, setting, seed):
        ran.append((number, setting, seed))
        return Outcome([{"round": 1.0, "dev/macro_f1": score(setting)}], 1.0, 1, 1)

    tuned = tune(Sweep((7, 8), "dev/macro_f1", {"A": settings}, **options), run, tmp_path, lambda _, s: s[MU] <= 100)[
        "A"
    ]
    with open(tmp_path / "sweep.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    beyond = [(number, setting) for number, setting, seed in ran if number >= len(settings) and seed == 7]
    assert [number for number, _, seed in ran if seed == 8] == [number for number, _, seed in ran if seed == 7]
    return tuned, beyond, rows


def test_a_choice_at_the_edge_goes_further_by_itself(tmp_path):
    settings = tuple({MU: mu} for mu in (0.1, 1.0, 10.0))
    tuned, beyond, rows = swept_over(lambda s: -abs(s[MU] - 100), settings, tmp_path)
    assert beyond == [(3, {MU: 100.0})], "1000 is refused by the recipe"
    assert tuned == Tuned({MU: 100.0}, 3, (MU,), 0, 1) and tuned.words == "3 on dev and 1 beyond the edge"
    assert [(row["setting"], row["chosen"], row["beyond_the_edge"]) for row in rows] == [
        (f"{MU} = 0.1", "0", "0"),
        (f"{MU} = 1.0", "0", "0"),
        (f"{MU} = 10.0", "0", "0"),
        (f"{MU} = 100.0", "1", "1"),
    ]
    (said,) = sentences(Sweep((7,), "dev/macro_f1", {"A": settings}), {"A": {0: SimpleNamespace(tuned=tuned)}})
    assert "best of 3 settings by dev/macro_f1, after 1 more beyond the edge of those listed; algorithm.mu is" in said
    # The other edge, twice; and an optimum within the list, or just beyond it.
    tuned, beyond, _ = swept_over(lambda s: -s[MU], settings, tmp_path)
    assert [setting[MU] for _, setting in beyond] == [0.01, 0.001] and tuned.edges == (MU,)
    tuned, beyond, _ = swept_over(lambda s: -abs(s[MU] - 1), settings, tmp_path)
    assert beyond == [] and tuned == Tuned({MU: 1.0}, 3) and tuned.words == "3 on dev"
    tuned, beyond, _ = swept_over(lambda s: -abs(s[MU] - 0.11), settings, tmp_path)
    assert len(beyond) == 1 and tuned == Tuned({MU: 0.1}, 3, (), 0, 1)
    assert swept_over(lambda s: -s[MU], settings, tmp_path, extend=False)[1] == []


def test_equal_settings_go_further_at_both_edges(tmp_path):
    settings = tuple({MU: mu} for mu in (0.1, 1.0, 10.0))
    tuned, beyond, _ = swept_over(lambda s: max(s[MU], 10.0), settings, tmp_path)
    assert [setting[MU] for _, setting in beyond] == [0.01, 100.0], "all three are equal, and the upper step is better"
    assert tuned == Tuned({MU: 100.0}, 3, (MU,), 0, 2)
    tuned, beyond, _ = swept_over(lambda s: 1.0, settings, tmp_path)
    assert [setting[MU] for _, setting in beyond] == [0.01, 100.0, 0.001], "1000 is refused by the recipe"
    assert tuned.setting == {MU: 0.1} and tuned.equals == 5


def test_each_key_at_an_edge_goes_a_step_with_the_others_as_they_are(tmp_path):
    settings = tuple({MU: mu, EPOCHS: n} for mu in (0.1, 1.0, 10.0) for n in (1, 2, 4))
    _, beyond, _ = swept_over(lambda s: s[EPOCHS] - s[MU], settings, tmp_path)
    assert [setting for _, setting in beyond] == [
        {MU: 0.01, EPOCHS: 4},
        {MU: 0.1, EPOCHS: 8},
        {MU: 0.1, EPOCHS: 16},
    ], "after the first step the best has mu within 0.01 and 10"
    two = tuple({MU: mu} for mu in (0.1, 1.0))
    assert swept_over(lambda s: s[MU], two, tmp_path)[1] == [], "of two values each is an edge"


def test_settings_that_all_diverge_are_named(tmp_path):
    sweep = Sweep((0,), "dev/loss", {"A": ({"algorithm.mu": 1.0},)})
    with pytest.raises(UserError, match="entry 'A': every setting of its sweep diverged"):
        tune(sweep, made([(None,)]), tmp_path)


def read(table, axes_by_entry=None, **changes):
    options = {"seeds": (0,), "choose_by": "dev/loss", "overrides": (), "source": "s.toml", **changes}
    return read_sweep(table, {"A": None, "B": None} if axes_by_entry is None else axes_by_entry, **options)


def test_a_grid_and_a_list():
    grid = read({"seeds": [5], RATE: [0.1, 0.2], "training.rounds": [3, 4]})
    assert grid.settings["A"] == grid.settings["B"] and grid.runs == 8
    assert grid.settings["A"][1] == {RATE: 0.1, "training.rounds": 4}
    listed = read({"seeds": [5], "settings": [{RATE: 0.1, "algorithm.mu": 1.0}, {RATE: 0.2}]})
    assert listed.settings["A"] == ({RATE: 0.1, "algorithm.mu": 1.0}, {RATE: 0.2})


def test_a_draw_is_the_same_for_all_entries():
    lists = {"seeds": [5], "budget": 3, RATE: [1, 2, 3, 4, 5, 6]}
    same = read(lists).settings
    assert len(same["A"]) == 3 and same["A"] == same["B"]
    own = read({**lists, "same_draw": False}).settings
    assert own["A"] == same["A"] != own["B"] and len(own["B"]) == 3
    axes_by_entry = {"A": None, "B": {RATE: [1, 2, 3], "algorithm.mu": [0.1, 0.2]}}
    drawn = read({"seeds": [5], "budget": 2, RATE: [0.1, 0.2, 0.3]}, axes_by_entry)
    assert [len(drawn.settings[name]) for name in "AB"] == [2, 2]
    assert drawn == read({"seeds": [5], "budget": 2, RATE: [0.1, 0.2, 0.3]}, axes_by_entry), "the same draw every time"


@pytest.mark.parametrize(
    ("table", "changes", "wanted"),
    [
        ({RATE: [1]}, {}, "'sweep.seeds' must be one or more different whole numbers"),
        ({"seeds": [0], RATE: [1]}, {}, "seed 0 is in 'seeds' and in 'sweep.seeds'"),
        ({"seeds": [5], RATE: [1]}, {"choose_by": None}, "[sweep] selects on dev; add [choice] to the recipe"),
        ({"seeds": [5], "choose_by": "test/loss", RATE: [1]}, {}, "[sweep] selects on dev"),
        ({"seeds": [5], "choose_by": "dev/los", RATE: [1]}, {}, "there is no metric 'dev/los'"),
        ({"seeds": [5]}, {}, "[sweep]: has no key"),
        ({"seeds": [5], RATE: 1}, {}, f"'{RATE}' must be a list of different values"),
        ({"seeds": [5], RATE: [1, 1]}, {}, f"'{RATE}' must be a list of different values"),
        ({"seeds": [5], "task.test_share": [0.1]}, {}, "'task.test_share' cannot be swept"),
        ({"seeds": [5], "settings": [3]}, {}, "'settings' must be a list of tables"),
        ({"seeds": [5], RATE: [1]}, {"overrides": ("algorithm={}",)}, "--set algorithm: s.toml: [sweep] tries values"),
        (
            {"seeds": [5], RATE: [1]},
            {"axes_by_entry": {"A": None, "B": {RATE: [1, 2]}}},
            "'B' would be tuned over 2 settings but",
        ),
        ({"seeds": [5], RATE: [1], "extend": 1}, {}, "'sweep.extend' must be true or false, got 1"),
        ({"seeds": [5], RATE: [1], "same_draw": 0}, {}, "'sweep.same_draw' must be true or false, got 0"),
        ({"seeds": [5], RATE: [1], "budget": 2}, {}, "[sweep]: has only 1 settings, fewer than sweep.budget = 2"),
        ({}, {"axes_by_entry": {"A": {RATE: [1]}}}, "entry 'A' has a sweep, but the suite has no [sweep]"),
    ],
)
def test_sweeps_that_cannot_be(table, changes, wanted):
    with pytest.raises(UserError) as caught:
        read(table, **changes)
    assert wanted in str(caught.value) and "\n" not in str(caught.value)


def test_a_value_that_the_recipe_refuses_is_named_before_anything_runs(capsys, tmp_path):
    path = suite_file(tmp_path, sweep={"seeds": [7], RATE: [0.1, -1.0]}, entry=[{"name": "FedAvg"}])
    refusal(command(capsys, "compare", "--suite", path, "--out", tmp_path / "out"), "entry 'FedAvg'", RATE, "-1")
    assert not (tmp_path / "out").exists()


def test_options_of_the_command(capsys, tmp_path):
    recipe = suite_file(tmp_path).with_name("tiny.toml")
    out = ("--out", tmp_path / "out")
    typed = command(capsys, "compare", recipe, "--sweep", f"{RATE}=[0.1,0.2]", *out)
    refusal(typed, "--sweep and --tuning-seeds belong together")
    refusal(
        command(capsys, "compare", recipe, "--sweep", "x=1", "--tuning-seeds", "5", *out), "--sweep x=1: must be KEY="
    )
    refusal(command(capsys, "compare", recipe, "--sweep", f"{RATE}=[1]", "--tuning-seeds", "0", *out), "seed 0 is in")
    from tff_re import api

    suite = api.load_suite([str(recipe)], (), (1,), {"seeds": [5], RATE: [0.1, 0.2]})
    assert suite.choose_by == "dev/loss" and suite.tuning.runs == 2
    assert suite.command.endswith(f"--seeds 1 --tuning-seeds 5 --sweep '{RATE}=[0.1, 0.2]'") or (
        f"--tuning-seeds 5 --sweep '{RATE}=[0.1, 0.2]'" in suite.command
    )


@pytest.mark.parametrize(
    "axes",
    [
        {"algorithm.learning_rate": [0.001 * n for n in range(1, 200_001)]},
        {f"algorithm.{key}": list(range(1, 60)) for key in ("local_epochs", "batch_size", "local_steps")},
    ],
    ids=["one", "product"],
)
def test_a_sweep_of_too_many_settings_is_refused_at_once(axes, tmp_path):
    path = suite_file(tmp_path, sweep={"seeds": [100], "choose_by": "dev/loss", **axes})
    began = time.monotonic()
    with pytest.raises(UserError, match=r"\[sweep\]: has \d+ settings, more than the limit of 1000; give fewer values"):
        load_suite(str(path))
    assert time.monotonic() - began < 20  # most of it reads the file


def test_a_title_that_is_a_path_is_refused(tmp_path):
    with pytest.raises(UserError, match="'title' is a name, not a path"):
        load_suite(str(suite_file(tmp_path, title="../elsewhere")))
