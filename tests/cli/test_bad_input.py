"""What a user may get wrong, and a machine: exit code 2 and one line that names the place and the remedy."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from computations.stack import STACK
from tests.upper_floors import (
    SECRET,
    assert_same_run,
    builder,
    command,
    consultations,
    refusal,
    rounds_in,
    sentence,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.cli.display import RoundProgress
from tff_re.runs import results
from tff_re.runs.folder import RunFolder, writing
from tff_re.runs.run import train_run


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime, pictures=True)  # which fill a disk
        yield


@pytest.fixture
def text(tmp_path):
    """A corpus and a recipe for it that are in order; tests spoil one of them."""
    corpus = write_json(tmp_path / "corpus.json", consultations())
    return SimpleNamespace(corpus=corpus, recipe=write_recipe(tmp_path / "text.toml", text_recipe(corpus)))


def refused_without_a_trace(capsys, tmp_path, arguments, *parts):
    """The command is refused before it has made anything."""
    before = sorted(tmp_path.rglob("*"))
    line = refusal(command(capsys, *arguments), *parts)
    assert SECRET not in line, "a patient's text in a message"
    assert sorted(tmp_path.rglob("*")) == before
    return line


# Data


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (lambda whole: None, ["corpus.json: no such file"]),
        (lambda whole: whole[:-3], ["corpus.json: line 1: byte ", "is not JSON", "repair the file or copy it again"]),
        (lambda whole: whole.replace(b'"sentence_id": "3"', b"!", 1), ["corpus.json: line 1: byte 491: is not JSON"]),
        (lambda whole: b"[]", ["corpus.json: the file is not an object"]),
        (lambda whole: b"{}", ["corpus.json: has no dialogues"]),
        (lambda whole: b"\xed\xa0\x80", ["corpus.json: ", "byte 0"]),
    ],
)
def test_broken_files(spoil, parts, text, capsys, tmp_path):
    spoiled = spoil(text.corpus.read_bytes())
    text.corpus.unlink() if spoiled is None else text.corpus.write_bytes(spoiled)
    refused_without_a_trace(capsys, tmp_path, ["train", text.recipe, "--out", tmp_path / "run"], *parts)


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (lambda c: c["d1"].update(dialogue=[]), ["dialogue d1: has no sentences; remove it or give it at least one"]),
        (
            lambda c: c["d2"]["dialogue"].insert(0, sentence(9, SECRET, "7")),
            ["dialogue d2, sentence number 1: unknown symptom type; use 0 (absent), 1 (present) or 2 (unclear)"],
        ),
        (lambda c: c["d0"]["dialogue"][2].pop("speaker"), ["dialogue d0, sentence number 3", "speaker"]),
        (lambda c: [s.update(sentence="") for d in c.values() for s in d["dialogue"]], ["no word is left"]),
    ],
)
def test_broken_dialogues(spoil, parts, text, capsys, tmp_path):
    corpus = consultations()
    spoil(corpus)
    write_json(text.corpus, corpus)
    refused_without_a_trace(capsys, tmp_path, ["train", text.recipe, "--out", tmp_path / "run"], *parts)


def test_data_sets_that_are_not_there(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    train = ["train", "flcmc-imcs-lr-fedpap", "--out", tmp_path / "run"]
    refused_without_a_trace(capsys, tmp_path, train, "data set mie: needs the file mie/dev.imcs_v2.json", "--data DIR")
    refused_without_a_trace(capsys, tmp_path, [*train, "--data", tmp_path], tmp_path / "mie", "no such file")
    missing = tmp_path / "nowhere"
    for arguments in (train, ["partition", "flcmc-imcs-lr-fedpap"], ["datasets"], ["doctor"]):
        refused_without_a_trace(capsys, tmp_path, [*arguments, "--data", missing], f"--data {missing}: no such folder")


# Partitions


@pytest.fixture
def partition(text, capsys, tmp_path):
    """A partition file of the corpus, as a value to spoil."""
    assert command(capsys, "partition", text.recipe, "--out", tmp_path / "drawn").code == 0
    return json.loads((tmp_path / "drawn" / "partition.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (
            lambda p: p["clients"].update(extra={"train": [], "test": []}),
            ["client number 5: has no samples; leave the client out"],
        ),
        (lambda p: p["clients"].pop("d3"), ["sample d3/", "is not held by any client", "use the corpus"]),
        (lambda p: p["clients"]["d0"]["train"].append("x/1"), ["sample x/1: is not in the corpus"]),
        (
            lambda p: p["clients"]["d0"]["train"].append(p["clients"]["d1"]["train"][0]),
            ["sample d1/", "is held by two clients"],
        ),
        (lambda p: p.clear(), ["is not a partition"]),
    ],
)
def test_partition_files_that_do_not_fit(spoil, parts, partition, text, capsys, tmp_path):
    spoil(partition)
    path = write_json(tmp_path / "p.json", partition)
    train = ["train", text.recipe, "--partition", path, "--out", tmp_path / "run"]
    refused_without_a_trace(capsys, tmp_path, train, path, *parts)
    train[3] = tmp_path / "none.json"
    refused_without_a_trace(capsys, tmp_path, train, "none.json: no such file")


def test_the_synthetic_task_refuses_a_partition(text, partition, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", partition={"name": "iid", "num_clients": 2})
    words = "the synthetic task generates its own clients"
    refused_without_a_trace(capsys, tmp_path, ["train", recipe, "--out", tmp_path / "run"], words)
    train = ["train", write_recipe(tmp_path / "s.toml"), "--partition", tmp_path / "drawn" / "partition.json"]
    refused_without_a_trace(capsys, tmp_path, [*train, "--out", tmp_path / "run"], words)


# Word vectors


@pytest.fixture
def vectors(tmp_path):
    """Word vectors of width 3 in word2vec's text format, and in gensim's own."""
    from gensim.models import KeyedVectors

    made = KeyedVectors(3)
    made.add_vectors(["宝", "咳", "烧"], np.arange(9, dtype=np.float32).reshape(3, 3))
    made.save_word2vec_format(str(tmp_path / "v.txt"), binary=False)
    made.save(str(tmp_path / "v.kv"))
    return tmp_path / "v.txt", tmp_path / "v.kv"


def test_vectors_of_another_width(vectors, text, capsys, tmp_path):
    table = text_recipe(text.corpus, vectors="file", vectors_path=str(vectors[0]), vectors_width=5)
    train = ["train", write_recipe(text.recipe, table), "--out", tmp_path / "run"]
    words = "v.txt: its vectors have 3 components, not 5; ask for a width of 3 or use other vectors"
    refused_without_a_trace(capsys, tmp_path, train, words)
    table["task"]["vectors_path"] = str(tmp_path / "none.txt")
    write_recipe(text.recipe, table)
    refused_without_a_trace(capsys, tmp_path, train, "none.txt: no such file; check the path")


def test_a_pickle_of_vectors_is_read_with_trust_alone(vectors, text, capsys, tmp_path):
    table = text_recipe(text.corpus, vectors="file", vectors_path=str(vectors[1]))
    write_recipe(text.recipe, table)
    for arguments in (["train", text.recipe, "--out", tmp_path / "run"], ["partition", text.recipe]):
        refused_without_a_trace(capsys, tmp_path, arguments, "v.kv: is a pickle", "pass --trust if you know where")
    trusted = command(capsys, "partition", text.recipe, "--trust")
    assert trusted.code == 0 and "word vectors (v.kv): width 3" in trusted.out.replace("\n", " ")


# Names


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "flcmc-shiped-fedpap"], ["there is no recipe 'flcmc-shiped-fedpap'; did you mean 'flcmc-shipped-f"]),
        (["partition", "none.toml"], ["none.toml: no such file"]),
        (["compare", "--suite", "flcmc-synthetc"], ["there is no suite 'flcmc-synthetc'; did you mean 'flcmc-synth"]),
        (["compare", "flcmc-synthetic"], ["'flcmc-synthetic' is a suite", "run: compare --suite flcmc-synthetic"]),
        (["compare", "--suite", "lazy-mil-planted.tml"], ["did you mean 'lazy-mil-planted'?"]),
        (["compare", "--suite", "dxy-fedavgs"], ["'dxy-fedavgs' is a recipe", "run: compare dxy-fedavgs OTHER-RECIPE"]),
        (["compare", "FedCMC"], ["'fedcmc' is an algorithm; suites compare it: compare --suite", "train fedcmc-chem"]),
        (
            ["compare", "--suite", "fedlcc"],
            ["there is no suite 'fedlcc'", "compare --suite fedlcc-"],
        ),
        (["compare"], ["give recipes to compare, or --suite NAME"]),
        (["compare", "a.toml", "--suite", "b.toml"], ["give recipes to compare, or --suite NAME"]),
        (
            ["compare", "--suite", "flcmc-synthetic", "--seeds", "1;2"],
            ["--seeds 1;2: must be comma-separated integers"],
        ),
        (
            ["compare", "--suite", "flcmc-synthetic", "--seeds", "1,1"],
            ["--seeds 1,1: must be different and not negative"],
        ),
        (["compare", "--suite", "flcmc-synthetic", "--seeds=-1"], ["--seeds -1: must be different and not negative"]),
        (["compare", "--suite", "flcmc-synthetic", "--seeds", "4294967296"], ["--seeds 4294967296: must be from 0"]),
        (["train", "flcmc-shipped-fedpap", "--seed", "4294967296"], ["'seed' must be a whole number from 0 to"]),
        (["train", "flcmc-shipped-fedpap", "--set", ""], ["--set : must be key=value"]),
        (["train"], ["Missing argument 'RECIPE'", "see: python -m tff_re.run train --help"]),
        (["train", "a", "b"], ["unexpected extra argument (b)"]),
        (["train", "a", "--ouut", "b"], ["No such option '--ouut'. Did you mean '--out'?"]),
        (["train", "a", "--seed", "-1"], ["Invalid value for '--seed'"]),
        (
            ["train", "a", "--runtime", "cloud"],
            ["Invalid value for '--runtime'", "no runtime named 'cloud'", "in-process"],
        ),
        (["evaluate", "a", "--split", "all"], ["Invalid value for '--split': 'all' is not one of 'test', 'dev'"]),
        (["trian"], ["No such command 'trian'. Did you mean 'train'?"]),
    ],
)
def test_words_that_are_none(arguments, parts, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused_without_a_trace(capsys, tmp_path, arguments, *parts)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["train", "r.toml"], ["partition", "r.toml"], ["compare", "r.toml"], ["demo"], ["doctor"]),
        *(["evaluate", "run"], ["export", "run"], ["cases", "run"], ["predict", "export", "x"]),
    ],
    ids=lambda words: words[0],
)
def test_too_little_memory_is_refused_before_tensorflow_is_imported(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10**9, 10**9))
    refused_without_a_trace(capsys, tmp_path, arguments, "ulimit -v allows 1.0 GB of address space")


# Folders


@pytest.fixture(scope="module")
def finished(runtime, tmp_path_factory):
    """A finished run of the tiny recipe, and its recipe file."""
    folder = tmp_path_factory.mktemp("finished")
    train_run(tiny(), folder / "run", builder=builder(), runtime=runtime)
    return SimpleNamespace(recipe=write_recipe(folder / "r.toml"), run=folder / "run")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def strangers(tmp_path):
    """A folder with a file that is none of ours, which is still there at the end."""
    folder = tmp_path / "strangers"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    yield folder
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]


def test_folders_that_are_taken(finished, strangers, capsys, tmp_path):
    before = contents(finished.run)
    train = ["train", finished.recipe, "--out", finished.run]
    refusal(command(capsys, *train), f"{finished.run}: already holds this run; continue it with --resume")
    for options in (["--seed", "1"], ["--set", "training.rounds=4"], ["--seed", "1", "--resume"]):
        refusal(command(capsys, *train, *options), f"{finished.run}: holds another run", "give another --out")
    assert contents(finished.run) == before
    train[3] = strangers
    for options in ([], ["--resume"]):
        refusal(command(capsys, *train, *options), f"{strangers}: is not empty and holds no run")


def test_folders_that_are_files_or_hold_nothing_to_resume(finished, capsys, tmp_path):
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_text("text")
    train = ["train", finished.recipe, "--out"]
    words = f"{new}: there is no run to resume; leave --resume out"
    refused_without_a_trace(capsys, tmp_path, [*train, new, "--resume"], words)
    refused_without_a_trace(capsys, tmp_path, [*train, file], f"{file}: is a file; give a folder as --out")
    refused_without_a_trace(capsys, tmp_path, [*train, file / "run"], f"{file}: is a file, not a folder")
    assert file.read_text() == "text"


def test_what_may_not_be_written_is_named(tmp_path):
    from tff_re.errors import UserError

    with pytest.raises(UserError, match=r"^/x/y: cannot be written \(Read-only file system\)$"), writing(tmp_path):
        raise OSError(30, "Read-only file system", "/x/y")
    with (
        pytest.raises(UserError, match=r"the disk is full \(Disk quota exceeded\); .*--resume"),
        writing(tmp_path),
    ):
        raise OSError(122, "Disk quota exceeded")
    with pytest.raises(IsADirectoryError), writing(tmp_path):
        raise IsADirectoryError(21, "Is a directory")


def test_two_processes_in_one_folder(finished, capsys):
    lock = finished.run / ".lock"
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "1\n"
        words = f"{finished.run}: another process is using this folder; wait or give another --out"
        for arguments in (
            ["train", finished.recipe, "--out", finished.run, "--resume"],
            ["evaluate", finished.run],
            ["export", finished.run],
        ):
            refusal(command(capsys, *arguments), words)
        other.stdin.close()
        other.wait(10)
    with RunFolder(finished.run).locked():
        pass


def test_folders_that_are_no_runs_and_no_exports(finished, capsys, tmp_path):
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.mkdir()
    for name in ("evaluate", "export"):
        refused_without_a_trace(capsys, tmp_path, [name, missing], f"{missing}: no such folder")
        refused_without_a_trace(capsys, tmp_path, [name, empty], f"{empty}: holds no run (recipe.toml is missing)")
    predict = ["predict", missing, "发烧"]
    refused_without_a_trace(capsys, tmp_path, predict, f"{missing}: no such folder; give the folder of an exported")
    predict[1] = empty
    refused_without_a_trace(capsys, tmp_path, predict, f"{empty}: holds no export.json")
    predict[1] = finished.run
    refusal(command(capsys, *predict), "holds no export.json")

    begun = tmp_path / "begun"
    RunFolder(begun).begin(tiny().to_toml(), resume=False)
    for name in ("evaluate", "export"):
        refusal(command(capsys, name, begun), f"{begun}: has no checkpoint yet; finish the run with: train --resume")


def test_an_export_that_is_there_already(finished, strangers, capsys, tmp_path):
    out = tmp_path / "export"
    assert command(capsys, "export", finished.run, "--out", out).code == 0
    before = contents(out)
    refusal(command(capsys, "export", finished.run, "--out", out), f"{out}: already holds an export")
    assert contents(out) == before
    assert command(capsys, "export", finished.run, "--out", out, "--overwrite").code == 0
    for options in ([], ["--overwrite"]):
        typed = command(capsys, "export", finished.run, "--out", strangers, *options)
        refusal(typed, f"{strangers}: exists but is not an export of this project")
    refusal(command(capsys, "predict", out, "发烧"), "the model takes feature vectors, not texts")


def test_a_split_that_nobody_has(text, runtime, capsys, tmp_path):
    single = {"d0": {"dialogue": [sentence(1, SECRET, "1")]}, "d1": {"dialogue": [sentence(1, SECRET)]}}
    write_json(text.corpus, single)
    out = tmp_path / "run"
    assert command(capsys, "train", text.recipe, "--out", out).code == 0
    refusal(command(capsys, "evaluate", out), f"{out}: no client has test examples; choose the other --split")


# A full disk

FULL = {"rounds": 6, "clients_per_round": 2, "checkpoint_every": 2}


@pytest.fixture(scope="module")
def undisturbed(runtime, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    overrides = [f"training.{key}={value}" for key, value in FULL.items()]
    train_run(tiny(*overrides), folder, builder=builder(), runtime=runtime)
    return folder


def largest_file(size):
    """From here on no file of this process, nor of those that it starts, may become larger."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


