"""Comparisons: the same partitions and seeds for all, what a gain is made of, and going on after an end."""

from __future__ import annotations

import csv
import html
import json
import shutil
import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

from computations.stack import DISTRIBUTION
from tests.upper_floors import (
    SECRET,
    Stop,
    builder,
    command,
    consultations,
    refusal,
    rounds_in,
    share_computations,
    text_recipe,
    write_json,
    write_recipe,
)
from tff_re.comparison import report
from tff_re.comparison.costs import megabytes_by_round, steps_by_round
from tff_re.comparison.outcome import Outcome, compare
from tff_re.comparison.report import write_report
from tff_re.comparison.statistics import explain_gain
from tff_re.comparison.suite import ClaimOptions, Entry, GainOptions, Suite, load_suite, slug
from tff_re.errors import UserError
from tff_re.pages.writing import write_page
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history

METHOD, BASELINE, CONTROL = "FedPAP", "FedAvgS", "uniform, λ=1.2"
CLAIM = {"method": METHOD, "baseline": BASELINE, "metric": "test/accuracy", "published": 0.07}


def suite_file(folder, **changes):
    """Two entries and a control on the tiny recipe, two seeds."""
    write_recipe(folder / "tiny.toml", training={"rounds": 3, "clients_per_round": 2}, evaluation={"every": 2})
    table = {
        "title": "Tiny",
        "text": "Small.",
        "recipe": str(folder / "tiny.toml"),
        "seeds": [0, 1],
        "entry": [
            {"name": BASELINE, "algorithm": {"name": "fedavgs", "local_epochs": 1}},
            {"name": METHOD},
            {
                "name": CONTROL,
                "algorithm": {"name": "fedavgs", "local_epochs": 1, "weighting": "uniform"},
                "set": ["algorithm.server_step=1.2"],
                "control": True,
            },
        ],
        "gain": [{"method": METHOD, "baseline": BASELINE, "control": CONTROL}],
        **changes,
    }
    path = folder / "suite.toml"
    path.write_text(tomli_w.dumps({k: v for k, v in table.items() if v is not None}), "utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def compared(runtime, tmp_path_factory):
    """The suite, run to its end."""
    folder = tmp_path_factory.mktemp("compared")
    suite = load_suite(str(suite_file(folder)))
    started = []
    outcomes = compare(suite, folder / "out", builder=builder(), on_start=lambda *start: started.append(start))
    return SimpleNamespace(folder=folder, suite=suite, out=folder / "out", outcomes=outcomes, started=started)


def folder_of(out, name, seed):
    return out / "runs" / f"{slug(name)}-seed{seed}"


def test_every_entry_has_an_outcome_for_every_seed(compared):
    names = [BASELINE, METHOD, CONTROL]
    assert list(compared.outcomes) == names
    assert compared.started == [(name, seed, 3) for seed in (0, 1) for name in names]
    for name in names:
        for seed in (0, 1):
            outcome = compared.outcomes[name][seed]
            assert outcome.history == read_history(RunFolder(folder_of(compared.out, name, seed)))
            assert [row["round"] for row in outcome.history] == [1, 2, 3]
            assert ["test/accuracy" in row for row in outcome.history] == [False, True, True]
            assert outcome.bytes_down > 0 and outcome.bytes_up > 0 and outcome.seconds_per_round > 0
    assert not np.array_equal(*(compared.outcomes[METHOD][s].best["train/loss"] for s in (0, 1)))


def test_all_start_alike_and_train_the_same_clients_on_the_same_batches(compared):
    # The control differs in nothing before the first aggregation.
    for seed in (0, 1):
        first = [compared.outcomes[name][seed].history[0]["local/loss"] for name in (BASELINE, CONTROL)]
        last = [compared.outcomes[name][seed].history[-1]["train/loss"] for name in (BASELINE, CONTROL)]
        assert first[0] == first[1] and last[0] != last[1]


def outcomes(**accuracies):
    return {
        name: {seed: Outcome([{"round": 1.0, "test/accuracy": value}], 1.0, 1, 1) for seed, value in enumerate(values)}
        for name, values in accuracies.items()
    }


def by_seed(**values):
    return {name: dict(enumerate(of_entry)) for name, of_entry in values.items()}


def test_a_gain_is_split_into_the_step_size_and_the_rest():
    made = by_seed(method=[0.8, 0.9, 0.9], baseline=[0.6, 0.6, 0.6], control=[0.68, 0.68, 0.68])
    sentence = explain_gain(GainOptions(method="method", baseline="baseline", control="control"), made)
    # Gains 0.2, 0.3 and 0.3: 0.267 with the standard error 1/30; t with two degrees of freedom is 4.303. The control's
    # are all alike: no interval.
    assert sentence.startswith(
        "method against baseline: +0.267 (+0.123 to +0.410; 3 of 3 seeds better). The control 'control' contributes "
        "+0.080 (3 of 3 seeds better), and method itself +0.187 (+0.043 to +0.330; 3 of 3 seeds better); "
    )
    assert sentence.endswith("explains 30 % of the gain.")


@pytest.mark.parametrize(
    ("method", "baseline", "control", "end"),
    [
        ([0.5], [0.6], [0.7], "there is no gain to explain."),
        ([0.7, 0.8], [0.5, 0.69], [0.6, 0.6], "whether there is a gain to explain is open."),  # within the interval
        ([0.7], [0.5], [0.6], "whether there is a gain to explain is open."),
        ([0.7, 0.8, 0.7], [0.5, 0.6, 0.51], [0.5, 0.6, 0.5], "the control explains none of it."),
        ([0.7, 0.8, 0.7], [0.5, 0.6, 0.51], [0.8, 0.9, 0.8], "the control explains all of the gain."),
    ],
)
def test_a_share_of_a_gain_is_between_nothing_and_all(method, baseline, control, end):
    made = by_seed(method=method, baseline=baseline, control=control)
    gain = GainOptions(method="method", baseline="baseline", control="control")
    assert explain_gain(gain, made).endswith(f"; {end}")


def test_a_comparison_that_was_broken_off_comes_to_the_same_outcomes(compared, tmp_path):
    rounds = []

    def stop(report):
        rounds.append(report)
        if len(rounds) == 8:  # round 2 of the third run
            raise Stop

    with pytest.raises(Stop):
        compare(compared.suite, tmp_path / "out", builder=builder(), on_round=stop)
    with pytest.raises(UserError, match=r"out: is not empty; continue it with --resume"):
        compare(compared.suite, tmp_path / "out", builder=builder())
    again = compare(compared.suite, tmp_path / "out", builder=builder(), resume=True)
    for name, by_seed in compared.outcomes.items():
        for seed, outcome in by_seed.items():
            assert again[name][seed].history == outcome.history
            files = [folder_of(out, name, seed) / "metrics.csv" for out in (tmp_path / "out", compared.out)]
            assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_finished_is_read_from_its_folder(compared, monkeypatch):
    def build(*arguments):
        raise AssertionError("nothing is to be built")

    monkeypatch.setattr(type(builder()), "build", build)
    started = []
    again = compare(
        compared.suite, compared.out, builder=builder(), resume=True, on_start=lambda *start: started.append(start)
    )
    assert started == compared.started
    for name, by_seed in compared.outcomes.items():
        for seed, outcome in by_seed.items():
            stored = again[name][seed]
            assert stored.history == outcome.history and stored.seconds_per_round == outcome.seconds_per_round
            assert (stored.bytes_down, stored.bytes_up) == (outcome.bytes_down, outcome.bytes_up)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("summary.json", lambda text: text.replace('_up_per_client_and_round": ', '_up_per_client_and_round": 9')),
        ("metrics.csv", lambda text: "\r\n".join(text.split("\r\n")[:2]) + "\r\n"),
        ("timings.csv", None),
        ("classes.csv", lambda text: ""),
        ("digests.json", lambda text: "[]"),
        ("digests.json", None),
        ("summary.json", lambda text: "{"),
        ("summary.json", lambda text: json.dumps(json.loads(text) | {"references": []})),
    ],
)
def test_what_was_changed_in_a_finished_run_is_mended(name, spoil, compared, tmp_path):
    shutil.copytree(compared.out, tmp_path / "out")
    path = folder_of(tmp_path / "out", METHOD, 1) / name
    before = path.read_bytes()
    if spoil is None:
        path.unlink()
    else:
        path.write_bytes(spoil(before.decode("utf-8")).encode("utf-8"))
        assert path.read_bytes() != before
    again = compare(compared.suite, tmp_path / "out", builder=builder(), resume=True)
    assert path.read_bytes() == before
    mended, wanted = again[METHOD][1], compared.outcomes[METHOD][1]
    assert (mended.history, mended.bytes_up, mended.class_f1) == (wanted.history, wanted.bytes_up, wanted.class_f1)


