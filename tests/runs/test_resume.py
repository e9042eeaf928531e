"""A run that was stopped, killed or broken off anywhere continues to the numbers that it would have had."""

from __future__ import annotations

import csv
import functools
import json
import os
import shutil
import signal
import time
import zlib
from importlib import metadata

import numpy as np
import pytest

from computations.stack import DISTRIBUTION, STACK
from datasets.partition import read_partition
from tests.cli.test_start import CHATTER
from tests.runs.resuming import assert_same_files, resumed, resumed_after, stop_at
from tests.stacks import computing_on
from tests.upper_floors import (
    Process,
    Stop,
    assert_same_weights,
    builder,
    command,
    consultations,
    refusal,
    rounds_in,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.errors import UserError
from tff_re.recipes.reading import load, resolve
from tff_re.runs.checkpoints import Records, latest_round
from tff_re.runs.features.failures import Participation
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history, rows_up_to
from tff_re.runs.resuming import BY_ROUND, DataDigests, RunRecord, record_of, repair
from tff_re.runs.run import train_run
from tff_re.runtime import WorkerDied, open_runtime
from tff_re.runtime.in_process.interpreter import InProcessContext
from tff_re.tasks.data_paths import DataPaths

# Checkpoints at 3, 6 and, since it is the last round, 8; evaluation at 2, 4, 6, 8.
PLAN = ("training.rounds=8", "training.checkpoint_every=3", "evaluation.every=2")


def run(folder, runtime, *, resume=False, plan=PLAN, **options):
    options = {"details": False, **options}
    return train_run(tiny(*plan), folder, builder=builder(), runtime=runtime, resume=resume, **options)


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def undisturbed(runtime, tmp_path_factory):
    """The folder and the result of the whole run."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    _, result = run(folder, runtime)
    return folder, result


def assert_same(folder, result, undisturbed):
    assert_same_files(folder, undisturbed[0], "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, undisturbed[1].weights)


@pytest.mark.parametrize(
    ("method", "round_num", "before"),
    [
        pytest.param("release", 1, True, marks=pytest.mark.slow),
        ("release", 3, False),  # the row of round 3 is there, its checkpoint not
        pytest.param("save", 8, True, marks=pytest.mark.slow),  # all rows are there, the last checkpoint not
        ("save", 8, False),  # everything but the summary
    ],
)
def test_broken_off_anywhere(method, round_num, before, undisturbed, runtime, tmp_path):
    _, result = resumed(functools.partial(run, tmp_path / "run", runtime), method, round_num, before)
    assert_same(tmp_path / "run", result, undisturbed)


def test_broken_off_again_and_again(undisturbed, runtime, tmp_path):
    for at in (2, 4, 4, 7):
        with pytest.raises(Stop):
            run(tmp_path / "run", runtime, resume=at > 2, on_round=stop_at(at))
        assert not (tmp_path / "run" / "summary.json").exists()
    _, result = run(tmp_path / "run", runtime, resume=True)
    assert_same(tmp_path / "run", result, undisturbed)
    assert len((tmp_path / "run" / "timings.csv").read_text().splitlines()) == 9


def test_what_a_kill_while_writing_leaves_is_cleared_away(undisturbed, runtime, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        run(folder, runtime, on_round=stop_at(5))
    (folder / "environment.json").unlink()
    half = folder / "checkpoints" / "round_4_temp1234"
    shutil.copytree(folder / "checkpoints" / "round_3", half)
    arrays_of(half).write_bytes(b"half")
    if STACK == "tff":
        (half / "saved_model.pb").unlink()
    rows = (folder / "metrics.csv").read_bytes()
    (folder / "metrics.csv_temp4321").write_bytes(rows[: len(rows) // 2])
    (folder / "timings.csv_temp9999").write_bytes(b"round,sec")
    (folder / ".summary.json.1.part").write_bytes(b"{")
    (folder / ".model.part.keras").write_bytes(b"PK")
    _, result = run(folder, runtime, resume=True, details=True)
    assert_same(folder, result, undisturbed)
    names = [path.name for path in folder.rglob("*")]
    assert not [name for name in names if "_temp" in name or name == ".model.part.keras"]
    assert json.loads((folder / "environment.json").read_text())[DISTRIBUTION] == metadata.version(DISTRIBUTION)


@pytest.mark.parametrize("left", [(), (".recipe.toml.17.part",)])
def test_killed_before_the_recipe_was_written(left, tmp_path):
    for name in left:
        (tmp_path / name).write_text("half")
    RunFolder(tmp_path).begin(tiny().to_toml(), resume=False)
    assert RunFolder(tmp_path).recipe.read_text("utf-8") == tiny().to_toml()


def arrays_of(checkpoint):
    """The file with a checkpoint's arrays."""
    (path,) = (checkpoint / "variables").glob("*.data-*") if STACK == "tff" else checkpoint.glob("*.npz")
    return path


def flipped(content: bytes) -> bytes:
    """One bit of it."""
    raw = bytearray(content)
    raw[len(raw) // 3] ^= 1
    return bytes(raw)


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(undisturbed, runtime, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed[0], folder)
    newest = folder / "checkpoints" / "round_8"
    arrays = arrays_of(newest)
    for content in (flipped(arrays.read_bytes()), b"broken"):
        arrays.write_bytes(content)
        with pytest.raises(UserError, match=r"round_8: cannot be read \(\w+\); remove it to continue from the c"):
            run(folder, runtime, resume=True)
    shutil.rmtree(newest)
    rounds = []
    _, result = run(folder, runtime, resume=True, on_round=rounds.append)
    assert [report.round for report in rounds] == [7, 8]
    assert_same(folder, result, undisturbed)


# In the process

# The clients and the server keep states beside the weights.
SCAFFOLD = (
    "training.rounds=4",
    "training.checkpoint_every=2",
    "evaluation.every=2",
    "algorithm={name='scaffold', num_clients=4, local_epochs=1}",
)


def test_a_run_is_that_of_the_worker_and_broken_off_the_same(worker, tmp_path, monkeypatch):
    def run_scaffold(name, runtime, **options):
        return run(tmp_path / name, runtime, plan=SCAFFOLD, **options)

    calls = []
    compute = InProcessContext._compute
    monkeypatch.setattr(InProcessContext, "_compute", lambda *a: calls.append(None) or compute(*a))
    with computing_on(worker):
        run_scaffold("there", worker)
    assert not calls
    with open_runtime("in-process", log_path=tmp_path / "log", threads=2) as here:
        run_scaffold("here", here)
        assert len(calls) > 4
        resumed_after(functools.partial(run_scaffold, "again", here), 3)
    assert_same_files(tmp_path / "again", tmp_path / "here", "metrics.csv", "clients.csv", "summary.json")
    here, there = (read_history(RunFolder(tmp_path / name)) for name in ("here", "there"))
    assert [row.keys() for row in here] == [row.keys() for row in there]
    for ours, workers in zip(here, there, strict=True):
        # The two round the last bit apart, and an accuracy is a count.
        np.testing.assert_allclose(list(ours.values()), list(workers.values()), rtol=1e-5, atol=1e-6)


KEPT = {
    # h at the server and a model's size at every client; three of four clients a round.
    "feddyn": ("algorithm={name='feddyn', local_epochs=1, alpha=0.5}",),
    # Moments and control variates.
    "adaptive server": (
        "algorithm={name='scaffold', local_epochs=1}",
        "server_optimizer={name='adam', bias_correction=true}",
    ),
}


@pytest.mark.parametrize("name", ["adaptive server", pytest.param("feddyn", marks=pytest.mark.slow)])
def test_what_server_and_clients_keep_survives(name, tmp_path):
    plan = (*SCAFFOLD[:3], "training.clients_per_round=3", *KEPT[name])
    with open_runtime("in-process", log_path=tmp_path / "log", threads=1) as here:
        _, whole = run(tmp_path / "whole", here, plan=plan)
        again = functools.partial(run, tmp_path / "again", here, plan=plan)
        _, result = resumed_after(again, 3)
    assert_same_files(tmp_path / "again", tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, whole.weights)


def test_a_server_optimizer_that_does_not_fit_is_one_line(runtime, tmp_path):
    plan = ("server_optimizer.name='yogi'", "algorithm.server_step=9.0")
    with pytest.raises(UserError, match=r"^tiny.toml: \[server_optimizer\] replaces algorithm.server_step"):
        run(tmp_path / "run", runtime, plan=plan)


# The partition


@pytest.fixture
def text_run(tmp_path, runtime):
    """Trains the text recipe into a folder; `partition` as on the command line."""
    table = text_recipe(write_json(tmp_path / "c.json", consultations()))
    table["partition"] = {"name": "iid", "num_clients": 3}

    def text_run(name, partition=None, resume=False, **options):
        recipe = resolve(table, "text.toml")
        data_paths = DataPaths(partition=partition)
        return train_run(
            recipe, tmp_path / name, data_paths=data_paths, runtime=runtime, resume=resume, details=False, **options
        )

    return text_run


def test_a_run_begun_with_a_partition_file_is_resumed_with_it(text_run, tmp_path):
    text_run("drawn")
    file = tmp_path / "given.json"
    partition = json.loads((tmp_path / "drawn" / "partition.json").read_text("utf-8"))
    first, second, *_ = partition["clients"].values()
    first["train"], second["train"] = second["train"], first["train"]
    write_json(file, partition)
    text_run("whole", file)

    with pytest.raises(Stop):
        text_run("broken", file, on_round=stop_at(1))
    text_run("broken", resume=True)
    assert read_partition(tmp_path / "broken" / "partition.json").clients == read_partition(file).clients
    metrics = {name: (tmp_path / name / "metrics.csv").read_bytes() for name in ("drawn", "whole", "broken")}
    assert metrics["broken"] == metrics["whole"] != metrics["drawn"]


def test_another_partition_is_refused_on_resume(text_run, tmp_path):
    text_run("run")
    original = (tmp_path / "run" / "partition.json").read_bytes()
    partition = json.loads(original)
    partition["clients"] = dict(reversed(partition["clients"].items()))  # the order decides who is sampled
    with pytest.raises(
        UserError, match=r"partition\.json: the run was started with this partition; resume it with the"
    ):
        text_run("run", write_json(tmp_path / "other.json", partition), resume=True)
    assert (tmp_path / "run" / "partition.json").read_bytes() == original


def test_a_rewritten_data_file_is_refused_on_resume(text_run, tmp_path):
    """Also where all ids and the partition are as before; with the old file the run is resumed."""
    _, result = text_run("run")
    path, values = tmp_path / "c.json", consultations()
    values["d0"]["dialogue"][0]["sentence"] += "。"
    write_json(path, values)
    with pytest.raises(UserError, match=r"run: the run's checkpoint was trained or tested on other data than"):
        text_run("run", resume=True)
    write_json(path, consultations())
    _, again = text_run("run", resume=True)
    assert_same_weights(again.weights, result.weights)


# Files that were changed


@pytest.fixture(scope="module")
def broken_off(runtime, tmp_path_factory):
    """A run that ended in round 7: its checkpoint is that of round 6, its CSV files have a row more."""
    folder = tmp_path_factory.mktemp("broken_off") / "run"
    with pytest.raises(Stop):
        run(folder, runtime, on_round=stop_at(7))
    return folder


def keep_lines(*numbers):
    def spoil(path):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[i] for i in numbers))

    return spoil


