"""Whole documents per second, in local training and in inference: this project and a plain loop, in turn.

One client, batches of 3 documents of CDR's size (400 pieces, 10 entities, 20 pairs) without padding, Adam; the encoder
has MiniLM-L6's size and random weights. This project trains in the worker, as FedAvg with Adam at the clients and as
FedLCC (which reads its documents twice more for the contrast), and scores documents at the server as an evaluation
does. The plain loops are a `tf.function` over the same Keras model and the same batches in this process. The cost of a
document is a slope: the extra time of a call with many documents over one with few. The fixed cost of a call (sending
weights, opening sessions) is a separate column. Before timing, one step of each contender from the same weights must
lead to the same weights, and all must give the documents the same scores.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.common import in_turn, machine, ratio, spread
from benchmarks.document_memory import BATCH, CONFIG, SIZES, Size, build_model, documents
from benchmarks.encoder import CLEAR_GRADIENT, EPSILON
from computations import algorithms
from computations import federated as tff
from computations.document_evaluation import build_pair_scores
from computations.local_model import LocalModel, split_label
from computations.randomness import step_seed
from tff_re.runtime import open_runtime

SIZE = SIZES[1]
RATE = 2.5e-5
COUNTS = (BATCH, 5 * BATCH)
"""Documents of the two calls whose difference is the cost of a document."""

TRAINING, INFERENCE = "training", "inference"


@dataclasses.dataclass(frozen=True)
class Problem:
    """Documents and a model for them: their size, the folder of the encoder's config.json, its pieces and dropout."""

    size: Size
    folder: str
    vocabulary: int
    dropout: float | None = None

    def local_model(self) -> LocalModel:
        return build_model(self.size, self.folder, self.vocabulary, self.dropout)

    def examples(self, count: int) -> collections.OrderedDict:
        """`count` documents, their arrays in the model's order."""
        return self.local_model().arrange(documents(self.size, self.vocabulary, count))


class Ours:
    """This project's FedAvgS: local training with Self-Adam in the worker."""

    name, kind, algorithm = "this project, FedAvg", TRAINING, "fedavgs"

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        chosen = algorithms.find(self.algorithm)
        options = chosen.options(learning_rate=RATE, local_epochs=1, batch_size=BATCH)
        built = chosen.build(problem.local_model(), options)
        self._next, self._initial_client_state = built.next, built.client_work.initial_client_state
        self._state = built.initialize(tff.learning.models.ModelWeights(weights, []))

    def __call__(self, examples: collections.OrderedDict):
        """The weights after one client's epoch from the start weights."""
        client = collections.OrderedDict(examples=examples, seed=np.zeros(2, np.int32))
        client_states = () if self._initial_client_state is None else ([self._initial_client_state(examples)],)
        return self._next(self._state, [client], *client_states)["state"]["weights"].trainable


class OursContrast(Ours):
    """FedLCC: with the contrast of localized contexts. Its first round stores them and has no contrast yet."""

    name, algorithm = "this project, FedLCC", "fedlcc"


class PlainTraining:
    """A `tf.function` for every batch, in this process; Adam's moments are kept between calls."""

    name, kind, optimizer = "plain loop, Adam", TRAINING, tf.keras.optimizers.Adam

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        local_model = problem.local_model()
        model = self._model = local_model.keras_model(tff.learning.models.ModelWeights(weights, []))
        self._weights = weights
        optimizer = self.optimizer(RATE, epsilon=EPSILON)

        @tf.function
        def step(batch, seed):
            features, labels = split_label(batch)
            with step_seed(seed), tf.GradientTape() as tape:
                loss = tf.reduce_mean(local_model.losses(labels, model(features, training=True)))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        self._step = step

    def __call__(self, examples: collections.OrderedDict):
        """See `Ours`."""
        for variable, value in zip(self._model.trainable_variables, self._weights, strict=True):
            variable.assign(value)
        for index, batch in enumerate(_batches(examples, BATCH)):
            self._step(batch, tf.constant([0, index]))
        return [variable.numpy() for variable in self._model.trainable_variables]


class PlainLegacyTraining(PlainTraining):
    """The same with the legacy optimizer, which updates in place by a fused kernel."""

    name, optimizer = "plain loop, legacy Adam", tf.keras.optimizers.legacy.Adam


class OursScores:
    """Scores documents at the server in the worker, as an evaluation does."""

    name, kind = "this project, evaluation", INFERENCE

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        self._scores = build_pair_scores(problem.local_model())
        self._weights = tff.learning.models.ModelWeights(weights, [])

    def __call__(self, examples: collections.OrderedDict) -> np.ndarray:
        """Probabilities of all pairs, [D, P]; every document has all of its P pairs."""
        return np.asarray(self._scores(self._weights, examples))[..., 0]


