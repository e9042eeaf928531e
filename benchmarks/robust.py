"""Cost of robust aggregation: seconds a round compared with the plain mean, and memory over the number of clients.

Time: the problems of `benchmarks.rounds` (ten clients, 20 batches of ten), federated averaging with each rule instead
of its mean, in turn, on both runtimes. Memory: a softmax regression of a million bytes, one step a client, on both
runtimes; every rule runs in its own process, with a growing number of clients.
"""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np

from benchmarks.common import in_turn, machine, met, ratio, spread
from benchmarks.memory import memory_kind, sample_memory

# TensorFlow and modules that need it are imported in the functions that measure.

RUNTIMES = ("local", "in-process")
MAX_RATIO = 2.5
COUNTS = (10, 50, 200)
MAX_CLIENTS_COLLECTED = 50  # with 200 clients the worker keeps 20,000 models, see `collected.require_room`
FEATURES, CLASSES, EXAMPLES = 249, 1000, 10
MODEL_BYTES = (FEATURES + 1) * CLASSES * 4
MEASURED = ("mean", "clip", "attention", "rfa", "collected median")


def rules() -> dict:
    """Name -> aggregation factory."""
    from computations.aggregation_rules.krum import collected_krum
    from computations.aggregation_rules.rfa import GeometricMedianFactory
    from computations.aggregation_rules.trimmed_mean import collected_trimmed_mean
    from computations.aggregators import AttentionFactory, mean
    from computations.aggregators.collected import collected_median
    from computations.aggregators.defence import AdaptiveNorm, defended

    return {
        "mean": mean(),
        "screening": defended(mean()),
        "clip": defended(mean(), clip=1.0),
        "clip to a quantile, zeroing": defended(mean(), clip=AdaptiveNorm(), zeroing=AdaptiveNorm(quantile=0.98)),
        "attention": AttentionFactory(),
        "clip, attention": defended(AttentionFactory(), clip=1.0),
        "rfa": defended(GeometricMedianFactory()),
        "collected median": defended(collected_median()),
        "collected trimmed mean": defended(collected_trimmed_mean(0.2)),
        "collected krum": defended(collected_krum(2)),
    }


def run(rounds: int, out: Path) -> str:
    """Measures both; returns the Markdown tables."""
    return _times(rounds, out) + "\n" + _memory(out)


def _times(rounds: int, out: Path) -> str:
    from benchmarks.rounds import BATCH, RATE, problems
    from computations import algorithms
    from computations.federated_algorithm import recompose
    from computations.local_model import LocalModel
    from tff_re.runtime import open_runtime

    lines = [
        "| problem | runtime | rule | seconds a round, median (min to max) | ratio to the mean |",
        "| :-- | :-- | :-- | --: | --: |",
    ]
    worst = 0.0
    for problem in problems()[:2]:
        model = LocalModel(problem.build, problem.spec, problem.classes, "classifier")
        declared = algorithms.find("fedavg")
        plain = declared.build(model, declared.options(learning_rate=RATE, local_epochs=1, batch_size=BATCH))
        clients = [
            collections.OrderedDict(examples=model.arrange(c), seed=np.array([0, i], np.int32))
            for i, c in enumerate(problem.clients)
        ]
        weights = model.initial_weights(0)
        composed = {name: recompose(plain, aggregator=rule) for name, rule in rules().items()}
        for runtime in RUNTIMES:
            with open_runtime(runtime, log_path=out / f"{runtime}.log"):
                contenders = {name: _Rounds(a, weights, clients) for name, a in composed.items()}
                seconds = in_turn({n: c.play for n, c in contenders.items()}, [None], rounds)
            mean_times = [t for (t,) in seconds["mean"]]
            for name, values in seconds.items():
                times = [t for (t,) in values]
                ratio_to_mean = ratio(times, mean_times)
                worst = max(worst, ratio_to_mean) if name == "rfa" else worst
                lines.append(f"| {problem.name} | {runtime} | {name} | {spread(times, 3)} | {ratio_to_mean:.2f} |")
    lines += [
        "",
        f"{rounds} rounds of each, in turn; the ratio is the median over the turns. Expected: RFA takes at most "
        f"{MAX_RATIO:g} times as long as the mean; {met(worst <= MAX_RATIO)} (largest: {worst:.2f}). {machine()}.",
        "",
    ]
    return "\n".join(lines)