def test_runs_from_before_and_after_a_file_was_rewritten_are_not_compared(tmp_path):
    path, values = tmp_path / "texts.json", consultations()
    write_recipe(tmp_path / "texts.toml", text_recipe(write_json(path, values)))
    suite = load_suite(
        str(
            suite_file(
                tmp_path,
                recipe=str(tmp_path / "texts.toml"),
                seeds=[0],
                entry=[{"name": "first"}, {"name": "second", "set": ["algorithm.learning_rate=0.2"]}],
                gain=None,
            )
        )
    )
    compare(suite, tmp_path / "out", builder=ExperimentBuilder())
    first, second = (folder_of(tmp_path / "out", name, 0) for name in ("first", "second"))
    shutil.rmtree(second)
    values["d0"]["dialogue"][0]["sentence"] += "。"
    write_json(path, values)
    with pytest.raises(UserError, match=f"{second}: read other examples than {first}, so that a file"):
        compare(suite, tmp_path / "out", builder=ExperimentBuilder(), resume=True)
    shutil.rmtree(first)
    assert set(compare(suite, tmp_path / "out", builder=ExperimentBuilder(), resume=True)) == {"first", "second"}


# The command


def test_the_command_writes_tables_and_says_what_a_gain_is(compared, capsys, tmp_path):
    # What is there already is only read.
    typed = command(capsys, "compare", "--suite", compared.folder / "suite.toml", "--out", compared.out, "--resume")
    assert typed.code == 0 and typed.err == ""
    text = " ".join(typed.out.split())
    assert f"shareable HTML report: report {compared.out}" in text
    assert f"{METHOD} against {BASELINE}: " in text and f"The control '{CONTROL}' contributes" in text
    with open(compared.out / "comparison.csv", newline="", encoding="utf-8") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    trivial = rows.pop("trivial: largest class")
    folder = RunFolder(folder_of(compared.out, METHOD, 0))
    shares = [json.loads(folder.summary.read_text("utf-8"))["references"]["trivial: largest class"]["test/accuracy"]]
    shares.append(compared.outcomes[METHOD][1].references["trivial: largest class"]["test/accuracy"])
    assert float(trivial["test/accuracy_best_mean"]) == pytest.approx(statistics.fmean(shares))
    assert trivial["bytes_up"] == trivial["train/loss_best_mean"] == ""
    assert "| trivial: largest class (not trained) |" in (compared.out / "comparison.md").read_text("utf-8")
    assert set(rows) == {BASELINE, METHOD, CONTROL}
    for name, row in rows.items():
        best = statistics.fmean(o.best["train/loss"] for o in compared.outcomes[name].values())
        assert any(abs(float(v) - best) < 1e-4 for v in row.values() if v.replace(".", "", 1).isdigit()), (best, row)
    markdown = (compared.out / "comparison.md").read_text("utf-8")
    assert markdown.startswith("# Tiny\n") and METHOD in markdown and "Small." in markdown
    pictures = [path.name for path in compared.out.glob("*.png")]
    names = ("test-accuracy-by-bytes", "test-accuracy-by-steps", "test-accuracy", "train-loss")
    assert sorted(pictures) == [f"comparison-{name}.png" for name in names]


