"""Seconds per round: this project, TFF's own FedAvg and plain tf.function loops over the clients, in turn.

Ten clients with 20 batches of 10 each, SGD, the weighted mean. All train the same function from the same weights on the
same examples; before timing, one full-batch step of each must lead to the same weights. TFF's FedAvg and the plain
loops train the stock Keras model that a user would write, with its mask for padding.

A second table has this project's rounds in process: as one TensorFlow function (`tff_re.runtime.in_process.one_call`)
and stage by stage, of which both must give the same bits. Rounds whose clients have no examples show the fixed cost.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks.common import machine, ratio, spread
from computations import algorithms
from computations.local_model import LocalModel
from tff_re.models import logistic_regression, lstm
from tff_re.models.inputs import DenseInput, TokenInput
from tff_re.runtime import open_runtime
from tff_re.runtime.in_process import one_call

CLIENTS, EXAMPLES, BATCH, RATE, WORDS, LENGTH = 10, 200, 10, 0.01, 2000, 40


@dataclass(frozen=True)
class Problem:
    """A model, the same model of stock Keras layers, and the clients' examples."""

    name: str
    build: Callable[[], tf.keras.Model]
    build_plain: Callable[[], tf.keras.Model]
    spec: dict[str, tf.TensorSpec]
    clients: list[dict[str, np.ndarray]]
    classes: int


def problems() -> list[Problem]:
    """Logistic regression on 60 features; LSTM(128) on sentences of 40 words and of 1 to 40 words."""
    rng = np.random.default_rng(0)
    labels = tf.TensorSpec([None], tf.int32)
    dense = [
        {"x": rng.normal(size=(EXAMPLES, 60)).astype(np.float32), "y": rng.integers(0, 10, EXAMPLES).astype(np.int32)}
        for _ in range(CLIENTS)
    ]
    options, inputs = logistic_regression.Options(), DenseInput(60)
    result = [
        Problem(
            "LR, 60 features",
            lambda: logistic_regression.MODEL.build(options, inputs, 10),
            lambda: logistic_regression.MODEL.build_plain(options, inputs, 10),
            {"x": tf.TensorSpec([None, 60], tf.float32), "y": labels},
            dense,
            10,
        )
    ]
    lstm_options, tokens = lstm.Options(), TokenInput(WORDS, LENGTH)
    for name, min_words in ((f"LSTM(128), {LENGTH} words", LENGTH), (f"LSTM(128), 1 to {LENGTH} words", 1)):
        result.append(
            Problem(
                name,
                lambda: lstm.MODEL.build(lstm_options, tokens, 2),
                lambda: lstm.MODEL.build_plain(lstm_options, tokens, 2),
                {"tokens": tf.TensorSpec([None, LENGTH], tf.int32), "y": labels},
                [_sentences(rng, min_words) for _ in range(CLIENTS)],
                2,
            )
        )
    return result


def _sentences(rng, min_words: int) -> dict[str, np.ndarray]:
    tokens = rng.integers(1, WORDS, (EXAMPLES, LENGTH)).astype(np.int32)
    lengths = rng.integers(min_words, LENGTH + 1, EXAMPLES)
    tokens[np.arange(LENGTH) >= lengths[:, np.newaxis]] = 0
    return {"tokens": tokens, "y": rng.integers(0, 2, EXAMPLES).astype(np.int32)}


class Ours:
    """This project's FedAvg."""

    name = "this project"

    def __init__(self, problem: Problem, batch: int):
        self._model = LocalModel(problem.build, problem.spec, problem.classes, "classifier")
        declared = algorithms.find("fedavg")
        options = declared.options(learning_rate=RATE, local_epochs=1, batch_size=batch)
        self._algorithm = declared.build(self._model, options)
        self.set_clients(problem.clients)

    def set_clients(self, clients: list[dict[str, np.ndarray]]) -> None:
        """Sets the clients of the following rounds."""
        self._clients = [
            collections.OrderedDict(examples=self._model.arrange(c), seed=np.array([0, i], np.int32))
            for i, c in enumerate(clients)
        ]

    def start(self, weights: list[np.ndarray]) -> None:
        self._state = self._algorithm.initialize(tff.learning.models.ModelWeights(weights, []))

    def round(self) -> None:
        self._state = self._algorithm.next(self._state, self._clients)["state"]

    def weights(self):
        return self._state["weights"].trainable


