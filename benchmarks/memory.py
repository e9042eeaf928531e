"""Peak memory of a round with a DistilBERT of random weights, over the number of clients.

Every (algorithm, number of clients) runs in its own Python process, so that each has its own peak. This process
computes nothing; it samples the memory of the measured process and its descendants (the worker and its supervisor).
"""

from __future__ import annotations

import collections
import contextlib
import json
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment
from tff_re.runtime.quiet import be_quiet

# TensorFlow and modules that need it are imported only in the measured process.

CONFIG = {
    "model_type": "distilbert",
    "n_layers": 6,
    "dim": 768,
    "n_heads": 12,
    "hidden_dim": 3072,
    "vocab_size": 30526,
}
LENGTH, BATCH, CLASSES = 32, 8, 10
WITH_LORA = " with LoRA"
ALGORITHMS, CLIENTS = ("fedavgs", "moon", "fedcmc", "fedavgs" + WITH_LORA), (2, 5, 10)
SECONDS_BETWEEN_SAMPLES = 0.05
MAX_GIGABYTES, MAX_GIGABYTES_WITH_LORA = 10.0, 4.0

Peaks = collections.namedtuple("Peaks", ["first", "second"])
"""Peak bytes up to the end of the first round, with start and compilation, and during the second round."""


def run(rounds: int, out: Path) -> str:
    """Measures two rounds of each, whatever `rounds` is; returns the Markdown table."""
    del rounds
    kind = memory_kind()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        peaks = {
            (name, clients): measure(name, clients, folder, out / "worker.log", kind)
            for name in ALGORITHMS
            for clients in CLIENTS
        }
    details = environment()
    return table(peaks) + (
        f"\nDistilBERT, {CONFIG['n_layers']} layers of width {CONFIG['dim']}, random weights; every client has one "
        f"batch of {BATCH} texts of {LENGTH} pieces. {kind.upper()} of Python, the worker and its supervisor together, "
        f"sampled every {SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. {details['cores']} cores "
        f"and this number of clients at once; TensorFlow {details['tensorflow']}, "
        f"{DISTRIBUTION} {details[DISTRIBUTION]}.\n\n"
        "SCAFFOLD is skipped: its clients keep control variates as large as the model, and the worker's messages hold "
        "at most 2·10^9 bytes a value, too little for those of ten DistilBERTs.\n"
    )


def table(peaks: dict[tuple[str, int], Peaks]) -> str:
    """Markdown from (algorithm, number of clients) -> peaks."""
    counts = sorted({clients for _, clients in peaks})
    max_clients = counts[-1]
    lines = [
        f"| algorithm | {' | '.join(f'{n} clients, GB' for n in counts)} | GB a client | "
        f"start and first round, {max_clients} clients, GB |",
        "| :-- |" + " --: |" * (len(counts) + 2),
    ]
    too_large = []
    for name in dict.fromkeys(name for name, _ in peaks):
        gigabytes = [peaks[name, n].second / 1e9 for n in counts]
        slope = np.polyfit(counts, gigabytes, 1)[0]
        first = peaks[name, max_clients].first / 1e9
        lines.append(f"| {name} | {' | '.join(f'{g:.2f}' for g in gigabytes)} | {slope:.2f} | {first:.2f} |")
        if max(gigabytes[-1], first) >= (MAX_GIGABYTES_WITH_LORA if name.endswith(WITH_LORA) else MAX_GIGABYTES):
            too_large.append(name)
    lines += [
        "",
        "Peaks are of the second round; GB a client is their slope by least squares. Expected: "
        f"{max_clients} clients stay under {MAX_GIGABYTES:g} GB, with LoRA {MAX_GIGABYTES_WITH_LORA:g}, "
        "the first round too; " + (f"not met by {', '.join(too_large)}." if too_large else "met by all."),
        "",
    ]
    return "\n".join(lines)