def test_the_tables_of_real_runs_are_made_anew_from_their_values(compared, capsys, tmp_path):
    write_report(compared.suite, compared.outcomes, compared.out)
    assert command(capsys, "tables", compared.out, "--out", tmp_path).code == 0
    assert (tmp_path / "comparison.csv").read_bytes() == (compared.out / "comparison.csv").read_bytes()
    table = (tmp_path / "tables.md").read_text("utf-8").partition("| algorithm")[2]
    assert table and table.rstrip().split("\n## ")[0].rstrip() in (compared.out / "comparison.md").read_text("utf-8")
    with open(compared.out / "values.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    of_runs = [row for row in rows if row["kind"] != "trivial"]
    assert {row["test_examples"] for row in rows} == {str(compared.outcomes[METHOD][0].test_examples)} != {""}
    assert all(row["processor"] for row in of_runs) and {len(row["commit"].rstrip("+")) for row in of_runs} <= {0, 40}
    assert {row["kind"] for row in rows} == {"method", "control", "trivial"}


def test_a_page_of_a_comparison_and_of_one_of_its_runs(compared, capsys, tmp_path):
    write_report(compared.suite, compared.outcomes, compared.out)
    run = folder_of(compared.out, METHOD, 1)
    for folder, wanted in (
        (
            compared.out,
            ["Tiny", "Small.", METHOD, CONTROL, "95 % interval", "could show", "test/accuracy final − FedAvgS"],
        ),
        (run, ["fedpap, seed 1", "test/accuracy", "Trained without differential privacy", "clients_per_round = 2"]),
    ):
        typed = command(capsys, "report", folder, "--out", tmp_path / "page.html")
        assert typed.code == 0 and typed.err == "" and f"written: {tmp_path / 'page.html'} (1." in typed.out
        text = html.unescape((tmp_path / "page.html").read_text("utf-8"))
        for part in (*wanted, DISTRIBUTION, "Repeat it", "Training samples of each class at each client"):
            assert part in text, (folder, part)
    assert f"train {run / 'recipe.toml'}" in text
    with open(run / "labels.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["client"], row["split"]) for row in rows[:2]] == [(rows[0]["client"], s) for s in ("train", "test")]
    totals = {
        s: sum(int(row[c]) for row in rows if row["split"] == s for c in row if c not in ("client", "split"))
        for s in ("train", "test")
    }
    assert totals == {"train": 60, "test": 24}


def test_recipes_are_compared_on_the_same_partitions(capsys, tmp_path):
    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    table["partition"] = {"name": "dirichlet", "num_clients": 3, "alpha": 1.0}
    table["training"] = {"rounds": 1, "clients_per_round": 2}
    paths = [
        write_recipe(tmp_path / f"{name}.toml", table, name=name, algorithm={**table["algorithm"], "name": name})
        for name in ("fedavgs", "fedpap")
    ]
    typed = command(capsys, "compare", *paths, "--seeds", "0,4", "--out", tmp_path / "out")
    assert typed.code == 0 and typed.err == ""
    partitions = {
        (name, seed): (tmp_path / "out" / "runs" / f"{name}-seed{seed}" / "partition.json").read_bytes()
        for name in ("fedavgs", "fedpap")
        for seed in (0, 4)
    }
    for seed in (0, 4):
        assert partitions["fedavgs", seed] == partitions["fedpap", seed]
    assert partitions["fedavgs", 0] != partitions["fedavgs", 4]
    assert command(capsys, "report", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "fedpap" in page and not any(text[:6] in page for text in (SECRET, json.dumps(SECRET).strip('"')))
    lines = [line for line in typed.out.splitlines() if ": round 1/1" in line]
    assert [line.split(":")[0] for line in lines] == [
        "[1/4] fedavgs, seed 0",
        "[2/4] fedpap, seed 0",
        "[3/4] fedavgs, seed 4",
        "[4/4] fedpap, seed 4",
    ]


@pytest.mark.parametrize(
    ("change", "section"),
    [
        ({"task": {"name": "synthetic", "num_clients": 5}}, "task"),
        ({"training": {"rounds": 7}}, "training"),
        ({"evaluation": {"every": 2}}, "evaluation"),
        ({"partition": {"name": "iid", "num_clients": 2}}, "partition"),
    ],
)
def test_recipes_that_differ_in_more_than_the_algorithm_are_refused(change, section, capsys, tmp_path):
    first = write_recipe(tmp_path / "first.toml", name="first")
    second = write_recipe(tmp_path / "second.toml", name="second", **change)
    out = tmp_path / "out"
    refusal(command(capsys, "compare", first, second, "--out", out), second, first, f"[{section}]")
    assert not out.exists()
    typed = command(capsys, "compare", first, first, "--out", out)
    refusal(typed, "would share a folder")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"entry": []}, "has no [[entry]]"),
        ({"gain": [{"method": "FedPAPP", "baseline": BASELINE, "control": CONTROL}]}, "did you mean 'FedPAP'?"),
        ({"entry": [{"name": "a", "algoritm": {}}], "gain": []}, "unknown key 'entry.algoritm'; did you mean 'algori"),
        ({"entry": [{"name": "a", "set": ["training.round=3"]}], "gain": []}, "entry 'a': unknown key 'training."),
        ({"entry": [{"name": "a", "algorithm": {"name": "fedpab"}}], "gain": []}, "there is no algorithm 'fedpab'"),
        ({"recipe": None}, "neither the entry 'FedAvgS' nor the suite has a recipe"),
        ({"recipe": "flcmc-synthetc-fedpap"}, "there is no recipe 'flcmc-synthetc-fedpap'; did you mean"),
        ({"titel": "x"}, "unknown key 'titel'; did you mean 'title'?"),
        ({"metrics": ["test/acuracy"]}, "metrics: there is no metric 'test/acuracy'; did you mean 'test/accuracy'?"),
        ({"metrics": []}, "'metrics' must have at least one"),
        ({"targets": {"test/f2": 0.5}}, "[targets]: there is no metric 'test/f2'; did you mean 'test/f1'?"),
        ({"choose_by": "dev/ff1"}, "choose_by: there is no metric 'dev/ff1'; did you mean 'dev/f1'?"),
        ({"choose_by": "test/f1"}, "choose_by must be a metric of the dev split, e.g. dev/f1; got test/f1"),
        ({"entry": [{"name": "a", "published": {"test/acc": 1}}], "gain": []}, "entry 'a': published: there is no met"),
        ({"claim": [{**CLAIM, "method": "FedPAQ"}]}, "there is no entry 'FedPAQ'; did you mean 'FedPAP'?"),
        ({"claim": [{**CLAIM, "metric": "test/loss"}]}, "metric must be one of the suite's; "),
        ({"claim": [{**CLAIM, "baseline": METHOD}]}, "must be two entries of the same group"),
        ({"claim": [{**CLAIM, "published": 4.7}]}, "in the metric's own unit, e.g. 0.047 for 4.7 points; got 4.7"),
        ({"claim": [{**CLAIM, "published": 0.0}]}, "in the metric's own unit"),
        ({"entry": [{"name": "a", "tried": "a\x1b"}], "gain": []}, "has a control character"),
        ({"metrics": ["clients/counted"]}, "[[gain]] uses the first metric, which must be of test, train or local"),
        ({"metrics": ["test/loss"]}, "[[gain]] uses the first metric, of which more must be better, not a loss"),
        (
            {"entry": [{"name": "a", "group": "b"}, {"name": "a, b", "group": "b"}], "gain": []},
            "the entries 'a' and 'a, b' would both be the row 'a' of group 'b'; change one",
        ),
        ({"seeds": []}, "'seeds' must be one or more different whole numbers"),
        ({"seeds": [0, 0]}, "'seeds' must be one or more different whole numbers"),
        ({"seeds": [0, 2**32]}, "'seeds' must be whole numbers from 0 to 2^32 - 1"),
        ({"seeds": [-1]}, "'seeds' must be whole numbers from 0"),
        (
            {"entry": [{"name": "方法 一"}, {"name": "方法-一"}], "gain": []},
            "'方法 一' and '方法-一' would share a folder",
        ),
        ({"entry": [{"name": "!?"}], "gain": []}, "'!?' has no letter or digit"),
        ({"entry": [{"name": "../../etc"}], "gain": []}, "'../../etc' has a path separator; remove it"),
        ({"entry": [{"name": "a", "group": "b\\c"}], "gain": []}, "has a path separator; remove it"),
        ({"entry": [{"name": "a" * 151}], "gain": []}, "is longer than 150 bytes"),
        ({"entry": [{"name": "a", "group": "b" * 151}], "gain": []}, "is longer than 150 bytes"),
        ({"entry": [{"name": "a\x1b[2J"}], "gain": []}, "has a control character"),
        ({"title": "a\nb"}, "has a control character"),
        # Metrics that there are, but not of this task.
        ({"metrics": ["test/micro_f1"]}, "metrics: the runs of fedavgs have no metric 'test/micro_f1'; did you"),
        ({"targets": {"test/auc": 0.5}}, "targets: the runs of fedavgs have no metric 'test/auc'; "),
        ({"choose_by": "dev/f1"}, "choose_by: the runs of fedavgs have no metric 'dev/f1'; "),
        ({"set": ["evaluation.train_split=false"]}, "metrics: the runs of fedavgs have no metric 'train/loss'; "),
    ],
)
def test_suites_that_cannot_be_run_are_refused_before_anything_is_made(changes, wanted, capsys, tmp_path):
    path = suite_file(tmp_path, **changes)
    refusal(command(capsys, "compare", "--suite", path, "--out", tmp_path / "out"), wanted)
    assert not (tmp_path / "out").exists()


