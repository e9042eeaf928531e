"""The work that `python -m benchmarks peers` gives to every contender, and the notes that it takes of it.

A contender's program is called with two folders: of the problem (problem.json, clients.npz, start.npz; the same for
all) and of this run (rounds.json: steps and batch size of each round). It adds stamps.txt and after.npz to the latter.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np


class Work:
    """Attributes:
    problem: its name, learning rate, sizes of its model.
    clients: the arrays of each.
    start: name of a weight -> value.
    rounds: [steps, batch size] of each.
    """

    def __init__(self, problem: str | Path, run: str | Path):
        self._run = Path(run)
        self.problem = json.loads((Path(problem) / "problem.json").read_text("utf-8"))
        self.rounds = json.loads((self._run / "rounds.json").read_text("utf-8"))
        with np.load(Path(problem) / "clients.npz") as arrays:
            stacked = dict(arrays)
        count = len(stacked["y"])
        self.clients = [{name: values[i] for name, values in stacked.items()} for i in range(count)]
        with np.load(Path(problem) / "start.npz") as arrays:
            self.start = dict(arrays)

    def stamp(self) -> None:
        """Notes the time: once before the first round, and after each. Of the clock that all processes share."""
        with open(self._run / "stamps.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()!r}\n")

    def finish(self, weights: dict[str, np.ndarray]) -> None:
        """Writes the weights after the last round, under the names of `start`."""
        if (names := sorted(weights)) != sorted(self.start):
            raise ValueError(f"weights {names}, expected {sorted(self.start)}")
        np.savez(self._run / "after.npz", **weights)


def end_with_parent() -> None:
    """From now on this process ends soon after the one that started it, however that ends."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def from_command_line() -> Work:
    """What the two folders of the command line hold."""
    end_with_parent()
    return Work(*sys.argv[1:3])