def overwrite(*change):
    def spoil(path):
        data = path.read_bytes()
        assert change[0] in data
        path.write_bytes(data.replace(*change, 1))

    return spoil


def cut_in_row_6(path):
    path.write_bytes(path.read_bytes().partition(b"\r\n6,")[0] + b"\r\n6,0")


SPOILS = {
    "cut": (keep_lines(0, 1, 2, 3), "lacked rows"),
    "a row is gone": (keep_lines(0, 1, 2, 4, 5, 6), "was damaged"),
    "cut in a row": (cut_in_row_6, "was damaged"),
    "missing": (lambda path: path.unlink(), "was missing"),
    "empty": (lambda path: path.write_bytes(b""), "was damaged"),
    "garbage": (lambda path: path.write_bytes(bytes(range(256))), "was damaged"),
    "another number": (overwrite(b"\r\n2,", b"\r\n2,1"), "held other rows"),
    "no number": (overwrite(b"\r\n2,", b"\r\n2,x"), "was damaged"),
    "no heading": (keep_lines(1, 2, 3, 4, 5, 6), "was damaged"),
}


@pytest.mark.parametrize("how", SPOILS)
def test_spoilt_files_are_written_anew_from_the_checkpoint(how, broken_off, capsys, tmp_path):
    spoil, reason = SPOILS[how]
    folder, names = RunFolder(tmp_path), ("metrics.csv", "timings.csv")
    for name in names:
        shutil.copyfile(broken_off / name, tmp_path / name)
    record = record_of(folder, DataDigests())
    for name in names:
        spoil(tmp_path / name)
    repair(record, folder, 6)
    assert_same_files(tmp_path, broken_off, *names)
    lines = [f"{tmp_path / name}: {reason}; restored from the checkpoint of round 6" for name in names]
    assert capsys.readouterr().err.splitlines() == [f"tff-re: {line}" for line in lines]