def test_an_entry_leaves_out_what_it_does_not_read():
    """The suite of encoders beside models of words: one --set for the former, the same samples at clients in both."""
    suite = load_suite("flcmc-bert", ("task.tokenizer=x", "training.rounds=7"))
    samples = {}
    for group, entries in suite.groups().items():
        methods = 2 if group.endswith(("LSTM", "LoRA")) else 4
        assert [entry.control for entry in entries] == [False] * methods + [True, True], group
        recipes = [entry.recipe_for(3) for entry in entries]
        task = recipes[0].task.options
        assert task.tokenizer == ("x" if task.encoding == "pieces" else None), group
        assert all(recipe.task == recipes[0].task and recipe.model == recipes[0].model for recipe in recipes)
        assert {recipe.algorithm.options.learning_rate for recipe in recipes} == {
            recipes[0].algorithm.options.learning_rate
        }
        assert {recipe.training.rounds for recipe in recipes} == {7}
        same = (task.label, task.split, task.test, task.test_share, task.test_unit, recipes[0].partition)
        assert samples.setdefault(task.dataset, same) == same, group
    assert list(samples) == ["mie", "mie_windows", "dxy"] and len(suite.entries) == 60


def test_the_names_of_metrics_are_known_before_a_run(compared):
    from tff_re.recipes.metric_names import SPLITS, require_known
    from tff_re.runs.evaluation import metric_names

    recipe = compared.suite.entries[1].recipe_for(0)
    names = metric_names(builder().build(recipe))
    measured = {name for row in compared.outcomes[METHOD][0].history for name in row} - {"round"}
    assert {name for name in measured if name.startswith(SPLITS)} == names
    require_known(measured, "metrics.csv")


