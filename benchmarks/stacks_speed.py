"""Seconds of the same runs on both stacks, in turn: to the first round from the start of Python, and a later round.

python -m benchmarks.stacks_speed TFF_PYTHON LANGUAGE_PYTHON [ENCODER]    prints the table of docs/stacks.md

The runtime is in-process. ENCODER: folder of a pretrained encoder; without it there is no row of one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ratio, spread

TURNS, ROUNDS = 3, 6

RUNS = {
    "logistic regression": ("flcmc-synthetic-fedpap",),
    "LSTM": ("flcmc-shipped-fedpap",),
    "PCNN in bags": ("lazy-mil-planted",),
    "encoder, upper layers": ("flcmc-shipped-bert", "task.tokenizer={encoder}"),
}
"""Problem -> a shipped recipe and what is set in it."""


def run(name: str, *overrides: str) -> None:
    """Trains a recipe and prints `first` (seconds from the start of Python) and `round` (median of later rounds)."""
    import psutil

    from tff_re.recipes.reading import load
    from tff_re.runtime.quiet import be_quiet

    be_quiet()
    from tff_re.runs.run import train_run

    ends, seconds = [], []

    def after_round(report):
        ends.append(time.time())
        seconds.append(report.seconds)

    with tempfile.TemporaryDirectory() as folder:
        recipe = load(name, (*overrides, f"training.rounds={ROUNDS}"))
        train_run(recipe, Path(folder) / "run", runtime="in-process", details=False, on_round=after_round)
    first = ends[0] - psutil.Process().create_time()
    print(json.dumps({"first": first, "round": statistics.median(seconds[1:])}))


def measure(python: str, overrides: tuple[str, ...]) -> dict[str, float]:
    """What `run` prints in the environment of a Python."""
    words = [python, "-m", "benchmarks.stacks_speed", "run", *overrides]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(tff: str, language: str, encoder: str | None = None) -> None:
    """Prints the table."""
    print("| problem | seconds | `tff` | `language` | `language` / `tff` |\n| --- | --- | --: | --: | --: |")
    for problem, (name, *overrides) in RUNS.items():
        if encoder is None and overrides:
            continue
        arguments = (name, *(override.format(encoder=encoder) for override in overrides))
        turns = [(measure(tff, arguments), measure(language, arguments)) for _ in range(TURNS)]
        for key, quantity in (("first", "start to the first round"), ("round", "a later round")):
            ours, others = ([turn[side][key] for turn in turns] for side in (0, 1))
            print(
                f"| {problem} | {quantity} | {spread(ours, 3)} | {spread(others, 3)} | {ratio(others, ours):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
