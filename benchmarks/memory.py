"""Peak memory of a round with a DistilBERT of random weights, over the number of clients.

Every (algorithm, number of clients) has a Python process of its own, so that peaks do not mix. This process, which
computes nothing itself, samples the memory of that one and all below it (the worker and its supervisor).
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

# TensorFlow and what needs it is imported in the measured process alone.

FORM = {
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
MOST_GIGABYTES, MOST_WITH_LORA = 10.0, 4.0

Peaks = collections.namedtuple("Peaks", ["first", "second"])
"""Bytes: up to the end of the first round, start and compilation included, and during the second."""


def run(rounds: int, out: Path) -> str:
    """Measures one round of each, whatever `rounds` is; returns the Markdown table."""
    del rounds
    kind = kind_of_memory()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(FORM), "utf-8")
        peaks = {
            (name, clients): measure(name, clients, folder, out / "worker.log", kind)
            for name in ALGORITHMS
            for clients in CLIENTS
        }
    about = environment()
    return table(peaks) + (
        f"\nDistilBERT, {FORM['n_layers']} layers of width {FORM['dim']}, random weights; every client has one batch "
        f"of {BATCH} texts of {LENGTH} pieces. {kind.upper()} of Python, the worker and its supervisor together, "
        f"sampled every {SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. {about['cores']} cores, "
        f"as many clients at once; TensorFlow {about['tensorflow']}, {DISTRIBUTION} {about[DISTRIBUTION]}.\n\n"
        "SCAFFOLD is left out: its clients keep control variates as large as the model, and the worker's messages hold "
        "at most 2·10^9 bytes a value, too little for those of ten DistilBERTs.\n"
    )


def table(peaks: dict[tuple[str, int], Peaks]) -> str:
    """Markdown from (algorithm, number of clients) -> peaks."""
    counts = sorted({clients for _, clients in peaks})
    most = counts[-1]
    lines = [
        f"| algorithm | {' | '.join(f'{n} clients, GB' for n in counts)} | GB a client | "
        f"start and first round, {most} clients, GB |",
        "| :-- |" + " --: |" * (len(counts) + 2),
    ]
    over = []
    for name in dict.fromkeys(name for name, _ in peaks):
        gigabytes = [peaks[name, n].second / 1e9 for n in counts]
        slope = np.polyfit(counts, gigabytes, 1)[0]
        first = peaks[name, most].first / 1e9
        lines.append(f"| {name} | {' | '.join(f'{g:.2f}' for g in gigabytes)} | {slope:.2f} | {first:.2f} |")
        if max(gigabytes[-1], first) >= (MOST_WITH_LORA if name.endswith(WITH_LORA) else MOST_GIGABYTES):
            over.append(name)
    lines += [
        "",
        "The peak is that of the second round; GB a client are its slope by least squares. Expected: "
        f"{most} clients stay under {MOST_GIGABYTES:g} GB, with LoRA {MOST_WITH_LORA:g}, the first round too; "
        + (f"not met by {', '.join(over)}." if over else "met by all."),
        "",
    ]
    return "\n".join(lines)


def measure(name: str, clients: int, folder: str, log: Path, kind: str) -> Peaks:
    """The peaks of one algorithm's rounds, in a process of its own that has ended on return.

    Raises:
      RuntimeError: that process ended before its time; it has printed why.
    """
    arguments = (name, clients, folder, FORM["vocab_size"], LENGTH, BATCH, CLASSES, log)
    return Peaks(*(peak for _, peak in watched(_two_rounds, arguments, kind, f"{name} with {clients} clients")))


def watched(
    target: Callable, arguments: tuple, kind: str, who: str, every: float = SECONDS_BETWEEN_SAMPLES
) -> list[tuple[object, int]]:
    """Calls `target(tell, *arguments)` in a process of its own that has ended on return.

    Args:
      target: a function of a module; what it tells by `tell(message)` ends a stage.
      arguments: beside `tell`.
      kind: of memory, see `kind_of_memory`.
      who: what the process does, for the error.
      every: seconds between samples, which cost some time of the processor themselves.

    Returns:
      For each stage its message, and the peak of that process and all below it in bytes.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    context = multiprocessing.get_context("spawn")
    pipe, its_end = context.Pipe()
    process = context.Process(target=_observed, args=(its_end, target, arguments), daemon=True)
    process.start()
    try:
        its_end.close()
        stages = []
        while True:
            peak = 0
            while not pipe.poll(every):
                peak = max(peak, memory_of(process.pid, kind))
            try:
                message = pipe.recv()
            except EOFError:
                break
            stages.append((message, max(peak, memory_of(process.pid, kind))))  # it waits; a stage may have been short
            pipe.send("go on")
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{who} ended with exit code {process.exitcode}")
        return stages
    finally:
        process.kill()  # its worker ends with it
        process.join()
        pipe.close()


def _observed(pipe, target: Callable, arguments: tuple) -> None:
    """In the measured process: the call; tells the end of each stage and waits until it may go on."""
    be_quiet()
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(message: object) -> None:
        pipe.send(message)
        pipe.recv()

    target(tell, *arguments)


def _two_rounds(tell, name, clients, folder, vocabulary, length, batch, classes, log) -> None:
    """In the measured process: two rounds; tells the end of each."""
    from benchmarks.encoder import Problem
    from computations import algorithms
    from tff_re.models.adapters import AdapterOptions
    from tff_re.runtime import open_runtime

    adapter = AdapterOptions() if name.endswith(WITH_LORA) else None
    with open_runtime("local", log_path=log):
        problem = Problem(folder, vocabulary, length, classes, adapter=adapter)
        model = problem.local_model()
        chosen = algorithms.find(name.removesuffix(WITH_LORA))
        algorithm = chosen.build(model, chosen.options(learning_rate=5e-5, local_epochs=1, batch_size=batch))
        state = algorithm.initialize(model.initial_weights(0))
        arrays = model.arrange(problem.examples(batch))
        data = [collections.OrderedDict(examples=arrays, seed=np.array([0, i], np.int32)) for i in range(clients)]
        blank = algorithm.client_work.initial_client_state
        memory = ([blank(arrays)] * clients,) if blank else ()
        for _ in Peaks._fields:
            output = algorithm.next(state, data, *memory)
            state = output["state"]
            memory = (output["client_state"],) if blank else ()
            tell("a round is over")


def _end_with_parent() -> None:
    """Ends this process if the one that measures it is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def kind_of_memory() -> str:
    """`pss`, which counts a page that processes share once, where the system tells it; else `rss`."""
    try:
        return "pss" if hasattr(psutil.Process().memory_full_info(), "pss") else "rss"
    except psutil.AccessDenied:
        return "rss"


def memory_of(pid: int, kind: str) -> int:
    """Bytes of a process and all below it; those that end meanwhile do not count."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += getattr(one.memory_full_info() if kind == "pss" else one.memory_info(), kind)
    return total