class _Rounds:
    """Consecutive rounds of an algorithm."""

    def __init__(self, algorithm, weights, clients):
        self._algorithm, self._clients = algorithm, clients
        self._state = algorithm.initialize(weights)

    def play(self, _) -> None:
        self._state = self._algorithm.next(self._state, self._clients)["state"]


def _memory(out: Path) -> str:
    kind = memory_kind()
    peaks = {
        (name, runtime): [
            peak
            for _, peak in sample_memory(
                _growing_rounds, (name, runtime, out / "memory.log"), kind, f"{name}, {runtime}"
            )
        ]
        for name in MEASURED
        for runtime in RUNTIMES
    }
    lines = [
        f"| rule | runtime | {' | '.join(f'{n} clients, MB' for n in COUNTS)} | models a client |",
        "| :-- | :-- |" + " --: |" * (len(COUNTS) + 1),
    ]
    for (name, runtime), measured in peaks.items():
        slope = np.polyfit(_counts(name), measured, 1)[0] / MODEL_BYTES
        cells = [f"{p / 1e6:.0f}" for p in measured] + ["not run"] * (len(COUNTS) - len(measured))
        lines.append(f"| {name} | {runtime} | {' | '.join(cells)} | {slope:.1f} |")
    lines += [
        "",
        f"{kind.upper()} of all processes, sampled during two rounds of each size. A model has {MODEL_BYTES / 1e6:g} "
        f"MB, a client's examples {EXAMPLES * (FEATURES + 1) * 4 / 1e6:g} MB. Models a client is the slope by least "
        "squares. In a simulation the updates of all clients share one memory: the worker holds a round's updates "
        "until its end; in-process holds those that a later pass needs, up to 64 MB in memory and the rest in a "
        "temporary file. A rule's demand on a server is its slope minus the mean's.",
        "",
    ]
    return "\n".join(lines)


def _counts(name: str) -> tuple[int, ...]:
    return tuple(n for n in COUNTS if n <= MAX_CLIENTS_COLLECTED) if name.startswith("collected") else COUNTS


def _growing_rounds(report, name: str, runtime: str, log: Path) -> None:
    """In the measured process: two rounds with each number of clients; reports the end of the second."""
    import tensorflow as tf

    from computations import algorithms
    from computations.federated_algorithm import recompose
    from computations.local_model import LocalModel
    from tff_re.runtime import open_runtime

    def build():
        x = tf.keras.Input([FEATURES], name="x")
        return tf.keras.Model({"x": x}, {"logits": tf.keras.layers.Dense(CLASSES)(x), "features": x})

    spec = {"x": tf.TensorSpec([None, FEATURES], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
    with open_runtime(runtime, log_path=log):
        model = LocalModel(build, spec, CLASSES)
        declared = algorithms.find("fedavg")
        plain = declared.build(model, declared.options(learning_rate=0.1, local_epochs=1, batch_size=EXAMPLES))
        algorithm = recompose(plain, aggregator=rules()[name])
        rng = np.random.default_rng(0)
        arrays = model.arrange({"x": rng.normal(size=[EXAMPLES, FEATURES]), "y": np.arange(EXAMPLES)})
        state = algorithm.initialize(model.initial_weights(0))
        for count in _counts(name):
            clients = [collections.OrderedDict(examples=arrays, seed=np.array([0, i], np.int32)) for i in range(count)]
            for _ in range(2):
                state = algorithm.next(state, clients)["state"]
            report(count)
