"""Runtimes side by side: seconds of a round, its fixed cost, memory, and both over the number of clients.

Logistic regression and LSTM(128) as in `rounds`, the sentence encoder as in `encoder`; FedAvg with SGD for the former,
with Adam for the latter. Every (problem, contender) has a Python process of its own, whose memory, with that of all
below it, is sampled; two that took turns round by round in one process would share what is measured. A step's cost is
a slope over the number of batches, what is left is the fixed cost of a round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import machine, met, spread
from benchmarks.memory import kind_of_memory, watched
from tff_re.runtime.base import usable_cores

# TensorFlow and what needs it is imported in the measured processes alone.


@dataclasses.dataclass(frozen=True)
class Size:
    """What is measured of a problem.

    Attributes:
      clients: in the rounds of few and of many batches.
      steps: batches of these two.
      crowds: numbers of clients with the fewer batches, ascending; the greatest with ours alone.
    """

    clients: int
    steps: tuple[int, int]
    crowds: tuple[int, ...]

    def crowds_of(self, contender: str) -> tuple[int, ...]:
        """Those that a contender plays: how ours grow is the question."""
        return self.crowds[:-1] if contender in (PLAIN, TFF) else self.crowds


SIZES = {
    "LR, 60 features": Size(10, (5, 20), (10, 50, 200)),
    "LSTM(128), 40 words": Size(10, (5, 20), (10, 50, 200)),
    "MiniLM-size encoder": Size(2, (2, 6), (2, 6, 12)),
}
ENCODER = "MiniLM-size encoder"
SECONDS_BETWEEN_SAMPLES = 0.2


@contextlib.contextmanager
def _tff_own(log: str, clients: int) -> Iterator[None]:
    """TFF's own context, as `set_sync_local_cpp_execution_context` makes it, but for a worker that ends with us."""
    import grpc
    import tensorflow_federated as tff

    from tff_re.runtime.local.worker import Worker

    cores = usable_cores()
    with Worker(log, max_concurrent_computation_calls=cores) as worker:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        stub = tff.framework.RemoteExecutorGrpcStub(grpc.insecure_channel(worker.address, options))
        while not stub.is_ready:
            time.sleep(0.02)

        def make_executor(cardinalities):
            executor = tff.framework.RemoteExecutor(stub)
            executor.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
            return executor

        context = tff.framework.SyncExecutionContext(
            executor_fn=tff.framework.ResourceManagingExecutorFactory(make_executor),
            compiler_fn=tff.backends.native.desugar_and_transform_to_native,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )
        tff.framework.set_default_context(context)
        yield


def _ours_on(name: str) -> Callable:
    def opened(log: str, clients: int):
        from tff_re.runtime import open_runtime

        return open_runtime(name, log_path=log, clients=clients)

    return opened


CONTENDERS = {
    "this project, local": ("Ours", _ours_on("local")),
    "this project, in-process": ("Ours", _ours_on("in-process")),
    "TFF's own FedAvg, its own context": ("TffOwn", _tff_own),
    "plain loop": ("Plain", lambda log, clients: contextlib.nullcontext()),
}
"""Name -> (which of the classes in `rounds` or `encoder`, context manager in which it runs, of the log's path and the
number of clients)."""

PLAIN, TFF = "plain loop", "TFF's own FedAvg, its own context"
MOST_TIMES_PLAIN, MOST_FIXED_SECONDS = 1.1, 1.5


@dataclasses.dataclass
class Measured:
    """Of one contender and problem.

    Attributes:
      seconds: (clients, steps) -> those of every round but the first.
      peaks: (clients, steps) -> most bytes meanwhile, the first round included.
    """

    seconds: dict[tuple[int, int], list[float]]
    peaks: dict[tuple[int, int], int]


def run(rounds: int, out: Path) -> str:
    """Measures everything; returns the Markdown tables."""
    kind = kind_of_memory()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for problem in SIZES:
            for contender in CONTENDERS:
                one = measure(problem, contender, rounds, folder, out / "worker.log", kind)
                found[problem, contender] = one
                stages = ", ".join(f"{n} x {k}: {statistics.median(s):.3f} s" for (n, k), s in one.seconds.items())
                print(f"{problem}, {contender}; clients x batches {stages}", flush=True)
    return table(found) + (
        f"\n{rounds} rounds of each after one that compiles. {kind.upper()} of Python, the worker and its supervisor "
        f"together, sampled every {SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. {machine()}.\n"
    )


def measure(problem: str, contender: str, rounds: int, folder: str, log: Path, kind: str) -> Measured:
    """One contender on one problem, in a process of its own that has ended on return.

    Raises:
      RuntimeError: that process failed; it has printed why.
    """
    size = SIZES[problem]
    stages = [(size.clients, steps) for steps in size.steps]
    stages += [stage for n in size.crowds_of(contender) if (stage := (n, size.steps[0])) not in stages]
    arguments = (problem, contender, stages, rounds, folder, str(log))
    told = watched(_all_stages, arguments, kind, f"{contender} on {problem}", SECONDS_BETWEEN_SAMPLES)
    return Measured(
        {stage: seconds for stage, (seconds, _) in zip(stages, told, strict=True)},
        {stage: peak for stage, (_, peak) in zip(stages, told, strict=True)},
    )


