"""Runtimes side by side: seconds of a round, its fixed cost, memory, and both over the number of clients.

Logistic regression and LSTM(128) as in `rounds`, with SGD; the sentence encoder as in `encoder`, with Adam. Every
(problem, contender) runs in its own Python process, whose memory is sampled together with that of its descendants:
contenders that take turns in one process would share memory. The cost of a step is the slope over the number of
batches, the fixed cost of a round is the intercept.
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
from benchmarks.memory import memory_kind, sample_memory
from tff_re.runtime.base import usable_cores

# TensorFlow and modules that need it are imported only in the measured processes.


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of a problem's measured rounds.

    Attributes:
      clients: number of clients in the rounds with few and with many batches.
      steps: batches in these two.
      client_counts: numbers of clients of the rounds with few batches, ascending; only this project plays the largest.
    """

    clients: int
    steps: tuple[int, int]
    client_counts: tuple[int, ...]

    def client_counts_for(self, contender: str) -> tuple[int, ...]:
        """The numbers of clients that a contender plays."""
        return self.client_counts[:-1] if contender in (PLAIN, TFF) else self.client_counts


SIZES = {
    "LR, 60 features": Size(10, (5, 20), (10, 50, 200)),
    "LSTM(128), 40 words": Size(10, (5, 20), (10, 50, 200)),
    "MiniLM-size encoder": Size(2, (2, 6), (2, 6, 12)),
}
ENCODER = "MiniLM-size encoder"
SECONDS_BETWEEN_SAMPLES = 0.2


@contextlib.contextmanager
def _tff_context(log: str, clients: int) -> Iterator[None]:
    """TFF's context as `set_sync_local_cpp_execution_context` makes it, with a worker that ends with this process."""
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


def _opener(name: str) -> Callable:
    def opened(log: str, clients: int):
        from tff_re.runtime import open_runtime

        return open_runtime(name, log_path=log, clients=clients)

    return opened


CONTENDERS = {
    "this project, local": ("Ours", _opener("local")),
    "this project, in-process": ("Ours", _opener("in-process")),
    "TFF's own FedAvg, its own context": ("TffFedAvg", _tff_context),
    "plain loop": ("Plain", lambda log, clients: contextlib.nullcontext()),
}
"""Name -> (its class in `rounds` or `encoder`, function from the log's path and the number of clients to the context
manager in which it runs)."""

PLAIN, TFF = "plain loop", "TFF's own FedAvg, its own context"
MAX_RATIO_TO_PLAIN, MAX_FIXED_SECONDS = 1.1, 1.5


@dataclasses.dataclass
class Measurement:
    """Results of one contender on one problem.

    Attributes:
      seconds: (clients, steps) -> seconds of every round but the first.
      peaks: (clients, steps) -> peak bytes, including the first round.
    """

    seconds: dict[tuple[int, int], list[float]]
    peaks: dict[tuple[int, int], int]


def run(rounds: int, out: Path) -> str:
    """Measures everything; returns the Markdown tables."""
    kind = memory_kind()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for problem in SIZES:
            for contender in CONTENDERS:
                measurement = measure(problem, contender, rounds, folder, out / "worker.log", kind)
                results[problem, contender] = measurement
                stages = ", ".join(
                    f"{n} x {k}: {statistics.median(s):.3f} s" for (n, k), s in measurement.seconds.items()
                )
                print(f"{problem}, {contender}; clients x batches {stages}", flush=True)
    return table(results) + (
        f"\n{rounds} rounds of each after one that compiles. {kind.upper()} of Python, the worker and its supervisor "
        f"together, sampled every {SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. {machine()}.\n"
    )


