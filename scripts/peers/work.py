"""What `python -m benchmarks peers` asks of every contender, and the files in which contenders answer.

A contender's program is called with two folders: the problem's (problem.json, clients.npz, start.npz; the same for all)
and the run's (rounds.json: steps and batch size of each round). It adds stamps.txt and after.npz to the latter.
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
    problem: problem.json: name, learning rate, sizes of the model.
    clients: the arrays of each client.
    start: name of a weight -> initial value.
    rounds: [steps, batch size] of each round.
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
        """Writes the time of the clock that all processes share; call it before the first round and after each."""
        with open(self._run / "stamps.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()!r}\n")

    def finish(self, weights: dict[str, np.ndarray]) -> None:
        """Writes the weights after the last round, under the names of `start`."""
        if (names := sorted(weights)) != sorted(self.start):
            raise ValueError(f"weights {names}, expected {sorted(self.start)}")
        np.savez(self._run / "after.npz", **weights)


def end_with_parent() -> None:
    """Makes this process end soon after its parent, however that ends."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def from_command_line() -> Work:
    """The work in the two folders that the command line names."""
    end_with_parent()
    return Work(*sys.argv[1:3])
