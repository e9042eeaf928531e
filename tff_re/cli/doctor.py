"""`doctor`: what this machine has, and whether each runtime starts and computes."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click
from rich.table import Table

from computations.stack import STACK
from tff_re.cli import options
from tff_re.cli.display import console
from tff_re.errors import UserError
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.runtime.base import usable_cores
from tff_re.tasks.sizes import require_limits


@click.command(epilog=options.example("python -m tff_re.run doctor"))
@options.data
def doctor(data):
    """Check this machine and this installation; start a worker and stop it again."""
    require_limits()
    table = Table(title="doctor")
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    findings = check(data)
    for finding in findings:
        table.add_row("ok" if finding.good else "!!", finding.what, finding.value)
    console.print(table)
    bad = [finding for finding in findings if not finding.good]
    if bad:
        raise UserError(f"{bad[0].what}: {bad[0].remedy}")


@dataclass(frozen=True)
class Finding:
    """What was checked, the result, whether it is good, and what to do if not."""

    what: str
    value: str
    good: bool = True
    remedy: str = ""


def check(data: Path | None) -> list[Finding]:
    """Return all findings.

    It opens each runtime (`local` starts a worker), lets it add two numbers, and closes it.
    """
    machine = [_python(), _machine(), *_packages(), _memory(), _disk(), _gpu()]
    worker = [_worker()] if STACK == "tff" else []
    return [_stack(), *machine, *worker, _in_process(), _data(data)]


def _stack() -> Finding:
    engine = {"tff": "TensorFlow Federated", "language": "federated-language, without TFF's worker"}[STACK]
    return Finding("stack", f"{STACK}: {engine}")


def _python() -> Finding:
    return Finding("Python", platform.python_version())  # another one was refused by tff_re/__init__.py


def _machine() -> Finding:
    good = sys.platform == "linux" and platform.machine() == "x86_64"
    value = f"{platform.system()} {platform.machine()}, {usable_cores()} cores"
    return Finding("machine", value, good, "TensorFlow Federated has wheels for Linux on x86-64 only")


def _packages() -> list[Finding]:
    from tff_re.runs.folder import PACKAGES

    findings = []
    for name in PACKAGES:
        try:
            findings.append(Finding(name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            findings.append(Finding(name, "not installed", False, "install the project's environment: make setup"))
    return findings


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    value = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    return Finding("memory", value, memory.available > 2 * 2**30, "close other programs: TensorFlow needs about 2 GiB")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    return Finding("disk, this folder", f"{free / 2**30:.1f} GiB free", free > 2**28, "free some space")


def _gpu() -> Finding:
    from tff_re.runtime.in_process.devices import gpu_names

    count = len(gpu_names())
    uses = f"; the runtime '{DEFAULT_RUNTIME}', the default, uses {'it' if count == 1 else 'them'}" if count else ""
    return Finding("GPU", f"{count} seen by TensorFlow{uses}")


def _worker() -> Finding:
    return _computes("local", "max_concurrent_computation_calls", "the worker gave a wrong sum; run make setup again")


def _in_process() -> Finding:
    return _computes("in-process", "threads", "TensorFlow gave a wrong sum; run make setup again")


def _computes(name: str, clients_at_once: str, remedy: str) -> Finding:
    import numpy as np

    from tff_re.runtime import RuntimeProblem, open_runtime
    from tff_re.runtime.local.runtime import exposure

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            with open_runtime(name, log_path=Path(folder) / "worker.log") as runtime:
                from computations import federated as tff

                add = tff.tensorflow.computation(lambda a, b: a + b, np.int32, np.int32)
                good = int(add(2, 3)) == 5
                value = f"starts and computes ({time.perf_counter() - began:.1f} s with its imports), "
                description = runtime.describe()
                value += f"{description[clients_at_once]} clients side by side"
                if description.get("private"):
                    value += ", in a network of its own"
                elif "private" in description:
                    value += f"; {exposure(description['why_exposed'])}"
        except RuntimeProblem as error:
            return Finding(f"runtime '{name}'", str(error), False, str(error))
    return Finding(f"runtime '{name}'", value, good, remedy)


def _data(data: Path | None) -> Finding:
    from datasets.catalogue import DATA_SETS, ENVIRONMENT_VARIABLE, files_there

    folder = data or os.environ.get(ENVIRONMENT_VARIABLE)
    there = [name for name in DATA_SETS if any(files_there(name, data).values())]
    where = f"{folder}" if folder else f"no folder ({ENVIRONMENT_VARIABLE} is not set)"
    return Finding("data sets", f"{where}: {', '.join(there)}")
