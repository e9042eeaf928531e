"""Cost of the worker's network namespace: rounds and messages through its Unix socket, and directly to a worker's port.

Two workers, one of each kind, take turns: FedAvg on logistic regression and on LSTM(128) as in `rounds`, and a vector
of 40 MB sent to the worker and back.
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
NUMBERS = 10**7  # float32 numbers in the vector
PRIVATE, BARE = "Unix socket, network namespace", "port on all interfaces"


class _BareWorker(Worker):
    """A worker without a network namespace, which listens on all interfaces."""

    def spawn(self, command, environment, *, relay=None):
        os.rmdir(os.path.dirname(self._socket))
        self._socket = None
        super().spawn(command, environment)


def run(rounds: int, out: Path) -> str:
    """Measures both; returns the Markdown table.

    Raises:
      RuntimeError: the machine does not allow network namespaces.
    """
    with contextlib.ExitStack() as stack:
        contexts = {}
        for name, worker_class in ((PRIVATE, Worker), (BARE, _BareWorker)):
            worker = stack.enter_context(worker_class(out / "worker.log"))
            if worker_class is Worker and not worker.private:
                raise RuntimeError(f"network namespaces are not allowed here: {worker.why_exposed}")
            contexts[name], channel = worker_context.connect(worker, default_num_clients=0)
            stack.callback(channel.close)
        stack.callback(tff.framework.set_default_context, tff.framework.get_context_stack().current)
        seconds = {task: in_turn(contexts, play, rounds) for task, play in tasks().items()}
    lines = [
        "| task | connection | seconds, median (min to max) | ratio to the bare worker |",
        "| :-- | :-- | --: | --: |",
    ]
    for task, seconds_by_kind in seconds.items():
        ratio_to_bare = ratio(seconds_by_kind[PRIVATE], seconds_by_kind[BARE])
        for name, values in seconds_by_kind.items():
            lines.append(
                f"| {task} | {name} | {spread(values, 4)} | {f'{ratio_to_bare:.2f}' if name == PRIVATE else ''} |"
            )
    details = environment()
    return "\n".join(lines) + (
        f"\n\n{rounds} calls of each after one that compiles, in turn; the ratio is the median over the turns. "
        f"{details['cores']} cores, {DISTRIBUTION} {details[DISTRIBUTION]}.\n"
    )


def tasks() -> dict[str, Callable[[], object]]:
    """Name -> a function that does the task once in TFF's default context."""
    result = {}
    for problem in simple.problems():
        if problem.name in PROBLEMS:
            contender = simple.Ours(problem, simple.BATCH)
            contender.start(LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable)
            result[f"{problem.name}, a round"] = contender.round
    numbers = np.ones(NUMBERS, np.float32)
    negative = tff.tensorflow.computation(lambda x: -x, tff.TensorType(np.float32, [NUMBERS]))
    result[f"{numbers.nbytes / 1e6:g} MB there and back"] = lambda: negative(numbers)
    increment = tff.tensorflow.computation(lambda x: x + 1, np.int32)
    result["one number there and back"] = lambda: increment(1)
    return result


def in_turn(contexts: dict, play: Callable[[], object], rounds: int) -> dict[str, list[float]]:
    """Context -> seconds of each call of `play` but the first."""
    seconds = {name: [] for name in contexts}
    for turn in range(rounds + 1):
        for name in sorted(contexts, reverse=bool(turn % 2)):
            tff.framework.set_default_context(contexts[name])
            began = time.perf_counter()
            play()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds
