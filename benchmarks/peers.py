"""Beside what users would pick instead: plain PyTorch and JAX loops, and Flower with PyTorch and with Keras.

FedAvg of ten clients with 20 batches of 10 each, SGD, as in `rounds`: logistic regression, an LSTM, a PCNN. And the
step of a sentence encoder with Adam, as in `encoder`, beside PyTorch's with the transformers library. All train the
same function from the same weights on the same examples; before anything is timed, one full-batch step of each must
lead to the same weights. Every contender is a command of its own; they take turns, and what one started has ended
before the next one starts. The others' programs are in scripts/peers, their environment is made by scripts/setup-peers.
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
from benchmarks.memory import kind_of_memory, memory_of

# TensorFlow and what needs it is imported in the measured processes alone.

ROOT = Path(__file__).parents[1]
PROGRAMS, ENVIRONMENT = ROOT / "scripts" / "peers", ROOT / ".peers"
PYTHON = ENVIRONMENT / "bin" / "python"

HERE, LOCAL = "this project, in-process", "this project, local"
TORCH, JAX = "plain PyTorch loop", "plain JAX loop"
FLOWER_TORCH, FLOWER_KERAS = "Flower + PyTorch", "Flower + Keras"
LR, LSTM, PCNN, ENCODER = "LR, 60 features", "LSTM(128), 40 words", "PCNN, 40 words", "MiniLM-size encoder"
RECIPE = "flcmc-shipped-fedpap"

TURNS = 2
"""How often each contender is started and timed."""

SECONDS_BETWEEN_SAMPLES, MOST_SECONDS = 0.2, 900.0


@dataclasses.dataclass(frozen=True)
class Contender:
    """Attributes:
    program: arguments of Python between its options and the folders.
    after: arguments behind the folders.
    python: which.
    problems: those that it plays.
    environment: variables on top of ours.
    """

    program: tuple[str, ...]
    after: tuple[str, ...] = ()
    python: Path = PYTHON
    problems: tuple[str, ...] = (LR, LSTM, PCNN)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def command(self, problem: Path, run: Path) -> list[str]:
        return [str(self.python), *self.program, str(problem), str(run), *self.after]


_ALL = (LR, LSTM, PCNN, ENCODER)
_FLOWER = (str(PROGRAMS / "flower_simulation.py"),)
_OURS = ("-m", "benchmarks.peers", "play")
CONTENDERS = {
    HERE: Contender(_OURS, ("in-process",), Path(sys.executable), _ALL),
    LOCAL: Contender(_OURS, ("local",), Path(sys.executable), _ALL),
    TORCH: Contender((str(PROGRAMS / "torch_loop.py"),), problems=_ALL),
    JAX: Contender((str(PROGRAMS / "jax_loop.py"),)),
    FLOWER_TORCH: Contender(_FLOWER, ("flower_torch",)),
    FLOWER_KERAS: Contender(_FLOWER, ("flower_keras",), environment={"KERAS_BACKEND": "jax"}),
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Attributes:
    clients: in a round.
    few, many: batches of a client in the two kinds of rounds whose difference is the cost of steps.
    batch: examples in a batch.
    full: examples of a client, which are one batch where weights are compared.
    """

    clients: int
    few: int
    many: int
    batch: int
    full: int


SIZES = {LR: Size(10, 5, 20, 10, 200), LSTM: Size(10, 5, 20, 10, 200), PCNN: Size(10, 5, 20, 10, 200)}
SIZES[ENCODER] = Size(1, 2, 12, 8, 8)


@dataclasses.dataclass
class Measured:
    """Of one contender and problem, an entry for each turn.

    Attributes:
      rounds: seconds of the rounds with many batches.
      steps: seconds a batch, the slope between rounds with few and with many.
      first: seconds from the command to the end of the first round.
      peak: bytes of it and all that it started.
    """

    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    steps: list[float] = dataclasses.field(default_factory=list)
    first: list[float] = dataclasses.field(default_factory=list)
    peak: int = 0

    @property
    def all_rounds(self) -> list[float]:
        return list(itertools.chain.from_iterable(self.rounds))


def missing() -> str | None:
    """Why the others cannot be measured, in one line; None: they can."""
    lock, stamp = PROGRAMS / "requirements.lock", ENVIRONMENT / ".installed"
    if stamp.exists() and filecmp.cmp(lock, stamp, shallow=False):
        return None
    state = "is older than its lock" if stamp.exists() else "is missing"
    return f"the environment of PyTorch, JAX, Keras and Flower {state}; make it with scripts/setup-peers"


def run(rounds: int, out: Path) -> str:
    """Measures everything; returns the Markdown tables."""
    contenders, without = CONTENDERS, missing()
    if without:
        contenders = {name: one for name, one in CONTENDERS.items() if one.python != PYTHON}
        print(f"peers: {', '.join(n for n in CONTENDERS if n not in contenders)} are left out: {without}", flush=True)
    kind, log = kind_of_memory(), out / "peers.log"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for problem in SIZES:
            names = [name for name, one in contenders.items() if problem in one.problems]
            for name, measured in measure(problem, names, rounds, Path(folder), log, kind).items():
                found[problem, name] = measured
                print(f"{problem}, {name}: {statistics.median(measured.all_rounds):.3f} s a round", flush=True)
        of_recipe = [first_round_of_recipe(Path(folder) / f"run{i}", log) for i in range(TURNS)]
    return table(found, of_recipe) + (
        f"\n{TURNS} starts of each contender, in turn, with {rounds} rounds each after the first. {kind.upper()} of "
        f"all processes of a contender together, in a start of its own, sampled every "
        f"{SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. "
        f"{machine()}{_versions() if not without else ''}.\n"
    )


def measure(problem: str, names: Sequence[str], rounds: int, folder: Path, log: Path, kind: str) -> dict[str, Measured]:
    """Contender -> what was measured; first that they do the same, then their memory, then the turns.

    Raises:
      RuntimeError: a contender failed; its output is in the log.
      AssertionError: two contenders' weights differ after one step.
    """
    size, found = SIZES[problem], {name: Measured() for name in names}
    compared, timed = folder / f"{problem}, compared", folder / problem
    for target, what in ((compared, "compare"), (timed, "time")):
        command = [sys.executable, "-m", "benchmarks.peers", "prepare", problem, what, str(target)]
        _finished(command, {}, log, f"preparing {problem}")
    weights = {name: play(name, compared, [[1, size.full]], log).weights for name in names}
    check_agreement(problem, weights, compared)
    for name, one in found.items():
        one.peak = play(name, timed, [[size.many, size.batch]] * 3, log, kind).peak
    for _ in range(TURNS):
        for name, one in found.items():
            plan = [[steps, size.batch] for steps in (size.many, size.few) for _ in range(1 + rounds)]
            seen = play(name, timed, plan, log)
            seconds = np.diff(seen.stamps)
            many, few = seconds[1 : 1 + rounds].tolist(), seconds[2 + rounds :].tolist()
            one.rounds.append(many)
            steps = size.clients * (size.many - size.few)
            one.steps.append((statistics.median(many) - statistics.median(few)) / steps)
            one.first.append(seen.stamps[1] - seen.began)
    return found


@dataclasses.dataclass
class Seen:
    """Of one start of a contender: when it was started, its stamps, its weights at the end and its peak memory."""

    began: float
    stamps: list[float]
    weights: dict[str, np.ndarray]
    peak: int


def play(name: str, problem: Path, rounds: list[list[int]], log: Path, kind: str | None = None) -> Seen:
    """Starts a contender, and waits for its end.

    Args:
      name: which.
      problem: the folder that `prepare` made.
      rounds: [steps, batch size] of each.
      log: takes its output.
      kind: of memory that is sampled meanwhile, see `kind_of_memory`; None: of none.
    """
    one = CONTENDERS[name]
    with tempfile.TemporaryDirectory(dir=problem) as folder:
        (Path(folder) / "rounds.json").write_text(json.dumps(rounds), "utf-8")
        who = f"{name} on {problem.name}"
        began, peak = _finished(one.command(problem, Path(folder)), one.environment, log, who, kind)
        stamps = [float(line) for line in (Path(folder) / "stamps.txt").read_text("utf-8").split()]
        if len(stamps) != len(rounds) + 1:
            raise RuntimeError(f"{who} noted {len(stamps)} times of {len(rounds)} rounds; see {log}")
        with np.load(Path(folder) / "after.npz") as arrays:
            return Seen(began, stamps, dict(arrays), peak)


