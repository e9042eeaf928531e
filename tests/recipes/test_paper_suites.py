"""scripts/reproduce: the suites of the papers' own settings, what they need and take, and a trial of each paper."""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
import signal
import sys
import tomllib
from pathlib import Path

import pytest

from tests.bags_for_tests import write_nyt10
from tests.documents_for_tests import marking_encoder
from tests.models.encoders_for_tests import encoder
from tests.recipe_data_for_tests import data_folder
from tff_re.comparison.suite import load_suite, run_folder
from tff_re.recipes.reading import read_toml, suites
from tff_re.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("scripts_reproduce", ROOT / "scripts" / "reproduce.py")
reproduce = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # as its dataclasses need it
spec.loader.exec_module(reproduce)

OF_PAPERS = [name for name in suites() if name.startswith("paper-")]


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    for name in ("ENCODER", "VECTORS", "MESH", "TFF_RE_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def typed(capsys):
    """Runs the script in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        handler = signal.getsignal(signal.SIGTERM)
        capsys.readouterr()
        try:
            code = reproduce.run([str(argument) for argument in arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)
        return code, *capsys.readouterr()

    return run


def recipes_of(name: str) -> dict:
    suite = load_suite(name)
    return {entry.name: entry.recipe_for(suite.seeds[0]) for entry in suite.entries}


# The suites


def test_every_suite_belongs_to_a_paper_and_numbers_are_in_order():
    assert sorted(OF_PAPERS) == sorted(name for paper in reproduce.PAPERS for name in reproduce.paper_suites(paper))
    assert reproduce.paper_suites("flcmc") == [f"paper-flcmc-table-{number}" for number in (8, 9, 10)]


@pytest.mark.parametrize("name", OF_PAPERS)
def test_the_plan_says_what_the_paper_leaves_open_and_what_chooses(name):
    text = read_toml(suites()[name])["text"]
    assert text.startswith("The plan. Question: ")
    assert "(Table" in text or "(Figure" in text
    assert re.search(r"does not (say|give|mention|name)|says neither|gives neither|is not said", text)
    assert re.search(r"chos|chooses", text)


@pytest.mark.parametrize("name", OF_PAPERS)
def test_a_cut_suite_loads_and_is_small(name, tmp_path):
    planned = reproduce.plan(
        name, reproduce.Inputs("encoder"), tmp_path, None, (), suites_in=tmp_path, seeds=None, search=2, cut=True
    )
    table = read_toml(suites()[name])
    first = table["entry"][0].get("group", "")
    wanted = [entry["name"] for entry in table["entry"] if entry.get("group", "") == first]
    assert [entry.name for entry in planned.suite.entries] == wanted
    assert list(planned.suite.seeds) == table["seeds"][:1]
    assert (planned.suite.tuning is None) == ("sweep" not in table)
    if planned.suite.tuning is not None:
        assert {len(settings) for settings in planned.suite.tuning.settings.values()} == {2}
        assert math.prod(len(values) for key, values in table["sweep"].items() if "." in key) == 48
    for entry in planned.suite.entries:
        recipe = entry.recipe_for(planned.suite.seeds[0])
        assert recipe.training.rounds == 2 and recipe.algorithm.options.local_epochs == 1
    assert not [line for line in planned.missing if "encoder" in line]


def test_the_papers_settings():
    """A sample of each paper's printed settings."""
    rows = recipes_of("paper-flcmc-table-9")
    assert {(r.training.rounds, r.training.clients_per_round) for r in rows.values() if not r.one_client} == {(200, 10)}
    fedpap = rows["FedPAP"].algorithm.options
    assert (fedpap.server_step, fedpap.mu, fedpap.learning_rate) == (9.0, 0.03, 0.001)
    assert (fedpap.local_epochs, fedpap.batch_size) == (10, 10)
    assert rows["FedAtt"].algorithm.options.server_step == 4.0 and rows["FedAvg"].task.options.dataset == "imcs_v2"
    assert recipes_of("paper-flcmc-table-10")["FedPAP"].training.rounds == 100

    rows = recipes_of("paper-fedcmc-pgr")
    cells = {(r.partition.options.alpha, r.partition.options.num_clients) for r in rows.values()}
    assert cells == {(0.5, 10), (0.05, 10), (0.05, 20), (0.05, 50)}
    assert {r.algorithm.options.batch_size for r in rows.values()} == {8}
    assert {r.algorithm.options.learning_rate for r in rows.values()} == {5e-5}

    folds = load_suite("paper-feded-gad-folds")
    tasks = [{e.recipe_for(seed).task.options for e in folds.entries if not e.control} for seed in folds.seeds]
    assert [(t.split, t.test_split) for (t,) in tasks] == [
        ("train", "test"),
        *((f"train-{n}", f"test-{n}") for n in range(2, 11)),
    ]
    feded = recipes_of("paper-feded-gad-folds")["FedED"]
    assert feded.partition.options.num_clients == 50 and feded.training.client_fraction == 0.1
    assert load_suite("paper-feded-gad").median and len(load_suite("paper-feded-gad").seeds) == 9

    fedlcc = recipes_of("paper-fedlcc-docred")["FedLCC, IID"]
    assert (fedlcc.training.rounds, fedlcc.algorithm.options.batch_size, fedlcc.algorithm.options.mu) == (50, 3, 0.1)
    assert fedlcc.algorithm.options.learning_rate == 2.5e-5 and fedlcc.task.options.dataset == "docred"

    lazy = recipes_of("paper-fedds-nyt10")["Lazy MIL, C = 0.1"]
    assert lazy.algorithm.options.optimizer == "sgd" and lazy.partition.options.num_clients == 100
    assert (lazy.algorithm.options.local_epochs, lazy.algorithm.options.batch_size) == (3, 32)


def test_what_is_given_goes_where_it_is_read(tmp_path):
    inputs = reproduce.Inputs("here/encoder", tmp_path / "vectors.txt", tmp_path / "mesh.bin")
    names = ("flcmc-table-8", "flcmc-table-9", "fedds-nyt10", "fedds-nyt10-bert", "fedlcc-cdr", "fedlcc-chr")
    recipe = {f"paper-{name}": next(iter(recipes_of(f"paper-{name}").values())) for name in names}
    assert inputs.overrides(recipe["paper-flcmc-table-8"]) == []
    assert inputs.overrides(recipe["paper-flcmc-table-9"]) == [
        f"task.vectors_path={tmp_path / 'vectors.txt'}",
        "task.vectors=file",
        "task.vectors_corpus=none",
    ]
    assert inputs.overrides(recipe["paper-fedds-nyt10"]) == [f"task.vectors_path={tmp_path / 'vectors.txt'}"]
    assert inputs.overrides(recipe["paper-fedds-nyt10-bert"]) == ["task.tokenizer=here/encoder"]
    mesh = f"task.mesh_tree={tmp_path / 'mesh.bin'}"
    assert inputs.overrides(recipe["paper-fedlcc-cdr"]) == ["task.tokenizer=here/encoder", mesh]
    assert inputs.overrides(recipe["paper-fedlcc-chr"]) == ["task.tokenizer=here/encoder"]
    for name in ("paper-flcmc-table-9", "paper-fedds-nyt10-bert", "paper-fedlcc-cdr"):
        load_suite(name, tuple(inputs.overrides(recipe[name])))


# What is missing, and what it will take


def test_missing_files_are_named_before_anything_is_run(typed, tmp_path):
    out = tmp_path / "out"
    code, printed, error = typed("fedcmc", "--data", data_folder(), "--out", out)
    assert (
        code == 2 and error.count("\n") == 1 and error.startswith("tff-re: not all is there for paper-fedcmc-chemprot")
    )
    assert "--skip-missing" in error and not out.exists()
    assert "paper-fedcmc-i2b2 needs an encoder: set ENCODER to its folder or hub id\n" in printed
    assert re.search(r"^paper-fedcmc-pgr needs pgr/train\.tsv \(.+\)$", printed, re.MULTILINE)
    assert "paper-fedcmc-i2b2 needs i2b2_2010" not in printed, "it is there"
    code, printed, _ = typed("fedds", "--only", "paper-fedds-nyt10-bert", "--out", out)
    assert code == 2 and not out.exists()
    for file in ("nyt10_train.txt", "nyt10_val.txt", "nyt10_test.txt", "nyt10_rel2id.json"):
        assert f"paper-fedds-nyt10-bert needs nyt10/{file} (" in printed
    code, printed, _ = typed("flcmc", "--data", data_folder(), "--out", out)
    assert "paper-flcmc-table-9 needs imcs_v2/IMCS-V2_train.json (" in printed
    assert "paper-flcmc-table-9 needs imcs_v2/symptom_norm.csv (" in printed
    assert "paper-flcmc-table-8 needs" not in printed


def test_check_says_what_it_will_take(typed, monkeypatch, tmp_path):
    monkeypatch.setenv("ENCODER", "an/encoder")
    arguments = ("feded", "--data", data_folder(), "--out", tmp_path / "out", "--check")
    code, printed, error = typed(*arguments, "--only", "paper-feded-euadr")
    assert (code, error) == (0, "") and not (tmp_path / "out").exists()
    assert "paper-feded-euadr: cost: 54 runs (6 entries on 9 seeds); no estimate until the first run" in printed
    assert printed.endswith("total: 54 runs in 1 suites\n")
    code, printed, error = typed(*arguments, "--skip-missing")
    assert (code, error) == (0, "")
    assert "paper-feded-gad-folds needs gad/10/train.tsv (" in printed
    code, printed, error = typed(*arguments, "--cut", "--only", "paper-feded-euadr")
    assert (code, error) == (0, "") and not (tmp_path / "out").exists()
    code, printed, error = typed(*arguments, "--only", "paper-feded-eu")
    assert code == 2 and "paper-feded-euadr" in error


def test_a_given_file_that_is_missing_is_named_by_check(typed, tmp_path):
    given = ("--encoder", "an/encoder", "--mesh", tmp_path / "mesh.tsv")
    arguments = ("fedlcc", "--only", "paper-fedlcc-cdr", "--data", data_folder(), *given, "--check")
    code, printed, _ = typed(*arguments)
    assert code == 2 and f"MESH: {tmp_path / 'mesh.tsv'}" in printed
    (tmp_path / "mesh.tsv").write_text("", "utf-8")
    _, printed, _ = typed(*arguments)
    assert "MESH" not in printed


def test_a_folder_with_something_in_it_needs_resume(typed, tmp_path):
    (tmp_path / "paper-flcmc-table-8").mkdir()
    (tmp_path / "paper-flcmc-table-8" / "file").write_text("", "utf-8")
    code, _, error = typed("flcmc", "--only", "paper-flcmc-table-8", "--out", tmp_path)
    assert code == 2 and "is not empty; continue it with --resume" in error


def test_a_suite_with_other_seeds_and_a_smaller_search():
    table = read_toml(suites()["paper-fedds-nyt10"])
    made = reproduce.reduced(table, seeds=(7, 8), search=5)
    assert made["seeds"] == [7, 8] and made["sweep"] == {**table["sweep"], "budget": 5}
    assert made["entry"] == table["entry"] and table["seeds"] == list(range(10)), "the table itself stays"
    folds = read_toml(suites()["paper-feded-gad-folds"])
    assert reproduce.reduced(folds, seeds=(7, 8)) == folds and reproduce.reduced(folds, cut=True)["seeds"] == [1]
    cut = reproduce.reduced(read_toml(suites()["paper-flcmc-table-10"]), cut=True)
    assert {entry["group"] for entry in cut["entry"]} == {"Adam"} and len(cut["gain"]) == 2


# Trials


def trial_data(folder: Path) -> Path:
    """The data of tests with NYT10 and IMCS-V2's training file."""
    data = folder / "data"
    shutil.copytree(data_folder(), data)
    write_nyt10(data)
    imcs = data / "imcs_v2"
    shutil.copy(imcs / "IMCS-V2_dev.json", imcs / "IMCS-V2_train.json")
    (imcs / "symptom_norm.csv").write_text("norm\n头晕\n咳嗽\n", "utf-8")
    return data


TRIALS = {
    "flcmc": ("paper-flcmc-table-9", "--set", "task.min_clients=1"),
    "fedcmc": ("paper-fedcmc-chemprot",),
    "feded": ("paper-feded-euadr",),
    "fedds": ("paper-fedds-nyt10",),
    "fedlcc": ("paper-fedlcc-docred", "--set", "model.block_size=8"),
}


@pytest.mark.slow
@pytest.mark.parametrize("paper", TRIALS)
def test_a_trial_of_each_paper_from_its_first_run_to_its_tables(paper, typed, tmp_path):
    name, *more = TRIALS[paper]
    data, out = trial_data(tmp_path), tmp_path / "out"
    given = ("--encoder", marking_encoder() if paper == "fedlcc" else encoder())
    always = (paper, "--only", name, "--data", data, "--out", out, "--cut", *given, *more)
    code, printed, error = typed(*always, "--first")
    assert (code, error) == (0, ""), (printed, error)
    before, after = re.findall(rf"^{name}: cost: .+$", printed, re.MULTILINE)
    assert "no estimate" in before and "1 finished; about" in after

    code, printed, error = typed(*always)
    assert code == 2 and "--resume" in error
    code, printed, error = typed(*always, "--resume")
    assert (code, error) == (0, ""), (printed, error)
    suite = load_suite(str(out / "suites" / f"{name}.toml"))
    assert "# " + suite.title in (out / name / "comparison.md").read_text("utf-8")
    runs = [RunFolder(run_folder(out / name, entry.name, suite.seeds[0])) for entry in suite.entries]
    assert all(run.summary.exists() for run in runs)
    times = [run.summary.stat().st_mtime_ns for run in runs]
    code, printed, _ = typed(*always, "--resume")
    assert code == 0 and "nothing is left to run" in printed
    assert times == [run.summary.stat().st_mtime_ns for run in runs], "no run was repeated"
    recipe = tomllib.loads((runs[0].path / "recipe.toml").read_text("utf-8"))
    assert recipe["training"]["rounds"] == 2
