"""Compared with other frameworks: plain PyTorch and JAX loops, and Flower with PyTorch and with Keras.

FedAvg of ten clients with 20 batches of 10 each, SGD, as in `rounds`: logistic regression, an LSTM, a PCNN. Also the
step of a sentence encoder with Adam, as in `encoder`, compared with PyTorch and the transformers library. All train the
same function from the same weights on the same examples; before timing, one full-batch step of each must lead to the
same weights. Every contender is a command; they take turns, and all processes of one have ended before the next one
starts. The programs of the other frameworks are in scripts/peers, their environment is made by scripts/setup-peers.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import filecmp
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil

from benchmarks.common import machine, met, ratio, spread
from benchmarks.memory import memory_kind, process_memory

# TensorFlow and modules that need it are imported only in the measured processes.

ROOT = Path(__file__).parents[1]
PROGRAMS, ENVIRONMENT = ROOT / "scripts" / "peers", ROOT / ".peers"
PYTHON = ENVIRONMENT / "bin" / "python"

IN_PROCESS, LOCAL = "this project, in-process", "this project, local"
TORCH, JAX = "plain PyTorch loop", "plain JAX loop"
FLOWER_TORCH, FLOWER_KERAS = "Flower + PyTorch", "Flower + Keras"
LR, LSTM, PCNN, ENCODER = "LR, 60 features", "LSTM(128), 40 words", "PCNN, 40 words", "MiniLM-size encoder"
RECIPE = "flcmc-shipped-fedpap"

TURNS = 2
"""Number of timed starts of each contender."""

SECONDS_BETWEEN_SAMPLES, MAX_SECONDS = 0.2, 900.0


@dataclasses.dataclass(frozen=True)
class Contender:
    """Attributes:
    program: arguments of Python before the folders.
    arguments: further arguments, after the folders.
    python: the interpreter.
    problems: the problems that it trains.
    environment: variables in addition to those of this process.
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    python: Path = PYTHON
    problems: tuple[str, ...] = (LR, LSTM, PCNN)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def command(self, problem: Path, run: Path) -> list[str]:
        return [str(self.python), *self.program, str(problem), str(run), *self.arguments]