def _finished(command, variables, log: Path, who: str, kind: str | None = None) -> tuple[float, int]:
    """(when the command was started, its peak memory); it has ended well, and all that it started has ended."""
    with open(log, "ab") as output:
        began = time.monotonic()
        with started(command, variables, output, output) as process:
            peak, pause = 0, SECONDS_BETWEEN_SAMPLES if kind else 0.05
            while process.poll() is None:
                if kind:
                    peak = max(peak, memory_of(process.pid, kind))
                if time.monotonic() - began > MOST_SECONDS:
                    raise RuntimeError(f"{who} did not end within {MOST_SECONDS:g} s; see {log}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(pause)
    if process.returncode:
        raise RuntimeError(f"{who} ended with exit code {process.returncode}; see {log}")
    return began, peak


@contextlib.contextmanager
def started(command: Sequence[str], variables: Mapping[str, str], output, errors) -> Iterator[subprocess.Popen]:
    """The running command; on leaving, it and all that it started are killed and gone, whatever became of its parents.

    A process whose parent ends becomes a child of this one (PR_SET_CHILD_SUBREAPER), so that none is lost.
    """
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, PROGRAMS)))}
    files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors}
    process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True, **files)
    try:
        yield process
    finally:
        while left := [p for p in psutil.Process().children(recursive=True) if p.pid not in before]:
            for one in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.poll()  # or psutil takes its exit code
            psutil.wait_procs(left, timeout=1)
        process.wait()


def first_round_of_recipe(folder: Path, log: Path) -> float:
    """Seconds from the command `train` of a shipped recipe until it tells of its first round."""
    command = [sys.executable, "-m", "tff_re.run", "train", RECIPE, "--out", str(folder), "--runtime", "in-process"]
    with open(log, "ab") as errors:
        began = time.monotonic()
        with started(command, {"PYTHONUNBUFFERED": "1"}, subprocess.PIPE, errors) as process:
            for line in process.stdout:
                if b"round 1/" in line:
                    return time.monotonic() - began
    raise RuntimeError(f"train {RECIPE} told of no round; see {log}")


def check_agreement(problem: str, weights: Mapping[str, Mapping[str, np.ndarray]], folder: Path) -> None:
    """One step led all contenders to the same weights, or the race means nothing.

    Within 1e-5; of Adam's first step, whose direction is the gradient's sign, as `encoder.check_agreement` says.

    Raises:
      AssertionError: they differ, or a weight has not moved.
    """
    with np.load(folder / "start.npz") as arrays:
        start = dict(arrays)
    gradients = {}
    if (folder / "gradients.npz").exists():
        with np.load(folder / "gradients.npz") as arrays:
            gradients = {name: np.abs(value) for name, value in arrays.items()}
    first, *others = weights
    for name, mine in weights[first].items():
        if (mine == start[name]).all():
            raise AssertionError(f"{problem}: {name} of {first} has not moved")
        for other in others:
            difference = np.abs(mine - weights[other][name])
            allowed = _allowed(gradients[name]) if gradients else 1e-5
            if not (difference <= allowed).all():
                raise AssertionError(f"{problem}: {name} of {first} and {other} differ by {np.max(difference)}")


def _allowed(gradient: np.ndarray) -> np.ndarray:
    from benchmarks.encoder import CLEAR_GRADIENT, RATE

    allowed = RATE * np.where(gradient > CLEAR_GRADIENT, 0.02, 2.02)
    return allowed * gradient.any(axis=-1, keepdims=True) if gradient.ndim > 1 else allowed