class TffFedAvg:
    """`tff.learning.algorithms.build_weighted_fed_avg`, in the same execution context."""

    name = "TFF's own FedAvg"

    def __init__(self, problem: Problem, batch: int):
        self._feature = feature = next(name for name in problem.spec if name != "y")
        self._batch = batch
        spec = collections.OrderedDict(x=problem.spec[feature], y=problem.spec["y"])

        def model_fn():
            plain = problem.build_plain()
            keras_model = tf.keras.Model(plain.inputs[0], plain.output["logits"])
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            return tff.learning.models.from_keras_model(keras_model, loss=loss, input_spec=spec)

        self._process = tff.learning.algorithms.build_weighted_fed_avg(
            model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(RATE)
        )
        self.set_clients(problem.clients)

    def set_clients(self, clients: list[dict[str, np.ndarray]]) -> None:
        """Sets the clients of the following rounds."""
        self._clients = [
            tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=c[self._feature], y=c["y"])).batch(self._batch)
            for c in clients
        ]

    def start(self, weights: list[np.ndarray]) -> None:
        state = self._process.initialize()
        self._state = self._process.set_model_weights(state, tff.learning.models.ModelWeights(weights, []))

    def round(self) -> None:
        self._state = self._process.next(self._state, self._clients).state

    def weights(self):
        return self._process.get_model_weights(self._state).trainable


class PlainLoop:
    """A loop written by hand: a compiled step for every batch, Python loops over batches and clients, a mean."""

    name = "plain loop, a tf.function a batch"
    epoch_compiled = False

    def __init__(self, problem: Problem, batch: int):
        self._model = model = problem.build_plain()
        optimizer = tf.keras.optimizers.legacy.SGD(RATE)
        loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._batch = batch
        self.set_clients(problem.clients)

        def step(examples):
            features = {name: value for name, value in examples.items() if name != "y"}
            with tf.GradientTape() as tape:
                loss = loss_fn(examples["y"], model(features, training=True)["logits"])
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        if not self.epoch_compiled:
            step = tf.function(step, reduce_retracing=True)

        def local_training(dataset):
            for examples in dataset:
                step(examples)

        self._local_training = tf.function(local_training) if self.epoch_compiled else local_training

    def set_clients(self, clients: list[dict[str, np.ndarray]]) -> None:
        """Sets the clients of the following rounds."""
        self._sizes = [len(c["y"]) for c in clients]
        self._clients = [tf.data.Dataset.from_tensor_slices(c).batch(self._batch).cache() for c in clients]

    def start(self, weights: list[np.ndarray]) -> None:
        self._weights = weights

    def round(self) -> None:
        total = [np.zeros_like(w) for w in self._weights]
        for dataset, size in zip(self._clients, self._sizes, strict=True):
            for variable, value in zip(self._model.trainable_variables, self._weights, strict=True):
                variable.assign(value)
            self._local_training(dataset)
            for value_sum, variable in zip(total, self._model.trainable_variables, strict=True):
                value_sum += size * variable.numpy()
        self._weights = [t / sum(self._sizes) for t in total]

    def weights(self):
        return self._weights


class PlainEpoch(PlainLoop):
    """The same with a client's whole epoch compiled, including its loop over the data set."""

    name = "plain loop, a tf.function a client"
    epoch_compiled = True


CONTENDERS = (Ours, TffFedAvg, PlainLoop, PlainEpoch)