_ALL_PROBLEMS = (LR, LSTM, PCNN, ENCODER)
_FLOWER = (str(PROGRAMS / "flower_simulation.py"),)
_THIS_PROJECT = ("-m", "benchmarks.peers", "play")
CONTENDERS = {
    IN_PROCESS: Contender(_THIS_PROJECT, ("in-process",), Path(sys.executable), _ALL_PROBLEMS),
    LOCAL: Contender(_THIS_PROJECT, ("local",), Path(sys.executable), _ALL_PROBLEMS),
    TORCH: Contender((str(PROGRAMS / "torch_loop.py"),), problems=_ALL_PROBLEMS),
    JAX: Contender((str(PROGRAMS / "jax_loop.py"),)),
    FLOWER_TORCH: Contender(_FLOWER, ("flower_torch",)),
    FLOWER_KERAS: Contender(_FLOWER, ("flower_keras",), environment={"KERAS_BACKEND": "jax"}),
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Attributes:
    clients: number of clients in a round.
    few, many: batches of a client in the two kinds of rounds whose difference is the cost of the steps.
    batch: examples in a batch.
    full: examples of a client; when weights are compared, all are one batch.
    """

    clients: int
    few: int
    many: int
    batch: int
    full: int


SIZES = {LR: Size(10, 5, 20, 10, 200), LSTM: Size(10, 5, 20, 10, 200), PCNN: Size(10, 5, 20, 10, 200)}
SIZES[ENCODER] = Size(1, 2, 12, 8, 8)


@dataclasses.dataclass
class Measurement:
    """Results of one contender on one problem, with an entry for each turn.

    Attributes:
      rounds: seconds of the rounds with many batches.
      steps: seconds a batch, the slope between rounds with few and with many.
      first: seconds from the command to the end of the first round.
      peak: peak bytes of its process and all descendants.
    """

    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    steps: list[float] = dataclasses.field(default_factory=list)
    first: list[float] = dataclasses.field(default_factory=list)
    peak: int = 0

    @property
    def all_rounds(self) -> list[float]:
        return list(itertools.chain.from_iterable(self.rounds))


def missing() -> str | None:
    """One line that says why the other frameworks cannot be measured; None if they can."""
    lock, stamp = PROGRAMS / "requirements.lock", ENVIRONMENT / ".installed"
    if stamp.exists() and filecmp.cmp(lock, stamp, shallow=False):
        return None
    state = "is older than its lock" if stamp.exists() else "is missing"
    return f"the environment of PyTorch, JAX, Keras and Flower {state}; make it with scripts/setup-peers"


def run(rounds: int, out: Path) -> str:
    """Measures everything; returns the Markdown tables."""
    contenders, reason = CONTENDERS, missing()
    if reason:
        contenders = {name: contender for name, contender in CONTENDERS.items() if contender.python != PYTHON}
        print(f"peers: {', '.join(n for n in CONTENDERS if n not in contenders)} are skipped: {reason}", flush=True)
    kind, log = memory_kind(), out / "peers.log"
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for problem in SIZES:
            names = [name for name, contender in contenders.items() if problem in contender.problems]
            for name, measurement in measure(problem, names, rounds, Path(folder), log, kind).items():
                results[problem, name] = measurement
                print(f"{problem}, {name}: {statistics.median(measurement.all_rounds):.3f} s a round", flush=True)
        recipe_seconds = [first_round_of_recipe(Path(folder) / f"run{turn}", log) for turn in range(TURNS)]
    return table(results, recipe_seconds) + (
        f"\n{TURNS} starts of each contender, in turn, with {rounds} rounds each after the first. {kind.upper()} of "
        f"all processes of a contender, in an extra start, sampled every "
        f"{SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. "
        f"{machine()}{_versions() if not reason else ''}.\n"
    )


def measure(
    problem: str, names: Sequence[str], rounds: int, folder: Path, log: Path, kind: str
) -> dict[str, Measurement]:
    """Contender -> its results. Weights are compared first, then memory is measured, then the turns are timed.

    Raises:
      RuntimeError: a contender failed; its output is in the log.
      AssertionError: two contenders' weights differ after one step.
    """
    size, results = SIZES[problem], {name: Measurement() for name in names}
    compared, timed = folder / f"{problem}, compared", folder / problem
    for target, purpose in ((compared, "compare"), (timed, "time")):
        command = [sys.executable, "-m", "benchmarks.peers", "prepare", problem, purpose, str(target)]
        _run_to_end(command, {}, log, f"preparing {problem}")
    weights = {name: play(name, compared, [[1, size.full]], log).weights for name in names}
    check_agreement(problem, weights, compared)
    for name, measurement in results.items():
        measurement.peak = play(name, timed, [[size.many, size.batch]] * 3, log, kind).peak
    for _ in range(TURNS):
        for name, measurement in results.items():
            plan = [[steps, size.batch] for steps in (size.many, size.few) for _ in range(1 + rounds)]
            timed_run = play(name, timed, plan, log)
            seconds = np.diff(timed_run.stamps)
            many, few = seconds[1 : 1 + rounds].tolist(), seconds[2 + rounds :].tolist()
            measurement.rounds.append(many)
            steps = size.clients * (size.many - size.few)
            measurement.steps.append((statistics.median(many) - statistics.median(few)) / steps)
            measurement.first.append(timed_run.stamps[1] - timed_run.started)
    return results


@dataclasses.dataclass
class ContenderRun:
    """One start of a contender: its start time, its stamps, its final weights and its peak memory in bytes."""

    started: float
    stamps: list[float]
    weights: dict[str, np.ndarray]
    peak: int


def play(name: str, problem: Path, rounds: list[list[int]], log: Path, kind: str | None = None) -> ContenderRun:
    """Starts a contender and waits for its end.

    Args:
      name: of the contender.
      problem: the folder that `prepare` made.
      rounds: [steps, batch size] of each.
      log: gets its output.
      kind: of memory to sample, see `memory_kind`; None: memory is not sampled.
    """
    contender = CONTENDERS[name]
    with tempfile.TemporaryDirectory(dir=problem) as folder:
        (Path(folder) / "rounds.json").write_text(json.dumps(rounds), "utf-8")
        description = f"{name} on {problem.name}"
        started, peak = _run_to_end(
            contender.command(problem, Path(folder)), contender.environment, log, description, kind
        )
        stamps = [float(line) for line in (Path(folder) / "stamps.txt").read_text("utf-8").split()]
        if len(stamps) != len(rounds) + 1:
            raise RuntimeError(f"{description} noted {len(stamps)} times of {len(rounds)} rounds; see {log}")
        with np.load(Path(folder) / "after.npz") as arrays:
            return ContenderRun(started, stamps, dict(arrays), peak)


def _run_to_end(command, variables, log: Path, description: str, kind: str | None = None) -> tuple[float, int]:
    """Runs a command until it and all its descendants have ended; returns (its start time, its peak memory)."""
    with open(log, "ab") as output:
        started = time.monotonic()
        with running(command, variables, output, output) as process:
            peak, pause = 0, SECONDS_BETWEEN_SAMPLES if kind else 0.05
            while process.poll() is None:
                if kind:
                    peak = max(peak, process_memory(process.pid, kind))
                if time.monotonic() - started > MAX_SECONDS:
                    raise RuntimeError(f"{description} did not end within {MAX_SECONDS:g} s; see {log}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(pause)
    if process.returncode:
        raise RuntimeError(f"{description} ended with exit code {process.returncode}; see {log}")
    return started, peak


@contextlib.contextmanager
def running(command: Sequence[str], variables: Mapping[str, str], output, errors) -> Iterator[subprocess.Popen]:
    """Gives the running command; on exit, it and all its descendants have been killed, orphans too.

    A process whose parent ends becomes a child of this process (PR_SET_CHILD_SUBREAPER), so that none is missed.
    """
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
    earlier_pids = {process.pid for process in psutil.Process().children(recursive=True)}
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, PROGRAMS)))}
    files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors}
    process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True, **files)
    try:
        yield process
    finally:
        while remaining := [p for p in psutil.Process().children(recursive=True) if p.pid not in earlier_pids]:
            for descendant in remaining:
                with contextlib.suppress(psutil.NoSuchProcess):
                    descendant.kill()
            process.poll()  # before psutil can take its exit code
            psutil.wait_procs(remaining, timeout=1)
        process.wait()


def first_round_of_recipe(folder: Path, log: Path) -> float:
    """Seconds from the command `train` of a shipped recipe until it prints its first round."""
    command = [sys.executable, "-m", "tff_re.run", "train", RECIPE, "--out", str(folder), "--runtime", "in-process"]
    with open(log, "ab") as errors:
        started = time.monotonic()
        with running(command, {"PYTHONUNBUFFERED": "1"}, subprocess.PIPE, errors) as process:
            for line in process.stdout:
                if b"round 1/" in line:
                    return time.monotonic() - started
    raise RuntimeError(f"train {RECIPE} printed no round; see {log}")


def check_agreement(problem: str, weights: Mapping[str, Mapping[str, np.ndarray]], folder: Path) -> None:
    """Checks that one step led all contenders to the same weights.

    The tolerance is 1e-5, and for Adam's first step that of `encoder.check_agreement`.

    Raises:
      AssertionError: weights differ, or one has not moved.
    """
    with np.load(folder / "start.npz") as arrays:
        start = dict(arrays)
    gradients = {}
    if (folder / "gradients.npz").exists():
        with np.load(folder / "gradients.npz") as arrays:
            gradients = {name: np.abs(value) for name, value in arrays.items()}
    first, *others = weights
    for name, expected in weights[first].items():
        if (expected == start[name]).all():
            raise AssertionError(f"{problem}: {name} of {first} has not moved")
        for other in others:
            differences = np.abs(expected - weights[other][name])
            allowed = _allowed(gradients[name]) if gradients else 1e-5
            if not (differences <= allowed).all():
                raise AssertionError(f"{problem}: {name} of {first} and {other} differ by {np.max(differences)}")


def _allowed(gradient: np.ndarray) -> np.ndarray:
    from benchmarks.encoder import CLEAR_GRADIENT, RATE

    allowed = RATE * np.where(gradient > CLEAR_GRADIENT, 0.02, 2.02)
    return allowed * gradient.any(axis=-1, keepdims=True) if gradient.ndim > 1 else allowed


def table(results: Mapping[tuple[str, str], Measurement], recipe_seconds: Sequence[float]) -> str:
    """Markdown from (problem, contender) -> results, and the seconds to the shipped recipe's first round."""
    lines = [
        "| problem | contender | seconds a round, median (min to max) | ratio to our faster runtime | ms a step "
        "| peak GB | seconds from command to first round |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for (problem, name), measurement in results.items():
        best = results[problem, _best(results, problem)]
        lines.append(
            f"| {problem} | {name} | {spread(measurement.all_rounds, 3)} | {_times(measurement, best):.2f} "
            f"| {statistics.median(measurement.steps) * 1000:.2f} | {measurement.peak / 1e9:.2f} "
            f"| {spread(measurement.first, 1)} |"
        )
    lines.append(f"| of the recipe | `train {RECIPE}`, in-process | | | | | {spread(recipe_seconds, 1)} |")
    return "\n".join([*lines, "", *_verdicts(results, recipe_seconds)])


def _best(results, problem: str) -> str:
    ours = [name for p, name in results if p == problem and name in (IN_PROCESS, LOCAL)]
    return min(ours, key=lambda name: statistics.median(results[problem, name].all_rounds))


def _times(measurement: Measurement, reference: Measurement) -> float:
    return ratio(*([statistics.median(turn) for turn in m.rounds] for m in (measurement, reference)))


EXPECTED = (
    (LR, FLOWER_TORCH, 20.0),
    (LSTM, FLOWER_TORCH, 2.0),
    (LSTM, TORCH, 1.0),
    (LSTM, JAX, 1.0),
    (ENCODER, TORCH, 1 / 0.95),
)
"""(problem, contender, expected minimum of its round's time divided by our faster runtime's)."""


def _verdicts(results, recipe_seconds: Sequence[float]) -> list[str]:
    lines = []
    for problem, name, min_ratio in EXPECTED:
        if (problem, name) not in results:
            continue
        best = _best(results, problem)
        round_ratio = _times(results[problem, name], results[problem, best])
        lines.append(
            f"- {problem}: {name} takes {round_ratio:.2f} times as long as {best}. Expected: at least {min_ratio:.3g}, "
            f"{met(round_ratio >= min_ratio)}."
        )
    if (LSTM, FLOWER_TORCH) in results:
        flower_seconds = statistics.median(results[LSTM, FLOWER_TORCH].first)
        for command, seconds in (
            (f"`train {RECIPE}`", recipe_seconds),
            (f"{IN_PROCESS}, {LSTM}", results[LSTM, IN_PROCESS].first),
        ):
            time_ratio = statistics.median(seconds) / flower_seconds
            lines.append(
                f"- From the command to the end of the first round: {command} takes {time_ratio:.2f} of the time of "
                f"{FLOWER_TORCH} with {LSTM}. Expected: at most 0.5, {met(time_ratio <= 0.5)}."
            )
    return [*lines, ""]


def _versions() -> str:
    code = (
        "from importlib.metadata import version as v; "
        "print(*(f'{n} {v(p)}' for n, p in (('PyTorch', 'torch'), ('JAX', 'jax'), ('Keras', 'keras'), "
        "('Flower', 'flwr'), ('Ray', 'ray'), ('transformers', 'transformers'))), sep=', ')"
    )
    return "; " + subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# The functions below run in measured processes, with TensorFlow.


def prepare(problem: str, purpose: str, folder: Path) -> None:
    """Writes the files that `work.Work` reads, and gradients.npz if encoders are compared.

    Args:
      problem: key of SIZES.
      purpose: `compare` or `time`.
      folder: to make.
    """
    folder.mkdir()
    if problem == ENCODER:
        from benchmarks import encoder

        source, config = _encoder(folder, 0.0 if purpose == "compare" else None), dict(encoder.CONFIG)
        del config["model_type"]
        problem_table = {"kind": "encoder", "rate": encoder.RATE, "epsilon": 1e-8}
        problem_table["sizes"] = {"config": config, "dropout": source.dropout, "classes": encoder.CLASSES}
        clients = [source.examples(SIZES[problem].batch * SIZES[problem].many)]
        model, keras_model = source.local_model(), source.build()
    else:
        from benchmarks import rounds

        source, sizes = _simple(problem)
        problem_table = {"kind": problem.split("(")[0].split(",")[0].lower(), "rate": rounds.RATE, "sizes": sizes}
        problem_table["length"] = rounds.LENGTH
        clients, model, keras_model = source.clients, _local_model(source), source.build()
    names = [variable.name.removesuffix(":0") for variable in keras_model.trainable_variables]
    start = model.initial_weights(0).trainable
    if problem == ENCODER and purpose == "compare":
        gradients = encoder._gradients(source, start, clients[0] | _first(clients[0], SIZES[problem].full))
        np.savez(folder / "gradients.npz", **dict(zip(names, gradients, strict=True)))
    (folder / "problem.json").write_text(json.dumps({"name": problem, "purpose": purpose, **problem_table}), "utf-8")
    np.savez(folder / "clients.npz", **{key: np.stack([c[key] for c in clients]) for key in clients[0]})
    np.savez(folder / "start.npz", **dict(zip(names, start, strict=True)))


def _encoder(folder: Path, dropout: float | None):
    from benchmarks import encoder

    (folder / "config.json").write_text(json.dumps(encoder.CONFIG), "utf-8")
    return encoder.Problem(str(folder), encoder.CONFIG["vocab_size"], encoder.LENGTH, encoder.CLASSES, dropout)


def _simple(name: str):
    """(the problem as in `rounds`, the sizes of its model for the other frameworks)."""
    import tensorflow as tf

    from benchmarks import rounds
    from tff_re.models import lstm, pcnn
    from tff_re.models.inputs import RelationInput

    if name != PCNN:
        (problem,) = (candidate for candidate in rounds.problems() if candidate.name == name)
        if name == LR:
            return problem, {"width": 60, "classes": problem.classes}
        options = lstm.Options()
        width = options.embedding_width
        return problem, {"words": rounds.WORDS, "width": width, "units": options.units, "classes": problem.classes}
    options, inputs, classes = pcnn.Options(dropout=0.0), RelationInput(rounds.WORDS, rounds.LENGTH), 10
    rng = np.random.default_rng(0)
    positions, clients = np.arange(rounds.LENGTH), []
    for _ in range(rounds.CLIENTS):
        starts = np.sort(rng.integers(1, rounds.LENGTH - 1, [rounds.EXAMPLES, 2]))
        arrays = {
            "input_ids": rng.integers(1, rounds.WORDS, [rounds.EXAMPLES, rounds.LENGTH]),
            "attention_mask": np.ones([rounds.EXAMPLES, rounds.LENGTH]),
            "y": rng.integers(0, classes, rounds.EXAMPLES),
        }
        for i, side in enumerate(("head", "tail")):
            arrays[f"{side}_start"] = starts[:, i]
            arrays[f"{side}_mask"] = positions == starts[:, i : i + 1] + 1
        clients.append({key: value.astype(np.int32) for key, value in arrays.items()})
    sizes = {
        "words": rounds.WORDS,
        "width": options.embedding_width,
        "position_width": options.position_width,
        "limit": options.position_limit,
        "filters": options.filters,
        "window": options.window,
        "classes": classes,
    }
    spec = {**inputs.specs, "y": tf.TensorSpec([None], tf.int32)}
    build = [lambda make=make: make(options, inputs, classes) for make in (pcnn.MODEL.build, pcnn.MODEL.build_plain)]
    return rounds.Problem(name, *build, spec, clients, classes), sizes


def _local_model(problem):
    from computations.local_model import LocalModel

    return LocalModel(problem.build, problem.spec, problem.classes)


def _first(client: Mapping[str, np.ndarray], examples: int) -> dict[str, np.ndarray]:
    return {name: values[:examples] for name, values in client.items()}


def play_ours(folder: str, run_folder: str, runtime: str) -> None:
    """Plays this project's rounds, as `work.Work` describes them."""
    sys.path.insert(0, str(PROGRAMS))
    import work

    from tff_re.runtime import open_runtime
    from tff_re.runtime.quiet import be_quiet, collect_garbage_seldom

    be_quiet()
    collect_garbage_seldom()
    work.end_with_parent()
    job = work.Work(folder, run_folder)
    names = list(job.start)
    clients = SIZES[job.problem["name"]].clients
    with open_runtime(runtime, log_path=Path(run_folder) / "worker.log", clients=clients):
        if job.problem["kind"] == "encoder":
            from benchmarks import encoder

            problem = _encoder(Path(folder), job.problem["sizes"]["dropout"])
            contender, (client,) = encoder.Ours(problem, list(job.start.values())), job.clients
            job.stamp()
            for steps, batch in job.rounds:
                weights = contender.round(_first(client, steps * batch))
                job.stamp()
        else:
            from benchmarks import rounds

            problem, _ = _simple(job.problem["name"])
            (batch,) = {batch for _, batch in job.rounds}
            contender, previous_steps = rounds.Ours(problem, batch), None
            contender.start(list(job.start.values()))
            job.stamp()
            for steps, _ in job.rounds:
                if steps != previous_steps:
                    contender.set_clients([_first(client, steps * batch) for client in job.clients])
                contender.round()
                job.stamp()
                previous_steps = steps
            weights = contender.weights()
        job.finish(dict(zip(names, map(np.asarray, weights), strict=True)))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "prepare":
        prepare(arguments[0], arguments[1], Path(arguments[2]))
    else:
        play_ours(*arguments)