def test_a_run_with_a_spoilt_file_continues(undisturbed, broken_off, runtime, capsys, tmp_path):
    """The row after the checkpoint in the other file is no damage."""
    folder = tmp_path / "run"
    shutil.copytree(broken_off, folder)
    assert rounds_in(folder / "metrics.csv") == 7
    cut_in_row_6(folder / "timings.csv")
    _, result = run(folder, runtime, resume=True)
    assert_same(folder, result, undisturbed)
    before, after = (list(csv.DictReader((path / "timings.csv").open())) for path in (broken_off, folder))
    assert len(after) == 8 and after[:6] == before[:6]
    line = f"{folder / 'timings.csv'}: was damaged; restored from the checkpoint of round 6"
    assert capsys.readouterr().err == f"tff-re: {line}\n" and line in (folder / "run.log").read_text("utf-8")


def test_what_clients_keep_is_written_anew_from_the_checkpoint(capsys, tmp_path):
    folder = RunFolder(tmp_path)
    text = "round,client,name,a,b\n" + "".join(f"{r},{c},similarity,0.5,{r}\n" for r in (1, 2) for c in "xy")
    folder.client_states.write_text(text, "utf-8")
    record = RunRecord.unpacked(record_of(folder, DataDigests()).packed())
    later = text + "3,x,similarity,0.5,3\n"
    for spoilt, reason in (
        (text[:-4], "was damaged"),
        (later.replace("1,y,similarity,0.5,1", "1,y,similarity,0.5,9"), "held other rows"),
        (later.replace("1,y,similarity,0.5,1\n", ""), "lacked rows"),
    ):
        folder.client_states.write_text(spoilt, "utf-8")
        repair(record, folder, 2)
        assert folder.client_states.read_text("utf-8") == text
        line = f"{folder.client_states}: {reason}; restored from the checkpoint of round 2"
        assert capsys.readouterr().err == f"tff-re: {line}\n"
    folder.client_states.write_text(later, "utf-8")
    repair(record, folder, 2)
    assert folder.client_states.read_text("utf-8") == later and capsys.readouterr().err == ""