def measure(problem: str, contender: str, rounds: int, folder: str, log: Path, kind: str) -> Measurement:
    """Measures one contender on one problem, in a process that has ended on return.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    size = SIZES[problem]
    stages = [(size.clients, steps) for steps in size.steps]
    stages += [stage for n in size.client_counts_for(contender) if (stage := (n, size.steps[0])) not in stages]
    arguments = (problem, contender, stages, rounds, folder, str(log))
    outcomes = sample_memory(_all_stages, arguments, kind, f"{contender} on {problem}", SECONDS_BETWEEN_SAMPLES)
    return Measurement(
        {stage: seconds for stage, (seconds, _) in zip(stages, outcomes, strict=True)},
        {stage: peak for stage, (_, peak) in zip(stages, outcomes, strict=True)},
    )


def _all_stages(report, problem: str, contender: str, stages, rounds: int, folder: str, log: str) -> None:
    """In the measured process: the rounds of each stage; reports their seconds."""
    class_name, open_context = CONTENDERS[contender]
    with open_context(log, SIZES[problem].clients):
        round_player = (_encoder_rounds if problem == ENCODER else _simple_rounds)(problem, class_name, stages, folder)
        for clients, steps in stages:
            play_round = round_player(clients, steps)
            play_round()
            seconds = []
            for _ in range(rounds):
                began = time.perf_counter()
                play_round()
                seconds.append(time.perf_counter() - began)
            report(seconds)


def _simple_rounds(name: str, class_name: str, stages, folder: str) -> Callable:
    """A function of clients and steps; it gives the function that computes one round of them."""
    from benchmarks import rounds
    from computations.local_model import LocalModel

    (problem,) = (candidate for candidate in rounds.problems() if candidate.name == name)
    contender = {"Ours": rounds.Ours, "TffFedAvg": rounds.TffFedAvg, "Plain": rounds.PlainLoop}[class_name](
        problem, rounds.BATCH
    )
    contender.start(LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable)

    def play(clients: int, steps: int) -> Callable[[], None]:
        examples = steps * rounds.BATCH
        chosen = [problem.clients[i % len(problem.clients)] for i in range(clients)]
        contender.set_clients([{key: value[:examples] for key, value in arrays.items()} for arrays in chosen])
        return contender.round

    return play


def _encoder_rounds(name: str, class_name: str, stages, folder: str) -> Callable:
    """As `_simple_rounds`; every round starts from the same weights."""
    from benchmarks import encoder

    (Path(folder) / "config.json").write_text(json.dumps(encoder.CONFIG), "utf-8")
    problem = encoder.Problem(folder, encoder.CONFIG["vocab_size"], encoder.LENGTH, encoder.CLASSES)
    contender_class = {"Ours": encoder.Ours, "TffFedAvg": encoder.TffFedAvg, "Plain": encoder.PlainLegacyStep}[
        class_name
    ]
    contender = contender_class(problem, problem.local_model().initial_weights(0).trainable)

    def play(clients: int, steps: int) -> Callable[[], None]:
        arrays = problem.examples(encoder.BATCH * steps)
        return lambda: contender.round(arrays, clients)

    return play


def table(results: dict[tuple[str, str], Measurement]) -> str:
    """Markdown from (problem, contender) -> results: rounds, then growth over clients, then the verdicts."""
    rows = [
        "| problem | contender | seconds a round, median (min to max) | ratio to the plain loop | seconds a step "
        "| fixed seconds a round | peak GB |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    growth = ["", "| problem | contender | seconds a round | seconds a client | peak GB | MB a client |"]
    growth.append("| :-- | :-- | --: | --: | --: | --: |")
    for (problem, contender), measurement in results.items():
        size = SIZES[problem]
        few, many = ((size.clients, steps) for steps in size.steps)
        seconds = measurement.seconds[many]
        step_seconds, fixed_seconds = _slope_and_intercept(measurement, size)
        ratio_to_plain = statistics.median(seconds) / statistics.median(results[problem, PLAIN].seconds[many])
        peak = max(measurement.peaks[few], measurement.peaks[many]) / 1e9
        cells = f"{spread(seconds, 3)} | {ratio_to_plain:.2f} | {step_seconds:.4f} | {fixed_seconds:.3f} | {peak:.2f}"
        rows.append(f"| {problem} | {contender} | {cells} |")
        counts = size.client_counts_for(contender)
        medians = [statistics.median(measurement.seconds[n, size.steps[0]]) for n in counts]
        peaks = [measurement.peaks[n, size.steps[0]] for n in counts]
        per_client, bytes_per_client = (np.polyfit(counts, values, 1)[0] for values in (medians, peaks))
        growth.append(
            f"| {problem}, {' / '.join(map(str, counts))} clients | {contender} "
            f"| {' / '.join(f'{value:.2f}' for value in medians)} | {per_client:.4f} "
            f"| {' / '.join(f'{value / 1e9:.2f}' for value in peaks)} | {round(bytes_per_client / 1e6, 1) + 0.0:.1f} |"
        )
    return "\n".join([*rows, *growth, "", *_verdicts(results)])


def _slope_and_intercept(measurement: Measurement, size: Size) -> tuple[float, float]:
    """(seconds a step, fixed seconds a round), from the medians of rounds with few and many steps."""
    few, many = (statistics.median(measurement.seconds[size.clients, steps]) for steps in size.steps)
    slope = (many - few) / (size.steps[1] - size.steps[0])
    return slope, few - size.steps[0] * slope


def _verdicts(results: dict[tuple[str, str], Measurement]) -> list[str]:
    lines = []
    for problem in dict.fromkeys(problem for problem, _ in results):
        size = SIZES[problem]
        many = (size.clients, size.steps[1])
        medians = {c: statistics.median(m.seconds[many]) for (p, c), m in results.items() if p == problem}
        best = min((c for c in medians if c not in (PLAIN, TFF)), key=medians.get)
        ratio_to_plain = medians[best] / medians[PLAIN]
        max_ratio = MAX_RATIO_TO_PLAIN if problem == ENCODER else 1.0
        line = (
            f"{problem}: the best of ours is {best}. Expected: at most {max_ratio:g} times the plain loop; here "
            f"{ratio_to_plain:.2f}, {met(ratio_to_plain <= max_ratio)}."
        )
        if problem == ENCODER:
            fixed_seconds = _slope_and_intercept(results[problem, best], size)[1]
            line += (
                f" Expected: under {MAX_FIXED_SECONDS:g} s of fixed cost for {size.clients} clients; here "
                f"{fixed_seconds:.2f}, {met(fixed_seconds < MAX_FIXED_SECONDS)}."
            )
        lines += [line, ""]
    return lines
