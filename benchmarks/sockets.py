"""What the worker's own network costs: rounds and messages through the Unix socket, and straight to a worker's port.

Two workers, one of each kind, take turns; FedAvg on logistic regression and on LSTM(128) as in `rounds`, and a vector
of 40 MB that goes to the worker and comes back.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import rounds as simple
from benchmarks.common import ratio, spread
from computations import federated as tff
from computations.local_model import LocalModel
from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment
from tff_re.runtime.local import worker_context
from tff_re.runtime.local.worker import Worker

PROBLEMS = ("LR, 60 features", "LSTM(128), 40 words")
NUMBERS = 10**7  # of float32
PRIVATE, BARE = "Unix socket, network of its own", "port on all interfaces"


class _Bare(Worker):
    """A worker without a network of its own, which listens on all interfaces."""

    def spawn(self, command, environment, *, relay=None):
        os.rmdir(os.path.dirname(self._socket))
        self._socket = None
        super().spawn(command, environment)


def run(rounds: int, out: Path) -> str:
    """Measures both; returns the Markdown table.

    Raises:
      RuntimeError: the machine allows no network of its own.
    """
    with contextlib.ExitStack() as stack:
        contexts = {}
        for name, kind in ((PRIVATE, Worker), (BARE, _Bare)):
            worker = stack.enter_context(kind(out / "worker.log"))
            if kind is Worker and not worker.private:
                raise RuntimeError(f"no network namespace is allowed here: {worker.why_exposed}")
            contexts[name], channel = worker_context.connect(worker, default_num_clients=0)
            stack.callback(channel.close)
        stack.callback(tff.framework.set_default_context, tff.framework.get_context_stack().current)
        seconds = {task: in_turn(contexts, play, rounds) for task, play in tasks().items()}
    lines = [
        "| measured | through | seconds, median (least to greatest) | times the bare worker |",
        "| :-- | :-- | --: | --: |",
    ]
    for task, both in seconds.items():
        times = ratio(both[PRIVATE], both[BARE])
        for name, values in both.items():
            lines.append(f"| {task} | {name} | {spread(values, 4)} | {f'{times:.2f}' if name == PRIVATE else ''} |")
    about = environment()
    return "\n".join(lines) + (
        f"\n\n{rounds} of each after one that compiles, in turn; the ratio is the median over the turns. "
        f"{about['cores']} cores, {DISTRIBUTION} {about[DISTRIBUTION]}.\n"
    )


def tasks() -> dict[str, Callable[[], object]]:
    """What is measured -> a function that does it once in TFF's default context."""
    found = {}
    for problem in simple.problems():
        if problem.name in PROBLEMS:
            contender = simple.Ours(problem, simple.BATCH)
            contender.start(LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable)
            found[f"{problem.name}, a round"] = contender.round
    numbers = np.ones(NUMBERS, np.float32)
    negative = tff.tensorflow.computation(lambda x: -x, tff.TensorType(np.float32, [NUMBERS]))
    found[f"{numbers.nbytes / 1e6:g} MB there and back"] = lambda: negative(numbers)
    one_more = tff.tensorflow.computation(lambda x: x + 1, np.int32)
    found["one number there and back"] = lambda: one_more(1)
    return found


def in_turn(contexts: dict, play: Callable[[], object], rounds: int) -> dict[str, list[float]]:
    """Seconds of `play` in each context."""
    seconds = {name: [] for name in contexts}
    for turn in range(rounds + 1):
        for name in sorted(contexts, reverse=bool(turn % 2)):
            tff.framework.set_default_context(contexts[name])
            began = time.perf_counter()
            play()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds
