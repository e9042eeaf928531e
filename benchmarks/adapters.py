"""Cost and F1 of a federated encoder: all weights, the upper two layers, LoRA, LoRA in these two, FFA-LoRA and BitFit.

FedAvg with Adam at the clients, on English sentences (ChemProt) and Chinese texts (MIE windows), each with a pretrained
encoder from a folder. Measured are the bytes that a client sends, seconds and memory of a round of 10 clients with 8
batches of 8 each, and F1 after the last round. The methods are trained one after the other with one seed, each in its
own process; adapters have a higher learning rate than full weights. Frozen layers run before the first round, and most
of their memory is for their outputs. On a busy machine CPU seconds are more reliable than wall-clock seconds. The round
after the measured ones is evaluated and not counted. A few rounds are enough for the seconds but not for F1:
`--f1-rounds 12` trains longer and evaluates once, after the last round.
"""

from __future__ import annotations

import csv
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.common import machine, met
from benchmarks.memory import memory_kind, sample_memory

UPPER_LORA = "LoRA in the upper two layers"
METHODS = {
    "all weights": {},
    "upper two layers": {"frozen_layers": -2},
    "LoRA": {"adapter": {"kind": "lora"}},
    UPPER_LORA: {"frozen_layers": -2, "adapter": {"kind": "lora"}},
    "FFA-LoRA": {"adapter": {"kind": "ffa_lora"}},
    "BitFit": {"adapter": {"kind": "bitfit"}},
}
"""Method -> keys of [model]; a negative `frozen_layers` is counted from the top layer."""

RATE, ADAPTER_RATE = 1e-4, 1e-3
"""Adapters start as zero products and need about ten times the learning rate of full weights."""

SENTENCES = {"name": "sentence_relations", "dataset": "chemprot", "test": "official", "max_length": 64, "subset": 800}
WINDOWS = {"name": "symptom_classification", "dataset": "mie_windows", "split": "dev", "label": "symptom_mentioned"}
PROBLEMS = {
    "ChemProt": {"task": {**SENTENCES, "test_subset": 400}, "model": {"name": "sentence_encoder"}},
    "MIE windows": {
        "task": {**WINDOWS, "encoding": "pieces", "max_length": 96, "test_unit": "document"},
        "model": {"name": "text_encoder", "pooling": "mean"},
    },
}
COMMON = {
    "partition": {"name": "dirichlet", "num_clients": 10, "alpha": 1.0},
    "algorithm": {"name": "fedavgs", "batch_size": 8, "local_steps": 8},
}
MAX_BYTES_RATIO, MAX_SECONDS_RATIO = 1 / 50, 0.7
"""Expected ratios of LoRA's bytes and CPU seconds to those of all weights."""


def run(rounds: int, out: Path, encoders: dict[str, Path], f1_rounds: int | None = None) -> str:
    """The Markdown table of the problems that have an encoder.

    Args:
      rounds: the last measured round, at least 2; the first is not measured.
      out: not used, because only the table is written.
      encoders: problem -> folder of its encoder.
      f1_rounds: rounds to train, if that is more than `rounds + 1`.
    """
    del out
    rounds = max(rounds, 2)
    trained_rounds = max(rounds + 1, f1_rounds or 0)
    kind, lines = memory_kind(), []
    for problem, encoder in encoders.items():
        layers = json.loads((encoder / "config.json").read_text("utf-8"))["num_hidden_layers"]
        results = {}
        for method, keys in METHODS.items():
            if "frozen_layers" in keys:
                keys = {**keys, "frozen_layers": layers + keys["frozen_layers"]}
            with tempfile.TemporaryDirectory() as folder:
                arguments = (recipe_table(problem, encoder, keys, trained_rounds), Path(folder) / "run")
                ((cpu_seconds, peak),) = sample_memory(train, arguments, kind, f"{problem}, {method}", interval=1.0)
                results[method] = (
                    *outcome(Path(folder) / "run", rounds),
                    statistics.median(cpu_seconds[1:rounds]),
                    peak,
                )
        lines += rows(problem, results)
    return "\n".join(
        [
            "| data | trained | MB sent per client and round | seconds a round | CPU seconds a round | peak GB "
            f"| macro-F1 after {trained_rounds} rounds |",
            "| :-- | :-- | --: | --: | --: | --: | --: |",
            *lines,
            "",
            f"Medians of the rounds 2 to {rounds}; {kind.upper()} of all processes; {machine()}.",
            "",
        ]
    )


def recipe_table(problem: str, encoder: Path, keys: dict, rounds: int) -> dict:
    """The tables of a problem's recipe, with a method's keys of [model]."""
    problem_table = PROBLEMS[problem]
    return {
        "name": "adapters",
        "task": {**problem_table["task"], "tokenizer": str(encoder)},
        "model": {**problem_table["model"], **keys},
        "training": {"rounds": rounds, "client_fraction": 1.0, "checkpoint_every": rounds},
        "evaluation": {"every": rounds, "train_split": False},
        "partition": COMMON["partition"],
        "algorithm": {**COMMON["algorithm"], "learning_rate": ADAPTER_RATE if "adapter" in keys else RATE},
    }


def train(report, table: dict, folder: Path) -> None:
    """Trains in the process that `sample_memory` observes; reports the CPU seconds of each round."""
    from tff_re import api
    from tff_re.recipes.reading import resolve

    times = []

    def note_time(_):
        times.append(time.process_time())

    api.train(
        resolve(table, "adapters.toml", seed=0), folder, runtime="in-process", on_start=note_time, on_round=note_time
    )
    report([end - start for start, end in itertools.pairwise(times)])


def outcome(folder: Path, rounds: int) -> tuple[float, float, float]:
    """(bytes up, median seconds of the rounds from the second to `rounds`, macro-F1 after the last) of a run."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    with (folder / "timings.csv").open(encoding="utf-8") as file:
        seconds = [float(row["seconds/training"]) for row in csv.DictReader(file)][1:rounds]
    return summary["bytes_up_per_client_and_round"], statistics.median(seconds), summary["final"]["test/macro_f1"]


def rows(problem: str, results: dict[str, tuple[float, float, float, float, float]]) -> list[str]:
    """The table's rows of a problem, and whether LoRA meets the expected ratios."""
    table = [
        f"| {problem} | {method} | {up / 1e6:.2f} | {seconds:.1f} | {cpu_seconds:.1f} | {peak / 1e9:.2f} | {f1:.3f} |"
        for method, (up, seconds, f1, cpu_seconds, peak) in results.items()
    ]
    all_up, _, _, all_cpu_seconds, _ = results["all weights"]
    for method in ("LoRA", UPPER_LORA):
        up, _, _, cpu_seconds, _ = results[method]
        bytes_ratio, seconds_ratio = up / all_up, cpu_seconds / all_cpu_seconds
        bytes_text = f"1/{all_up / up:.0f} of the bytes ({met(bytes_ratio <= MAX_BYTES_RATIO)}: at most 1/50)"
        seconds_text = f"{seconds_ratio:.2f} of the CPU seconds ({met(seconds_ratio <= MAX_SECONDS_RATIO)}: 0.7)"
        table.append(f"| {problem} | *{method} / all weights* | {bytes_text} | | {seconds_text} | | |")
    return table
