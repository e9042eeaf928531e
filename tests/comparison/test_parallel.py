"""Several runs of a comparison at once, and parts of one: the files are those of one run after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from types import SimpleNamespace

import psutil
import pytest
import tomli_w

from tests.comparison.test_sweep import suite_file as sweep_file
from tests.upper_floors import Process, builder, command, refusal, rounds_in, share_computations, tiny, write_recipe
from tff_re.comparison import outcome as outcomes_of
from tff_re.comparison.outcome import compare
from tff_re.comparison.planning import Part
from tff_re.comparison.suite import load_suite
from tff_re.comparison.worker import Naming
from tff_re.recipes.reading import load, shipped

TIMES = ("timings.csv", "digests.json", "run.log", "worker.log", ".lock")
"""Files of a run that hold times, or digests of those. TensorBoard's and checkpoints hold some, too."""


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def done(runtime, tmp_path_factory):
    """A suite with a sweep of which a setting diverges, one run after the other and two at once."""
    folder = tmp_path_factory.mktemp("parallel")
    path = sweep_file(folder, seeds=[0, 1])
    compare(load_suite(str(path)), folder / "one", builder=builder())
    said = []
    at_once = compare(
        *(load_suite(str(path)), folder / "two"),
        builder=builder(),
        jobs=2,
        on_start=lambda *start: said.append(start),
        on_round=lambda report: said.append(report.round),
    )
    return SimpleNamespace(folder=folder, path=path, one=folder / "one", two=folder / "two", said=said, at_once=at_once)


