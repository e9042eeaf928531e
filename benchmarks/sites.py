"""Cost of a stage without its computation: messages to three sites and back, in memory, over sockets, over Flower.

The sites only read and write messages. Flower is measured with `scripts/flower/supernode`, and with its own node, which
looks for a message every 3 s and for a task every second, and starts a Python process for each message.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import flower
from benchmarks.common import machine, spread
from tff_re.sites.messages import pack, unpack
from tff_re.sites.transport import Engine, InMemory, Relay, Serving, Sockets

SITES = ("aachen", "bonn", "celle")
NUMBERS = (63_500, 10_000_000)
"""float32 in a message: the model of flcmc-shipped-fedpap, and 40 MB."""

MEMORY, SOCKETS = "memory", "Unix sockets"
NODES = {
    "Flower, scripts/flower/supernode": flower.QUICK,
    "Flower, its own flower-supernode": (flower.PROGRAMS / "flower-supernode",),
}


def run(rounds: int, out: Path) -> str:
    """Measures all; returns the Markdown table."""
    del out
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, engine, cpu in engines(Path(folder)):
            for numbers in NUMBERS:
                measured[name, numbers] = stages(engine, cpu, numbers, rounds)
                print(name, numbers, measured[name, numbers], flush=True)
    lines = [
        "| transport | message | seconds a stage, median (min to max) | Flower's CPU seconds a stage |",
        "| :-- | --: | --: | --: |",
    ]
    for (name, numbers), timings in measured.items():
        seconds, cpu = zip(*timings, strict=True)
        cpu_cell = f"{statistics.median(cpu):.2f}" if name in NODES else ""
        lines.append(f"| {name} | {4 * numbers / 1e6:g} MB | {spread(seconds, 3)} | {cpu_cell} |")
    reason = flower.missing()
    note = f"Flower was skipped: {reason}. " if reason else ""
    return "\n".join(lines) + (
        f"\n\n{note}Three sites at once, a message to each and one of the same size back, {rounds} stages "
        f"after one that is not counted. {machine()}.\n"
    )


def engines(folder: Path) -> Iterator[tuple[str, Engine, object]]:
    """(name, engine, function that returns the CPU seconds of its processes) of each, while it is measured."""
    answers = {site: _echo(site) for site in SITES}
    yield MEMORY, InMemory(answers), lambda: 0.0
    with contextlib.ExitStack() as stack:
        paths = {site: folder / f"{site}.sock" for site in SITES}
        for site, path in paths.items():
            server = Serving(answers[site], path)
            stack.callback(server.close)
            threading.Thread(target=server.run, daemon=True).start()
        yield SOCKETS, Sockets(paths), lambda: 0.0
        for name, node in NODES.items() if flower.missing() is None else ():
            with flower.Flower(folder / f"flower {len(list(folder.iterdir()))}", paths, node) as started:
                yield name, Relay(started.relay, SITES), started.cpu_seconds


def stages(engine: Engine, cpu, numbers: int, rounds: int) -> list[tuple[float, float]]:
    """(seconds, CPU seconds) of each stage but the first."""
    timings = []
    with concurrent.futures.ThreadPoolExecutor(len(SITES)) as pool:
        for turn in range(rounds + 1):
            array = np.full(numbers, turn, np.float32)
            began, cpu_began = time.perf_counter(), cpu()
            message = pack({"kind": "stage"}, [array])
            calls = [pool.submit(engine.call, site, message, 600.0) for site in SITES]
            for site, call in zip(SITES, calls, strict=True):
                table, arrays = unpack(call.result())
                if table["site"] != site or not np.array_equal(arrays, [array]):
                    raise RuntimeError(f"site {site} was not answered with its own message")
            seconds = time.perf_counter() - began
            if turn:
                timings.append((seconds, cpu() - cpu_began))
    return timings


def _echo(site: str):
    return lambda message: pack({"site": site}, unpack(message)[1])