class PlainScores:
    """A `tf.function` for every batch of `inference_batch` documents, in this process."""

    name, kind = "plain loop", INFERENCE

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        local_model = problem.local_model()
        model = local_model.keras_model(tff.learning.models.ModelWeights(weights, []))
        self._batch_size, self._pairs = local_model.inference_batch, problem.size.pairs
        self._scores = tf.function(lambda features: tf.sigmoid(model(features, training=False)["logits"]))

    def __call__(self, examples: collections.OrderedDict) -> np.ndarray:
        """See `OursScores`."""
        scores = [self._scores(split_label(batch)[0]).numpy() for batch in _batches(examples, self._batch_size)]
        return np.concatenate(scores).reshape(-1, self._pairs)


def _batches(examples: collections.OrderedDict, batch_size: int):
    return tf.data.Dataset.from_tensor_slices(examples).batch(batch_size)


# The plain loops are last: building a Keras model in one of TFF's graphs invalidates the models built before it, until
# the next one is built outside of a graph.
CONTENDERS = (Ours, OursContrast, OursScores, PlainTraining, PlainLegacyTraining, PlainScores)


def run(rounds: int, out: Path) -> str:
    """Measures; returns the Markdown table."""
    with tempfile.TemporaryDirectory() as folder, open_runtime("local", log_path=out / "worker.log"):
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        problem = Problem(SIZE, folder, CONFIG["vocab_size"])
        weights = problem.local_model().initial_weights(0).trainable
        check_agreement(dataclasses.replace(problem, dropout=0.0), weights, CONTENDERS)
        contenders = {(build.kind, build.name): build(problem, weights) for build in CONTENDERS}
        seconds = in_turn(contenders, [problem.examples(count) for count in COUNTS], rounds)
    millions = sum(w.size for w in weights) / 1e6
    return table(seconds) + (
        f"\n{CONFIG['num_hidden_layers']} layers of width {CONFIG['hidden_size']}, {millions:.1f} million random "
        f"weights; one client, documents of {SIZE.pieces} pieces, {SIZE.entities} entities, {SIZE.mentions} mentions "
        f"and {SIZE.pairs} pairs without padding, {BATCH} at once in training, the encoder's own dropout; a document's "
        f"cost is a slope over calls with {COUNTS[0]} and {COUNTS[1]} of them, the fixed seconds are the intercept; "
        f"{rounds} pairs of calls of each, in turn. {machine()}.\n"
    )


def table(seconds: dict[tuple[str, str], list[tuple[float, float]]]) -> str:
    """Markdown from (kind, contender) -> the turns' (seconds with COUNTS[0] documents, seconds with COUNTS[1])."""
    extra = COUNTS[1] - COUNTS[0]
    rate = {key: [extra / (b - a) for a, b in turns] for key, turns in seconds.items()}
    fixed = {key: [a - COUNTS[0] / r for (a, _), r in zip(seconds[key], rate[key], strict=True)] for key in seconds}
    lines = [
        "| | contender | documents a second, median (min to max) | ratio to the plain loop | fixed seconds |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for (kind, name), values in rate.items():
        plain = max((v for (k, n), v in rate.items() if k == kind and n.startswith("plain")), key=statistics.median)
        times, fixed_seconds = ratio(values, plain), statistics.median(fixed[kind, name])
        lines.append(f"| {kind} | {name} | {spread(values, 2)} | {times:.2f} | {fixed_seconds:.2f} |")
    lines += ["", "The plain loop of training is the faster of the two; ratios are medians over the turns.", ""]
    return "\n".join(lines)


def check_agreement(problem: Problem, weights: list[np.ndarray], contenders) -> None:
    """Checks that all contenders do the same work, since their times would not be comparable otherwise.

    From the same weights, one training step leads to the same weights: within 2 % of the step where the gradient is
    above CLEAR_GRADIENT, else within two steps (Adam's first step is the learning rate times the gradient's sign).
    Inference gives the same scores within 1e-5.

    Raises:
      AssertionError: they differ.
    """
    batch = problem.examples(BATCH)
    clear = [np.abs(g) > CLEAR_GRADIENT for g in _gradients(problem, weights, batch)]
    references: dict[str, tuple[str, list]] = {}
    for build in contenders:
        contender = build(problem, weights)
        result = contender(batch)
        arrays = [np.asarray(array) for array in result] if contender.kind == TRAINING else [result]
        reference_name, reference = references.setdefault(contender.kind, (contender.name, arrays))
        for index, (array, expected) in enumerate(zip(arrays, reference, strict=True)):
            allowed = RATE * np.where(clear[index], 0.02, 2.02) if contender.kind == TRAINING else 1e-5
            excess = float(np.max(np.abs(array - expected) - allowed))
            if not excess <= 0:
                raise AssertionError(f"{reference_name} and {contender.name} differ by {excess} more than allowed")


def _gradients(problem: Problem, weights: list[np.ndarray], batch: collections.OrderedDict) -> list[np.ndarray]:
    local_model = problem.local_model()
    model = local_model.keras_model(tff.learning.models.ModelWeights(weights, []))
    features, labels = split_label({name: tf.constant(value) for name, value in batch.items()})
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(local_model.losses(labels, model(features, training=True)))
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, model.trainable_variables)]
