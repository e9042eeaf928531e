"""What a federated encoder costs and reaches: all weights, the upper two layers, LoRA, LoRA in these two, FFA-LoRA and
BitFit.

FedAvg with Adam at the clients, on English sentences (ChemProt) and Chinese texts (MIE windows), with a real encoder
each from a folder: bytes that a client sends, seconds and memory of a round of 10 clients with 8 batches of 8 each, and
F1 after the last round. Each way is trained in a process of its own, one after the other in one run, with one seed;
adapters have a higher learning rate than weights that are trained themselves. Frozen layers run before the first
round; their outputs are what takes memory there. Seconds of the processor tell more than those of the clock where the
machine does other work, too; the round after the measured ones is evaluated and not counted. A few rounds are enough
for the seconds and not for F1: `--f1-rounds 12` trains on, and is evaluated once, after the last of them.
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
from benchmarks.memory import kind_of_memory, watched

UPPER_LORA = "LoRA in the upper two layers"
WAYS = {
    "all weights": {},
    "upper two layers": {"frozen_layers": -2},
    "LoRA": {"adapter": {"kind": "lora"}},
    UPPER_LORA: {"frozen_layers": -2, "adapter": {"kind": "lora"}},
    "FFA-LoRA": {"adapter": {"kind": "ffa_lora"}},
    "BitFit": {"adapter": {"kind": "bitfit"}},
}
"""Way -> keys of [model]; of frozen layers how many fewer than all."""

RATE, ADAPTER_RATE = 1e-4, 1e-3
"""Adapters' products start at zero and need about ten times the rate that trained weights bear."""

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
MOST_BYTES, MOST_SECONDS = 1 / 50, 0.7
"""Of LoRA's bytes and seconds beside those of all weights."""


def run(rounds: int, out: Path, encoders: dict[str, Path], f1_rounds: int | None = None) -> str:
    """The Markdown table of the problems that have an encoder.

    Args:
      rounds: the last that is measured, at least 2; the first is not.
      out: not used: nothing but the table is written.
      encoders: problem -> folder of its encoder.
      f1_rounds: that are trained, if more than one more than those.
    """
    del out
    rounds = max(rounds, 2)
    trained = max(rounds + 1, f1_rounds or 0)
    kind, lines = kind_of_memory(), []
    for problem, encoder in encoders.items():
        layers = json.loads((encoder / "config.json").read_text("utf-8"))["num_hidden_layers"]
        found = {}
        for way, keys in WAYS.items():
            if "frozen_layers" in keys:
                keys = {**keys, "frozen_layers": layers + keys["frozen_layers"]}
            with tempfile.TemporaryDirectory() as folder:
                arguments = (recipe_table(problem, encoder, keys, trained), Path(folder) / "run")
                ((used, peak),) = watched(train, arguments, kind, f"{problem}, {way}", every=1.0)
                found[way] = (*outcome(Path(folder) / "run", rounds), statistics.median(used[1:rounds]), peak)
        lines += rows(problem, found)
    return "\n".join(
        [
            "| data | trained | sent by a client and round, MB | seconds a round | of the processor | peak, GB "
            f"| macro-F1 after {trained} rounds |",
            "| :-- | :-- | --: | --: | --: | --: | --: |",
            *lines,
            "",
            f"Medians of the rounds 2 to {rounds}; {kind.upper()} of all processes; {machine()}.",
            "",
        ]
    )


def recipe_table(problem: str, encoder: Path, keys: dict, rounds: int) -> dict:
    """The tables of a problem's recipe, with a way's keys of [model]."""
    given = PROBLEMS[problem]
    return {
        "name": "adapters",
        "task": {**given["task"], "tokenizer": str(encoder)},
        "model": {**given["model"], **keys},
        "training": {"rounds": rounds, "client_fraction": 1.0, "checkpoint_every": rounds},
        "evaluation": {"every": rounds, "train_split": False},
        "partition": COMMON["partition"],
        "algorithm": {**COMMON["algorithm"], "learning_rate": ADAPTER_RATE if "adapter" in keys else RATE},
    }


def train(tell, table: dict, folder: Path) -> None:
    """A run, in the process that `watched` observes; tells the processor's seconds of each round."""
    from tff_re import api
    from tff_re.recipes.reading import resolve

    times = []

    def mark(_):
        times.append(time.process_time())

    api.train(resolve(table, "adapters.toml", seed=0), folder, runtime="in-process", on_start=mark, on_round=mark)
    tell([after - before for before, after in itertools.pairwise(times)])


def outcome(folder: Path, rounds: int) -> tuple[float, float, float]:
    """(bytes up, median seconds of the rounds from the second to `rounds`, macro-F1 after the last) of a run."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    with (folder / "timings.csv").open(encoding="utf-8") as file:
        seconds = [float(row["seconds/training"]) for row in csv.DictReader(file)][1:rounds]
    return summary["bytes_up_per_client_and_round"], statistics.median(seconds), summary["final"]["test/macro_f1"]


def rows(problem: str, found: dict[str, tuple[float, float, float, float, float]]) -> list[str]:
    """The table's rows of a problem, and whether LoRA meets what is expected of it."""
    table = [
        f"| {problem} | {way} | {up / 1e6:.2f} | {seconds:.1f} | {used:.1f} | {peak / 1e9:.2f} | {f1:.3f} |"
        for way, (up, seconds, f1, used, peak) in found.items()
    ]
    all_up, _, _, all_used, _ = found["all weights"]
    for way in ("LoRA", UPPER_LORA):
        up, _, _, used, _ = found[way]
        sent, share = up / all_up, used / all_used
        expected = f"1/{all_up / up:.0f} of the bytes ({met(sent <= MOST_BYTES)}: at most 1/50)"
        of_time = f"{share:.2f} of the processor's seconds ({met(share <= MOST_SECONDS)}: 0.7)"
        table.append(f"| {problem} | *{way} beside all weights* | {expected} | | {of_time} | | |")
    return table