def _all_stages(tell, problem: str, contender: str, stages, rounds: int, folder: str, log: str) -> None:
    """In the measured process: the rounds of each stage; tells their seconds."""
    kind, opened = CONTENDERS[contender]
    with opened(log, SIZES[problem].clients):
        play = (_encoder_rounds if problem == ENCODER else _simple_rounds)(problem, kind, stages, folder)
        for clients, steps in stages:
            one_round = play(clients, steps)
            one_round()
            seconds = []
            for _ in range(rounds):
                began = time.perf_counter()
                one_round()
                seconds.append(time.perf_counter() - began)
            tell(seconds)


def _simple_rounds(name: str, kind: str, stages, folder: str) -> Callable:
    """(clients, steps) -> a function that plays a round of them."""
    from benchmarks import rounds
    from computations.local_model import LocalModel

    (problem,) = (one for one in rounds.problems() if one.name == name)
    contender = {"Ours": rounds.Ours, "TffOwn": rounds.TffOwn, "Plain": rounds.PlainLoop}[kind](problem, rounds.BATCH)
    contender.start(LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable)

    def play(clients: int, steps: int) -> Callable[[], None]:
        examples = steps * rounds.BATCH
        given = [problem.clients[i % len(problem.clients)] for i in range(clients)]
        contender.give([{key: value[:examples] for key, value in one.items()} for one in given])
        return contender.round

    return play


def _encoder_rounds(name: str, kind: str, stages, folder: str) -> Callable:
    """(clients, steps) -> a function that plays a round of them, all from the same weights."""
    from benchmarks import encoder

    (Path(folder) / "config.json").write_text(json.dumps(encoder.FORM), "utf-8")
    problem = encoder.Problem(folder, encoder.FORM["vocab_size"], encoder.LENGTH, encoder.CLASSES)
    made = {"Ours": encoder.Ours, "TffOwn": encoder.TffOwn, "Plain": encoder.PlainLegacyStep}[kind]
    contender = made(problem, problem.local_model().initial_weights(0).trainable)

    def play(clients: int, steps: int) -> Callable[[], None]:
        arrays = problem.examples(encoder.BATCH * steps)
        return lambda: contender.round(arrays, clients)

    return play


def table(found: dict[tuple[str, str], Measured]) -> str:
    """Markdown from (problem, contender) -> what was measured: rounds, then growth over clients, then the reading."""
    first = [
        "| problem | contender | seconds a round, median (least to greatest) | times the plain loop | seconds a step "
        "| fixed seconds a round | peak GB |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    growth = ["", "| problem | contender | seconds a round | seconds a client | peak GB | MB a client |"]
    growth.append("| :-- | :-- | --: | --: | --: | --: |")
    for (problem, contender), measured in found.items():
        size = SIZES[problem]
        few, many = ((size.clients, steps) for steps in size.steps)
        seconds = measured.seconds[many]
        step, fixed = _line(measured, size)
        times = statistics.median(seconds) / statistics.median(found[problem, PLAIN].seconds[many])
        peak = max(measured.peaks[few], measured.peaks[many]) / 1e9
        shown = f"{spread(seconds, 3)} | {times:.2f} | {step:.4f} | {fixed:.3f} | {peak:.2f}"
        first.append(f"| {problem} | {contender} | {shown} |")
        crowds = size.crowds_of(contender)
        medians = [statistics.median(measured.seconds[n, size.steps[0]]) for n in crowds]
        peaks = [measured.peaks[n, size.steps[0]] for n in crowds]
        a_client, bytes_a_client = (np.polyfit(crowds, values, 1)[0] for values in (medians, peaks))
        growth.append(
            f"| {problem}, {' / '.join(map(str, crowds))} clients | {contender} "
            f"| {' / '.join(f'{value:.2f}' for value in medians)} | {a_client:.4f} "
            f"| {' / '.join(f'{value / 1e9:.2f}' for value in peaks)} | {round(bytes_a_client / 1e6, 1) + 0.0:.1f} |"
        )
    return "\n".join([*first, *growth, "", *_reading(found)])


def _line(measured: Measured, size: Size) -> tuple[float, float]:
    """(seconds a step, fixed seconds a round): slope and intercept over the number of steps."""
    few, many = (statistics.median(measured.seconds[size.clients, steps]) for steps in size.steps)
    step = (many - few) / (size.steps[1] - size.steps[0])
    return step, few - size.steps[0] * step


def _reading(found: dict[tuple[str, str], Measured]) -> list[str]:
    lines = []
    for problem in dict.fromkeys(problem for problem, _ in found):
        size = SIZES[problem]
        many = (size.clients, size.steps[1])
        medians = {c: statistics.median(m.seconds[many]) for (p, c), m in found.items() if p == problem}
        best = min((c for c in medians if c not in (PLAIN, TFF)), key=medians.get)
        times = medians[best] / medians[PLAIN]
        wanted = MOST_TIMES_PLAIN if problem == ENCODER else 1.0
        line = (
            f"{problem}: the best of ours is {best}. Expected: at most {wanted:g} times the plain loop; here "
            f"{times:.2f}, {met(times <= wanted)}."
        )
        if problem == ENCODER:
            fixed = _line(found[problem, best], size)[1]
            line += (
                f" Expected: under {MOST_FIXED_SECONDS:g} s of fixed cost for {size.clients} clients; here "
                f"{fixed:.2f}, {met(fixed < MOST_FIXED_SECONDS)}."
            )
        lines += [line, ""]
    return lines