def table(found: Mapping[tuple[str, str], Measured], of_recipe: Sequence[float]) -> str:
    """Markdown from (problem, contender) -> what was measured, and the seconds to the shipped recipe's first round."""
    lines = [
        "| problem | contender | seconds a round, median (least to greatest) | times the best of ours | ms a step "
        "| peak GB | seconds from command to first round |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for (problem, name), one in found.items():
        best = found[problem, _best(found, problem)]
        lines.append(
            f"| {problem} | {name} | {spread(one.all_rounds, 3)} | {_times(one, best):.2f} "
            f"| {statistics.median(one.steps) * 1000:.2f} | {one.peak / 1e9:.2f} | {spread(one.first, 1)} |"
        )
    lines.append(f"| its own | `train {RECIPE}`, in-process | | | | | {spread(of_recipe, 1)} |")
    return "\n".join([*lines, "", *_reading(found, of_recipe)])


def _best(found, problem: str) -> str:
    ours = [name for p, name in found if p == problem and name in (HERE, LOCAL)]
    return min(ours, key=lambda name: statistics.median(found[problem, name].all_rounds))


def _times(one: Measured, other: Measured) -> float:
    return ratio(*([statistics.median(turn) for turn in m.rounds] for m in (one, other)))


EXPECTED = (
    (LR, FLOWER_TORCH, 10.0),
    (LSTM, FLOWER_TORCH, 2.0),
    (LSTM, TORCH, 1.0),
    (LSTM, JAX, 1.0),
    (ENCODER, TORCH, 1 / 0.95),
)
"""Problem, contender, how many times ours its round takes at least."""


def _reading(found, of_recipe: Sequence[float]) -> list[str]:
    lines = []
    for problem, name, least in EXPECTED:
        if (problem, name) not in found:
            continue
        best = _best(found, problem)
        times = _times(found[problem, name], found[problem, best])
        lines.append(
            f"- {problem}: {name} takes {times:.2f} times as long as {best}. Expected: at least {least:.3g}, "
            f"{met(times >= least)}."
        )
    if (LSTM, FLOWER_TORCH) in found:
        theirs = statistics.median(found[LSTM, FLOWER_TORCH].first)
        for what, seconds in ((f"`train {RECIPE}`", of_recipe), (f"{HERE}, {LSTM}", found[LSTM, HERE].first)):
            share = statistics.median(seconds) / theirs
            lines.append(
                f"- From the command to the end of the first round: {what} takes {share:.2f} of the time of "
                f"{FLOWER_TORCH} with {LSTM}. Expected: at most 0.5, {met(share <= 0.5)}."
            )
    return [*lines, ""]


def _versions() -> str:
    code = (
        "from importlib.metadata import version as v; "
        "print(*(f'{n} {v(p)}' for n, p in (('PyTorch', 'torch'), ('JAX', 'jax'), ('Keras', 'keras'), "
        "('Flower', 'flwr'), ('Ray', 'ray'), ('transformers', 'transformers'))), sep=', ')"
    )
    return "; " + subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# What follows runs in processes of its own, with TensorFlow.


def prepare(problem: str, what: str, folder: Path) -> None:
    """Writes what `work.Work` reads of a problem; where encoders are compared, gradients.npz too."""
    folder.mkdir()
    if problem == ENCODER:
        from benchmarks import encoder

        made, form = _encoder(folder, 0.0 if what == "compare" else None), dict(encoder.FORM)
        del form["model_type"]
        given = {"kind": "encoder", "rate": encoder.RATE, "epsilon": 1e-8}
        given["sizes"] = {"form": form, "dropout": made.dropout, "classes": encoder.CLASSES}
        clients = [made.examples(SIZES[problem].batch * SIZES[problem].many)]
        model, built = made.local_model(), made.build()
    else:
        from benchmarks import rounds

        made, sizes = _simple(problem)
        given = {"kind": problem.split("(")[0].split(",")[0].lower(), "rate": rounds.RATE, "sizes": sizes}
        given["length"] = rounds.LENGTH
        clients, model, built = made.clients, _local_model(made), made.build()
    names = [variable.name.removesuffix(":0") for variable in built.trainable_variables]
    start = model.initial_weights(0).trainable
    if problem == ENCODER and what == "compare":
        gradients = encoder._gradients(made, start, clients[0] | _first(clients[0], SIZES[problem].full))
        np.savez(folder / "gradients.npz", **dict(zip(names, gradients, strict=True)))
    (folder / "problem.json").write_text(json.dumps({"name": problem, "what": what, **given}), "utf-8")
    np.savez(folder / "clients.npz", **{key: np.stack([c[key] for c in clients]) for key in clients[0]})
    np.savez(folder / "start.npz", **dict(zip(names, start, strict=True)))


def _encoder(folder: Path, dropout: float | None):
    from benchmarks import encoder

    (folder / "config.json").write_text(json.dumps(encoder.FORM), "utf-8")
    return encoder.Problem(str(folder), encoder.FORM["vocab_size"], encoder.LENGTH, encoder.CLASSES, dropout)


def _simple(name: str):
    """(the problem as `rounds` has it, the sizes of its model for the others)."""
    import tensorflow as tf

    from benchmarks import rounds
    from tff_re.models import lstm, pcnn
    from tff_re.models.inputs import RelationInput

    if name != PCNN:
        (problem,) = (one for one in rounds.problems() if one.name == name)
        if name == LR:
            return problem, {"width": 60, "classes": problem.classes}
        options = lstm.Options()
        width = options.embedding_width
        return problem, {"words": rounds.WORDS, "width": width, "units": options.units, "classes": problem.classes}
    options, inputs, classes = pcnn.Options(dropout=0.0), RelationInput(rounds.WORDS, rounds.LENGTH), 10
    rng = np.random.default_rng(0)
    place, clients = np.arange(rounds.LENGTH), []
    for _ in range(rounds.CLIENTS):
        starts = np.sort(rng.integers(1, rounds.LENGTH - 1, [rounds.EXAMPLES, 2]))
        one = {
            "input_ids": rng.integers(1, rounds.WORDS, [rounds.EXAMPLES, rounds.LENGTH]),
            "attention_mask": np.ones([rounds.EXAMPLES, rounds.LENGTH]),
            "y": rng.integers(0, classes, rounds.EXAMPLES),
        }
        for i, which in enumerate(("head", "tail")):
            one[f"{which}_start"] = starts[:, i]
            one[f"{which}_mask"] = place == starts[:, i : i + 1] + 1
        clients.append({key: value.astype(np.int32) for key, value in one.items()})
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
    """This project's rounds, as `work.Work` describes them."""
    sys.path.insert(0, str(PROGRAMS))
    import work

    from tff_re.runtime import open_runtime
    from tff_re.runtime.quiet import be_quiet, collect_garbage_seldom

    be_quiet()
    collect_garbage_seldom()
    work.end_with_parent()
    given = work.Work(folder, run_folder)
    names = list(given.start)
    clients = SIZES[given.problem["name"]].clients
    with open_runtime(runtime, log_path=Path(run_folder) / "worker.log", clients=clients):
        if given.problem["kind"] == "encoder":
            from benchmarks import encoder

            problem = _encoder(Path(folder), given.problem["sizes"]["dropout"])
            contender, (client,) = encoder.Ours(problem, list(given.start.values())), given.clients
            given.stamp()
            for steps, batch in given.rounds:
                weights = contender.round(_first(client, steps * batch))
                given.stamp()
        else:
            from benchmarks import rounds

            problem, _ = _simple(given.problem["name"])
            (batch,) = {batch for _, batch in given.rounds}
            contender, before = rounds.Ours(problem, batch), None
            contender.start(list(given.start.values()))
            given.stamp()
            for steps, _ in given.rounds:
                if steps != before:
                    contender.give([_first(client, steps * batch) for client in given.clients])
                contender.round()
                given.stamp()
                before = steps
            weights = contender.weights()
        given.finish(dict(zip(names, map(np.asarray, weights), strict=True)))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "prepare":
        prepare(arguments[0], arguments[1], Path(arguments[2]))
    else:
        play_ours(*arguments)