@pytest.mark.parametrize("before", ["record", "release"])
@pytest.mark.parametrize("name", ["metrics", "timings"])
def test_a_file_that_is_damaged_during_training_is_named(name, before, tmp_path):
    folder = RunFolder(tmp_path)
    records = Records(folder, DataDigests())
    try:
        records.release(1, {"a": 1.0}, {"b": 1.0})
        path = getattr(folder, name)
        path.write_bytes(bytes(range(256)))
        with pytest.raises(UserError, match=rf"{path}: was damaged during training; continue with --resume") as caught:
            record_of(folder, DataDigests()) if before == "record" else records.release(2, {"a": 1.0}, {"b": 1.0})
        assert "\n" not in str(caught.value)
    finally:
        records.close()


@pytest.mark.parametrize("name", BY_ROUND)
def test_a_round_of_thousands_of_digits_is_damage(name):
    assert rows_up_to("round,a\n1,2\n", name, 9) == [{"round": "1", "a": "2"}]
    assert rows_up_to(f"round,a\n{'1' * 5000},2\n", name, 9) is None


@pytest.mark.parametrize("array", [b"", b"abc", zlib.compress(b"{}"), zlib.compress(b"[1]")])
def test_a_record_of_something_else_is_no_record(array):
    with pytest.raises(ValueError, match="not a run's record"):
        RunRecord.unpacked(np.frombuffer(array, np.uint8))


