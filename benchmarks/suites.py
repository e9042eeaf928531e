"""Runs an hour of small suites with `compare --jobs 1` and `--jobs 2`, side by side.

Each command is a process of its own, from its start to its tables; the two take turns. The encoder has random weights,
which change nothing in the time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from benchmarks.common import machine, met, ratio

JOBS = (1, 2)
SHIPPED = Path(__file__).parents[1] / "datasets" / "shipped"


@dataclass(frozen=True)
class Small:
    """A suite of runs of ten seconds or more.

    Attributes:
      recipe: that the runs start from.
      algorithms: names of the entries' algorithms.
      options: of all algorithms.
      settings: keys of all entries, as --set takes them.
      expected: least speed-up of two jobs.
      metric: of the tables.
      encoder: whether it needs the folder of one.
    """

    recipe: str
    algorithms: tuple[str, ...]
    options: dict[str, object]
    settings: tuple[str, ...]
    expected: float
    metric: str = "test/accuracy"
    encoder: bool = False


FLCMC = ("fedavgs", "fedpap", "fedproxp", "fedatts")
MIL = ("mil_none", "mil_one", "mil_att", "lazy_mil")
ADAM = {"learning_rate": 1e-3, "batch_size": 10}
COMMON = ("evaluation.train_split=false", "training.checkpoint_every=1000")

SUITES = {
    "LR": Small("flcmc-synthetic-fedpap", FLCMC, ADAM, ("training.rounds=120", "evaluation.every=2", *COMMON), 1.8),
    "LSTM": Small("flcmc-shipped-fedpap", FLCMC, ADAM, ("training.rounds=60", "evaluation.every=2", *COMMON), 1.8),
    "PCNN": Small(
        "lazy-mil-planted",
        MIL,
        {"optimizer": "adam", "batch_size": 32},
        ("training.rounds=16", "evaluation.every=2", *COMMON),
        1.8,
        metric="test/auc",
    ),
    "encoder, five of six layers frozen": Small(
        "flcmc-shipped-bert",
        FLCMC[:2],
        ADAM,
        ("training.rounds=3", "evaluation.every=3", "model.frozen_layers=5", "model.adapter=none", *COMMON),
        1.3,
        encoder=True,
    ),
}
SEEDS = (0, 1)

ENCODER = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
"""The size of MiniLM."""


def run(rounds: int, out: Path) -> str:
    """Measures each suite `rounds` times with each number of jobs, and returns the Markdown table."""
    seconds: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory(dir=out) as folder:
        for name, small in SUITES.items():
            path = write_suite(small, Path(folder) / f"suite{len(seconds)}", Path(folder))
            seconds[name] = {jobs: [] for jobs in JOBS}
            for turn in range(rounds):
                for jobs in JOBS if turn % 2 == 0 else JOBS[::-1]:
                    took = seconds_of(path, path.parent / f"{jobs}-{turn}", jobs)
                    seconds[name][jobs].append(took)
                    print(f"{name}, --jobs {jobs}: {took:.0f} s", flush=True)
    return table(seconds, {name: len(small.algorithms) * len(SEEDS) for name, small in SUITES.items()}, rounds)


def table(seconds: Mapping[str, Mapping[int, Sequence[float]]], runs: Mapping[str, int], rounds: int) -> str:
    """Markdown from suite -> jobs -> seconds of each turn."""
    lines = [
        "| suite | runs | jobs | runs an hour, median (min to max) | seconds a run | speed-up |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    notes = []
    for name, by_jobs in seconds.items():
        one, two = (by_jobs[jobs] for jobs in JOBS)
        speed_up, expected = ratio(one, two), SUITES[name].expected
        for jobs, values in by_jobs.items():
            hourly = sorted(3600 * runs[name] / value for value in values)
            cell = f"{statistics.median(hourly):.0f} ({hourly[0]:.0f} to {hourly[-1]:.0f})"
            each = statistics.median(values) / runs[name]
            lines.append(
                f"| {name} | {runs[name]} | {jobs} | {cell} | {each:.1f} | {f'{speed_up:.2f}' if jobs > 1 else ''} |"
            )
        notes.append(f"{name}: expected {expected:g}, here {speed_up:.2f}, {met(speed_up >= expected)}.")
    return "\n".join(lines) + (
        f"\n\n{' '.join(notes)}\n\n{rounds} turns of each command, in turn, from its start to its tables; the speed-up "
        f"is the median over the turns. {machine()}.\n"
    )


def write_suite(small: Small, folder: Path, shared: Path) -> Path:
    """Writes a suite's file into a new folder.

    `shared`: the folder of encoders.
    """
    folder.mkdir()
    settings = [*small.settings]
    if small.encoder:
        settings.append(f"task.tokenizer={json.dumps(str(encoder(shared / 'encoder')))}")
    entries = [{"name": name, "algorithm": {"name": name, **small.options}} for name in small.algorithms]
    suite = {"title": "Small", "recipe": small.recipe, "seeds": list(SEEDS), "metrics": [small.metric], "set": settings}
    suite["entry"] = entries
    path = folder / "small.toml"
    path.write_text(tomli_w.dumps(suite), "utf-8")
    return path


def seconds_of(path: Path, out: Path, jobs: int) -> float:
    """Seconds of the command, from its start to its end.

    Raises:
      RuntimeError: it failed, with what it printed.
    """
    command = [sys.executable, "-m", "tff_re.run", "compare", "--suite", path, "--out", out, "--jobs", jobs]
    began = time.perf_counter()
    ended = subprocess.run([*map(str, command)], capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"})
    if ended.returncode:
        raise RuntimeError(f"compare of {path} failed: {ended.stderr}")
    return time.perf_counter() - began


def encoder(folder: Path) -> Path:
    """A Chinese encoder of `ENCODER`'s size with random weights, for the dialogues that come with the project."""
    if folder.exists():
        return folder
    import transformers

    from tff_re.models.pretrained import policy

    folder.mkdir()
    texts = [path.read_text("utf-8") for path in SHIPPED.glob("*.json")]
    characters = sorted({letter for text in texts for letter in text} - {*" \n\t"})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    config = transformers.BertConfig(vocab_size=len(pieces), **ENCODER)
    with policy("float32"):
        model = transformers.TFBertModel(config)
        model.build_in_name_scope()
    model.save_pretrained(folder, safe_serialization=True)
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder
