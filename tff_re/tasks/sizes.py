"""Estimates of the memory that a run needs, checked before anything is built.

An estimate is a lower bound: without what TensorFlow adds. A refused run could not have finished; a run that passes may
still be too large.
"""

from __future__ import annotations

import math
import resource
from pathlib import Path

from tff_re.errors import UserError

LARGEST_MESSAGE = 2e9
"""Bytes of a value sent to or from TFF's worker (the limit of protocol buffers)."""

ADDRESS_SPACE = 3e9
"""Bytes of address space that TensorFlow and TFF take for the smallest run, without the worker (2.8e9 on two cores)."""

OPEN_FILES = 64
"""Files that a run may have open at once (the smallest has 28)."""

WEIGHTS_AT_ONCE = 4
"""Copies of the weights that a client's training holds: the global ones, its own, their gradient, the update."""

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def require_limits() -> None:
    """Checks limits before TensorFlow is imported, which ends without a message where it gets no address space.

    Raises:
      UserError: the limit of address space (ulimit -v) or of open files (ulimit -n) is too small for any run.
    """
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < ADDRESS_SPACE:
        raise UserError(
            f"ulimit -v allows {space / 1e9:.1f} GB of address space, but TensorFlow needs {ADDRESS_SPACE / 1e9:g} "
            "GB; raise it, e.g. ulimit -v unlimited"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < OPEN_FILES:
        raise UserError(
            f"ulimit -n allows {files} open files, but a run needs {OPEN_FILES}; raise it, e.g. ulimit -n 1024"
        )


def available_memory() -> float:
    """Bytes that this process may still take: what the machine, its control group and ulimit -v leave."""
    import psutil

    left = [float(psutil.virtual_memory().available)]
    for limit, used, statistics in _CGROUPS:
        bounds = _number(limit), _number(used)
        if None not in bounds and bounds[0] < 1 << 60:  # version 1 says 2^63 for no limit
            left.append(bounds[0] - bounds[1] + _reclaimable(statistics))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        left.append(space - psutil.Process().memory_info().vms)
    return max(0.0, min(left))


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Raises UserError where `needed` bytes are more than there are.

    Args:
      needed: bytes.
      what: the subject of the message, with the key and its value.
      remedy: what to do.
    """
    free = available_memory()
    if needed > free:
        raise UserError(
            f"{what} needs at least {_gigabytes(needed)} of memory, but {_gigabytes(free)} is free; {remedy}"
        )


def require_room_for_texts(texts: int, max_length: int, arrays: int) -> None:
    """Before texts are encoded: int32 [texts, max_length] for each of the arrays."""
    what = f"task.max_length = {max_length}: encoding {texts} texts"
    require_memory(4.0 * texts * max_length * arrays, what, "lower it")


MOST_EMPTY_CLIENTS = 10_000
"""The number of clients that a recipe may ask for, however few samples there are."""


def require_samples_for_clients(partitioner, samples: int) -> None:
    """Before samples are given to clients: those without one are left out, but each of them takes memory first.

    Raises:
      UserError: more clients than samples, and more than `MOST_EMPTY_CLIENTS`.
    """
    clients = getattr(partitioner, "num_clients", None)
    if clients is not None and clients > max(samples, MOST_EMPTY_CLIENTS):
        raise UserError(f"partition.num_clients is {clients}, but there are only {samples} samples; lower it")


def require_room_for_outputs(examples: int, shape: tuple[int, ...]) -> None:
    """Before frozen layers run: float16 [examples, *shape], which are held through the run."""
    what = f"model.frozen_layers: keeping the outputs for {examples} examples"
    remedy = "lower task.max_length, or set model.frozen_layers to 0"
    require_memory(2.0 * examples * math.prod(shape), what, remedy)


def require_room_for_synthetic(clients: int, features: int, classes: int, examples: int | None) -> None:
    """Before clients are generated.

    Args:
      clients, features, classes: of the task.
      examples: how many over all clients; None: drawn, at least 50 for each.
    """
    drawn = 50 * clients if examples is None else examples
    model = 8.0 * features * classes
    what = f"task.num_clients = {clients}, num_features = {features}, num_classes = {classes}: the generated data"
    require_memory(4.0 * drawn * features + 1000.0 * clients + model, what, "lower them")


def require_room_for_model(size: int, source: str, *, trains: bool = True) -> None:
    """Before a model is built.

    Args:
      size: bytes of the weights.
      source: the model, for the message.
      trains: whether it will be trained, and not only computed with.
    """
    what = f"{source}: {'training' if trains else 'holding'} its weights of {_gigabytes(size)}"
    require_memory(float(WEIGHTS_AT_ONCE if trains else 1) * size, what, "choose a smaller model")


def require_room_in_message(size: int, source: str, runtime: str) -> None:
    """Before a run: the weights go to the local worker in one message.

    Raises:
      UserError: they are larger than it can be, where the runtime has a worker.
    """
    if runtime not in ("in-process", "sites") and size > LARGEST_MESSAGE:
        raise UserError(
            f"{source}: its weights take {_gigabytes(size)}, but a message to TFF's worker holds at most "
            f"{_gigabytes(LARGEST_MESSAGE)}; choose a smaller model, or --runtime in-process"
        )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size < 1e13 else f"{size / 1e9:.1e} GB"


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text("ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _reclaimable(path: str) -> int:
    """Bytes that count as used and that the kernel gives back: cached file pages, and its own caches.

    Version 1 counts the groups below in names of their own, total_…, and the kernel's caches not at all.
    """
    try:
        lines = dict(line.split() for line in Path(path).read_text("ascii").splitlines())
        names = ("inactive_file", "active_file", "slab_reclaimable")
        return sum(int(lines.get(f"total_{name}", lines.get(name, 0))) for name in names)
    except (OSError, ValueError):
        return 0
