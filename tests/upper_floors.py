"""Small recipes, commands as they are typed, and processes that are to be killed: for the tests of the upper floors."""

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

from tff_re.recipes.reading import Recipe, resolve

SYNTHETIC = {
    "name": "tiny",
    "task": {
        "name": "synthetic",
        **{"num_clients": 4, "num_features": 5, "num_classes": 3, "total_train": 60, "total_test": 24},
    },
    "model": {"name": "logistic_regression"},
    # Everything that a server carries from round to round is in use: momentum, the round's number, the noise.
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
    """One for the whole session: what tests have in common is built once."""
    from tff_re.runs.experiment import ExperimentBuilder

    return ExperimentBuilder()


# One pixel, as a whole PNG.
BLANK = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")


def share_computations(monkeypatch, runtime=None, *, plots: bool = False, pictures: bool | None = None) -> None:
    """Lets commands of this process take what is built already, and an open runtime in place of one of that name that
    they would start; what they read and write is their own. The plots of every run are drawn if asked for; of other
    pictures the figure is made, and its file has one pixel, unless `pictures`."""
    from computations import federated as tff
    from tff_re.comparison import outcome
    from tff_re.runs import experiment, finished, results, setup
    from tff_re.runtime import open_runtime

    shared = builder()
    for module in (experiment, finished, setup):
        monkeypatch.setattr(
            module, "ExperimentBuilder", lambda data_paths: type(shared)(data_paths, _computations=shared._computations)
        )
    for drawn in ("run_curves", "partition_heatmap", "confusion_png"):
        if not plots:
            monkeypatch.setattr(results, drawn, lambda *arguments: None)
    if not (plots if pictures is None else pictures):
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(BLANK))
    if runtime is None:
        return

    @contextlib.contextmanager
    def opened(name, **options):
        if name != runtime.name:
            with open_runtime(name, **options) as other:
                yield other
            return
        previous = tff.framework.get_context_stack().current
        tff.framework.set_default_context(runtime.context)
        try:
            yield runtime
        finally:
            tff.framework.set_default_context(previous)

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
class Typed:
    """What a command did."""

    code: int
    out: str
    err: str


def command(capture, *arguments) -> Typed:
    """Runs the command line in this process; `capture` is capsys or capfd."""
    from tff_re.run import main

    handler = signal.getsignal(signal.SIGTERM)
    capture.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as end:  # of SIGTERM
        code = end.code
    finally:
        signal.signal(signal.SIGTERM, handler)  # the command line's own is not for the tests
    return Typed(code, *capture.readouterr())


def refusal(typed: Typed, *parts: str) -> str:
    """The one line of a refused command, which has to hold these parts."""
    assert typed.code == 2, typed
    assert typed.err.startswith("tff-re: ") and typed.err.endswith("\n") and typed.err.count("\n") == 1, typed.err
    for part in parts:
        assert str(part) in typed.err, (part, typed.err)
    return typed.err


# What a run left


def keras_weights(path) -> dict[str, np.ndarray]:
    """The weights in a .keras file by their names."""
    names = []
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visit(names.append)
        return {name: file[name][()] for name in names if isinstance(file[name], h5py.Dataset)}


def assert_same_run(first, second) -> None:
    """Two run folders hold the same numbers, bit by bit."""
    for name in ("metrics.csv", "clients.csv", "summary.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    weights = keras_weights(first / "model.keras"), keras_weights(second / "model.keras")
    assert weights[0] and list(weights[0]) == list(weights[1])
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value, weights[1][name])


def assert_same_weights(first, second) -> None:
    """Two ModelWeights are equal bit by bit."""
    for a, b in zip(first.trainable + first.non_trainable, second.trainable + second.non_trainable, strict=True):
        np.testing.assert_array_equal(a, b)


def rounds_in(path) -> int:
    """Finished rounds in a metrics.csv, 0 if it is not there."""
    try:
        return max(0, len(path.read_text("utf-8").splitlines()) - 1)
    except FileNotFoundError:
        return 0


# Runs that are broken off


class Stop(Exception):
    """Breaks a run off where a kill would."""


def break_off(monkeypatch, method, round_num, *, before) -> None:
    """Lets a method of Records raise Stop at a round, before or after it did its work."""
    from tff_re.runs.checkpoints import Records

    real = getattr(Records, method)

    def broken(records, number, *arguments):
        if not before or number != round_num:
            real(records, number, *arguments)
        if number == round_num:
            raise Stop

    monkeypatch.setattr(Records, method, broken)


# Processes

_MARK = "TFF_RE_UPPER_FLOORS"


class Process:
    """A command in a process of its own, with a look at the workers that it started."""

    def __init__(self, *arguments, **options):
        self.mark = uuid.uuid4().hex
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
        """Workers and their supervisors that live, orphans too."""
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

    def wait_for(self, condition, what: str, seconds: float = 120) -> None:
        """Waits for something to come true while the process runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.popen.poll() is None, f"ended before {what}: {self.popen.communicate()}"
            assert time.monotonic() < deadline, f"{what} did not come"
            time.sleep(0.005)

    def end(self, number: int | None = None, seconds: float = 120) -> Typed:
        """Sends a signal, waits for the end, and looks that no worker is left."""
        if number is not None:
            assert self.workers(), "no worker ran: the test would show nothing"
            self.popen.send_signal(number)
        out, err = self.popen.communicate(timeout=seconds)
        deadline = time.monotonic() + 5
        while (left := self.workers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left, f"left running: {left}"
        return Typed(self.popen.returncode, out, err)

    def close(self) -> None:
        """For a test that failed: nothing of it stays behind."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.communicate()
        for process in self.workers():
            with contextlib.suppress(psutil.Error):
                process.kill()
