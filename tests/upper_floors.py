"""Small recipes, commands as users type them, and processes to kill, for tests of the command line and of runs."""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from dataclasses import dataclass

import h5py
import numpy as np
import psutil
import tomli_w

from tests.stacks import computing_on
from tff_re.recipes.reading import Recipe, resolve

SYNTHETIC = {
    "name": "tiny",
    "task": {
        "name": "synthetic",
        **{"num_clients": 4, "num_features": 5, "num_classes": 3, "total_train": 60, "total_test": 24},
    },
    "model": {"name": "logistic_regression"},
    # All of the server's state is in use: momentum, round number, noise.
    "algorithm": {
        **{"name": "fedpap", "learning_rate": 0.05, "local_epochs": 1, "learning_rate_decay": 0.1},
        **{"server_momentum": 0.5, "noise_scale": 0.01},
    },
    "training": {"rounds": 3, "clients_per_round": 2, "checkpoint_every": 2},
}

SECRET = "宝宝昨晚高烧不退还咳嗽"


def tiny(*overrides: str, seed: int | None = None) -> Recipe:
    """The synthetic recipe, resolved; overrides as `--set` takes them."""
    return resolve(copy.deepcopy(SYNTHETIC), "tiny.toml", overrides, seed)


def write_recipe(path, table=SYNTHETIC, **sections):
    """Writes a recipe file; `sections` replace or (None) remove top-level values of the table."""
    table = {**copy.deepcopy(table), **sections}
    path.write_text(tomli_w.dumps({key: value for key, value in table.items() if value is not None}), "utf-8")
    return path


@functools.cache
def builder():
    """The session's ExperimentBuilder, so that shared computations are built once."""
    from tff_re.runs.experiment import ExperimentBuilder

    return ExperimentBuilder()


# One pixel, as a whole PNG.
BLANK = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")


def share_computations(monkeypatch, runtime=None, *, plots: bool = False, pictures: bool | None = None) -> None:
    """Makes commands of this process reuse built computations, and `runtime` instead of starting one of that name.

    Args:
      monkeypatch: undoes it.
      runtime: an open runtime; None: commands start their own.
      plots: whether the plots of every run are drawn.
      pictures: whether other pictures are drawn, None: if plots are; if not, figures are made and saved as one pixel.
    """
    from tff_re.comparison import outcome
    from tff_re.runs import experiment, finished, results, setup
    from tff_re.runtime import open_runtime
    from tff_re.sites import experiments  # noqa: F401  (derives a class from the one that is replaced)

    shared = builder()
    for module in (experiment, finished, setup):
        monkeypatch.setattr(
            module, "ExperimentBuilder", lambda data_paths: type(shared)(data_paths, _computations=shared._computations)
        )
    for plot in ("run_curves", "partition_heatmap", "confusion_png"):
        if not plots:
            monkeypatch.setattr(results, plot, lambda *arguments: None)
    if not (plots if pictures is None else pictures):
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(BLANK))
    if runtime is None:
        return

    @contextlib.contextmanager
    def opened(name, **options):
        if name != runtime.name:
            with open_runtime(name, **options) as own_runtime:
                yield own_runtime
            return
        with computing_on(runtime):
            yield runtime

    for module in (setup, finished, outcome):
        monkeypatch.setattr(module, "open_runtime", opened)


# A corpus


def sentence(number, text, *types):
    return {
        "sentence_id": str(number),
        "speaker": "患者",
        "sentence": text,
        "symptom_norm": ["发热"] * len(types),
        "symptom_type": list(types),
    }


def consultations(dialogues=4, sentences=6):
    """A corpus in IMCS-V2's format: sentences with a symptom hold 烧. Every text has SECRET in it."""
    return {
        f"d{d}": {
            "diagnosis": "流感" if d % 2 else "肺炎",
            "dialogue": [
                sentence(i, f"{SECRET}第{i}天{'发烧' if i % 2 else '好了'}", *(["1"] if i % 2 else []))
                for i in range(sentences)
            ],
        }
        for d in range(dialogues)
    }


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
    return path


def text_recipe(corpus, **task):
    """Tables of a recipe for a corpus file: characters, logistic regression."""
    return {
        "name": "tiny-text",
        "task": {
            "name": "symptom_classification",
            "path": str(corpus),
            **{"encoding": "characters", "max_length": 20, "min_clients": 1, "test_share": 0.3},
            **task,
        },
        "model": {"name": "logistic_regression", "features": "word_presence"},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.1, "local_epochs": 5},
        "training": {"rounds": 2, "clients_per_round": 2},
    }