def files(out):
    """Relative path -> bytes of the files without times."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name = path.relative_to(out)
        if path.name not in TIMES and not {"tensorboard", "checkpoints"} & set(name.parts):
            found[str(name)] = path.read_bytes()
    return found


def listed(out):
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if "tensorboard" not in path.parts)


def test_the_files_are_those_of_one_run_after_the_other(done):
    one, two = files(done.one), files(done.two)
    assert len([name for name in one if name.endswith("diverged.txt")]) == 2
    assert len([name for name in one if name.endswith("metrics.csv")]) == 8 - 2 + 4 and "sweep.csv" in one
    assert list(one) == list(two) and all(one[name] == two[name] for name in one)
    assert [name for name in listed(done.one) if name != "runs/worker.log"] == listed(done.two)
    assert all(path.stat().st_mode & 0o077 == 0 for path in done.two.rglob("*"))


def test_runs_are_heard_of_in_the_suites_order(done):
    starts = [event for event in done.said if isinstance(event, tuple)]
    assert [seed for _, seed, _ in starts] == [7] * 4 + [8] * 4 + [0] * 2 + [1] * 2
    assert [name for name, _, _ in starts[-4:]] == ["FedAvg", "FedPA"] * 2
    assert done.said[-3:] == [starts[-1], 1, 2]


def test_tables_of_both_are_equal_but_for_the_times(done, capsys):
    for run in done.one.glob("*/*-seed*"):  # the seconds of a round are in tables, too
        for name in ("timings.csv", "digests.json"):
            if (run / name).exists():
                shutil.copy(run / name, done.two / run.relative_to(done.one) / name)
    for out in (done.one, done.two):
        typed = command(capsys, "compare", "--suite", done.path, "--out", out, "--resume", "--jobs", "2")
        assert typed.code == 0 and typed.err == "", typed
    assert "comparison.md" in files(done.one) and files(done.one) == files(done.two)


def test_outcomes_are_those_read_from_the_folder(done):
    again = compare(load_suite(str(done.path)), done.two, builder=builder(), resume=True)
    for name, by_seed in again.items():
        for seed, outcome in by_seed.items():
            units, read = done.at_once[name][seed].test_units, outcome.test_units
            assert units.kind == read.kind and all((units.arrays[key] == read.arrays[key]).all() for key in read.arrays)
            more = {"seconds_per_round": outcome.seconds_per_round, "test_units": read}
            assert dataclasses.replace(done.at_once[name][seed], **more) == outcome


def plain_suite(folder, names=("fedavg", "fedavgs", "fedpa"), seeds=(0, 1), rounds=2):
    training, every = {"rounds": rounds, "clients_per_round": 2}, max(1, rounds // 4)
    write_recipe(folder / "tiny.toml", training=training, evaluation={"every": every})
    entries = [{"name": name, "algorithm": {"name": name, "local_epochs": 1}} for name in names]
    table = {"title": "Tiny", "recipe": str(folder / "tiny.toml"), "seeds": list(seeds), "entry": entries}
    (folder / "suite.toml").write_text(tomli_w.dumps(table), "utf-8")
    return folder / "suite.toml"


@pytest.mark.parametrize("tuned", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_parts_that_are_merged_give_the_files_of_the_whole(tuned, done, tmp_path, capsys, monkeypatch):
    path, whole, parts = done.path if tuned else plain_suite(tmp_path), tmp_path / "whole", tmp_path / "parts"
    if tuned:
        shutil.copytree(done.one, whole)
    else:
        assert command(capsys, "compare", "--suite", path, "--out", whole).code == 0
    ran, real = [], outcomes_of.train_run

    def counted(recipe, folder, **options):
        ran.append(folder.name)
        return real(recipe, folder, **options)

    monkeypatch.setattr(outcomes_of, "train_run", counted)
    for part in ("2/2", "1/2"):
        typed = command(capsys, "compare", "--suite", path, "--out", parts, "--part", part, "--resume")
        assert typed.code == 0 and f"part {part}: " in typed.out and "written" not in typed.out
        assert not (parts / "comparison.md").exists()
    assert len(ran) == len(set(ran)) == len(list(whole.glob("*/*-seed*")))
    ran.clear()
    for run in whole.glob("*/*-seed*"):
        for name in ("timings.csv", "digests.json"):
            if (run / name).exists():
                shutil.copy(run / name, parts / run.relative_to(whole) / name)
    for out in (parts, whole):
        assert command(capsys, "compare", "--suite", path, "--out", out, "--resume").code == 0
    assert ran == [] and files(parts) == files(whole)


def test_a_part_without_runs_and_a_run_that_is_there_already(tmp_path, capsys):
    path, out = plain_suite(tmp_path), tmp_path / "out"
    typed = command(capsys, "compare", "--suite", path, "--out", out, "--part", "7/7")
    assert typed.code == 0 and "part 7/7: 0 of 6 runs are finished" in typed.out
    for _ in range(2):
        typed = command(capsys, "compare", "--suite", path, "--out", out, "--part", "6/6")
    refusal(typed, "fedpa-seed1: already holds this run; continue it with --resume")
    refusal(command(capsys, "compare", "--suite", path, "--part", "3/2"), "--part 3/2: must be I/N")


def test_all_seeds_of_a_tuned_entry_are_one_part(tmp_path):
    suite = load_suite(str(sweep_file(tmp_path, seeds=[0, 1])))
    pairs = [outcomes_of._pairs(suite, tmp_path, Part(index, 2)) for index in (1, 2)]
    assert [[(seed, entry.name) for seed, entry in part] for part in pairs] == [
        [(0, "FedAvg"), (1, "FedAvg")],
        [(0, "FedPA"), (1, "FedPA")],
    ]


def test_a_recipe_comes_to_a_worker_as_it_is():
    for recipe in (tiny("algorithm.learning_rate=0.3", seed=5), *map(load, shipped())):
        sent = Naming(recipe.to_toml(), recipe.source).recipe
        assert sent == recipe and sent.to_toml() == recipe.to_toml()


# The command, ended in the midst of its runs


@contextlib.contextmanager
def under_way(path, out):
    """The command with two jobs, both of which train; its process and those of its workers."""
    process = Process("compare", "--suite", path, "--out", out, "--jobs", "2", start_new_session=True)
    try:
        runs = [out / "runs" / f"{name}-seed0" / "metrics.csv" for name in ("fedavg", "fedpa")]
        process.wait_for(lambda: all(rounds_in(run) > 2 for run in runs), "two runs are under way", 400)
        children = psutil.Process(process.popen.pid).children()
        children = [child for child in children if "worker" in " ".join(child.cmdline())]
        assert len(children) == 2
        yield process, children
    finally:
        process.close()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_ends_all_with_one_line_at_most(number, code, tmp_path):
    path, out = plain_suite(tmp_path, ("fedavg", "fedpa"), (0,), rounds=5000), tmp_path / "out"
    with under_way(path, out) as (process, _):
        os.killpg(process.popen.pid, number)  # as a terminal does, or a batch system
        ended = process.end()
        assert ended.code == code and ended.err.count("\n") == (code == 130), ended.err
        assert "Traceback" not in ended.err and (code == 143 or "continues with --resume" in ended.err)
    assert len(list(out.glob("runs/*/metrics.csv"))) == 2 and not list(out.glob("runs/*/summary.json"))


@pytest.mark.slow
def test_a_comparison_whose_worker_was_killed_continues_to_the_same_files(tmp_path, capsys):
    path = plain_suite(tmp_path, ("fedavg", "fedpa"), (0,), rounds=200)
    out, whole = tmp_path / "out", tmp_path / "whole"
    with under_way(path, out) as (process, workers):
        workers[0].kill()
        refusal(process.end(), "was killed by SIGKILL", "finished runs are kept, continue with --resume")
    assert not list(out.glob("comparison*"))
    refusal(command(capsys, "compare", "--suite", path, "--out", out, "--jobs", "2"), "is not empty")
    typed = command(capsys, "compare", "--suite", path, "--out", out, "--jobs", "2", "--resume")
    assert typed.code == 0 and typed.err == ""
    assert command(capsys, "compare", "--suite", path, "--out", whole).code == 0
    both = [{name: content for name, content in files(o).items() if name.startswith("runs/")} for o in (out, whole)]
    assert both[0] == both[1] and (out / "comparison.csv").exists()