def test_keys_of_all_entries_come_before_an_entrys_own_and_those_of_the_command(tmp_path):
    entries = [{"name": BASELINE}, {"name": METHOD, "set": ["training.rounds=5", "evaluation.every=5"]}]
    path = suite_file(tmp_path, set=["training.rounds=4", "evaluation.every=4"], entry=entries, gain=None)
    recipes = [entry.recipe_for(0) for entry in load_suite(str(path), ("evaluation.every=1",)).entries]
    assert [(recipe.training.rounds, recipe.evaluation.every) for recipe in recipes] == [(4, 1), (5, 1)]
    with pytest.raises(UserError, match=r"training\.round\b"):
        load_suite(str(suite_file(tmp_path, set=["training.round=4"])))


def test_keys_of_a_seed_come_between_the_suites_and_an_entrys(tmp_path):
    entries = [{"name": BASELINE}, {"name": METHOD, "set": ["training.rounds=5"]}]
    keys = {"set": ["training.rounds=4", "evaluation.every=4"], "entry": entries, "gain": None}
    by_seed = {"0": ["training.rounds=2", "evaluation.every=2"], "1": [], "7": ["evaluation.every=1"]}
    path = str(suite_file(tmp_path, by_seed=by_seed, **keys))
    recipes = [entry.recipe_for(seed) for seed in (0, 1, 7) for entry in load_suite(path).entries]
    of_recipes = [(recipe.training.rounds, recipe.evaluation.every) for recipe in recipes]
    assert of_recipes == [(2, 2), (5, 2), (4, 4), (5, 4), (4, 1), (5, 1)]
    with pytest.raises(UserError, match=r"\[by_seed\] has nothing for seed 3; add it, or leave that seed out"):
        load_suite(path, seeds=(0, 3))
    with pytest.raises(UserError, match=r"\[by_seed\] has nothing for seed 9"):
        load_suite(path, ("choice.dev_share=0.2",), sweep={"seeds": [9], "algorithm.learning_rate": [0.1, 0.2]})
    for wrong, said in (
        ({"0": [], "1": ["training.round=2"]}, r"training\.round\b"),
        ({"first": []}, "'first' is no seed"),
        ({"4294967296": []}, "is no seed"),
    ):
        with pytest.raises(UserError, match=said):
            load_suite(str(suite_file(tmp_path, by_seed=wrong, **keys)))


