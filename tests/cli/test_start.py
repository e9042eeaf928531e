"""The start of a command: quick where nothing is computed, and without a word of TensorFlow's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.upper_floors import SECRET, Process, consultations, refusal, rounds_in, text_recipe, write_json, write_recipe
from tff_re.runtime.quiet import _without_reports

# What TensorFlow and the libraries around it print: "2024-01-01 00:00:00.000000: I tensorflow/…", "WARNING:absl:…"
CHATTER = re.compile(r"tensorflow/|TensorFlow|TF-TRT|oneDNN|CUDA|cuda|WARNING|INFO|absl|Traceback|Deprecat|Warning")


@pytest.mark.slow  # a process that is killed is watched in tests/runs/test_resume.py
@pytest.mark.parametrize("interrupted", [True, False])
def test_training_as_a_user_sees_it(interrupted, tmp_path):
    corpus = write_json(tmp_path / "corpus.json", consultations())
    # Words, since jieba has things to say as well.
    table, out = text_recipe(corpus, encoding="words"), tmp_path / "run"
    table["training"]["rounds"] = 5000 if interrupted else 2
    recipe = write_recipe(tmp_path / "text.toml", table)
    with contextlib.closing(Process("train", recipe, "--out", out, cwd=tmp_path)) as process:
        if interrupted:
            process.wait_for(lambda: rounds_in(out / "metrics.csv") >= 3, "round 3")
        typed = process.end(signal.SIGINT if interrupted else None)
    interruption = r"tff-re: interrupted after round \d+, which is saved; continue with --resume\n"
    assert typed.code == (130 if interrupted else 0) and re.fullmatch(interruption if interrupted else "", typed.err)
    assert (out / "summary.json").exists() != interrupted
    assert not CHATTER.search(typed.out.replace("TensorBoard", "")), typed.out
    assert "\x1b" not in typed.out and "\r" not in typed.out, "a bar belongs into a terminal"
    lines = typed.out.splitlines()
    assert re.fullmatch(
        r"tiny-text: fedavgs on symptom_classification, 4 clients, \d+ training and \d+ test examples; "
        r"a client gets [\d,]+ bytes and sends [\d,]+ a round",
        lines[0],
    )
    assert lines[-1].startswith(f"written: {out} ") != interrupted
    assert SECRET not in typed.out
    log = (out / "run.log").read_text("utf-8")
    assert "INFO words: " in log and not CHATTER.search(log.replace("INFO words", "").replace(" INFO ", " "))


def test_a_reader_that_has_gone(tmp_path):
    """As in `recipes | head -1`."""
    end, start = os.pipe()
    os.close(end)
    ran = subprocess.run(
        [sys.executable, "-m", "tff_re.run", "recipes"], stdout=start, stderr=subprocess.PIPE, text=True, timeout=600
    )
    os.close(start)
    assert ran.stderr == ""


def test_a_reader_that_has_gone_hides_no_failure(tmp_path, monkeypatch, capsys):
    """What is still in the buffer when the command has failed cannot be written any more."""
    from tff_re.run import main

    end, start = os.pipe()
    os.close(end)
    with os.fdopen(start, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        stream.write("in the buffer")
        code = main(["train", str(tmp_path / "missing.toml")])
    assert code == 2 and "missing.toml" in capsys.readouterr().err


def test_the_hugging_face_package_is_refused(monkeypatch, capsys):
    from importlib import metadata

    from tests.upper_floors import command

    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.0" if name == "datasets" else real(name))
    refusal(command(capsys, "recipes"), "the Hugging Face package 'datasets' is installed", "pip uninstall datasets")


@pytest.mark.parametrize("kind", ["module", "script"])
def test_both_ways_to_call_it(kind):
    script = os.path.join(os.path.dirname(sys.executable), "tff-re")
    words = [sys.executable, "-m", "tff_re.run"] if kind == "module" else [script]
    ran = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=600)
    from tff_re import __version__

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"tff-re, version {__version__}\n", "")


@pytest.mark.slow
def test_a_refusal_after_tff_was_imported_is_one_line(tmp_path):
    words = [sys.executable, "-m", "tff_re.run", "train", "fedcmc-chemprot", "--data", str(tmp_path)]
    words += ["--set", f"task.tokenizer={tmp_path}", "--out", str(tmp_path / "run")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("tff-re: ") and ran.stderr.count("\n") == 1, ran.stderr
    assert not (tmp_path / "run").exists()


def test_reports_of_tensorflows_libraries_are_left_out_and_other_lines_stay(capfd):
    lines = [
        "I0000 00:00:17.9 stub.cc:31] no cuda",
        "WARNING: All log messages before absl::InitializeLog() is",
        "kept",
    ]
    with _without_reports():
        os.write(2, "".join(f"{line}\n" for line in lines).encode())
    os.write(2, b"W0000 later\n")
    assert capfd.readouterr().err == "kept\nW0000 later\n"


# The end looks for TFF's default context, once.
SCRIPT = """
import logging, sys, types
from tff_re.runtime.quiet import be_quiet

framework = types.SimpleNamespace(SyncContext=object, set_default_context=lambda context: print("dropped"))
sys.modules["tensorflow_federated"] = types.SimpleNamespace(framework=framework)
for _ in range(3):
    be_quiet()
for name in ("absl", "tensorflow"):
    logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger(name).warning("of a library")
"""


def test_the_end_looks_for_the_default_context_once_and_libraries_warn_nobody():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ended.stdout == "dropped\n" and not ended.stderr
