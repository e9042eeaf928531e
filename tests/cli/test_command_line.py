"""The commands as a user types them, one after the other: train, evaluate, export, predict, and the lists."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from importlib import metadata
from types import SimpleNamespace

import click
import numpy as np
import pytest
from rich.console import Console

from computations.stack import DISTRIBUTION, STACK
from tests.upper_floors import (
    SECRET,
    CommandResult,
    command,
    consultations,
    refusal,
    rounds_in,
    share_computations,
    text_recipe,
    write_json,
    write_recipe,
)
from tff_re import run as command_line
from tff_re.cli.display import RoundProgress, console
from tff_re.errors import UserError
from tff_re.recipes import reading as recipes
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.training import RoundReport

COMMANDS = sorted(command_line.cli.commands)


class Capture(contextlib.ExitStack):
    """capsys for a fixture of the module."""

    def __enter__(self):
        self._streams = io.StringIO(), io.StringIO()
        self.enter_context(contextlib.redirect_stdout(self._streams[0]))
        self.enter_context(contextlib.redirect_stderr(self._streams[1]))
        return self

    def readouterr(self):
        """What was printed since the last call."""
        values = tuple(stream.getvalue() for stream in self._streams)
        for stream in self._streams:
            stream.seek(0)
            stream.truncate()
        return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A text recipe trained and exported by the command line, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = write_json(folder / "corpus.json", consultations())
    table = text_recipe(corpus)
    table["training"].update(rounds=4, clients_per_round=3)
    recipe, run = write_recipe(folder / "text.toml", table), folder / "run"
    with Capture() as capture:
        trained = command(capture, "train", recipe, "--out", run)
        exported = command(capture, "export", run)
    assert trained.code == exported.code == 0, (trained, exported)
    return SimpleNamespace(corpus=corpus, recipe=recipe, run=run, trained=trained, exported=exported)


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime, pictures=True)
        yield


def cells(text, first):
    """The other cells of the row of a printed table that begins with a cell."""
    for line in text.splitlines():
        row = [cell.strip() for cell in re.split("[│┃]", line)][1:-1]
        if row and row[0] == first:
            return row[1:]
    raise AssertionError(f"no row {first!r} in {text}")


# Train, evaluate


def test_train_says_what_it_did(trained):
    assert trained.trained.err == ""
    lines = trained.trained.out.splitlines()
    assert lines[0].startswith("tiny-text: fedavgs on symptom_classification, 4 clients, ")
    rounds = [line for line in lines if ": round " in line]
    assert [line.split(",")[0] for line in rounds] == [f"tiny-text: round {n}/4" for n in range(1, 5)]
    last = read_history(RunFolder(trained.run))[-1]
    references = json.loads((trained.run / "summary.json").read_text("utf-8"))["references"]
    trivial = references["trivial: largest class"]["test/accuracy"]
    assert 0.5 <= trivial < 1
    assert cells(trained.trained.out, "accuracy") == [f"{last['test/accuracy']:.4f}", f"{trivial:.4f}"]
    assert last["test/accuracy"] == 1.0, "发烧 and 好了 are easily told apart"


def test_the_default_folder_is_named_after_recipe_and_seed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    recipe = write_recipe(tmp_path / "r.toml", training={"rounds": 1, "clients_per_round": 1})
    typed = command(capsys, "train", "r.toml", "--seed", "3", "--set", "evaluation.train_split=false")
    assert typed.code == 0 and "written: runs/tiny-seed3 " in typed.out
    stored = recipes.load(str(tmp_path / "runs" / "tiny-seed3" / "recipe.toml"))
    assert stored.seed == 3 and not stored.evaluation.train_split
    assert recipe.exists()


def test_evaluate(capsys, trained):
    names = ("metrics.csv", "clients.csv", "summary.json", "recipe.toml", "model.keras")
    before = {name: (trained.run / name).read_bytes() for name in names}
    last = read_history(RunFolder(trained.run))[-1]
    for split in ("test", "train"):
        typed = command(capsys, "evaluate", trained.run, "--split", split)
        assert typed.code == 0 and typed.err == ""
        assert f"{split} examples of 4 clients after round 4" in " ".join(typed.out.split())
        for name in ("accuracy", "loss", "macro_f1"):
            assert cells(typed.out, name)[0] == f"{last[f'{split}/{name}']:.4f}"
        assert "largest class" in typed.out
        assert f"written: {trained.run / 'plots' / f'confusion-{split}.png'}" in typed.out
        assert (trained.run / "plots" / f"confusion-{split}.png").stat().st_size > 1000
    precision, recall, f1, support = cells(typed.out, "symptom")
    assert (precision, recall, f1) == ("1.0000",) * 3
    assert int(support) + int(cells(typed.out, "no_symptom")[-1]) == 4 * 4
    assert {name: (trained.run / name).read_bytes() for name in names} == before


# Export, predict


def predicted(text):
    """Rows of a printed prediction: first cell, label, probability."""
    rows = [[cell.strip() for cell in line.split("│")][1:-1] for line in text.splitlines() if line.startswith("│")]
    return [(first, label, float(probability)) for first, label, probability in rows]


def test_predict_finds_what_was_trained(capsys, trained):
    corpus = json.loads(trained.corpus.read_text("utf-8"))
    sentences = [s for d in corpus.values() for s in d["dialogue"]]
    typed = command(capsys, "predict", trained.run / "export", *(s["sentence"] for s in sentences))
    assert typed.code == 0 and typed.err == ""
    rows = predicted(typed.out)
    assert [first for first, _, _ in rows] == [str(n) for n in range(1, len(sentences) + 1)]
    assert [label for _, label, _ in rows] == ["symptom" if s["symptom_type"] else "no_symptom" for s in sentences]
    assert all(0.5 <= probability <= 1 for _, _, probability in rows)
    assert SECRET not in typed.out


def test_predict_reads_standard_input(capsys, trained, monkeypatch):
    texts = [f"{SECRET}发烧", "", f"{SECRET}好了", "[b]发烧[/b]"]
    as_arguments = command(capsys, "predict", trained.run / "export", *texts)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(text + "\r\n" for text in texts)))
    typed = command(capsys, "predict", trained.run / "export")
    assert typed.code == 0 and typed.out == as_arguments.out and len(predicted(typed.out)) == 4
    assert SECRET not in typed.out and SECRET not in typed.err
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    refusal(command(capsys, "predict", trained.run / "export"), "no text given", "stdin")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\xff\xfe\n"), "utf-8"))
    refusal(command(capsys, "predict", trained.run / "export"), "text number 1 is not UTF-8 at byte 3")
    typed = command(capsys, "predict", trained.run / "export", f"{SECRET}\ud800")
    assert SECRET not in refusal(typed, "text number 1 holds half of a surrogate pair")


def test_predict_shows_texts_when_asked_and_as_they_are(capsys, trained):
    texts = ["[/b]", "[red]发烧", ":heart:", "发烧\\"]
    typed = command(capsys, "predict", trained.run / "export", "--show-text", *texts)
    assert typed.code == 0 and [first for first, _, _ in predicted(typed.out)] == texts


def test_nothing_of_a_run_holds_a_sentence_of_the_corpus(trained):
    corpus = json.loads(trained.corpus.read_text("utf-8"))
    sentences = [s["sentence"] for d in corpus.values() for s in d["dialogue"]] + [SECRET]
    needles = [f(s) for s in sentences for f in (str.encode, lambda s: json.dumps(s)[1:-1].encode())]
    looked_at = set()
    for path in trained.run.rglob("*"):
        if not path.is_file():
            continue
        parts = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts += [archive.read(name) for name in archive.namelist()]
        for part in parts:
            assert not any(needle in part for needle in needles), path
        looked_at.add(path.name)
    assert {"run.log", "summary.json", "metrics.csv", "partition.json", "model.keras", "encoding.json"} <= looked_at


# Lists


def test_recipes_lists_all(capsys):
    typed = command(capsys, "recipes")
    assert typed.code == 0
    for name in (*recipes.shipped(), *recipes.suites()):
        assert name in typed.out
    assert "[dim]" not in typed.out and "[/" not in typed.out, "markup that was not read"
    from tff_re.recipes.keys import markdown

    assert command(capsys, "recipes", "--keys") == CommandResult(0, markdown(), "")


def test_datasets_tells_which_files_are_there(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(console, "_width", 250)
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    (tmp_path / "dxy").mkdir()
    (tmp_path / "dxy" / "train.jsonl").write_text("")
    typed = command(capsys, "datasets", "--data", tmp_path)
    assert typed.code == 0
    text = re.sub(r"[\s│]", "", typed.out)
    assert "+dxy/train.jsonl" in text and "-dxy/dev.jsonl" in text and "+consultations_train.json" in text
    monkeypatch.setenv("TFF_RE_DATA", str(tmp_path))
    assert command(capsys, "datasets").out == typed.out


def test_partition_shows_who_holds_what(capsys, trained, tmp_path):
    out = tmp_path / "a" / "partition"
    typed = command(capsys, "partition", trained.recipe, "--out", out)
    assert typed.code == 0 and typed.err == ""
    counts = cells(typed.out, "d0")
    assert [int(number) for number in counts if number.isdigit()]
    assert (out / "partition.json").read_bytes() == (trained.run / "partition.json").read_bytes()
    assert (out / "partition.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "metrics.csv").exists()
    other = command(capsys, "partition", trained.recipe, "--seed", "1", "--out", tmp_path / "b")
    assert other.code == 0
    assert (tmp_path / "b" / "partition.json").read_bytes() != (out / "partition.json").read_bytes()
    generated = command(capsys, "partition", write_recipe(tmp_path / "r.toml"), "--out", tmp_path / "p")
    assert generated.code == 0 and [p.name for p in (tmp_path / "p").iterdir()] == ["partition.png"]


def test_doctor(capsys, monkeypatch):
    typed = command(capsys, "doctor")
    assert typed.code == 0 and typed.err == ""
    text = re.sub(r"[\s│]+", " ", typed.out)
    assert "ok runtime 'in-process' starts and computes" in text and "0 seen by TensorFlow" in text
    assert ("ok runtime 'local' starts and computes" in text) == (STACK == "tff")
    assert f"ok {DISTRIBUTION} {metadata.version(DISTRIBUTION)}" in text
    assert "!!" not in text
    from tff_re.cli import doctor
    from tff_re.runtime.in_process import devices

    bad = doctor.Finding("disk, this folder", "0.0 GiB free", False, "free some space")
    monkeypatch.setattr(doctor, "_disk", lambda: bad)
    monkeypatch.setattr(doctor, "_worker", lambda: doctor.Finding("runtime 'local'", "not asked"))
    monkeypatch.setattr(devices, "gpu_names", lambda: ["/physical_device:GPU:0"])
    typed = command(capsys, "doctor")
    refusal(typed, "disk, this folder: free some space")
    assert "!!" in typed.out
    assert "1 seen by TensorFlow; the runtime 'in-process', the default, uses it" in re.sub(r"[\s│]+", " ", typed.out)


# Help


def test_help_lists_the_commands(capsys):
    for arguments in (["--help"], ["-h"], []):
        typed = command(capsys, *arguments)
        assert typed.code == 0 and typed.err == ""
        assert all(re.search(rf"^  {name} ", typed.out, re.M) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_that_is_one_and_says_what_options_are(name, capsys):
    typed = command(capsys, name, "--help")
    assert typed.code == 0 and typed.err == "" and "Example:" in typed.out
    lines = typed.out.split("Example:\n")[1].strip().splitlines()
    for line in lines:
        words = shlex.split(line)
        assert words[:4] == ["python", "-m", "tff_re.run", name]
        # Parsed, not run: a word that the command does not know raises; a folder that is not there may.
        with contextlib.suppress(UserError):
            command_line.cli.commands[name].make_context(name, words[4:])
        for word in words[4:]:
            if word.startswith("flcmc"):
                assert word in recipes.shipped() or word in recipes.suites()
    for parameter in command_line.cli.commands[name].params:
        if isinstance(parameter, click.Option) and (name, parameter.name) != ("demo", "out"):
            assert parameter.help, parameter.name


# Progress


def progress_of(reports, **options):
    stream = io.StringIO()
    with RoundProgress(Console(file=stream, width=200, markup=False, **options), "x", reports[-1].rounds) as progress:
        for report in reports:
            progress(report)
    return stream.getvalue()


def reports(rounds):
    return [RoundReport(n, rounds, {"local/loss": 1 / n, "test/accuracy": 0.5}, 0.25) for n in range(1, rounds + 1)]


def test_progress_outside_of_a_terminal_is_plain_lines():
    assert progress_of(reports(2)).splitlines() == [
        "x: round 1/2, loss 1.0000, accuracy 0.5000, 0.25 s",
        "x: round 2/2, loss 0.5000, accuracy 0.5000, 0.25 s",
    ]
    many = progress_of(reports(205)).splitlines()
    assert len(many) == 21 and many[0].startswith("x: round 10/205") and many[-1].startswith("x: round 205/205")
    report = RoundReport(1, 1, {"local/loss": np.nan, "clients/non_finite": 2.0}, 0.1)
    assert progress_of([report]) == "x: round 1/1, loss nan, 2 clients not finite, 0.10 s\n"


def test_progress_in_a_terminal_is_a_bar():
    text = progress_of(reports(3), force_terminal=True)
    assert "\x1b[" in text and "3/3" in text and "round 3/3" not in text


def test_names_are_shown_as_they_are(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(console, "_force_terminal", True)
    monkeypatch.setattr(console, "_color_system", None)
    name = "[red] :heart: [bold]"
    recipe = write_recipe(tmp_path / "r.toml", name=name, training={"rounds": 1, "clients_per_round": 1})
    out = tmp_path / "[/red]"
    typed = command(capsys, "train", recipe, "--out", out)
    assert typed.code == 0
    assert f"{name}: fedpap on synthetic" in typed.out and f"written: {out} " in typed.out


def test_a_reader_that_goes_while_training(capsys, monkeypatch, tmp_path):
    """As in `train … | head -1`: the run comes to its end."""
    end, start = os.pipe()
    os.close(end)
    with os.fdopen(start, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(console, "quiet", False)  # set where the reader has gone
        patch.setattr(sys, "stdout", stream)
        code = command_line.main(["train", str(write_recipe(tmp_path / "r.toml")), "--out", str(tmp_path / "run")])
    assert code == 0
    assert capsys.readouterr() == ("", "")
    assert rounds_in(tmp_path / "run" / "metrics.csv") == 3 and (tmp_path / "run" / "summary.json").exists()
    with RunFolder(tmp_path / "run").locked():
        pass


FULL_DEVICE = "tff-re: standard output cannot be written (No space left on device); send it somewhere else"


def test_standard_output_on_a_full_device_of_a_process():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "tff_re.run", "recipes"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith(FULL_DEVICE) and done.stderr.count("\n") == 1


def on_a_full_device(*arguments) -> int:
    with open("/dev/full", "w") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        return command_line.main([str(argument) for argument in arguments])


def test_standard_output_on_a_full_device_of_this_process(capsys, tmp_path):
    recipe, out = write_recipe(tmp_path / "r.toml"), tmp_path / "run"
    for arguments in (["recipes", "--keys"], ["--help"], ["train", "--help"], ["train", recipe, "--out", out]):
        assert on_a_full_device(*arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(FULL_DEVICE) and str(out) not in error
    assert command(capsys, "train", recipe, "--out", out, "--resume").code == 0