def test_a_folder_of_something_else(compared, capsys, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    path = compared.folder / "suite.toml"
    refusal(command(capsys, "compare", "--suite", path, "--out", tmp_path), f"{tmp_path}: is not empty")
    refusal(command(capsys, "compare", "--suite", path, "--out", tmp_path / "thesis.txt"), "thesis.txt")
    assert rounds_in(tmp_path / "thesis.txt") == 0 and (tmp_path / "thesis.txt").read_text() == "precious"


def test_an_entry_does_not_repeat_its_group(tmp_path):
    entries = [
        {"name": "FedAvgS, K = 10", "group": "K = 10", "algorithm": {"name": "fedavgs"}},
        {"name": "FedAvgS", "group": "K = 50", "algorithm": {"name": "fedavgs"}},
        {"name": "FedPAP", "algorithm": {"name": "fedpap"}},
    ]
    suite = load_suite(str(suite_file(tmp_path, entry=entries, gain=None)))
    assert [entry.title for entry in suite.entries] == ["FedAvgS", "FedAvgS", "FedPAP"]


# What the data give without training


def referenced(steps: float, ceilings: dict[int, float], **values) -> dict[int, Outcome]:
    """Two seeds of one round, with a row of the data's own."""
    row = {"round": 1.0, "test/accuracy": 0.5, "local/steps": steps, **values}
    return {
        seed: Outcome([row, row], 1.0, 2000, 2000, references={"ceiling": {"test/accuracy": ceiling, "other": 1.0}})
        for seed, ceiling in ceilings.items()
    }


def plain(seed):
    """In place of a recipe: one of which nothing has to be said."""
    return SimpleNamespace(notes=(), role="federated")


def reported(made, out, **changes):
    """The rows of the table's CSV by name, and comparison.md."""
    entries = tuple(Entry(name, plain) for name in made)
    suite = Suite(title="Tiny", command="compare", seeds=(0, 1), metrics=("test/accuracy",), entries=entries, **changes)
    write_report(suite, made, out)
    with open(out / "comparison.csv", newline="", encoding="utf-8") as file:
        return {row["algorithm"]: row for row in csv.DictReader(file)}, (out / "comparison.md").read_text("utf-8")


def test_a_row_of_the_data_stands_below_the_algorithms(tmp_path):
    made = {name: referenced(12.0, {0: 0.75, 1: 0.85}) for name in ("A", "B")}
    rows, markdown = reported(made, tmp_path)
    assert list(rows) == ["A", "B", "ceiling"] and "steps" not in rows["A"]
    assert float(rows["ceiling"]["test/accuracy_best_mean"]) == pytest.approx(0.8)
    assert float(rows["ceiling"]["test/accuracy_best_difference_mean"]) == pytest.approx(0.3)
    assert rows["ceiling"]["bytes_up"] == ""
    # 25 and 35 points: 30 with the standard error 5, and 12.706 of Student's t with one degree of freedom.
    ceiling = "| ceiling (not trained) | 2 | 80.00 ± 7.07 | 80.00 ± 7.07 | +30.00 (2/2) | -33.53 to +93.53 | "
    assert ceiling in markdown and f"{ceiling}81.67 | – | – | – | – | – |" in markdown
    assert "over the table's 1 comparisons" in markdown  # nothing is claimed of the ceiling


def test_entries_on_different_data_have_a_row_each(tmp_path):
    made = {"A": referenced(1.0, {0: 0.7, 1: 0.7}), "B": referenced(1.0, {0: 0.9, 1: 0.9})}
    rows, _ = reported(made, tmp_path)
    assert list(rows) == ["A", "B", "ceiling, A", "ceiling, B"]
    assert float(rows["ceiling, B"]["test/accuracy_best_mean"]) == pytest.approx(0.9)


def test_final_values_are_drawn_over_a_setting(tmp_path, monkeypatch):
    made = {name: referenced(1.0, {0: 0.7, 1: 0.7}) for name in ("A, 1", "A, 2", "B")}
    made["A, 2"] = {s: Outcome([{"round": 1.0, "test/accuracy": 0.5 + 0.2 * s}], 1.0, 1, 1) for s in (0, 1)}
    entries = (Entry("A, 1", plain, line="A", at="1"), Entry("A, 2", plain, line="A", at="2"), Entry("B", plain))
    suite = Suite(title="T", command="c", seeds=(0, 1), metrics=("test/accuracy",), entries=entries, over="epsilon")
    drawn = []
    monkeypatch.setattr(report, "over_values", lambda path, lines, *labels: drawn.append((lines, labels)) or [path])
    write_report(suite, made, tmp_path)
    ((lines, labels),) = drawn
    half = 12.7062 * 0.1  # of 0.5 and 0.7: t with one degree of freedom, standard error 0.1
    (first, second) = lines.pop("A")
    assert not lines and first == ("1", 0.5, 0.5, 0.5)
    assert second[0] == "2" and second[1:] == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=1e-4)
    assert labels == ("epsilon", "test/accuracy, final", "T")
    assert "over epsilon](comparison-test-accuracy-over.png)" in (tmp_path / "comparison.md").read_text("utf-8")
    page = write_page(tmp_path).read_text("utf-8")
    assert "test/accuracy, final, over epsilon; shaded: 95 % interval" in page
    assert "The run folders are missing" in page