# Commands


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def command(capture, *arguments) -> CommandResult:
    """Runs the command line in this process; `capture` is capsys or capfd."""
    from tff_re.run import main

    handler = signal.getsignal(signal.SIGTERM)
    capture.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as end:  # raised by SIGTERM
        code = end.code
    finally:
        signal.signal(signal.SIGTERM, handler)  # tests do not need the command line's handler
    return CommandResult(code, *capture.readouterr())


def refusal(typed: CommandResult, *texts: str) -> str:
    """The one line of a refused command; asserts that it contains these texts."""
    assert typed.code == 2, typed
    assert typed.err.startswith("tff-re: ") and typed.err.endswith("\n") and typed.err.count("\n") == 1, typed.err
    for text in texts:
        assert str(text) in typed.err, (text, typed.err)
    return typed.err


# What a run left


def keras_weights(path) -> dict[str, np.ndarray]:
    """The weights in a .keras file by their names."""
    names = []
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visit(names.append)
        return {name: file[name][()] for name in names if isinstance(file[name], h5py.Dataset)}


def assert_same_run(first, second) -> None:
    """Asserts that two run folders have the same numbers, bit by bit."""
    for name in ("metrics.csv", "clients.csv", "summary.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    weights = keras_weights(first / "model.keras"), keras_weights(second / "model.keras")
    assert weights[0] and list(weights[0]) == list(weights[1])
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value, weights[1][name])


def assert_same_weights(first, second) -> None:
    """Asserts that two ModelWeights are equal, bit by bit."""
    for a, b in zip(first.trainable + first.non_trainable, second.trainable + second.non_trainable, strict=True):
        np.testing.assert_array_equal(a, b)


def rounds_in(path) -> int:
    """Finished rounds in a metrics.csv, 0 if it does not exist."""
    try:
        return max(0, len(path.read_text("utf-8").splitlines()) - 1)
    except FileNotFoundError:
        return 0


# Interrupted runs


class Stop(Exception):
    """Ends a run as a kill would."""


def break_off(monkeypatch, method, round_num, *, before) -> None:
    """Makes a method of Records raise Stop at a round, before or after its work."""
    from tff_re.runs.checkpoints import Records

    real = getattr(Records, method)

    def stopping(records, number, *arguments):
        if not before or number != round_num:
            real(records, number, *arguments)
        if number == round_num:
            raise Stop

    monkeypatch.setattr(Records, method, stopping)


# Processes

_MARK = "TFF_RE_UPPER_FLOORS"


class Process:
    """A command in its own process, and the workers that it started."""

    def __init__(self, *arguments, **options):
        self.mark, self._has_worker = uuid.uuid4().hex, "local" in arguments
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tff_re.run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, _MARK: self.mark},
            **options,
        )

    def workers(self) -> list[psutil.Process]:
        """Running workers and their supervisors, including orphans."""
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    process.pid != self.popen.pid
                    and process.status() != psutil.STATUS_ZOMBIE
                    and process.environ().get(_MARK) == self.mark
                ):
                    alive.append(process)
        return alive

    def wait_for(self, condition, description: str, seconds: float = 120) -> None:
        """Waits until the condition is true while the process runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.popen.poll() is None, f"ended before {description}: {self.popen.communicate()}"
            assert time.monotonic() < deadline, f"{description} did not happen"
            time.sleep(0.005)

    def end(self, signal_number: int | None = None, seconds: float = 120) -> CommandResult:
        """Sends a signal, waits for the end, and asserts that no worker still runs."""
        if signal_number is not None:
            assert self.workers() or not self._has_worker, "no worker ran: the test would show nothing"
            self.popen.send_signal(signal_number)
        out, err = self.popen.communicate(timeout=seconds)
        deadline = time.monotonic() + 5
        while (remaining := self.workers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not remaining, f"left running: {remaining}"
        return CommandResult(self.popen.returncode, out, err)

    def close(self) -> None:
        """Kills the command and its workers if a failed test left them running."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.communicate()
        for process in self.workers():
            with contextlib.suppress(psutil.Error):
                process.kill()
