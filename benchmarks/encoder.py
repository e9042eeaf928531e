"""Seconds per local step of a sentence encoder: this project, a plain Keras step and TFF's own FedAvg, in turn.

One client, batches of 8 texts of 128 word pieces without padding, Adam; the encoder has MiniLM-L6's size and random
weights, so that nothing is downloaded. The cost of a step is a slope: the extra time of a round with many batches over
one with few, per batch. The fixed cost of a round (sending weights, opening sessions) is a separate column. Before
timing, one step of each contender from the same weights on the same batch must lead to the same weights.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks.common import in_turn, machine, met, ratio, spread
from computations import algorithms
from computations.local_model import LocalModel, split_label
from tff_re.models import sentence_encoder
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import RelationInput
from tff_re.runtime import open_runtime

CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 6,
    "hidden_size": 384,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30526,
}
LENGTH, BATCH, CLASSES, RATE = 128, 8, 10, 5e-5
STEPS = (2, 12)
"""Batches in the two rounds whose difference is the cost of the steps."""

EPSILON = 1e-8 * (1 - 0.999) ** 0.5
"""In the first step, this epsilon with the uncorrected root equals Self-Adam's 1e-8 with the corrected one."""

CLEAR_GRADIENT = 1e-6
"""Adam's first step is the learning rate times the gradient's sign. For smaller gradients rounding decides on the sign
(the gradient of the keys' biases is rounding only), so contenders may differ there by two steps."""

MAX_RATIO_TO_PLAIN, MIN_SPEEDUP_OVER_TFF = 1.15, 1.7


@dataclasses.dataclass(frozen=True)
class Problem:
    """A sentence encoder of random weights and examples for it.

    Attributes:
      folder: holds the encoder's config.json.
      vocabulary, length, classes: number of pieces in the vocabulary and in a text; number of classes.
      dropout: rate inside the encoder; None: its configuration's.
      adapter: trained instead of all weights; None: all weights are trained.
    """

    folder: str
    vocabulary: int
    length: int
    classes: int
    dropout: float | None = None
    adapter: AdapterOptions | None = None

    @property
    def options(self) -> sentence_encoder.Options:
        return sentence_encoder.Options(pretrained=False, encoder_dropout=self.dropout, adapter=self.adapter)

    @functools.cached_property
    def inputs(self) -> RelationInput:
        inputs = RelationInput(self.vocabulary, self.length, self.folder)
        precomputed = sentence_encoder.MODEL.precompute(self.options, inputs, 0)
        return inputs if precomputed is None else precomputed[0]

    @property
    def spec(self) -> dict[str, tf.TensorSpec]:
        return {**self.inputs.specs, "y": tf.TensorSpec([None], tf.int32)}

    def build(self) -> tf.keras.Model:
        return sentence_encoder.MODEL.build(self.options, self.inputs, self.classes)

    def build_logits(self) -> tf.keras.Model:
        """The model with logits as its only output, as Keras' and TFF's losses need it."""
        model = self.build()
        return tf.keras.Model(model.input, model.output["logits"])

    def local_model(self) -> LocalModel:
        start = sentence_encoder.MODEL.initialise(self.options, self.inputs)
        return LocalModel(self.build, self.spec, self.classes, "classifier", initialise=start)

    def examples(self, count: int) -> dict[str, np.ndarray]:
        """`count` texts of random pieces without padding, two pieces in each mention; arrays of RelationInput."""
        rng = np.random.default_rng(0)
        positions = np.broadcast_to(np.arange(self.length), [count, self.length])
        arrays = {
            "input_ids": rng.integers(0, self.vocabulary, [count, self.length]),
            "attention_mask": np.ones([count, self.length]),
            "y": rng.integers(0, self.classes, count),
        }
        for side, start in (("head", 1), ("tail", 5)):
            arrays[f"{side}_start"] = np.full(count, start)
            arrays[f"{side}_mask"] = (positions > start) & (positions <= start + 2)
        return {name: value.astype(np.int32) for name, value in arrays.items()}


def _data_set(arrays: dict[str, np.ndarray]) -> tf.data.Dataset:
    features, labels = split_label(arrays)
    named = collections.OrderedDict(x=collections.OrderedDict(sorted(features.items())), y=labels)
    return tf.data.Dataset.from_tensor_slices(named).batch(BATCH)