@pytest.mark.parametrize(("over", "more", "drawn"), [("epsilon", 1, False), ("epsilon", 0, True), ("", 1, True)])
def test_rows_too_many_for_curves_are_drawn_over_the_setting_only(tmp_path, monkeypatch, over, more, drawn):
    names = [f"A, {number}" for number in range(report.MOST_CURVES + more)]
    entries = tuple(Entry(name, plain, line="A", at=name[3:]) for name in names)
    made = {name: referenced(1.0, {0: 0.7, 1: 0.7}) for name in names}
    suite = Suite(title="T", command="c", seeds=(0, 1), metrics=("test/accuracy",), entries=entries, over=over)
    for picture in ("curves", "over_values"):
        monkeypatch.setattr(report, picture, lambda path, *labels, **options: [path])
    names = {file.name for file in write_report(suite, made, tmp_path).files}
    markdown = (tmp_path / "comparison.md").read_text("utf-8")
    curve, over_setting = "comparison-test-accuracy.png", "comparison-test-accuracy-over.png"
    assert (curve in names) == (f"({curve})" in markdown) == drawn
    assert (over_setting in names) == (f"({over_setting})" in markdown) == bool(over)
    (table,) = json.loads((tmp_path / "comparison.json").read_text("utf-8"))["tables"]
    assert set(table["curves"]["test/accuracy"]["round"]) == {entry.title for entry in entries}  # the page has them