# What does not fit: the recipe, a checkpoint.
@pytest.mark.parametrize(("size", "done"), [(400, None), (4000 if STACK == "tff" else 2000, 1)])
def test_files_may_not_grow(size, done, undisturbed, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tff_re.runs.run._require_temporary_folder", lambda: None)  # the limit is on that one too
    recipe, out = write_recipe(tmp_path / "r.toml", training=FULL), tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        largest_file(size)
        typed = command(capsys, "train", recipe, "--out", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refusal(typed, f"{out}: the disk is full", "free some space, then continue with --resume")
    if done is None:
        assert list(out.iterdir()) == []
    else:
        assert rounds_in(out / "metrics.csv") - done in (0, 1)
    assert command(capsys, "train", recipe, "--out", out, "--resume").code == 0
    assert_same_run(out, undisturbed)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)  # TensorBoard may hold its file a while


DRAWN = {name: getattr(results, name) for name in ("run_curves", "partition_heatmap", "confusion_png")}


# No room for the pictures; before, for the recipe and the first checkpoints.
@pytest.mark.parametrize("kilobytes", [160, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 8, 16, 24, 96))])
def test_a_full_disk(kilobytes, undisturbed, small_disk, capfd, monkeypatch, tmp_path):
    for name, draw in DRAWN.items():  # which the other tests do without
        monkeypatch.setattr(results, name, draw)
    recipe, out = write_recipe(tmp_path / "r.toml", training=FULL), small_disk / "run"
    (small_disk / "filler").write_bytes(bytes(1024 * (1024 - kilobytes)))
    typed = command(capfd, "train", recipe, "--out", out)
    line = refusal(typed, out)  # TensorFlow, which writes the checkpoints, has words of its own for it
    assert "No space left on device" in line or "the disk is full" in line
    (small_disk / "filler").unlink()
    assert command(capfd, "train", recipe, "--out", out, "--resume").code == 0
    assert_same_run(out, undisturbed)
    assert not [p for p in out.rglob("*") if "_temp" in p.name or p.name.endswith(".part")]


def test_no_room_for_temporary_files(capsys, small_disk, tmp_path, monkeypatch):
    import tempfile

    (small_disk / "filler").write_bytes(bytes(1024 * 1024))
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    out = tmp_path / "run"
    typed = command(capsys, "train", write_recipe(tmp_path / "r.toml"), "--out", out)
    refusal(typed, "temporary files", "No space left on device", "TMPDIR")
    assert not out.exists()


# Ends from outside


INTERRUPTED = "tff-re: interrupted after round 3, which is saved; continue with --resume\n"


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_that_goes_on(end, code, undisturbed, capsys, monkeypatch, tmp_path):
    recipe, out = write_recipe(tmp_path / "r.toml", training=FULL), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RoundProgress, "__call__", lambda _, report: report.round == 3 and signal.raise_signal(end))
        typed = command(capsys, "train", recipe, "--out", out)
    assert (typed.code, typed.err) == (code, INTERRUPTED)
    assert rounds_in(out / "metrics.csv") == 3 and not (out / "summary.json").exists()
    typed = command(capsys, "train", recipe, "--out", out, "--resume")
    assert typed.code == 0 and typed.out.splitlines()[0] == "resumed after round 3 of 6"
    assert_same_run(out, undisturbed)