def measure(name: str, clients: int, folder: str, log: Path, kind: str) -> Peaks:
    """The peaks of one algorithm's rounds, played in a process that has ended on return.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    arguments = (name, clients, folder, CONFIG["vocab_size"], LENGTH, BATCH, CLASSES, log)
    return Peaks(*(peak for _, peak in sample_memory(_two_rounds, arguments, kind, f"{name} with {clients} clients")))


def sample_memory(
    target: Callable, arguments: tuple, kind: str, description: str, interval: float = SECONDS_BETWEEN_SAMPLES
) -> list[tuple[object, int]]:
    """Calls `target(report, *arguments)` in a process of its own, and samples its memory until it has ended.

    Args:
      target: a function of a module; each call of `report(message)` ends a stage.
      arguments: the further arguments of `target`.
      kind: of memory, see `memory_kind`.
      description: what the process does, for the error.
      interval: seconds between samples; sampling takes CPU time, too.

    Returns:
      For each stage its message, and the peak memory of the process and its descendants in bytes.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    context = multiprocessing.get_context("spawn")
    pipe, child_end = context.Pipe()
    process = context.Process(target=_run_observed, args=(child_end, target, arguments), daemon=True)
    process.start()
    try:
        child_end.close()
        stages = []
        while True:
            peak = 0
            while not pipe.poll(interval):
                peak = max(peak, process_memory(process.pid, kind))
            try:
                message = pipe.recv()
            except EOFError:
                break
            stages.append(
                (message, max(peak, process_memory(process.pid, kind)))
            )  # it waits; the stage may have ended before a sample
            pipe.send("continue")
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{description} ended with exit code {process.exitcode}")
        return stages
    finally:
        process.kill()  # its worker ends with it
        process.join()
        pipe.close()


def _run_observed(pipe, target: Callable, arguments: tuple) -> None:
    """In the measured process: calls `target`; its `report` sends a message and waits until that was read."""
    be_quiet()
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(message: object) -> None:
        pipe.send(message)
        pipe.recv()

    target(report, *arguments)


def _two_rounds(report, name, clients, folder, vocabulary, length, batch, classes, log) -> None:
    """In the measured process: two rounds; reports the end of each."""
    from benchmarks.encoder import Problem
    from computations import algorithms
    from tff_re.models.adapters import AdapterOptions
    from tff_re.runtime import open_runtime

    adapter = AdapterOptions() if name.endswith(WITH_LORA) else None
    with open_runtime("local", log_path=log):
        problem = Problem(folder, vocabulary, length, classes, adapter=adapter)
        model = problem.local_model()
        declared = algorithms.find(name.removesuffix(WITH_LORA))
        algorithm = declared.build(model, declared.options(learning_rate=5e-5, local_epochs=1, batch_size=batch))
        state = algorithm.initialize(model.initial_weights(0))
        arrays = model.arrange(problem.examples(batch))
        data = [collections.OrderedDict(examples=arrays, seed=np.array([0, i], np.int32)) for i in range(clients)]
        initial_client_state = algorithm.client_work.initial_client_state
        client_states = ([initial_client_state(arrays)] * clients,) if initial_client_state else ()
        for _ in Peaks._fields:
            output = algorithm.next(state, data, *client_states)
            state = output["state"]
            client_states = (output["client_state"],) if initial_client_state else ()
            report("round finished")


def _end_with_parent() -> None:
    """Ends this process when the measuring process ends."""
    multiprocessing.parent_process().join()
    os._exit(1)


def memory_kind() -> str:
    """`pss`, which counts pages shared by processes once, if the system has it; otherwise `rss`."""
    try:
        return "pss" if hasattr(psutil.Process().memory_full_info(), "pss") else "rss"
    except psutil.AccessDenied:
        return "rss"


def process_memory(pid: int, kind: str) -> int:
    """Bytes of a process and its descendants; processes that end meanwhile are not counted."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += getattr(member.memory_full_info() if kind == "pss" else member.memory_info(), kind)
    return total