def test_without_a_checkpoint_everything_begins_anew(undisturbed, runtime, capsys, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed[0], folder)
    shutil.rmtree(folder / "checkpoints")
    SPOILS["garbage"][0](folder / "metrics.csv")
    _, result = run(folder, runtime, resume=True)
    assert_same(folder, result, undisturbed)
    assert capsys.readouterr().err.count("csv: was damaged; there is no checkpoint yet") == 1


def test_what_reads_a_run_mends_it_too(undisturbed, capsys, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed[0], folder)
    SPOILS["cut"][0](folder / "metrics.csv")
    typed = command(capsys, "evaluate", folder)
    assert typed.code == 0
    assert typed.err == f"tff-re: {folder}/metrics.csv: lacked rows; restored from the checkpoint of round 8\n"
    assert (folder / "metrics.csv").read_bytes() == (undisturbed[0] / "metrics.csv").read_bytes()


def test_a_recipe_that_was_changed_is_refused(undisturbed, runtime, capsys, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed[0], folder)
    overwrite(b"seed = 0", b"seed = 1")(folder / "recipe.toml")
    typed = command(capsys, "evaluate", folder)
    refusal(typed, f"{folder}/recipe.toml: is not the recipe that the run's checkpoint was trained with")
    (folder / "recipe.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"holds another run \(its recipe\.toml differs\)"):
        run(folder, runtime, resume=True)


def test_another_partition_in_the_folder_is_refused(text_run, capsys, tmp_path):
    text_run("run")
    folder = tmp_path / "run"
    original = (folder / "partition.json").read_bytes()
    partition = json.loads(original)
    first, second, *_ = partition["clients"].values()
    first["train"], second["train"] = second["train"], first["train"]
    write_json(folder / "partition.json", partition)
    before = {path: path.read_bytes() for path in folder.glob("*.csv")}
    wanted = f"{folder}/partition.json: is not the partition that the run's checkpoint was trained on; put the original"
    with pytest.raises(UserError, match=wanted.replace(".", r"\.")):
        text_run("run", resume=True)
    refusal(command(capsys, "evaluate", folder), wanted)
    assert {path: path.read_bytes() for path in before} == before
    (folder / "partition.json").write_bytes(original[: len(original) // 2])
    refusal(command(capsys, "evaluate", folder), f"{folder}/partition.json")
    # The recipe draws the same one again.
    (folder / "partition.json").unlink()
    text_run("run", resume=True)
    assert (folder / "partition.json").read_bytes() == original


def test_a_checkpoint_of_another_version_is_refused(undisturbed, capsys, monkeypatch, tmp_path):
    shutil.copytree(undisturbed[0], tmp_path / "run")
    monkeypatch.setattr("tff_re.runs.resuming._MARK", "tff-re run record 0")
    typed = command(capsys, "evaluate", tmp_path / "run")
    refusal(typed, "round_8: was written by another version of tff-re; train into another --out")


# Ctrl-C, which leaves a checkpoint of the last finished round

RARELY = ("training.rounds=5", "training.checkpoint_every=100", "evaluation.every=2", "training.clients_per_round=3")
INTERRUPTED = {
    "momentum at the server": (),
    "states at clients": ("algorithm={name='scaffold', local_epochs=1}",),
    "a chosen round": ("choice={}",),
    "each its own model": ("baseline={kind='local'}", "choice={}"),
    "private": (
        "algorithm={name='fedavg', local_epochs=1}",
        "privacy={clip=0.5, noise_multiplier=1.0, delta=0.01}",
        "evaluation.train_split=false",
    ),
    "simulated failures": ("failures={dropout=0.3}", "training.min_clients=1"),
}


OFTEN = ("states at clients", "a chosen round")


@pytest.fixture
def in_process(tmp_path):
    with open_runtime("in-process", log_path=tmp_path / "log", threads=1) as opened:
        yield opened


def interrupted(monkeypatch, owner, method, at, error=KeyboardInterrupt, before=True):
    """Lets a method raise at a round, as Ctrl-C there does."""
    real = getattr(owner, method)

    def broken(self, number, *arguments, **options):
        if number == at and before:
            raise error
        result = real(self, number, *arguments, **options)
        if number == at:
            raise error
        return result

    monkeypatch.setattr(owner, method, broken)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in INTERRUPTED],
)
def test_an_interrupted_run_goes_on_after_its_last_finished_round(name, in_process, monkeypatch, tmp_path):
    """Interrupted while round 3 is computed; while round 4, whose state is new already, is written; and after it."""
    train = functools.partial(run, runtime=in_process, plan=(*RARELY, *INTERRUPTED[name]))
    _, whole = train(tmp_path / "whole")
    rounds, out = [], tmp_path / "run"
    ways = ((Participation, "of_round", 3, False), (Records, "release", 4, True), (Records, "finish_round", 4, False))
    for number, (owner, method, at, before) in enumerate(ways):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as ended:
            interrupted(patch, owner, method, at, before=before)
            train(out, resume=number > 0, on_round=lambda report: rounds.append(report.round))
        done = (2, 3, 4)[number]
        assert latest_round(RunFolder(out)) == done
        assert ended.value.__notes__ == [f"interrupted after round {done}, which is saved; continue with --resume"]
    lines = []
    _, result = train(out, resume=True, on_round=lambda report: rounds.append(report.round), on_line=lines.append)
    assert rounds == [1, 2, 3, 5] and lines == ["resumed after round 4 of 5"]
    assert "resumed after round 2 of 5" in (out / "run.log").read_text("utf-8")
    assert_same_files(out, tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    if name == "each its own model":
        for client, weights in whole.weights.items():
            assert_same_weights(result.weights[client], weights)
    else:
        assert_same_weights(result.weights, whole.weights)


@pytest.mark.parametrize("error", [SystemExit(143), WorkerDied("it died", pid=None, log_path=None)])
def test_other_ends_leave_a_checkpoint_too(error, in_process, monkeypatch, tmp_path):
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        interrupted(patch, Participation, "of_round", 2, error)
        run(tmp_path / "run", in_process, plan=RARELY)
    assert latest_round(RunFolder(tmp_path / "run")) == 1


def test_an_error_of_ours_or_an_interrupt_in_round_1_leaves_none(in_process, monkeypatch, tmp_path):
    for number, error in enumerate((KeyboardInterrupt, Stop)):
        with monkeypatch.context() as patch, pytest.raises(error) as ended:
            interrupted(patch, Participation, "of_round", 1 + number, error)
            run(tmp_path / str(number), in_process, plan=RARELY)
        assert not latest_round(RunFolder(tmp_path / str(number))) and not hasattr(ended.value, "__notes__")
    lines = []
    run(tmp_path / "0", in_process, plan=RARELY, resume=True, on_line=lines.append)
    assert lines == ["resumed; no round was finished, so training starts with round 1"]


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_interrupted_while_the_checkpoint_is_written(signals, in_process, monkeypatch, tmp_path):
    """The write comes to its end, after a second Ctrl-C too."""
    import tensorflow as tf

    module, name = (tf.saved_model, "save") if STACK == "tff" else (np, "savez")
    write, sent = getattr(module, name), []

    def interrupting(*arguments, **options):
        if len(list((tmp_path / "run" / "checkpoints").glob("round_*"))) == 2 and not sent:  # round 3 and a part
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        write(*arguments, **options)

    def again(records):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, name, interrupting)
        if signals == 2:
            patch.setattr(Records, "_keep_finished", again)
        run(tmp_path / "run", in_process)
    assert sent
    rounds = []
    _, result = run(tmp_path / "run", in_process, resume=True, on_round=lambda report: rounds.append(report.round))
    assert rounds[0] == 7
    assert not list((tmp_path / "run" / "checkpoints").glob("*_temp*"))
    _, whole = run(tmp_path / "whole", in_process)
    assert_same_files(tmp_path / "run", tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, whole.weights)


def test_a_full_disk_when_interrupted_does_not_hide_the_interrupt(in_process, monkeypatch, tmp_path):
    def full(*arguments):
        raise UserError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as ended:
        patch.setattr(Records, "save", full)
        interrupted(patch, Participation, "of_round", 2)
        run(tmp_path / "run", in_process, plan=RARELY)
    assert ended.value.__notes__ == ["interrupted, and the checkpoint of round 1 cannot be written: the disk is full"]


# Ctrl-C while something is written


# In the task, and in the loop.
@pytest.mark.parametrize("where", ["task", "loop"])
def test_an_interrupted_write_leaves_no_complaint_behind(where, tmp_path, monkeypatch, capsys, caplog):
    import asyncio
    import gc

    folder = RunFolder(tmp_path / "run")
    folder.begin(tiny().to_toml(), resume=False)
    records = Records(folder, DataDigests())

    async def release(value, key):
        if where == "task":
            signal.raise_signal(signal.SIGINT)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asyncio.sleep(5)

    monkeypatch.setattr(records._managers["metrics"], "release", release)
    with pytest.raises(KeyboardInterrupt):
        records.release(1, {"a": 1.0}, {"b": 2.0})
    records.close()
    gc.collect()
    assert caplog.records == [] and capsys.readouterr() == ("", "")


# A real kill of a real process

LONG = {"training": {"rounds": 16, "clients_per_round": 3, "checkpoint_every": 2}, "evaluation": {"every": 3}}


@pytest.mark.parametrize("name", ["in-process", pytest.param("local", marks=pytest.mark.slow)])
def test_killed_in_the_middle(name, capsys, request, tmp_path):
    runtime = request.getfixturevalue("worker" if name == "local" else "runtime")
    recipe = write_recipe(tmp_path / "r.toml", **LONG)
    killed = tmp_path / "killed"
    process = Process("train", recipe, "--out", killed, "--runtime", name)
    try:
        process.wait_for(lambda: rounds_in(killed / "metrics.csv") >= 3, "round 3")
        typed = process.end(signal.SIGKILL)
    finally:
        process.close()
    assert typed.code == -signal.SIGKILL and typed.err == ""
    assert "fedpap on synthetic" in typed.out.splitlines()[0] and not CHATTER.search(typed.out), typed.out
    log = killed / "run.log"
    assert not log.exists() or not CHATTER.search(log.read_text("utf-8").replace(" INFO ", " "))
    done = rounds_in(killed / "metrics.csv")
    assert 3 <= done < 16, "the kill came too late to show anything"
    assert len(read_history(RunFolder(killed))) == done, "a row was half-written"
    refused = command(capsys, "train", recipe, "--out", killed)
    refusal(refused, f"{killed}: already holds this run; continue it with --resume")

    resumed = command(capsys, "train", recipe, "--out", killed, "--resume", "--runtime", name)
    assert resumed.code == 0 and resumed.err == ""
    with computing_on(runtime):
        train_run(load(str(recipe)), tmp_path / "whole", builder=builder(), runtime=runtime, details=False)
    assert_same_files(killed, tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert not [name for name in os.listdir(killed / "checkpoints") if "temp" in name]