def run(rounds: int, out: Path) -> str:
    """Measures all problems; returns the Markdown table."""
    lines = [
        "| problem | contender | seconds a round, median (min to max) | speed-up of this project |",
        "| :-- | :-- | --: | --: |",
    ]
    with open_runtime("local", log_path=out / "worker.log", clients=CLIENTS):
        for problem in problems():
            weights = LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable
            _check_agreement(problem, weights)
            contenders = [contender(problem, BATCH) for contender in CONTENDERS]
            for contender in contenders:
                contender.start(weights)
                contender.round()  # compiles
            seconds = {contender.name: [] for contender in contenders}
            for _ in range(rounds):
                for contender in contenders:
                    began = time.perf_counter()
                    contender.round()
                    seconds[contender.name].append(time.perf_counter() - began)
            our_seconds = seconds[Ours.name]
            for name, values in seconds.items():
                speedup = "" if name == Ours.name else f"{ratio(values, our_seconds):.2f}"
                lines.append(f"| {problem.name} | {name} | {spread(values, 3)} | {speedup} |")
        memory = sum(p.memory_info().rss for p in (psutil.Process(), *psutil.Process().children(recursive=True)))
    lines += [
        "",
        f"{CLIENTS} clients, {EXAMPLES // BATCH} batches of {BATCH} each, SGD; {rounds} rounds of each, in turn; the "
        f"ratio is the median over the turns. {machine()}. Memory of all processes: "
        f"{memory / 2**20:.0f} MiB.",
        "",
    ]
    return "\n".join([*lines, *_in_process(rounds, out)])


def _in_process(rounds: int, out: Path) -> list[str]:
    """Measures rounds as one function and stage by stage; returns the lines of the Markdown table."""
    lines = [
        "| problem | clients have | as one function, ms a round | stage by stage | ratio |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    with open_runtime("in-process", log_path=out / "in_process.log", clients=CLIENTS):
        for problem in problems()[:2]:
            weights = LocalModel(problem.build, problem.spec, problem.classes).initial_weights(0).trainable
            contenders = {limit: Ours(problem, BATCH) for limit in (one_call.MAX_BYTES, -1)}
            nothing = [{name: array[:0] for name, array in client.items()} for client in problem.clients]
            for contender in contenders.values():
                contender.start(weights)
            for clients, described in ((problem.clients, f"{EXAMPLES} examples"), (nothing, "none")):
                for contender in contenders.values():
                    contender.set_clients(clients)
                seconds = [_played(contenders) for _ in range(rounds + 2)][2:]  # the second builds the function
                ways = list(zip(*seconds, strict=True))
                cells = [spread([1000 * value for value in way], 1) for way in ways]
                lines.append(f"| {problem.name} | {described} | {' | '.join(cells)} | {ratio(*ways[::-1]):.2f} |")
            ours, others = (contender.weights() for contender in contenders.values())
            if not all(np.array_equal(a, b) for a, b in zip(ours, others, strict=True)):
                raise AssertionError(f"{problem.name}: one function and the stages give other bits")
    return [*lines, "", f"{rounds} rounds of each, in turn.", ""]


def _played(contenders: dict[int, Ours]) -> list[float]:
    """Plays a round of each with its limit on bytes; returns the seconds of each."""
    usual, seconds = one_call.MAX_BYTES, []
    try:
        for one_call.MAX_BYTES, contender in contenders.items():
            began = time.perf_counter()
            contender.round()
            seconds.append(time.perf_counter() - began)
    finally:
        one_call.MAX_BYTES = usual
    return seconds


def _check_agreement(problem: Problem, weights: list[np.ndarray]) -> None:
    """Checks that one step on all examples of each client leads all contenders to the same weights."""
    results = []
    for contender in (contender(problem, EXAMPLES) for contender in CONTENDERS):
        contender.start(weights)
        contender.round()
        results.append(contender.weights())
    for name, result in zip([c.name for c in CONTENDERS[1:]], results[1:], strict=True):
        for expected, actual in zip(results[0], result, strict=True):
            difference = float(np.max(np.abs(np.asarray(expected) - np.asarray(actual))))
            if not difference < 1e-5:
                raise AssertionError(f"{problem.name}: {Ours.name} and {name} differ by {difference}")