def test_a_published_gain_is_denied_only_where_the_interval_excludes_it(tmp_path):
    """Gains of A, B and C on the first: 2, 3 and 4 points (0.5 to 5.5), 0 to 2 (-1.5 to 3.5), and 8, 9 and 10."""

    def runs(*values):
        return {s: Outcome([{"round": 1.0, "test/accuracy": v}], 1.0, 1, 1) for s, v in enumerate(values)}

    made = {"first": runs(0.5, 0.6, 0.7), "A": runs(0.52, 0.63, 0.74), "B": runs(0.5, 0.61, 0.72)}
    made["C"] = runs(0.58, 0.69, 0.8)
    levels = {"first": 0.5, "A": 0.6, "B": 0.54, "C": 0.55}
    entries = tuple(Entry(name, plain, published={"test/accuracy": level}) for name, level in levels.items())
    more = {"method": "C", "baseline": "B", "metric": "test/accuracy"}
    claims = (ClaimOptions(**more, published=0.09), ClaimOptions(**more, published=-0.01))
    named = {"title": "T", "command": "c", "seeds": (0, 1, 2), "metrics": ("test/accuracy",)}
    report = write_report(Suite(**named, entries=entries, claim=claims), made, tmp_path)
    judged = {}
    for line in report.text:
        head, *parts = line.removesuffix(".").split("; ")
        judged[head] = [part.split(": ")[1] for part in parts]
        assert f"- {line}\n" in (tmp_path / "comparison.md").read_text("utf-8")
    assert judged == {
        "C − B, test/accuracy, published +9.00": ["open"] * 2,  # all three gains are 8 points: no spread, no interval
        "C − B, test/accuracy, published -1.00": ["open"] * 2,
        "A − first, test/accuracy, published +10.00": ["open"] * 2,  # p = 0.035, and two of three rows have more
        "B − first, test/accuracy, published +4.00": ["does not show"] * 2,
        "C − first, test/accuracy, published +5.00": ["gain"] * 2,
    }
    assert "A − first, test/accuracy, published +10.00; best +3.00 (+0.52 to +5.48): " in report.text[2]


def test_what_was_sent_and_done_up_to_a_round():
    rows = [
        {"round": 1.0, "local/steps": 10.0, "clients/counted": 2.0, "clients/non_finite": 1.0},
        {"round": 2.0, "local/steps": 5.0, "clients/counted": 1.0},
    ]
    outcome = Outcome(rows, 1.0, 400_000, 100_000)
    assert steps_by_round(rows) == {1.0: 10.0, 2.0: 15.0} and outcome.steps == 15.0
    assert megabytes_by_round(rows, 500_000) == pytest.approx({1.0: 1.5, 2.0: 2.0})
    assert megabytes_by_round([{"round": 1.0}], 1) is None


def test_settings_that_were_tried_stand_in_the_table(tmp_path):
    made = {name: referenced(1.0, {0: 0.7, 1: 0.7}) for name in ("A", "B")}
    entries = (Entry("A", plain, tried="6: rates 1e-4 to 1e-3, on dev"), Entry("B", plain))
    write_report(
        Suite(title="T", command="c", seeds=(0, 1), metrics=("test/accuracy",), entries=entries), made, tmp_path
    )
    markdown = (tmp_path / "comparison.md").read_text("utf-8")
    assert "| settings tried |" in markdown and "| 6: rates 1e-4 to 1e-3, on dev |" in markdown
    with open(tmp_path / "comparison.csv", newline="", encoding="utf-8") as file:
        assert [row["tried"] for row in csv.DictReader(file)] == ["6: rates 1e-4 to 1e-3, on dev", "", ""]


def test_local_steps_are_summed_over_the_rounds(tmp_path):
    made = {"A": referenced(12.0, {0: 0.7, 1: 0.7}), "B": referenced(7.0, {0: 0.7, 1: 0.7})}
    rows, markdown = reported(made, tmp_path, steps=True)
    assert [float(rows[name]["steps"]) for name in made] == [24.0, 14.0] and rows["ceiling"]["steps"] == ""
    assert "| s a round | local steps |" in markdown
    assert Outcome([{"round": 1.0}], 1.0, 1, 1).steps is None