class Ours:
    """This project's FedAvgS: local training with Self-Adam in the worker."""

    name = "this project"

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        self._model = problem.local_model()
        declared = algorithms.find("fedavgs")
        options = declared.options(learning_rate=RATE, local_epochs=1, batch_size=BATCH)
        algorithm = declared.build(self._model, options)
        self._next = algorithm.next
        self._state = algorithm.initialize(tff.learning.models.ModelWeights(weights, []))

    def round(self, arrays: dict[str, np.ndarray], clients: int = 1):
        """Plays one round from the start weights with `clients` equal clients; returns the new weights."""
        client = collections.OrderedDict(examples=self._model.arrange(arrays), seed=np.zeros(2, np.int32))
        return self._next(self._state, [client] * clients)["state"]["weights"].trainable


class PlainStep:
    """The function that Keras' `fit` calls for every batch, in this process."""

    name = "plain Keras step, Adam"
    optimizer = tf.keras.optimizers.Adam

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        self._model, self._weights = problem.build_logits(), weights
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._model.compile(self.optimizer(RATE, epsilon=EPSILON), loss)
        self._step = self._model.make_train_function()

    def round(self, arrays: dict[str, np.ndarray], clients: int = 1):
        """Returns the clients' mean weights after a step on every batch from the start weights.

        Adam's moments are kept between clients and rounds.
        """
        total = [np.zeros_like(value) for value in self._weights]
        for _ in range(clients):
            for variable, value in zip(self._model.trainable_variables, self._weights, strict=True):
                variable.assign(value)
            iterator = iter(_data_set(arrays).map(lambda batch: (batch["x"], batch["y"])))
            for _ in range(len(arrays["y"]) // BATCH):
                self._step(iterator)
            for value_sum, variable in zip(total, self._model.trainable_variables, strict=True):
                value_sum += variable.numpy()
        return [value_sum / clients for value_sum in total] if clients > 1 else total


class PlainLegacyStep(PlainStep):
    """The same with the legacy optimizer, which updates in place by a fused kernel."""

    name = "plain Keras step, legacy Adam"
    optimizer = tf.keras.optimizers.legacy.Adam


class GradientOnly(PlainStep):
    """The gradient of every batch without an update of the weights: a lower bound, not a contender."""

    name = "gradient only, no update"

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        super().__init__(problem, weights)
        model = self._model

        @tf.function
        def step(iterator):
            features, labels = next(iterator)
            with tf.GradientTape() as tape:
                loss = model.compute_loss(features, labels, model(features, training=True))
            return tape.gradient(loss, model.trainable_variables)

        self._step = step


class TffFedAvg:
    """`tff.learning.algorithms.build_weighted_fed_avg` with `build_adam`, in the same worker."""

    name = "TFF's own FedAvg"

    def __init__(self, problem: Problem, weights: list[np.ndarray]):
        spec = problem.spec
        features = collections.OrderedDict((name, spec[name]) for name in sorted(spec) if name != "y")

        def model_fn():
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            input_spec = collections.OrderedDict(x=features, y=spec["y"])
            return tff.learning.models.from_keras_model(problem.build_logits(), loss=loss, input_spec=input_spec)

        self._process = tff.learning.algorithms.build_weighted_fed_avg(
            model_fn, client_optimizer_fn=tff.learning.optimizers.build_adam(RATE, epsilon=EPSILON)
        )
        initial = tff.learning.models.ModelWeights(weights, [])
        self._state = self._process.set_model_weights(self._process.initialize(), initial)

    def round(self, arrays: dict[str, np.ndarray], clients: int = 1):
        """Plays one round from the start weights with `clients` equal clients; returns the new weights."""
        state = self._process.next(self._state, [_data_set(arrays)] * clients).state
        return self._process.get_model_weights(state).trainable


# The plain steps are last: building a Keras model in one of TFF's graphs invalidates the models built before it, until
# the next one is built outside of a graph.
CONTENDERS = (Ours, TffFedAvg, PlainStep, PlainLegacyStep)


def run(rounds: int, out: Path) -> str:
    """Measures; returns the Markdown table."""
    with tempfile.TemporaryDirectory() as folder, open_runtime("local", log_path=out / "worker.log"):
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        problem = Problem(folder, CONFIG["vocab_size"], LENGTH, CLASSES)
        weights = problem.local_model().initial_weights(0).trainable
        check_agreement(dataclasses.replace(problem, dropout=0.0), weights, CONTENDERS)
        contenders = {build.name: build(problem, weights).round for build in (*CONTENDERS, GradientOnly)}
        seconds = in_turn(contenders, [problem.examples(BATCH * steps) for steps in STEPS], rounds)
    millions = sum(w.size for w in weights) / 1e6
    return table(seconds) + (
        f"\n{CONFIG['num_hidden_layers']} layers of width {CONFIG['hidden_size']}, {millions:.1f} million random "
        f"weights; one client, batches of {BATCH} texts of {LENGTH} pieces, the encoder's own dropout; a step is the "
        f"difference of rounds with {STEPS[0]} and {STEPS[1]} batches over {STEPS[1] - STEPS[0]}, the fixed "
        f"cost is the intercept; {rounds} pairs of rounds of each, in turn. {machine()}.\n"
    )


def table(seconds: dict[str, list[tuple[float, float]]]) -> str:
    """Markdown from contender -> the turns' (seconds with STEPS[0] batches, seconds with STEPS[1])."""
    steps = {n: [(b - a) / (STEPS[1] - STEPS[0]) for a, b in turns] for n, turns in seconds.items()}
    fixed = {n: [a - STEPS[0] * s for (a, _), s in zip(seconds[n], steps[n], strict=True)] for n in seconds}
    plain = min((PlainStep.name, PlainLegacyStep.name), key=lambda name: statistics.median(steps[name]))
    lines = [
        "| contender | seconds a step, median (min to max) | ratio to the plain step | fixed seconds a round |",
        "| :-- | --: | --: | --: |",
    ]
    for name, values in steps.items():
        times, fixed_seconds = ratio(values, steps[plain]), statistics.median(fixed[name])
        lines.append(f"| {name} | {spread(values, 3)} | {times:.2f} | {fixed_seconds:.2f} |")
    ratio_to_plain, speedup_over_tff = (
        ratio(steps[Ours.name], steps[plain]),
        ratio(steps[TffFedAvg.name], steps[Ours.name]),
    )
    lines += [
        "",
        f"The plain step is the faster of the two, {plain}; ratios are medians over the turns. Expected: a step of "
        f"ours takes at most {MAX_RATIO_TO_PLAIN} times the plain one; here {ratio_to_plain:.2f}, "
        f"{met(ratio_to_plain <= MAX_RATIO_TO_PLAIN)}. Expected: ours is at least {MIN_SPEEDUP_OVER_TFF} times as "
        f"fast as TFF's own; here {speedup_over_tff:.2f}, {met(speedup_over_tff >= MIN_SPEEDUP_OVER_TFF)}; "
        f"with an update that costs nothing it would be {ratio(steps[TffFedAvg.name], steps[GradientOnly.name]):.2f}.",
        "",
    ]
    return "\n".join(lines)


def check_agreement(problem: Problem, weights: list[np.ndarray], contenders) -> None:
    """Checks that one step from the same weights on one batch leads all contenders to the same weights.

    Weights with a gradient above CLEAR_GRADIENT agree within 2 % of the step, RATE, the others within two steps, and
    rows without a gradient (pieces that do not occur) exactly.

    Raises:
      AssertionError: they differ, or fewer than 90 % of the nonzero gradients are above CLEAR_GRADIENT.
    """
    batch = problem.examples(BATCH)
    gradients = [np.abs(g) for g in _gradients(problem, weights, batch)]
    nonzero, clear = (sum(int((g > threshold).sum()) for g in gradients) for threshold in (0, CLEAR_GRADIENT))
    if not clear >= 0.9 * nonzero:
        raise AssertionError(
            f"only {clear} of {nonzero} gradients are above {CLEAR_GRADIENT}, too few for a comparison"
        )
    first, *others = contenders
    reference = first(problem, weights).round(batch)
    for contender in others:
        weights_after = contender(problem, weights).round(batch)
        for expected, actual, gradient in zip(reference, weights_after, gradients, strict=True):
            difference = np.abs(np.asarray(expected) - np.asarray(actual))
            allowed = RATE * np.where(gradient > CLEAR_GRADIENT, 0.02, 2.02)
            if gradient.ndim > 1:
                allowed *= gradient.any(axis=-1, keepdims=True)
            if not (difference <= allowed).all():
                excess = float(np.max(difference - allowed))
                raise AssertionError(f"{first.name} and {contender.name} differ by {excess} more than allowed")


def _gradients(problem: Problem, weights: list[np.ndarray], batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    model = problem.build_logits()
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)
    features, labels = split_label({name: tf.constant(value) for name, value in batch.items()})
    with tf.GradientTape() as tape:
        logits = model(features, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, model.trainable_variables)]
